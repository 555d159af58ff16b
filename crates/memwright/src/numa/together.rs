//! Migration of a page with several entries (Linux 7.2 `mm/migrate.c`, `migrate_folio_unmap` and `migrate_folio_move`).
//!
//! The areas of all address spaces that map the page are locked, in the order of their numbers, so that no fault, fork
//! or protection change happens there meanwhile. If an object owns the page, the object is locked too, so that no new
//! lookup finds the page. No new reference can then be taken without an existing one. If the references are exactly
//! those of the entries plus that of the object or the KSM index, nothing else accesses the frame. The entries become
//! migration entries and are flushed, the page is copied, and each entry is set to the new frame with its previous
//! state.

use alloc::vec::Vec;
use memwright_table::sync::SpreadWriteGuard;
use memwright_table::{
    Bits, Frame, FrameRef, Machine, NodeChoice, OutOfMemory, Page, PageRange, PageSize, Present,
    Shared, TryPush,
};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::numa::migrate::{Moved, Unmoved, mapped};
use crate::range::shown::ShownPage;
use crate::types::stats::Row;
use crate::vma::writable::{View, upgrade};

/// An address space whose areas are locked.
struct Locked<'a, M: Machine> {
    space: &'a Core<M>,
    areas: SpreadWriteGuard<'a, Areas<M>>,
}

/// An entry that maps the page.
struct Place {
    /// The index of its address space in the list of locked ones.
    space: usize,
    page: Page,
    view: View,
    /// Its state before it became a migration entry.
    old: Option<Present>,
}

impl<M: Machine> Core<M> {
    /// Migrates the page at `page` to the nodes of `choice`, in every entry that maps it; returns its node.
    pub(super) fn migrate_together(
        &self,
        page: Page,
        choice: NodeChoice,
    ) -> Result<Moved, Unmoved> {
        let memory = &*self.memory;
        let (shown, node) = self.shown_at(page)?;
        if choice.first.contains(node) {
            return Ok(Moved::Stays(node));
        }
        let moved = self.try_migrate_together(&shown, choice);
        let row = match moved {
            Ok(_) => Row::PagesMigrated,
            Err(_) => Row::PagesNotMigrated,
        };
        memory.count(row, shown.size.pages());
        moved.map(Moved::To)
    }

    /// Returns the page at `page`, and its node.
    fn shown_at(&self, page: Page) -> Result<(ShownPage<M>, u8), Unmoved> {
        let areas = self.areas.read(self.cpu());
        let area = areas.map.find(page).ok_or(Unmoved::NoArea)?;
        let present = mapped(self.table.look(PageRange::single(page)).peek())?;
        let frames = self.memory.frames();
        let kind = frames.kind(present.frame);
        let node = frames.node_of(present.frame_of(page));
        Ok((ShownPage::new(area, page, present, kind), node))
    }

    fn try_migrate_together(
        &self,
        shown: &ShownPage<M>,
        choice: NodeChoice,
    ) -> Result<u8, Unmoved> {
        let memory = &*self.memory;
        let frames = memory.frames();
        // Keeps the scan of KSM from finding the page by its contents and taking a reference meanwhile.
        let _round = shown.is_merged().then(|| memory.merging().pause());
        let showing = shown.spaces(self)?;
        let target = self
            .target(shown.kind, shown.size, choice)
            .ok_or(Unmoved::NoFrame)?;
        let node = frames.node_of(target.frame());
        let locked = lock_all(&showing.spaces)?;
        let mut places = find_all(shown, &locked, showing.shown)?;
        let mut target = Some(target);
        let mut result = Err(Unmoved::Object);
        match shown.object() {
            Some((object, index)) => {
                object.exchange(memory, index, shown.size, &mut |frame| {
                    result = Err(Unmoved::Busy);
                    let target = target.take().filter(|_| frame == shown.frame)?;
                    result = carry(shown, &locked, &mut places, &target, 1);
                    result.ok().map(|()| target.into_raw())
                });
            }
            None => {
                let others = u32::from(shown.is_merged());
                if let Some(target) = target {
                    result = carry(shown, &locked, &mut places, &target, others);
                    if result.is_ok() && shown.is_merged() {
                        memory.merging().exchange(memory, shown.frame, target);
                    } else if result.is_ok() {
                        self.follow_migrated(shown.frame, target.frame(), shown.size);
                    }
                }
            }
        }
        result?;
        for place in &places {
            drop(owned(self, shown.frame, shown.size));
            let space = locked[place.space].space;
            space.note_borrowed(space.cpu(), shown.size.pages());
        }
        Ok(node)
    }
}

/// Adopts the reference that one of the entries held.
fn owned<M: Machine>(core: &Core<M>, frame: Frame, size: PageSize) -> FrameRef<'_, M> {
    match size {
        PageSize::Size4K => core.memory.frames().adopt_part(frame),
        PageSize::Size2M | PageSize::Size1G => core.memory.frames().adopt_whole(frame),
    }
}

impl From<OutOfMemory> for Unmoved {
    fn from(_: OutOfMemory) -> Self {
        Self::NoFrame
    }
}

/// Locks the areas of all address spaces, which are sorted by their numbers.
fn lock_all<M: Machine>(spaces: &[Shared<Core<M>>]) -> Result<Vec<Locked<'_, M>>, OutOfMemory> {
    let mut locked = Vec::new();
    locked.try_make_room(spaces.len())?;
    for (number, space) in spaces.iter().enumerate() {
        let areas = if number == 0 {
            space.areas.write()
        } else {
            space.areas.write_beside()
        };
        locked.try_push(Locked { space, areas })?;
    }
    Ok(locked)
}

/// Returns every entry of these address spaces that maps the page. Fails with `Busy` if there are more than `count`, or
/// none.
fn find_all<M: Machine>(
    shown: &ShownPage<M>,
    locked: &[Locked<'_, M>],
    count: usize,
) -> Result<Vec<Place>, Unmoved> {
    let mut places = Vec::new();
    places.try_make_room(count)?;
    let mut more = false;
    for (number, one) in locked.iter().enumerate() {
        shown.visit(one.space, &one.areas, &mut |area, page| {
            let place = Place {
                space: number,
                page,
                view: area.view(),
                old: None,
            };
            let full = places.len() == count;
            more |= full || places.try_push(place).is_err();
        });
    }
    if more || places.is_empty() {
        // The entries have changed since they were counted: the caller may retry.
        return Err(Unmoved::Busy);
    }
    Ok(places)
}

/// Copies the page to the target and sets every entry to it, if the old frame has no references beside those of the
/// entries and `others` more. Afterwards the caller owns the references that the entries held to the old frame. Each
/// entry holds a reference to the target, in addition to the caller's.
fn carry<M: Machine>(
    shown: &ShownPage<M>,
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
    if frames.kind(shown.frame) != shown.kind {
        // The page was freed, and its frame reused, before the areas were locked.
        return Err(Unmoved::Busy);
    }
    let references = match shown.size {
        PageSize::Size4K if frames.is_in_folio(shown.frame) => None,
        PageSize::Size4K => Some(frames.references(shown.frame)),
        PageSize::Size2M | PageSize::Size1G => frames.references_of_whole(shown.frame),
    };
    let known = places.len() as u32 + others;
    if references != Some(known) || frames.pins(shown.frame) > 0 {
        return Err(Unmoved::Busy);
    }
    take_away(locked, places, shown.size);
    for part in 0..shown.size.pages() as u32 {
        let part = |head: Frame| Frame::new(head.number() + part);
        frames.copy(part(shown.frame), part(target.frame()));
    }
    memory.count(Row::FramesCopied, shown.size.pages());
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
            .cursor(range_of(place.page, shown.size))
            .end_migration(new);
    }
    Ok(())
}

/// Turns all entries into migration entries, with one flush for each address space.
fn take_away<M: Machine>(locked: &[Locked<'_, M>], places: &mut [Place], size: PageSize) {
    for together in places.chunk_by_mut(|one, next| one.space == next.space) {
        let space = locked[together[0].space].space;
        let mut gather = space.gather();
        for place in together {
            let mut cursor = space.table.cursor(range_of(place.page, size));
            place.old = Some(cursor.begin_migration(&mut gather));
        }
        let counts = gather.close();
        space.note_gather(space.cpu(), counts);
    }
}

/// Returns the range of an entry of this size that begins at `first`.
fn range_of(first: Page, size: PageSize) -> PageRange {
    PageRange::new(first, first.add(size.pages()))
}
