//! Migration of a page with several entries (Linux 7.2 `mm/migrate.c`, `migrate_folio_unmap` and `migrate_folio_move`).
//!
//! The areas of all address spaces that map the page are locked, in ascending order of the address spaces' numbers, so
//! that no fault, fork or protection change runs in these address spaces meanwhile. If an object owns the page, the
//! object is locked too, so that no new lookup finds the page. From then on, a new reference can be taken only by a
//! holder of an existing one. If the references are exactly those of the entries plus that of the object or the KSM
//! index, nothing else accesses the frame. The entries become migration entries and are flushed, the page is copied,
//! and each entry is set to the new frame with its previous state.

use alloc::vec::Vec;
use memwright_table::sync::SpreadWriteGuard;
use memwright_table::{
    Bits, Frame, FrameRef, Machine, NodeChoice, OutOfMemory, Page, PageRange, PageSize, Present,
    TryPush,
};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::numa::migrate::mapped;
use crate::range::rmap::{MappedPage, Mapper};
use crate::types::migration::{Moved, Unmoved};
use crate::types::stats::Row;
use crate::vma::writable::{View, upgrade};

/// An address space whose areas are locked.
struct Locked<'a, M: Machine> {
    space: &'a Core<M>,
    areas: SpreadWriteGuard<'a, Areas<M>, M::Threads>,
}

/// A page that the search found mapped to the frame.
struct Place {
    /// The index of the address space in the list of locked address spaces.
    space: usize,
    page: Page,
    view: View,
    /// The state of the entry before it became a migration entry.
    old: Option<Present>,
}

impl<M: Machine> Core<M> {
    /// Migrates the page at `page` to the nodes of `choice`, in every entry that maps it. Returns the page's node
    /// afterwards.
    pub(super) fn migrate_together(
        &self,
        page: Page,
        choice: NodeChoice,
    ) -> Result<Moved, Unmoved> {
        let memory = &*self.memory;
        let (mapped, node) = self.mapped_at(page)?;
        if choice.first.contains(node) {
            return Ok(Moved::Stays(node));
        }
        let moved = self.try_migrate_together(&mapped, choice);
        let row = match moved {
            Ok(_) => Row::PagesMigrated,
            Err(_) => Row::PagesNotMigrated,
        };
        memory.count(row, mapped.size.pages());
        moved.map(Moved::To)
    }

    /// Returns the page that is mapped at `page`, and its node.
    fn mapped_at(&self, page: Page) -> Result<(MappedPage<M>, u8), Unmoved> {
        let areas = self.areas.read(self.cpu());
        let area = areas.map.find(page).ok_or(Unmoved::NoArea)?;
        let present = mapped(self.table.look(PageRange::single(page)).peek())?;
        let frames = self.memory.frames();
        let kind = frames.kind(present.frame);
        let node = frames.node_of(present.frame_of(page));
        Ok((MappedPage::new(&areas, area, page, present, kind), node))
    }

    fn try_migrate_together(
        &self,
        mapped: &MappedPage<M>,
        choice: NodeChoice,
    ) -> Result<u8, Unmoved> {
        let memory = &*self.memory;
        let frames = memory.frames();
        // Until this guard is dropped, the scan of KSM cannot find the page by its contents and take a reference to it.
        let _round = mapped.is_merged().then(|| memory.merging().pause());
        let mappers = mapped.mappers(self)?;
        let target = self
            .target(mapped.kind, mapped.size, choice)
            .ok_or(Unmoved::NoFrame)?;
        let node = frames.node_of(target.frame());
        let locked = lock_all(&mappers)?;
        let mut places = find_all(&locked, &mappers)?;
        let mut target = Some(target);
        let mut result = Err(Unmoved::Object);
        match mapped.object() {
            Some((object, index)) => {
                object.exchange(memory, index, mapped.size, &mut |frame| {
                    result = Err(Unmoved::Busy);
                    let target = target.take().filter(|_| frame == mapped.frame)?;
                    result = carry(mapped, &locked, &mut places, &target, 1);
                    result.ok().map(|()| target.into_raw())
                });
            }
            None => {
                let others = u32::from(mapped.is_merged());
                if let Some(target) = target {
                    result = carry(mapped, &locked, &mut places, &target, others);
                    if result.is_ok() && mapped.is_merged() {
                        memory.merging().exchange(memory, mapped.frame, target);
                    } else if result.is_ok() {
                        self.follow_migrated(mapped.frame, target.frame(), mapped.size);
                    }
                }
            }
        }
        result?;
        for place in places.iter().filter(|place| place.old.is_some()) {
            drop(owned(self, mapped.frame, mapped.size));
            let space = locked[place.space].space;
            space.note_borrowed(space.cpu(), mapped.size.pages());
        }
        Ok(node)
    }
}

/// Takes over the reference that an entry held to the old frame `frame`, and returns the reference.
fn owned<M: Machine>(core: &Core<M>, frame: Frame, size: PageSize) -> FrameRef<'_, M> {
    match size {
        PageSize::Size4K => core.memory.frames().adopt_part(frame),
        PageSize::Size2M | PageSize::Size1G => core.memory.frames().adopt_whole(frame),
    }
}

/// Locks the areas of each address space in `mappers`, which is sorted by the numbers of the address spaces.
fn lock_all<M: Machine>(mappers: &[Mapper<M>]) -> Result<Vec<Locked<'_, M>>, OutOfMemory> {
    let mut locked: Vec<Locked<'_, M>> = Vec::new();
    for Mapper { space, .. } in mappers {
        let areas = match locked.last() {
            None => space.areas.write(),
            Some(last) if core::ptr::eq(last.space, &**space) => continue,
            Some(_) => space.areas.write_beside(),
        };
        locked.try_push(Locked { space, areas })?;
    }
    Ok(locked)
}

/// Returns the places of those `mappers` whose page is still in an area.
fn find_all<M: Machine>(
    locked: &[Locked<'_, M>],
    mappers: &[Mapper<M>],
) -> Result<Vec<Place>, OutOfMemory> {
    let mut places = Vec::new();
    places.try_make_room(mappers.len())?;
    let mut space = 0;
    for mapper in mappers {
        while !core::ptr::eq(locked[space].space, &*mapper.space) {
            space += 1;
        }
        let page = mapper.page;
        if let Some(area) = locked[space].areas.map.find(page) {
            places.try_push(Place {
                space,
                page,
                view: area.view(),
                old: None,
            })?;
        }
    }
    Ok(places)
}

/// Copies the page to `target`, and changes every entry that maps the page to map `target`. `others` is the number of
/// references that the object or the KSM index holds. Fails if the old frame has references in addition to `others` and
/// the references of the entries.
///
/// Afterwards each changed entry has its own reference to `target`. The caller owns the references that these entries
/// had to the old frame: one for each place with `old` set.
fn carry<M: Machine>(
    mapped: &MappedPage<M>,
    locked: &[Locked<'_, M>],
    places: &mut [Place],
    target: &FrameRef<'_, M>,
    others: u32,
) -> Result<(), Unmoved> {
    let Some(Locked { space: first, .. }) = locked.first() else {
        return Err(Unmoved::Busy);
    };
    let memory = &*first.memory;
    let frames = memory.frames();
    if frames.kind(mapped.frame) != mapped.kind {
        // The page was freed, and its frame reused, before the areas were locked.
        return Err(Unmoved::Busy);
    }
    let references = match mapped.size {
        PageSize::Size4K if frames.is_in_folio(mapped.frame) => None,
        PageSize::Size4K => Some(frames.references(mapped.frame)),
        PageSize::Size2M | PageSize::Size1G => frames.references_of_whole(mapped.frame),
    };
    // The entries may have changed since they were found, but no reference can be added while the areas are locked.
    let known = places.len() as u32 + others;
    let references = references.filter(|count| *count <= known && frames.pins(mapped.frame) == 0);
    let references = references.ok_or(Unmoved::Busy)?;
    let taken = take_away(mapped, locked, places);
    if taken == 0 || references != taken + others {
        put_back(mapped.size, locked, places);
        return Err(Unmoved::Busy);
    }
    for part in 0..mapped.size.pages() as u32 {
        let part = |head: Frame| Frame::new(head.number() + part);
        frames.copy(part(mapped.frame), part(target.frame()));
    }
    memory.count(Row::FramesCopied, mapped.size.pages());
    let policy = memory.policy().write_upgrade();
    for place in places {
        let Some(old) = place.old else { continue };
        let shared = target.clone();
        let grants = upgrade(place.view, old.bits, policy).is_writable();
        let write = if grants { Bits::WRITE } else { Bits::empty() };
        let new = Present {
            frame: shared.into_raw(),
            size: old.size,
            bits: old.bits | write,
        };
        let table = &locked[place.space].space.table;
        table
            .cursor(range_of(place.page, mapped.size))
            .end_migration(new);
    }
    Ok(())
}

/// Turns the entries that map the page into migration entries, with one flush for each address space. Returns the
/// number of these entries.
fn take_away<M: Machine>(
    mapped: &MappedPage<M>,
    locked: &[Locked<'_, M>],
    places: &mut [Place],
) -> u32 {
    let mut taken = 0;
    for together in places.chunk_by_mut(|one, next| one.space == next.space) {
        let space = locked[together[0].space].space;
        let mut gather = space.gather();
        for place in together {
            let mut cursor = space.table.cursor(range_of(place.page, mapped.size));
            if mapped.is_at(&cursor) {
                place.old = Some(cursor.begin_migration(&mut gather));
                taken += 1;
            }
        }
        let counts = gather.close();
        space.note_gather(space.cpu(), counts);
    }
    taken
}

/// Restores the entries that were turned into migration entries.
#[cold]
fn put_back<M: Machine>(size: PageSize, locked: &[Locked<'_, M>], places: &mut [Place]) {
    for place in places {
        if let Some(old) = place.old.take() {
            let table = &locked[place.space].space.table;
            table.cursor(range_of(place.page, size)).end_migration(old);
        }
    }
}

/// Returns the range of an entry of this size that begins at `first`.
fn range_of(first: Page, size: PageSize) -> PageRange {
    PageRange::new(first, first.add(size.pages()))
}
