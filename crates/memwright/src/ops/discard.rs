//! Discarding page contents: `MADV_DONTNEED`, `MADV_FREE`, `MADV_REMOVE` (Linux 7.2 `mm/madvise.c`,
//! `madvise_dontneed_free` and `madvise_remove`).

use memwright_table::sync::PausePoints;
use memwright_table::{Machine, Marks, PageRange, VirtAddr};

use crate::mm::check;
use crate::mm::check_seal::check_seal;
use crate::mm::core::Core;
use crate::mm::space::{AREAS, AddressSpace, Area};
use crate::range::zap::Taken;
use crate::types::advice::Advice;
use crate::types::error::AdviseError;
use crate::types::rights::Rights;
use crate::types::stats::Row;
use crate::types::uffd::{Watch, WatchEvent};
use crate::vma::area::AreaFlags;

impl Advice {
    /// Returns whether the advice discards contents, either at once or when memory is short.
    pub const fn takes_contents(self) -> bool {
        matches!(
            self,
            Self::DontNeed | Self::DontNeedLocked | Self::Free | Self::Remove
        )
    }
}

/// Returns an error if the area does not permit the discard that `advice` requests. This check precedes the
/// notification of the userfaultfd context.
fn check_discard<M: Machine>(
    area: &Area<M>,
    part: PageRange,
    advice: Advice,
) -> Result<(), AdviseError> {
    let at = part.start.address();
    let is_locked = area.flags().contains(AreaFlags::LOCKED);
    let is_hugetlb = area.flags().contains(AreaFlags::HUGETLB);
    let is_device = area.flags().contains(AreaFlags::PHYSICAL);
    let refused = match advice {
        Advice::Remove => is_locked || area.object().is_none(),
        Advice::Free => is_locked || is_hugetlb || is_device,
        Advice::DontNeed => is_locked && !is_hugetlb || is_device,
        Advice::DontNeedLocked => is_device,
        _ => false,
    };
    if refused {
        return Err(AdviseError::NotApplicable(at));
    }
    let writable = area.is_shared() && area.max_rights.contains(Rights::WRITE);
    if advice == Advice::Remove && !writable {
        return Err(AdviseError::Denied(at));
    }
    Ok(())
}

impl<M: Machine> AddressSpace<M> {
    /// Discards the contents of `length` bytes, rounded up to pages, according to `advice`, which must [discard
    /// contents](Advice::takes_contents). Calls `witness` before it discards the part of an area whose userfaultfd
    /// context receives removal events. No lock is held while `witness` runs, so `witness` is allowed to sleep
    /// (`userfaultfd_remove`).
    ///
    /// # Errors
    /// See [`advise`](Self::advise).
    pub fn discard(
        &self,
        address: VirtAddr,
        length: u64,
        advice: Advice,
        witness: &mut dyn FnMut(&Watch, WatchEvent),
    ) -> Result<(), AdviseError> {
        let range = check::pages(address, length)?;
        self.core.discard(range, advice, witness)
    }
}

impl<M: Machine> Core<M> {
    /// Discards the contents of `range` area by area, for `AddressSpace::discard`. Skips holes. If there was a hole,
    /// returns an error for the first one, but only after all areas have been processed (`madvise_walk_vmas`).
    fn discard(
        &self,
        range: PageRange,
        advice: Advice,
        witness: &mut dyn FnMut(&Watch, WatchEvent),
    ) -> Result<(), AdviseError> {
        let mut hole = None;
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        let mut next = range.start;
        // The end of the part whose userfaultfd contexts have been notified.
        let mut told = range.start;
        while next < range.end {
            points.round();
            let areas = self.areas.read(self.cpu());
            let left = PageRange::new(next, range.end);
            let found = areas.map.overlapping(left).next();
            let Some(area) = found.filter(|area| area.start() <= next || told <= next) else {
                // The area was unmapped while `witness` ran: record a hole here.
                hole = hole.or(Some(next));
                break;
            };
            if area.start() > next {
                hole = hole.or(Some(next));
            }
            let part = area.range().intersect(left);
            check_seal(self, area, part, advice)?;
            check_discard(area, part, advice)?;
            let event = WatchEvent::Removed(part);
            let watcher = area.backing().watcher();
            let watcher = watcher.filter(|watch| told <= part.start && watch.is_told_of(event));
            if let Some(watch) = watcher.cloned() {
                drop(areas);
                witness(&watch, event);
                (next, told) = (part.start, part.end);
                continue;
            }
            match advice {
                Advice::Remove => {
                    let at = part.start.address();
                    let object = area.object().ok_or(AdviseError::NotApplicable(at))?.clone();
                    let first = area.offset_of(part.start);
                    // Release the lock first: the object unmaps its pages from every address space, including this one.
                    drop(areas);
                    match object.remove(&self.memory, first, part.len()) {
                        Ok(true) => {}
                        Ok(false) => return Err(AdviseError::NotApplicable(at)),
                        Err(error) => return Err(AdviseError::Fault(error.into())),
                    }
                }
                Advice::Free => self.free(area, part)?,
                _ => self.drop_pages(area, part)?,
            }
            next = part.end;
        }
        hole.map_or(Ok(()), |page| Err(AdviseError::Hole(page.address())))
    }

    /// Unmaps the pages of `range`, a part of `area`. Guard markers stay. A page of an object leaves a marker if its
    /// entry has uffd-wp state. Anonymous pages lose their uffd-wp state.
    pub(super) fn drop_pages(&self, area: &Area<M>, range: PageRange) -> Result<(), AdviseError> {
        if area.flags().contains(AreaFlags::HUGETLB) {
            return self.drop_hugetlb(area, range);
        }
        let cpu = self.cpu();
        self.note_peak(cpu);
        let mut gather = self.gather();
        let mut cursor = self.table.cursor(range).pausing();
        self.split_cut(&mut cursor, &mut gather, Row::HugeSplitsAdvise);
        let mut result = Ok(());
        if !area.flags().intersects(AreaFlags::MARKED) {
            cursor.remove_all(&mut gather);
        } else if area.object().is_some() {
            self.remove_pages(area, &mut cursor, &mut gather, Taken::All);
        } else {
            result = cursor.split_edges(&mut gather);
            if result.is_ok() {
                self.remove_pages(area, &mut cursor, &mut gather, Taken::All);
                drop(cursor);
                self.table
                    .cursor(range)
                    .unmark(Marks::UFFD_WP | Marks::POISON);
            }
        }
        let counts = gather.close();
        self.note_gather(cpu, counts);
        Ok(result?)
    }
}
