//! Installs NUMA hints in an address space, part by part (Linux 7.2 `kernel/sched/fair.c`, `task_numa_work`, and
//! `mm/mprotect.c`).

use memwright_table::{Architecture, Bits, Edit, Machine, Page, PageRange};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::mm::theme::Numa;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;

/// The number of pages that a lowest-level page table maps.
const TABLE_PAGES: u64 = 512;

/// Returns the edit that makes an entry with these bits a NUMA hint, so that the next access through it faults. The
/// edit does not change an entry of the zero page, because all programs share the zero page. It does not change an
/// entry of a page with several owners, because such a page has no preferred node.
fn hinting(bits: Bits) -> Edit {
    let told = bits.contains(Bits::READ | Bits::EXCLUSIVE) && !bits.contains(Bits::BORROWED);
    if told {
        Edit {
            set: Bits::HINT,
            clear: Bits::RIGHTS,
        }
    } else {
        Edit::NONE
    }
}

/// Returns whether NUMA hints are installed in the area. The area must be private anonymous memory with movable pages,
/// must have had a page, and must permit some access.
fn is_hinted<M: Machine>(area: &Area<M>) -> bool {
    let excluded = AreaFlags::SECRET | AreaFlags::HUGETLB | AreaFlags::SHARED;
    area.object().is_none()
        && area.has_faulted()
        && !area.rights().is_none()
        && !area.flags().intersects(excluded)
}

impl<M: Machine> Numa<'_, M> {
    /// Installs NUMA hints from `from` on, until about `budget` pages were scanned, and subtracts the number of pages
    /// scanned from `budget`. Returns the page to continue with, or `None` at the end of the address space.
    pub fn scan_for_hints(&self, from: Page, budget: &mut u64) -> Option<Page> {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        let rest = PageRange::new(from.min(M::Arch::USER.end), M::Arch::USER.end);
        for area in areas.map.overlapping(rest) {
            if !is_hinted(area) {
                continue;
            }
            let mut left = area.range().intersect(rest);
            while !left.is_empty() {
                if *budget == 0 {
                    return Some(left.start);
                }
                // Each part ends at the end of a page table or of the area, so that no huge page is split.
                let some = left.start.number() + *budget;
                let end = some.next_multiple_of(TABLE_PAGES).min(left.end.number());
                let part = PageRange::new(left.start, Page::new(end));
                core.hint(part);
                *budget = budget.saturating_sub(part.len());
                left.start = part.end;
            }
        }
        None
    }
}

impl<M: Machine> Core<M> {
    /// Installs NUMA hints in the entries of `range`, with one flush.
    fn hint(&self, range: PageRange) {
        let cpu = self.cpu();
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range);
        let hinted = cursor.edit_alike(range.end, hinting, &mut gather).changed;
        drop(cursor);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        self.memory.count_on(cpu, Row::EntriesHinted, hinted);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_one_owner_that_can_be_read_are_hinted() {
        let (r, w, x) = (Bits::READ, Bits::WRITE, Bits::EXCLUSIVE);
        let hint = Edit {
            set: Bits::HINT,
            clear: Bits::RIGHTS,
        };
        #[rustfmt::skip]
        let rows = [
            ("writable",             r | w | x | Bits::DIRTY, hint),
            ("read only",            r | x,                   hint),
            ("of several owners",    r,                       Edit::NONE),
            ("the page of zeroes",   r | Bits::BORROWED,      Edit::NONE),
            ("without access",       x,                       Edit::NONE),
            ("hinting already",      x | Bits::HINT,          Edit::NONE),
        ];
        for (name, bits, edit) in rows {
            assert_eq!(hinting(bits), edit, "{name}");
        }
    }
}
