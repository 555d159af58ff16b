//! Break before make: on some architectures, an entry may map a page only after every CPU has dropped the previous
//! translation of that address.
//!
//! An operation that replaces a page empties the entry, flushes, and fills the entry. After an operation has emptied an
//! entry and released the table's lock, another CPU may fill the entry before the operation flushes (rule:
//! see-pending-flushes). The filling CPU then flushes the page first.

use crate::addr::{Page, PageSize};
use crate::entry::Change;
use crate::machine::Machine;
use crate::root::Table;

impl<M: Machine> Table<M> {
    /// Invalidates `slots` pages of `size`, from `start` on, on every CPU that has the table loaded, because an
    /// invalidation of the table is pending.
    ///
    /// # Locks
    /// The caller holds the lock of the table that contains the slots.
    #[cold]
    pub(crate) fn break_pending(&self, start: Page, size: PageSize, slots: u64) {
        let mut gather = self.gather();
        gather.record_entries(start, size, Change::Freed, false, slots);
        // The pending operation flushes the page again, and counts that flush.
        let _ = gather.finish();
    }
}
