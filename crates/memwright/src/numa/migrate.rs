//! Migration of a page to another frame (Linux 7.2 `mm/migrate.c`).

use memwright_table::{
    Bits, Cursor, Entry, FOLIO_ORDER, Frame, FrameKind, FrameRef, Gather, Machine, NodeChoice,
    Page, PageSize, Present,
};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::mm::theme::Numa;
use crate::types::migration::{Moved, Moving, Unmoved};
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::writable::upgrade;

impl<M: Machine> Numa<'_, M> {
    /// Returns the node of the page at `page`.
    ///
    /// # Errors
    /// `NoArea`; `Absent`; `Unmovable` for the zero page; `Busy` while the page is being migrated.
    pub fn node_of(&self, page: Page) -> Result<u8, Unmoved> {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        areas.map.find(page).ok_or(Unmoved::NoArea)?;
        let (_, entry) = core.table.entry_of(page);
        let present = mapped(entry)?;
        Ok(core.memory.frames().node_of(present.frame_of(page)))
    }

    /// Migrates the page at `page` to the nodes of `choice`, unless it already is on one of the preferred nodes
    /// (`choice.first`). A huge page is migrated as a whole. A page of an object, or a page with several users, is
    /// migrated only with [`Moving::All`] or if at most one entry maps it. All its entries are then changed.
    ///
    /// # Errors
    /// See [`Unmoved`]; the page stays in its frame, as writable as [`writable`](crate::writable) permits.
    pub fn migrate(
        &self,
        page: Page,
        choice: NodeChoice,
        moving: Moving,
    ) -> Result<Moved, Unmoved> {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        let area = areas.map.find(page).ok_or(Unmoved::NoArea)?;
        let (mut cursor, entry) = core.table.entry_of(page);
        let present = mapped(entry)?;
        let node = core.memory.frames().node_of(present.frame_of(page));
        if choice.first.contains(node) {
            return Ok(Moved::Stays(node));
        }
        let alone = core.may_migrate(area, present);
        let sharers = core.memory.frames().sharers(present.frame);
        match way(alone, present.frame, sharers, moving) {
            Ok(Way::Together) => {
                drop(cursor);
                drop(areas);
                core.migrate_together(page, choice)
            }
            Ok(Way::Alone) => core
                .migrate(area, &mut cursor, present, choice)
                .map(Moved::To),
            Err(refused) => {
                let pages = present.size.pages();
                core.memory.count(Row::PagesNotMigrated, pages);
                Err(refused)
            }
        }
    }
}

/// The entries that a migration changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The entry at the cursor, which holds the only reference to the page.
    Alone,
    /// Every entry that maps the page. If an object owns the page, its frame in the object is replaced too.
    Together,
}

/// Decides how a page is migrated. `alone` is `Ok` if the page can be migrated by a change of its single entry.
/// `sharers` is the number of entries that map the page (`__add_folio_for_migration`).
fn way(
    alone: Result<(), Unmoved>,
    frame: Frame,
    sharers: u32,
    moving: Moving,
) -> Result<Way, Unmoved> {
    match alone {
        Ok(()) => Ok(Way::Alone),
        Err(Unmoved::Shared(_) | Unmoved::Object) => {
            if moving == Moving::All || sharers <= 1 {
                Ok(Way::Together)
            } else {
                Err(Unmoved::Shared(frame))
            }
        }
        Err(
            refused @ (Unmoved::NoArea
            | Unmoved::Absent
            | Unmoved::Unmovable
            | Unmoved::Busy
            | Unmoved::NoFrame),
        ) => Err(refused),
    }
}

/// Returns the page that `entry` maps, or an error if it maps none that can be migrated.
pub(super) fn mapped(entry: Entry) -> Result<Present, Unmoved> {
    match entry {
        Entry::Present(page) if page.bits.contains(Bits::BORROWED) => Err(Unmoved::Unmovable),
        Entry::Present(page) => Ok(page),
        Entry::Migrating(_) => Err(Unmoved::Busy),
        Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) => Err(Unmoved::Absent),
    }
}

impl<M: Machine> Core<M> {
    /// Migrates the page under the cursor, whose entry is `page`, to the nodes of `choice`. Returns the node of the new
    /// frame.
    pub(crate) fn migrate(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        page: Present,
        choice: NodeChoice,
    ) -> Result<u8, Unmoved> {
        let moved = self.try_migrate(area, cursor, page, choice);
        let row = match moved {
            Ok(_) => Row::PagesMigrated,
            Err(_) => Row::PagesNotMigrated,
        };
        self.memory.count(row, page.size.pages());
        moved
    }

    fn try_migrate(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        page: Present,
        choice: NodeChoice,
    ) -> Result<u8, Unmoved> {
        self.may_migrate(area, page)?;
        if page.size != PageSize::Size4K {
            cursor.widen();
        }
        let frames = self.memory.frames();
        let target = self
            .target(frames.kind(page.frame), page.size, choice)
            .ok_or(Unmoved::NoFrame)?;
        let node = frames.node_of(target.frame());
        self.follow_migrated(page.frame, target.frame(), page.size);
        let (view, policy) = (area.view(), self.memory.policy().write_upgrade());
        let kind = frames.kind(page.frame);
        let mut gather = self.gather();
        let old = cursor.migrate(
            target,
            |bits| {
                let grants = upgrade(view, bits, policy).is_writable();
                if grants { bits | Bits::WRITE } else { bits }
            },
            &mut gather,
        );
        self.note_migrated(&mut gather, old.size, kind);
        Ok(node)
    }

    /// Checks whether the page can be migrated by changing the entry `page` alone: it must be the only entry that maps
    /// the page, and nothing else may access the frame.
    fn may_migrate(&self, area: &Area<M>, page: Present) -> Result<(), Unmoved> {
        let frames = self.memory.frames();
        if area.flags().contains(AreaFlags::SECRET) || page.bits.contains(Bits::BORROWED) {
            return Err(Unmoved::Unmovable);
        }
        if page.size == PageSize::Size1G {
            return Err(Unmoved::Unmovable);
        }
        if !self.is_anonymous(page.frame) {
            return Err(Unmoved::Object);
        }
        if frames.pins(page.frame) > 0 {
            return Err(Unmoved::Busy);
        }
        let alone = match page.size {
            PageSize::Size4K => frames.references(page.frame) == 1,
            PageSize::Size2M | PageSize::Size1G => frames.is_sole_whole(page.frame),
        };
        if alone {
            Ok(())
        } else if page.bits.contains(Bits::EXCLUSIVE) {
            // An exclusive page has no other owner, so the additional reference is temporary.
            Err(Unmoved::Busy)
        } else {
            Err(Unmoved::Shared(page.frame))
        }
    }

    /// Allocates the frame to which a page of this kind is migrated.
    pub(super) fn target(
        &self,
        kind: FrameKind,
        size: PageSize,
        choice: NodeChoice,
    ) -> Option<FrameRef<'_, M>> {
        let frames = self.memory.frames();
        if kind.is_pool() {
            return frames.add_huge_on(kind, choice).ok();
        }
        let order = if size == PageSize::Size4K {
            0
        } else {
            FOLIO_ORDER
        };
        frames.allocate_on(order, kind, choice).ok()
    }

    /// Transfers to `new` the state of a private page that is not stored in its page-table entries: its copy in swap,
    /// the lazily freed mark, and the subpool of a page of the hugetlb pool.
    pub(super) fn follow_migrated(&self, old: Frame, new: Frame, size: PageSize) {
        let frames = self.memory.frames();
        if size != PageSize::Size4K {
            if frames.kind(old).is_pool() {
                frames.follow_subpool(old, new);
            }
            return;
        }
        self.memory.swap().follow(frames, old, new);
        if frames.is_lazy(old) {
            frames.set_lazy(new, true);
        }
    }

    /// Updates the counters for a page that was migrated: one entry removed, one set.
    fn note_migrated(&self, gather: &mut Gather<'_, M>, size: PageSize, kind: FrameKind) {
        let cpu = self.cpu();
        let counts = gather.close();
        self.note_gather(cpu, counts);
        if kind == FrameKind::Object {
            self.note_objects(cpu, size.pages());
        }
        if kind.is_pool() {
            self.note_borrowed(cpu, size.pages());
        } else if size == PageSize::Size4K {
            self.note_filled(cpu, 1);
        } else {
            self.note_filled_huge(cpu);
        }
        self.memory.count_on(cpu, Row::FramesCopied, size.pages());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_several_moves_for_all_or_for_nobody() {
        let frame = Frame::new(7);
        let shared = Err(Unmoved::Shared(frame));
        let object = Err(Unmoved::Object);
        #[rustfmt::skip]
        let rows = [
            ("its own",                        Ok(()),                 1, Moving::Own, Ok(Way::Alone)),
            ("of several",                     shared,                 2, Moving::Own, Err(Unmoved::Shared(frame))),
            ("of several, for all",            shared,                 2, Moving::All, Ok(Way::Together)),
            ("an object's, one shows it",      object,                 1, Moving::Own, Ok(Way::Together)),
            ("an object's, two show it",       object,                 2, Moving::Own, Err(Unmoved::Shared(frame))),
            ("an object's, two, for all",      object,                 2, Moving::All, Ok(Way::Together)),
            ("pinned",                         Err(Unmoved::Busy),     1, Moving::All, Err(Unmoved::Busy)),
            ("secret",                         Err(Unmoved::Unmovable), 1, Moving::All, Err(Unmoved::Unmovable)),
        ];
        for (name, alone, sharers, moving, expected) in rows {
            assert_eq!(way(alone, frame, sharers, moving), expected, "{name}");
        }
    }
}
