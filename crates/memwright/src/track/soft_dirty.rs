//! Clearing soft-dirty (Linux 7.2 `fs/proc/task_mmu.c`, `clear_refs_write` with 4).

use memwright_table::sync::PausePoints;
use memwright_table::{Bits, Edit, Machine, PageRange, Present};

use crate::mm::core::Core;
use crate::mm::space::AREAS;
use crate::mm::theme::Tracking;
use crate::types::policy::Track;
use crate::vma::area::AreaFlags;
use crate::vma::written::fold_dirty;

impl<M: Machine> Tracking<'_, M> {
    /// Clears the soft-dirty state of all pages. A page becomes soft-dirty again when it is written. Flushes the TLB
    /// once before it returns.
    pub fn clear_soft_dirty(&self) {
        let core = &*self.space.core;
        let cpu = core.cpu();
        let by_faults = core.memory.policy().track() == Track::Fault;
        let mut areas = core.areas.write();
        areas.map.for_each_mut(|area| {
            area.flags -= AreaFlags::SOFT_DIRTY;
            if (by_faults || area.is_shared()) && !area.flags().contains(AreaFlags::PHYSICAL) {
                area.flags |= AreaFlags::WATCH_STORES;
            }
        });
        let mut gather = core.gather();
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.iter() {
            points.round();
            let (range, flags) = (area.range(), area.flags());
            if flags.contains(AreaFlags::PHYSICAL) {
                // Stores to device memory are not tracked (`clear_refs_test_walk`).
                continue;
            }
            if core.memory.swaps() {
                core.clear_swapped(range);
            }
            let mut cursor = core.table.cursor(range).pausing();
            if area.is_shared() || !core.may_have_pinned() {
                cursor.edit_alike(range.end, |bits| arm(flags, bits), &mut gather);
                continue;
            }
            // The owner of a pin can write to the page without using the entry, so the page stays soft-dirty (rule:
            // exclusive-before-pin).
            let rule = |_, page: Present| {
                if core.is_pinned(page) {
                    Edit::NONE
                } else {
                    arm(flags, page.bits)
                }
            };
            cursor.edit_run(range.end, rule, &mut gather);
        }
        let counts = gather.close();
        drop(areas);
        core.note_gather(cpu, counts);
    }
}

impl<M: Machine> Core<M> {
    /// Clears the soft-dirty bits of pages in swap. The caller holds the lock of the areas for writing, so that no page
    /// is swapped in meanwhile.
    #[cold]
    fn clear_swapped(&self, range: PageRange) {
        let mut cursor = self.table.cursor(range).pausing();
        while cursor.next_filled().is_some() {
            cursor.edit_swapped(|bits| bits - Bits::SOFT_DIRTY);
            let end = cursor.locked_end();
            if end == range.end {
                break;
            }
            cursor.seek(end);
        }
    }
}

/// Returns the edit that arms an entry with `bits` in an area with `flags`.
fn arm(flags: AreaFlags, bits: Bits) -> Edit {
    let mut edit = if flags.contains(AreaFlags::WATCH_STORES) {
        Edit {
            set: Bits::empty(),
            clear: Bits::WRITE,
        }
    } else {
        fold_dirty(bits)
    };
    edit.set -= Bits::SOFT_DIRTY;
    edit.clear |= Bits::SOFT_DIRTY;
    edit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arming_keeps_the_right_to_write_where_the_dirty_bit_tells() {
        let (w, d, s) = (Bits::WRITE, Bits::DIRTY, Bits::SOFT_DIRTY);
        let (by_dirty, by_faults) = (AreaFlags::empty(), AreaFlags::WATCH_STORES);
        let after = |flags: AreaFlags, bits: Bits| {
            let edit = arm(flags, bits);
            (bits - edit.clear) | edit.set
        };
        assert_eq!(after(by_dirty, w | d | s), w | Bits::FOLDED_DIRTY);
        assert_eq!(after(by_dirty, w | s), w);
        assert_eq!(after(by_faults, w | d | s), d);
        assert_eq!(after(by_faults, s), Bits::empty());
    }
}
