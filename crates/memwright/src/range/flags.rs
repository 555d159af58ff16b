//! Changing the flags and names of areas, for `mlock`, some `madvise` calls and `prctl`.

use memwright_table::sync::PausePoints;
use memwright_table::{Machine, OutOfMemory, PageRange, VirtAddr};

use crate::mm::areas::{Areas, Backing, cuts_hugetlb};
use crate::mm::core::Core;
use crate::mm::space::{AREAS, Area};
use crate::types::error::{CutError, Limit};
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::map::{AreaMap, Position};

/// The areas of an address space.
type Map<M> = AreaMap<Backing<M>>;

/// The reason why not all flags in the range were changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagsError {
    /// Nothing is mapped at this address. With [`Holes::Pass`] the areas after the hole have changed.
    Hole(VirtAddr),
    OverLimit(Limit),
    /// The change would cut a hugetlb page.
    Misaligned,
    OutOfMemory,
}

impl From<CutError> for FlagsError {
    fn from(error: CutError) -> Self {
        match error {
            CutError::OverLimit(limit) => Self::OverLimit(limit),
            CutError::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// The way in which a change handles holes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// The change stops at the hole.
    Stop,
    /// The change continues after the hole. When it ends, it returns an error for the first hole.
    Pass,
}

impl<M: Machine> Core<M> {
    /// Sets the flags of every area of `range` to the flags that `rule` returns for the area's current flags. Splits
    /// and merges areas as needed (Linux 7.2 `mm/vma.c`, `vma_modify_flags`). On error the areas before the failing
    /// area have changed.
    pub(crate) fn change_flags(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        holes: Holes,
        rule: impl Fn(AreaFlags) -> AreaFlags,
    ) -> Result<(), FlagsError> {
        let plan = |map: &Map<M>, position| {
            let old = map.get(position).flags;
            let new = rule(old);
            Ok((new != old).then_some(new))
        };
        self.change_areas(areas, range, holes, plan, |area, flags| area.flags = flags)
    }

    /// Applies `change` to every area for which `plan` returns a change, limited to the part of the area in `range`.
    /// Splits and merges areas as needed. On error the areas before the failing area have changed.
    pub(crate) fn change_areas<T>(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        holes: Holes,
        plan: impl Fn(&Map<M>, Position) -> Result<Option<T>, OutOfMemory>,
        change: impl Fn(&mut Area<M>, T),
    ) -> Result<(), FlagsError> {
        let mut hole = None;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        let mut start = range.start;
        while start < range.end {
            points.round();
            let position = areas.map.at_or_after(start);
            let found = position.filter(|at| areas.map.get(*at).start() < range.end);
            let Some(mut position) = found else {
                hole = hole.or(Some(start));
                break;
            };
            let area = areas.map.get(position);
            if area.start() > start {
                hole = hole.or(Some(start));
                if holes == Holes::Stop {
                    break;
                }
                start = area.start();
            }
            let (old, rights) = (area.flags, area.rights);
            let whole = area.range();
            let part = PageRange::new(start, whole.end.min(range.end));
            start = part.end;
            let planned = plan(&areas.map, position).map_err(|_| FlagsError::OutOfMemory)?;
            let Some(planned) = planned else {
                continue;
            };
            if part != whole {
                if cuts_hugetlb(old, part) {
                    return Err(FlagsError::Misaligned);
                }
                self.split_at_edges(part, Row::HugeSplitsAdvise);
                position = areas.cut(position, whole, part)?;
            }
            let area = areas.map.get_mut(position);
            change(area, planned);
            let new = area.flags;
            areas.count_change((rights, old), (rights, new), part.len());
            areas.map.merge_around(position);
        }
        self.note_areas(self.cpu(), areas);
        match hole {
            Some(page) => Err(FlagsError::Hole(page.address())),
            None => Ok(()),
        }
    }
}
