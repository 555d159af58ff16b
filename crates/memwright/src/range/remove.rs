//! Removal of the entries of a range (Linux 7.2 `mm/memory.c`, `unmap_vmas`).

use memwright_table::{CpuId, Machine, PageRange};

use crate::mm::core::Core;
use crate::types::stats::Row;

impl<M: Machine> Core<M> {
    /// Removes every entry of `range` and frees the page tables that become empty.
    pub(crate) fn remove_entries(&self, cpu: CpuId, range: PageRange) {
        self.note_peak(cpu);
        let mut gather = self.gather();
        let cut = self.remove_tables(cpu, range, &mut gather);
        if cut.is_none() || !self.table.is_bare() {
            let mut cursor = self.table.cursor(range).pausing();
            self.split_cut(&mut cursor, &mut gather, Row::HugeSplitsUnmap);
            let removed = cursor.remove_all(&mut gather);
            if cut.is_none() || removed > 0 {
                cursor.free_tables(&mut gather);
            }
        }
        if let Some(cut) = cut {
            self.table.drop_cut(cut, &mut gather);
        }
        let counts = gather.close();
        self.note_gather(cpu, counts);
    }

    /// Frees the lowest-level page tables of `range`, so that huge pages can be mapped there. No page of `range` may be
    /// mapped yet.
    #[cold]
    pub(crate) fn clear_way(&self, range: PageRange) {
        self.remove_entries(self.cpu(), range);
    }
}
