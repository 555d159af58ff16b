//! Reverse mapping: the entries that map a page (Linux 7.2 `mm/rmap.c`, `rmap_walk`, and `mm/ksm.c`, `rmap_walk_ksm`).
//!
//! Frames do not record their entries. A page of an object has an index, and the object lists the areas that map it. A
//! private page is mapped by relatives of one address space, at the address at which it was created or to which
//! `mremap` has moved it since. For KSM pages, KSM records where it merges them. If these records are not complete, all
//! mergeable areas are walked.
//!
//! The caller compares counts. If the frame has more references than entries were found, something else has a
//! reference, or the mappings have changed during the search.

use alloc::sync::Arc;
use alloc::vec::Vec;
use memwright_table::{
    Architecture, Cursor, Frame, FrameKind, Machine, OutOfMemory, Page, PageRange, PageSize,
    Present, Shared, TryPush,
};

use crate::mm::areas::{Areas, owner_of};
use crate::mm::core::Core;
use crate::mm::object::Object;
use crate::mm::space::Area;
use crate::mm::spaces::{Relative, Relatives};
use crate::vma::area::AreaFlags;
use crate::vma::moved::Displacement;

/// The maximum number of searches for the entries of a page. A search is repeated if an address space was dropped
/// during it.
const SEARCHES: u32 = 3;

/// The data by which the entries of a page are found.
enum Identity<M: Machine> {
    /// The index in an object that owns the page.
    Object(Arc<dyn Object<M>>, u64),
    /// The offset of a private page, with which its address in each address space is found.
    Private {
        /// The owner of the offset, see [`owner_of`].
        owner: u64,
        offset: u64,
        /// The displacement at which the page was created.
        home: Displacement,
    },
    /// The contents of a KSM page, by which its records are found.
    Merged,
}

/// A page for which the reverse mapping finds the entries.
pub(crate) struct MappedPage<M: Machine> {
    pub(crate) frame: Frame,
    pub(crate) size: PageSize,
    pub(crate) kind: FrameKind,
    identity: Identity<M>,
}

/// An entry that maps a page.
pub(crate) struct Mapper<M: Machine> {
    pub(crate) space: Shared<Core<M>>,
    /// The first page that the entry maps.
    pub(crate) page: Page,
}

impl<M: Machine> MappedPage<M> {
    /// Returns the page that `area`, one of `areas`, maps at `page`, by the entry `present`.
    pub(crate) fn new(
        areas: &Areas<M>,
        area: &Area<M>,
        page: Page,
        present: Present,
        kind: FrameKind,
    ) -> Self {
        let first = match present.size {
            PageSize::Size4K => page,
            PageSize::Size2M | PageSize::Size1G => {
                Page::new(page.number() & !(present.size.pages() - 1))
            }
        };
        let offset = area.offset_of(first);
        Self::at(areas, area, offset, (present.frame, present.size), kind)
    }

    /// Returns the folio whose first frame is `head`, as a huge page. The area maps `frame`, a page of the folio, at
    /// `page`, possibly by a 4 KiB entry. Returns `None` if the area cannot map the complete folio.
    pub(crate) fn of_folio(
        areas: &Areas<M>,
        area: &Area<M>,
        page: Page,
        (frame, head): (Frame, Frame),
        kind: FrameKind,
    ) -> Option<Self> {
        let before = u64::from(frame.number() - head.number());
        let offset = area.offset_of(page).checked_sub(before)?;
        Some(Self::at(
            areas,
            area,
            offset,
            (head, PageSize::Size2M),
            kind,
        ))
    }

    /// Returns the page at an offset of what the area maps: of its object or of its anonymous memory.
    fn at(
        areas: &Areas<M>,
        area: &Area<M>,
        offset: u64,
        (frame, size): (Frame, PageSize),
        kind: FrameKind,
    ) -> Self {
        let identity = match area.object() {
            _ if kind == FrameKind::Merged => Identity::Merged,
            Some(object) if !kind.is_private() => Identity::Object(object.clone(), offset),
            object => {
                let owner = owner_of(object);
                let now = area.start().number().wrapping_sub(area.offset());
                Identity::Private {
                    owner,
                    offset,
                    home: areas.moved.home(owner, offset, now),
                }
            }
        };
        Self {
            frame,
            size,
            kind,
            identity,
        }
    }

    /// Returns the object that owns the page, and its index there.
    pub(crate) fn object(&self) -> Option<(&Arc<dyn Object<M>>, u64)> {
        match &self.identity {
            Identity::Object(object, index) => Some((object, *index)),
            Identity::Private { .. } | Identity::Merged => None,
        }
    }

    /// Returns whether the page is a KSM page.
    pub(crate) fn is_merged(&self) -> bool {
        self.kind == FrameKind::Merged
    }

    /// Returns whether an entry of `space` maps the page at `page`, and has the page's size.
    pub(crate) fn is_mapped_at(&self, space: &Core<M>, page: Page) -> bool {
        let pages = PageRange::single(page);
        let entry = space.table.look(pages).peek();
        let is_mapped = entry.present().is_some_and(|entry| self.is(entry));
        if is_mapped && space.table.has_shared() {
            // After this call each entry has a reference of its own, so that a search can count the references.
            space.table.own_tables(pages);
        }
        is_mapped
    }

    /// Returns whether the entry at the cursor maps the page and has the page's size.
    pub(crate) fn is_at(&self, cursor: &Cursor<'_, M>) -> bool {
        let entry = cursor.peek().present();
        entry.is_some_and(|entry| self.is(entry))
    }

    fn is(&self, entry: Present) -> bool {
        entry.frame == self.frame && entry.size == self.size
    }

    /// Returns the entries that currently map the page, sorted by address space and address. `asking` is an address
    /// space that maps the page.
    ///
    /// # Errors
    /// Fails if there is no heap memory for the list.
    ///
    /// # Locks
    /// Takes the locks of areas for reading, one at a time.
    pub(crate) fn mappers(&self, asking: &Core<M>) -> Result<Vec<Mapper<M>>, OutOfMemory> {
        let mut found = Vec::new();
        match &self.identity {
            Identity::Object(object, index) => {
                let mappings = object.mappings();
                mappings.for_each_place(*index, |space, page| add(&mut found, space, page))?;
                self.keep_mapped(&mut found);
            }
            Identity::Private { .. } => {
                for _ in 0..SEARCHES {
                    found.clear();
                    if self.search_relatives(asking, &mut found)? {
                        break;
                    }
                }
            }
            Identity::Merged => {
                self.recorded(asking, &mut found)?;
                if found.len() < asking.memory.frames().sharers(self.frame) as usize {
                    found.clear();
                    self.search_all_mergeable(asking, &mut found)?;
                }
            }
        }
        sort(&mut found);
        Ok(found)
    }

    /// Removes from `found` the places at which no entry maps the page.
    fn keep_mapped(&self, found: &mut Vec<Mapper<M>>) {
        found.retain(|Mapper { space, page }| {
            let _areas = space.areas.read(space.cpu());
            self.is_mapped_at(space, *page)
        });
    }

    /// Adds to `found` the entries of `asking` and its relatives that map the private page. Stops when it has found as
    /// many entries as the frame has references. Returns false if the search cannot be completed because an address
    /// space was dropped.
    fn search_relatives(
        &self,
        asking: &Core<M>,
        found: &mut Vec<Mapper<M>>,
    ) -> Result<bool, OutOfMemory> {
        let frames = asking.memory.frames();
        let count = || match self.size {
            PageSize::Size4K => Some(frames.references(self.frame)),
            PageSize::Size2M | PageSize::Size1G => frames.references_of_whole(self.frame),
        };
        let mut walk = Relatives::of(asking);
        let mut references = count();
        loop {
            if references.is_some_and(|references| found.len() >= references as usize) {
                // The references increase when an address space in which the page was found stops sharing its table.
                let before = references;
                references = count();
                if references == before {
                    break;
                }
            }
            match asking.memory.spaces().next(&mut walk) {
                Relative::Space(space) => self.search_private(&space, found)?,
                Relative::End => break,
                Relative::Changed => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Adds to `found` the entries of one address space that map the private page.
    fn search_private(
        &self,
        space: &Shared<Core<M>>,
        found: &mut Vec<Mapper<M>>,
    ) -> Result<(), OutOfMemory> {
        let Identity::Private {
            owner,
            offset,
            home,
        } = self.identity
        else {
            return Ok(());
        };
        let areas = space.areas.read(space.cpu());
        let moved = areas.moved.of(owner, offset).map(|moved| moved.to);
        let elsewhere = moved.filter(|to| *to != home);
        for displacement in core::iter::once(home).chain(elsewhere) {
            let page = Page::new(offset.wrapping_add(displacement));
            // The frame identifies the page, so the area at `page` need not be checked.
            if page < M::Arch::USER.end && self.is_mapped_at(space, page) {
                add(found, space, page)?;
            }
        }
        Ok(())
    }

    /// Adds to `found` those entries of the KSM page that are recorded.
    fn recorded(&self, asking: &Core<M>, found: &mut Vec<Mapper<M>>) -> Result<(), OutOfMemory> {
        let memory = &*asking.memory;
        let merging = memory.merging();
        merging.for_each_place(memory, self.frame, |space, page| add(found, space, page))?;
        self.keep_mapped(found);
        sort(found);
        Ok(())
    }

    /// Adds to `found` the entries of all address spaces that map the KSM page, and records them.
    fn search_all_mergeable(
        &self,
        asking: &Core<M>,
        found: &mut Vec<Mapper<M>>,
    ) -> Result<(), OutOfMemory> {
        let memory = &*asking.memory;
        for space in memory.spaces().all()? {
            if space.merge_number.may_have_merged() {
                self.search_mergeable(&space, found)?;
            }
        }
        let pages = found.iter().map(|one| (&*one.space, one.page));
        memory.merging().set_places(memory, self.frame, pages);
        Ok(())
    }

    /// Adds to `found` the entries of one address space that map the KSM page.
    fn search_mergeable(
        &self,
        space: &Shared<Core<M>>,
        found: &mut Vec<Mapper<M>>,
    ) -> Result<(), OutOfMemory> {
        let areas = space.areas.read(space.cpu());
        let mergeable = |area: &&Area<M>| area.flags().contains(AreaFlags::MERGEABLE);
        for area in areas.map.iter().filter(mergeable) {
            let mut cursor = space.table.look(area.range()).pausing();
            while let Some(extent) = cursor.next_filled() {
                if extent.entry.present().is_some_and(|entry| self.is(entry)) {
                    add(found, space, extent.range.start)?;
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// Sorts entries by address space and address, and removes repeated ones.
fn sort<M: Machine>(found: &mut Vec<Mapper<M>>) {
    let key = |mapper: &Mapper<M>| (mapper.space.space_number(), mapper.page);
    found.sort_unstable_by_key(key);
    found.dedup_by_key(|mapper| key(mapper));
}

/// Adds an entry to the list.
fn add<M: Machine>(
    found: &mut Vec<Mapper<M>>,
    space: &Shared<Core<M>>,
    page: Page,
) -> Result<(), OutOfMemory> {
    found.try_push(Mapper {
        space: space.clone(),
        page,
    })
}
