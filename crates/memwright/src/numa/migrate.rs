//! A page changes its frame (Linux 7.2 `mm/migrate.c`).

use memwright_table::mistake::{Mistake, planted};
use memwright_table::{
    Bits, Cursor, Entry, FOLIO_ORDER, Frame, FrameKind, FrameRef, Gather, Machine, NodeChoice,
    Page, PageRange, PageSize, Present,
};

use crate::huge::HUGE_PAGES;
use crate::space::{AddressSpace, Area, Core};
use crate::stats::Row;
use crate::vma::AreaFlags;
use crate::writable::upgrade;

/// What became of a page that was to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// It is on this node now.
    To(u8),
    /// It was on this node, where it is wanted.
    Stays(u8),
}

/// Why a page did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmoved {
    /// There is no area here.
    NoArea,
    /// Nothing is mapped here.
    Absent,
    /// It is the page of zeroes, or in memory that never moves.
    Unmovable,
    /// Others show it too, in this frame.
    Shared(Frame),
    /// It is an object's.
    Object,
    /// It is pinned, or somebody has a reference for a moment.
    Busy,
    /// No frame is free where it is wanted.
    NoFrame,
}

impl<M: Machine> AddressSpace<M> {
    /// The node of the page at `page`.
    ///
    /// # Errors
    /// There is no area, no page, or it is the page of zeroes.
    pub fn node_of(&self, page: Page) -> Result<u8, Unmoved> {
        let core = &*self.core;
        let areas = core.areas.read(core.cpu());
        areas.map.find(page).ok_or(Unmoved::NoArea)?;
        let entry = core.table.cursor(PageRange::single(page)).peek();
        let present = mapped(entry)?;
        Ok(core.memory.frames().node_of(present.frame_of(page)))
    }

    /// Moves the page at `page` to where `choice` says, unless it is on a node that `choice` names first. A huge page
    /// moves as one.
    ///
    /// # Errors
    /// See [`Unmoved`]; the page is where it was, as writable as the rule says.
    pub fn migrate(&self, page: Page, choice: NodeChoice) -> Result<Moved, Unmoved> {
        let core = &*self.core;
        let areas = core.areas.read(core.cpu());
        let area = areas.map.find(page).ok_or(Unmoved::NoArea)?;
        let mut cursor = core.table.cursor(PageRange::single(page));
        let present = mapped(cursor.peek())?;
        let node = core.memory.frames().node_of(present.frame_of(page));
        if choice.first.contains(node) {
            return Ok(Moved::Stays(node));
        }
        core.migrate(area, &mut cursor, present, choice)
            .map(Moved::To)
    }
}

/// The page that an entry maps, if it may move.
fn mapped(entry: Entry) -> Result<Present, Unmoved> {
    match entry {
        Entry::Present(page) if page.bits.contains(Bits::BORROWED) => Err(Unmoved::Unmovable),
        Entry::Present(page) => Ok(page),
        Entry::Migrating(_) => Err(Unmoved::Busy),
        Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) => Err(Unmoved::Absent),
    }
}

impl<M: Machine> Core<M> {
    /// Moves the page under the cursor, which the caller found there, to where `choice` says; returns its node.
    pub(crate) fn migrate(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        page: Present,
        choice: NodeChoice,
    ) -> Result<u8, Unmoved> {
        let moved = self.try_migrate(area, cursor, page, choice);
        let pages = if page.size == PageSize::Size4K {
            1
        } else {
            HUGE_PAGES
        };
        let row = match moved {
            Ok(_) => Row::PagesMigrated,
            Err(_) => Row::PagesNotMigrated,
        };
        self.memory.count(row, pages);
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
        let target = self.target(page, choice).ok_or(Unmoved::NoFrame)?;
        let (frame, node) = (target.frame(), frames.node_of(target.frame()));
        if page.size == PageSize::Size4K {
            self.memory.swap().follow(frames, page.frame, frame);
            if frames.is_lazy(page.frame) {
                frames.set_lazy(frame, true);
            }
        }
        let (view, policy) = (area.view(), self.memory.policy().write_upgrade());
        let is_resident = !frames.kind(page.frame).is_pool();
        let mut gather = self.gather();
        let old = cursor.migrate(
            target,
            |bits| {
                let bits = if planted(Mistake::MigrateLosesDirty) {
                    bits - Bits::DIRTY
                } else {
                    bits
                };
                let grants = upgrade(view, bits, policy).is_writable();
                if grants { bits | Bits::WRITE } else { bits }
            },
            &mut gather,
        );
        self.note_migrated(&mut gather, old.size, is_resident);
        Ok(node)
    }

    /// Whether the page may move: this entry shows it alone, and nobody writes to its frame otherwise.
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
        if frames.pins(page.frame) > 0 && !planted(Mistake::MigratePinned) {
            return Err(Unmoved::Busy);
        }
        let alone = match page.size {
            PageSize::Size4K => frames.references(page.frame) == 1,
            PageSize::Size2M | PageSize::Size1G => frames.is_sole_whole(page.frame),
        };
        if alone || planted(Mistake::MigrateShared) {
            Ok(())
        } else if page.bits.contains(Bits::EXCLUSIVE) {
            // Lent for a moment.
            Err(Unmoved::Busy)
        } else {
            Err(Unmoved::Shared(page.frame))
        }
    }

    /// Where the page goes.
    fn target(&self, page: Present, choice: NodeChoice) -> Option<FrameRef<'_, M>> {
        let frames = self.memory.frames();
        let kind = frames.kind(page.frame);
        let target = if kind.is_pool() {
            return frames.add_huge_on(kind, choice).ok();
        } else if page.size == PageSize::Size4K {
            frames.allocate_on(0, FrameKind::Anonymous, choice)
        } else {
            frames.allocate_on(FOLIO_ORDER, FrameKind::Anonymous, choice)
        };
        target.ok()
    }

    /// Enters a page that moved into the account: it went, and it came.
    fn note_migrated(&self, gather: &mut Gather<'_, M>, size: PageSize, is_resident: bool) {
        let cpu = self.cpu();
        let counts = gather.close();
        self.note_gather(cpu, counts);
        if !is_resident {
            self.note_borrowed(cpu);
        } else if size == PageSize::Size4K {
            self.note_filled(cpu, 1);
        } else {
            self.note_filled_huge(cpu);
        }
        self.memory.count_on(cpu, Row::FramesCopied, size.pages());
    }
}
