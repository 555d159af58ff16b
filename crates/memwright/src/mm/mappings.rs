//! The areas that map an object (Linux 7.2 `struct address_space`, `i_mmap`). Truncation and cleaning, which use this
//! list of areas, are in `range/mappings.rs`.
//!
//! The object finds an area by the indices of the pages that the area maps. The number of a mapped page minus its index
//! in the object, the displacement, is equal for all pages of an area. Neither a split nor a merge of areas changes it.
//! The object therefore records intervals of indices, each with an address space and a displacement. The areas at the
//! resulting addresses are looked up in the address space's map of areas. A protection change that splits an area
//! changes no interval.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::sync::{Lock, Rank, pause_point};
use memwright_table::{Machine, OutOfMemory, Page, PageRange, Shared};

use crate::mm::areas::{Area, Areas};
use crate::mm::core::Core;
use crate::types::interval_tree::{IntervalId, IntervalKey, IntervalTree};

/// The number of intervals that are examined before other CPUs may take the lock of the list.
const TOGETHER: usize = 256;

/// Areas of one address space that map the object at the same displacement.
struct Mapping<M: Machine> {
    space: Shared<Core<M>>,
    /// The number of the mapped page minus its index in the object, modulo 2^64.
    displacement: u64,
    /// The number of areas in the interval.
    areas: u32,
}

/// The areas that map an object, by the indices that they map.
///
/// Truncation visits the address spaces of the areas in this list, and releases the lock of the list during a visit.
/// The lock of the areas of an address space is acquired before that of the list.
pub struct Mappings<M: Machine> {
    /// The owner of an interval is the number of its address space. The intervals of an address space change only while
    /// its areas are locked for writing, or after areas were removed. Its intervals cover at least the pages that its
    /// areas map.
    list: Lock<IntervalTree<Mapping<M>>, M::Threads>,
    /// The generation of the object's pages. It is increased before pages are removed from the object and before they
    /// are cleaned. A fault reads the value before its lookup in the object, and again while it holds the page-table
    /// lock. If the two values differ, the result of the lookup may be stale, and the fault starts again.
    generation: AtomicU64,
}

/// Pages at which an address space maps the object, according to an interval.
pub(crate) struct Mapped {
    interval: IntervalId,
    pub(crate) pages: PageRange,
}

/// The position of a visit in the list: the places of one address space that are still to be visited.
pub(crate) struct Places {
    /// A key that precedes the next place in the order of the list.
    key: IntervalKey,
    /// The next interval after `key`, possibly of another address space, and the change counter of the list when the
    /// interval was found.
    ahead: Option<(IntervalId, u64)>,
}

impl Places {
    /// Returns the next interval, of any address space, and clears `ahead`.
    fn take_next<T>(&mut self, list: &IntervalTree<T>, span: &Range<u64>) -> Option<IntervalId> {
        match self.ahead.take() {
            Some((found, changes)) if changes == list.changes() => Some(found),
            Some(_) | None => list.next(self.key, span),
        }
    }
}

/// The result of cleaning page-table entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CleanOutcome {
    /// The number of entries that were dirty.
    pub dirty: u64,
    /// The number of entries that lost their write permission.
    pub protected: u64,
}

impl<M: Machine> Default for Mappings<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M: Machine> Mappings<M> {
    /// Creates an empty list.
    pub const fn new() -> Self {
        Self {
            list: Lock::new(Rank::ObjectRegistry, IntervalTree::new()),
            generation: AtomicU64::new(0),
        }
    }

    /// Returns whether any address space maps the object.
    pub fn is_mapped(&self) -> bool {
        !self.list.lock().is_empty()
    }

    /// Returns the number of areas that map the object.
    pub fn areas(&self) -> u64 {
        let list = self.list.lock();
        list.values().map(|mapping| u64::from(mapping.areas)).sum()
    }

    /// Increases the generation. A fault in progress then starts again if it has already looked up its page or notified
    /// the object of a first store.
    pub fn stale(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Calls `visitor` with each address space that may map one of the pages `span`, and with the places at which it
    /// may map them. The address spaces are visited in the order of their numbers. A child that a process forks during
    /// the visit is included, because its number is higher than its parent's.
    pub(crate) fn visit(
        &self,
        span: &Range<u64>,
        mut visitor: impl FnMut(&Shared<Core<M>>, &mut Places),
    ) {
        let mut places = Places {
            key: IntervalKey::before(0),
            ahead: None,
        };
        while let Some(space) = self.next_space(&mut places, span) {
            visitor(&space, &mut places);
        }
    }

    /// Returns the next address space that may map one of the pages `span`, and makes `places` refer to the places of
    /// this address space.
    fn next_space(&self, places: &mut Places, span: &Range<u64>) -> Option<Shared<Core<M>>> {
        let list = self.list.lock();
        let visited = places.key.owner;
        let mut found = places.take_next(&list, span)?;
        if list.key(found).owner == visited {
            // The visitor did not take all places of the address space `visited`, or new ones were added: skip them.
            found = list.next(IntervalKey::after(visited), span)?;
        }
        *places = Places {
            key: IntervalKey::before(list.key(found).owner),
            ahead: Some((found, list.changes())),
        };
        Some(list.value(found)?.space.clone())
    }

    /// Returns the next place at which the visited address space may map some of the pages `span`.
    ///
    /// # Locks
    /// The caller holds the lock of the areas of the visited address space, so that no interval is added before the
    /// next place.
    pub(crate) fn next_place(&self, places: &mut Places, span: &Range<u64>) -> Option<Mapped> {
        let list = self.list.lock();
        let interval = places.take_next(&list, span)?;
        let key = list.key(interval);
        if key.owner != places.key.owner {
            places.ahead = Some((interval, list.changes()));
            return None;
        }
        places.key = key;
        let displacement = list.value(interval)?.displacement;
        let indices = list.span(interval);
        let page = |index: u64| Page::new(index.wrapping_add(displacement));
        let first = page(indices.start.max(span.start));
        let end = page(indices.end.min(span.end));
        let pages = PageRange::new(first, end);
        Some(Mapped { interval, pages })
    }

    /// Calls `visitor` with each area at `places` that maps some of the pages `span`, and with the pages at which it
    /// maps them.
    ///
    /// # Locks
    /// The caller holds the lock of `areas`, the areas of the visited address space.
    pub(crate) fn for_each_area<'a>(
        &self,
        areas: &'a Areas<M>,
        places: &mut Places,
        span: &Range<u64>,
        mut visitor: impl FnMut(&'a Area<M>, PageRange),
    ) {
        if span.is_empty() {
            return;
        }
        while let Some(mapped) = self.next_place(places, span) {
            self.for_each_area_at(areas, &mapped, &mut visitor);
        }
    }

    /// Calls `visitor` with each area of `mapped.interval` that contains some of `mapped.pages`, and with these pages.
    ///
    /// # Locks
    /// As for [`for_each_area`](Self::for_each_area).
    pub(crate) fn for_each_area_at<'a>(
        &self,
        areas: &'a Areas<M>,
        mapped: &Mapped,
        mut visitor: impl FnMut(&'a Area<M>, PageRange),
    ) {
        for area in areas.map.overlapping(mapped.pages) {
            if self.is_in(area, mapped) {
                visitor(area, area.range().intersect(mapped.pages));
            }
        }
    }

    /// Calls `add` with each address space and page at which page `index` of the object may be mapped, in ascending
    /// order of the address spaces' numbers.
    ///
    /// # Errors
    /// Those of `add`, which ends the search.
    ///
    /// # Locks
    /// Calls `add` with the lock of the list.
    pub(crate) fn for_each_place(
        &self,
        index: u64,
        mut add: impl FnMut(&Shared<Core<M>>, Page) -> Result<(), OutOfMemory>,
    ) -> Result<(), OutOfMemory> {
        let span = index..index + 1;
        let mut key = IntervalKey::before(0);
        loop {
            let list = self.list.lock();
            let mut next = list.next(key, &span);
            for _ in 0..TOGETHER {
                let Some(found) = next else {
                    return Ok(());
                };
                if let Some(Mapping {
                    space,
                    displacement,
                    ..
                }) = list.value(found)
                {
                    add(space, Page::new(index.wrapping_add(*displacement)))?;
                }
                key = list.key(found);
                next = list.next(key, &span);
            }
            drop(list);
            pause_point::<M::Threads>();
        }
    }

    /// Returns whether the area belongs to the interval of `mapped`.
    pub(crate) fn is_in(&self, area: &Area<M>, mapped: &Mapped) -> bool {
        let attachment = area.backing().attachment();
        attachment.is_some_and(|own| own.is_in(self, mapped.interval))
    }

    /// Records one more area, which maps the pages `span` of the object to the addresses from `page` on.
    pub(super) fn attach(
        &self,
        space: &Shared<Core<M>>,
        span: Range<u64>,
        page: Page,
    ) -> Result<IntervalId, OutOfMemory> {
        let number = space.space_number();
        let displacement = page.number().wrapping_sub(span.start);
        let mut list = self.list.lock();
        if let Some(before) = list.last_before(number, span.start) {
            let mapping = list.value_mut(before);
            if let Some(mapping) = mapping.filter(|one| one.displacement == displacement) {
                mapping.areas += 1;
                list.extend(before, span.end);
                return Ok(before);
            }
        }
        let mapping = Mapping {
            space: space.clone(),
            displacement,
            areas: 1,
        };
        list.try_insert(number, span, mapping)
    }

    /// Adds an interval for a forked child, with the indices and the displacement of an interval of its parent. Records
    /// the child's first area in it.
    pub(super) fn attach_copy(
        &self,
        interval: IntervalId,
        child: &Shared<Core<M>>,
    ) -> Result<IntervalId, OutOfMemory> {
        let mut list = self.list.lock();
        let span = list.span(interval);
        let displacement = list.value(interval).map_or(0, |own| own.displacement);
        let mapping = Mapping {
            space: child.clone(),
            displacement,
            areas: 1,
        };
        list.try_insert(child.space_number(), span, mapping)
    }

    /// Records one more area in an interval, which already covers the pages that the area maps.
    pub(super) fn attach_part(&self, interval: IntervalId) {
        let mut list = self.list.lock();
        let mapping = list.value_mut(interval);
        debug_assert!(mapping.is_some(), "an area has the interval");
        if let Some(mapping) = mapping {
            mapping.areas += 1;
        }
    }

    /// Subtracts one area from an interval, and removes the interval if no area is left in it.
    pub(super) fn detach(&self, interval: IntervalId) {
        let mut list = self.list.lock();
        let Some(mapping) = list.value_mut(interval) else {
            return;
        };
        mapping.areas -= 1;
        if mapping.areas == 0 {
            let mapping = list.remove(interval);
            drop(list);
            drop(mapping);
        }
    }
    /// Extends an interval to at least index `end`, because an area of it now maps the object's pages below `end`.
    pub(super) fn reach(&self, interval: IntervalId, end: u64) {
        self.list.lock().extend(interval, end);
    }
}
