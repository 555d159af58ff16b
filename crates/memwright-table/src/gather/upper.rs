//! Recording changes of upper-level entries that point to tables. Every CPU must then also invalidate its cached
//! upper-level entries, and all translations that it cached through them.

use super::Gather;
use crate::entry::Change;
use crate::machine::Machine;

/// Counts of what was dropped with a last-level table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dropped {
    /// The number of entries that mapped pages with rights.
    pub(crate) mapped: u64,
    /// The number of references to frames that the entries held.
    pub(crate) pages: u64,
    /// The number of references to pages of objects among `pages`.
    pub(crate) objects: u64,
    /// The number of swap entries.
    pub(crate) slots: u64,
}

impl<M: Machine> Gather<'_, M> {
    /// Records that a table was unlinked because a huge page replaces it. The table is reused, not freed.
    pub(crate) fn record_unlinked(&mut self) {
        self.record_upper(Change::Resized, 1);
    }

    /// Records that last-level tables with `entries` entries in total were unlinked to be linked at another address.
    pub(crate) fn record_tables_moved(&mut self, entries: u64) {
        self.record_upper(Change::Freed, entries);
    }

    /// Records that the accessed bit of an upper-level entry that points to a table is about to be cleared (rule:
    /// fold-before-clearing).
    pub(crate) fn record_upper_cleared(&mut self) {
        self.record_upper(Change::LostCachedBit, 1);
    }

    /// Records that upper-level entries that point to tables are about to lose the right to write.
    #[inline(never)]
    pub(crate) fn expect_upper_protected(&mut self) {
        self.record_upper(Change::Shrank, 0);
    }

    /// Counts `entries` upper-level entries that have lost the right to write since
    /// [`expect_upper_protected`](Self::expect_upper_protected).
    pub(crate) fn count_upper_protected(&mut self, entries: u64) {
        self.counts.changed[Change::Shrank.index()] += entries;
    }

    /// Records that shared tables were unlinked, or replaced by copies. Their entries count as neither changed nor
    /// removed, because they stay in the shared tables.
    pub(crate) fn record_left(&mut self) {
        self.record_upper(Change::Freed, 0);
    }

    /// Counts what was dropped with a last-level table that this operation unlinked.
    pub(crate) fn note_dropped(&mut self, dropped: Dropped) {
        let counts = &mut self.counts;
        counts.changed[Change::Freed.index()] += dropped.mapped;
        counts.released += dropped.pages;
        counts.released_objects += dropped.objects;
        counts.slots += dropped.slots;
    }

    /// Counts the reference to the frame of a last-level table that was freed without this gather. The change that
    /// unlinked the table was recorded as [`Change::TableFreed`].
    pub(crate) fn note_table_dropped(&mut self) {
        self.counts.released += 1;
    }

    fn record_upper(&mut self, change: Change, entries: u64) {
        self.counts.changed[change.index()] += entries;
        self.tables = true;
        if self.pending.is_none() {
            self.pending = Some(self.table.begin_pending());
        }
    }
}
