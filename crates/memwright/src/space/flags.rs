//! Changing the flags of areas: what `mlock` and some advice do.

use memwright_table::sync::PausePoints;
use memwright_table::{Machine, PageRange, VirtAddr};

use super::areas::CutError;
use super::{AREAS, Areas, Core, cuts_hugetlb};
use crate::error::Limit;
use crate::stats::Row;
use crate::vma::AreaFlags;

/// Why flags were not changed to the end of the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlagsError {
    /// Nothing is mapped here. Who passes over holes goes on behind it.
    Hole(VirtAddr),
    OverLimit(Limit),
    /// A huge page of the pool would be cut.
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

/// What happens at a hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holes {
    /// The change stops.
    Stop,
    /// The rest is changed, and the first hole reported.
    Pass,
}

impl<M: Machine> Core<M> {
    /// Gives every area of `range` the flags that `rule` makes of its own, splitting and merging as
    /// needed (Linux 7.2 `mm/vma.c`, `vma_modify_flags`). Areas before the one that failed have changed.
    pub(crate) fn change_flags(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        holes: Holes,
        rule: impl Fn(AreaFlags) -> AreaFlags,
    ) -> Result<(), FlagsError> {
        let mut hole = None;
        let mut points = PausePoints::every(AREAS);
        let mut start = range.start;
        while start < range.end {
            points.round();
            let position = areas.map.at_or_after(start);
            let found = position.map(|position| areas.map.get(position));
            let Some(area) = found.filter(|area| area.start() < range.end) else {
                hole = hole.or(Some(start));
                break;
            };
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
            let new = rule(old);
            if new == old {
                continue;
            }
            let mut position = position.expect("an area was found");
            if part != whole {
                if cuts_hugetlb(old, part) {
                    return Err(FlagsError::Misaligned);
                }
                self.split_at_edges(part, Row::HugeSplitsAdvise);
                position = areas.cut(position, whole, part)?;
            }
            areas.count_change((rights, old), (rights, new), part.len());
            areas.map.get_mut(position).flags = new;
            areas.map.merge_around(position);
        }
        self.note_areas(self.cpu(), areas);
        match hole {
            Some(page) => Err(FlagsError::Hole(page.address())),
            None => Ok(()),
        }
    }
}
