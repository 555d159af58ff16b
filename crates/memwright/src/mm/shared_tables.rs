//! The entries of page tables that several address spaces share.

use memwright_table::{CpuId, CutTables, Gather, Machine, PageRange, PageSize, TableTotals};

use crate::mm::core::Core;
use crate::types::stats::Row;

impl<M: Machine> Core<M> {
    /// Removes the last-level page tables that are entirely in `range`. Tables that other address spaces share stay
    /// with those address spaces. Returns the removed tables, which the caller drops: all empty tables of `range` have
    /// then been freed. Returns `None` if `range` is shorter than the range of one table: nothing has been done then.
    #[inline]
    pub(crate) fn remove_tables(
        &self,
        cpu: CpuId,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Option<CutTables> {
        let length = range.end.number().wrapping_sub(range.start.number());
        if length < PageSize::Size2M.pages() {
            return None;
        }
        Some(self.remove_whole_tables(cpu, range, gather))
    }

    #[inline(never)]
    fn remove_whole_tables(
        &self,
        cpu: CpuId,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> CutTables {
        if self.table.has_shared() {
            let left = self.table.leave_tables(range, gather);
            self.note_left(cpu, &left);
        }
        self.table.cut_tables(range, gather)
    }

    /// Counts the entries of the tables that a fork makes this address space, the child, share with its parent.
    pub(crate) fn note_shared(&self, cpu: CpuId, shared: &TableTotals) {
        self.note_resident(cpu, shared.counted);
        self.note_uncounted(cpu, shared.others());
        if shared.swapped > 0 {
            self.note_swapped(shared.swapped as i64);
        }
        self.memory.count_on(cpu, Row::TablesShared, shared.tables);
    }

    /// Counts the entries of the shared tables that this address space no longer uses.
    fn note_left(&self, cpu: CpuId, left: &TableTotals) {
        self.note_left_pages(cpu, left.counted);
        if left.swapped > 0 {
            self.note_swapped(-(left.swapped as i64));
        }
    }
}
