//! The entries of page tables that several address spaces share.

use memwright_table::{CpuId, Gather, Machine, PageRange, TableTotals};

use crate::mm::core::Core;
use crate::types::stats::Row;

impl<M: Machine> Core<M> {
    /// Leaves the shared tables of `range` to the other address spaces that share them.
    pub(crate) fn leave_shared(&self, cpu: CpuId, range: PageRange, gather: &mut Gather<'_, M>) {
        if self.table.has_shared() {
            let left = self.table.leave_tables(range, gather);
            self.note_left(cpu, &left);
        }
    }

    /// Counts the entries of the tables that a fork shares with this address space, the child's.
    pub(crate) fn note_shared(&self, cpu: CpuId, shared: &TableTotals) {
        self.note_resident(cpu, shared.counted);
        self.note_uncounted(cpu, shared.others());
        if shared.swapped > 0 {
            self.note_swapped(shared.swapped as i64);
        }
        self.memory.count_on(cpu, Row::TablesShared, shared.tables);
    }

    /// Counts the entries of shared tables that this address space has left.
    fn note_left(&self, cpu: CpuId, left: &TableTotals) {
        self.note_left_pages(cpu, left.counted);
        if left.swapped > 0 {
            self.note_swapped(-(left.swapped as i64));
        }
    }
}
