//! Deposited page tables. One is deposited for each 2 MiB page, so that splitting the page cannot fail (Linux 7.2
//! `mm/pgtable-generic.c`, `pgtable_trans_huge_deposit`).
//!
//! A table that contains huge pages has a list of deposited tables. The first link of the list is in the metadata of
//! that table, whose lock protects the list. No CPU walks deposited tables, and their entries are invalid until a split
//! writes all of them.

use core::sync::atomic::Ordering;

use super::cursor::Cursor;
use crate::addr::Frame;
use crate::entry::{Entry, Migrating, Present};
use crate::frame::{END, FrameKind, OutOfFrames, UNLINKED};
use crate::machine::Machine;
use crate::root::Table;

/// The level of the tables that contain 2 MiB pages.
pub(super) const HUGE_LEVEL: u8 = 2;

/// Whether a page table is deposited for `entry` in a table at [`HUGE_LEVEL`].
pub(super) const fn is_page(entry: Entry) -> bool {
    match entry {
        Entry::Present(Present { .. }) | Entry::Migrating(Migrating { .. }) => true,
        Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) => false,
    }
}

impl<M: Machine> Table<M> {
    /// Allocates a page table to be deposited.
    pub(super) fn allocate_aside(&self) -> Result<Frame, OutOfFrames> {
        let frame = self.frames().allocate_bare_table()?;
        self.share().count_tables::<M::Threads>(1);
        Ok(frame)
    }

    /// Frees a page table that is not deposited anywhere.
    pub(super) fn free_aside(&self, table: Frame) {
        debug_assert_eq!(self.frames().kind(table), FrameKind::Table);
        self.share().count_tables::<M::Threads>(-1);
        self.frames().meta(table).set_link(UNLINKED);
        self.frames().release(table);
    }

    /// The number of page tables deposited for the huge pages in `table`.
    pub(super) fn count_aside(&self, table: Frame) -> u64 {
        let mut count = 0;
        let mut next = self.frames().meta(table).aside.load(Ordering::Relaxed);
        while next != END {
            count += 1;
            next = self.frames().meta(Frame::new(next)).link();
        }
        count
    }

    /// Frees all page tables deposited for the huge pages in `table`, when its address space is destroyed.
    pub(super) fn drop_aside(&self, table: Frame) {
        let list = &self.frames().meta(table).aside;
        let mut next = list.swap(END, Ordering::Relaxed);
        while next != END {
            let each = Frame::new(next);
            next = self.frames().meta(each).link();
            self.frames().meta(each).set_link(UNLINKED);
            self.frames().release(each);
        }
    }
}

impl<M: Machine> Cursor<'_, M> {
    /// Deposits `table` for a huge page in the locked table.
    pub(super) fn set_aside(&self, table: Frame) {
        debug_assert_eq!(self.level, HUGE_LEVEL);
        let next = self.meta.aside.swap(table.number(), Ordering::Relaxed);
        self.table.frames().meta(table).set_link(next);
    }

    /// Withdraws one of the page tables deposited in the locked table.
    ///
    /// # Panics
    /// If no page table is deposited, although each huge page must have one.
    pub(super) fn take_aside(&self) -> Frame {
        debug_assert_eq!(self.level, HUGE_LEVEL);
        let first = self.meta.aside.load(Ordering::Relaxed);
        assert!(first != END, "no table was set aside for a huge page");
        let table = Frame::new(first);
        let meta = self.table.frames().meta(table);
        self.meta.aside.store(meta.link(), Ordering::Relaxed);
        meta.set_link(UNLINKED);
        table
    }

    /// Frees the page table deposited for `old`, which `new` replaces, unless `new` needs one too.
    #[cold]
    pub(super) fn settle_aside(&self, old: Entry, new: Entry) {
        if self.level != HUGE_LEVEL {
            return;
        }
        match (is_page(old), is_page(new)) {
            (true, true) | (false, false) => {}
            (true, false) => self.table.free_aside(self.take_aside()),
            (false, true) => panic!("a huge page goes into an empty slot by `fill`"),
        }
    }
}
