//! Looking at every page of a range, for whoever tells users of them.

use memwright_table::sync::PausePoints;
use memwright_table::{Bits, Edit, Extent, Machine, PageRange};

use super::{AREAS, AddressSpace, Area};

/// What a survey comes by.
pub enum Sight<'a, M: Machine> {
    /// An area, of which the part in the range follows.
    Area(&'a Area<M>),
    /// A run of pages of the last area that one entry answers for.
    Entry(&'a Area<M>, Extent),
}

/// Which pages have their accessed bits cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forget {
    /// All.
    All,
    /// Those of areas without an object.
    Anonymous,
    /// Those of areas with one.
    Mapped,
}

impl<M: Machine> AddressSpace<M> {
    /// Shows each area of `range` to `visitor`, followed by every entry there that is not empty, upwards, until
    /// `visitor` returns false. The address space is locked meanwhile: the visitor must not enter it.
    pub fn survey(&self, range: PageRange, mut visitor: impl FnMut(Sight<'_, M>) -> bool) {
        let core = &*self.core;
        let areas = core.areas.read(core.cpu());
        let mut points = PausePoints::every(AREAS);
        for area in areas.map.overlapping(range) {
            points.round();
            if !visitor(Sight::Area(area)) {
                return;
            }
            let mut goes_on = true;
            let mut look = core.table.look(area.range().intersect(range)).pausing();
            look.each_filled(|extent| {
                goes_on = visitor(Sight::Entry(area, extent));
                goes_on
            });
            if !goes_on {
                return;
            }
        }
    }

    /// Clears the accessed bits of the pages that `which` names, with one flush (Linux 7.2 `fs/proc/task_mmu.c`,
    /// `clear_refs_pte_range`).
    pub fn forget_accesses(&self, which: Forget) {
        let core = &*self.core;
        let cpu = core.cpu();
        let areas = core.areas.read(cpu);
        let mut gather = core.gather();
        let wanted = areas.map.iter().filter(|area| match which {
            Forget::All => true,
            Forget::Anonymous => area.object().is_none(),
            Forget::Mapped => area.object().is_some(),
        });
        let mut points = PausePoints::every(AREAS);
        for area in wanted {
            points.round();
            let range = area.range();
            core.table.cursor(range).pausing().edit_run(
                range.end,
                |_, _| Edit {
                    set: Bits::empty(),
                    clear: Bits::ACCESSED | Bits::FOLDED_ACCESSED,
                },
                &mut gather,
            );
        }
        let counts = gather.close();
        drop(areas);
        core.note_gather(cpu, counts);
    }

    /// Makes the peak of resident pages what is resident now (`/proc/PID/clear_refs`, 5).
    pub fn reset_resident_peak(&self) {
        self.core.reset_peak();
    }
}
