//! Walks over the areas and entries of a range, for files such as `/proc/PID/smaps` and `clear_refs`.

use memwright_table::sync::PausePoints;
use memwright_table::{Bits, Edit, Extent, Machine, PageRange};

use crate::mm::space::{AREAS, Area};
use crate::mm::theme::{Tracking, Usage};
use crate::vma::area::AreaFlags;

/// A step of a walk, which is passed to the visitor.
pub enum Sight<'a, M: Machine> {
    /// An area. The entries of the area in the range follow.
    Area(&'a Area<M>),
    /// A run of pages that one entry maps. Passed with its area and with the number of other address spaces that share
    /// the entry's table.
    Entry(&'a Area<M>, Extent, u32),
}

/// Selects the pages whose accessed bits `forget_accesses` clears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// All pages.
    All,
    /// Pages of areas without an object.
    Anonymous,
    /// Pages of areas with an object.
    Mapped,
}

impl<M: Machine> Usage<'_, M> {
    /// Calls `visitor` with each area of `range` in ascending order, followed by every nonempty entry of the area in
    /// the range, until `visitor` returns false. The address space is locked for reading: `visitor` must not call into
    /// it.
    ///
    /// The number of entries that map a page is [`Frames::sharers`](memwright_table::Frames::sharers) of its frame,
    /// plus the number of other address spaces that share the table. The sum is exact after
    /// [`Memory::own_ambiguous_tables`](crate::Memory::own_ambiguous_tables).
    pub fn survey(&self, range: PageRange, mut visitor: impl FnMut(Sight<'_, M>) -> bool) {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.overlapping(range) {
            points.round();
            if !visitor(Sight::Area(area)) {
                return;
            }
            let mut goes_on = true;
            let mut look = core.table.look(area.range().intersect(range)).pausing();
            look.each_filled(|extent, others| {
                goes_on = visitor(Sight::Entry(area, extent, others));
                goes_on
            });
            if !goes_on {
                return;
            }
        }
    }

    /// Resets the peak of resident pages to the current number (a write of 5 to `/proc/PID/clear_refs`).
    pub fn reset_resident_peak(&self) {
        self.space.core.reset_peak();
    }
}

impl<M: Machine> Tracking<'_, M> {
    /// Clears the accessed bits of the pages that `which` selects, with a single flush (Linux 7.2 `fs/proc/task_mmu.c`,
    /// `clear_refs_pte_range`).
    pub fn forget_accesses(&self, which: Forget) {
        let core = &*self.space.core;
        let cpu = core.cpu();
        let areas = core.areas.read(cpu);
        let mut gather = core.gather();
        let wanted = areas.map.iter().filter(|area| {
            // Device memory is skipped (`clear_refs_test_walk`).
            !area.flags().contains(AreaFlags::PHYSICAL)
                && match which {
                    Forget::All => true,
                    Forget::Anonymous => area.object().is_none(),
                    Forget::Mapped => area.object().is_some(),
                }
        });
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in wanted {
            points.round();
            let range = area.range();
            core.table.cursor(range).pausing().edit_run(
                range.end,
                |_, page| Edit {
                    set: Bits::empty(),
                    clear: Bits::ACCESSED | Bits::FOLDED_ACCESSED | page.bits.past_idle(),
                },
                &mut gather,
            );
        }
        let counts = gather.close();
        drop(areas);
        core.note_gather(cpu, counts);
    }
}
