//! Collapsing small pages into huge pages, on request or by a scan (Linux 7.2 `mm/khugepaged.c`).

use core::sync::atomic::Ordering;
use memwright_table::sync::pause_point;
use memwright_table::{
    Architecture, Bits, CpuId, Entry, FOLIO_ORDER, FrameKind, Machine, Page, PageRange, Present,
};

use crate::huge::collapse_object::shows_object;
use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::object::CollapseLimits;
use crate::mm::theme::HugePages;
use crate::types::error::{AdviseError, FaultError};
use crate::types::folio_split::Scanned;
use crate::types::huge::{HUGE_PAGES, around};
use crate::types::purpose::{Finished, Purpose};
use crate::types::stats::Row;
use crate::vma::anon_vma::AnonVma;
use crate::vma::area::AreaFlags;
use crate::vma::huge::HugeAsker;
use crate::vma::idle::accessed;
use crate::vma::writable::NEW;
use crate::vma::written::written;

/// The reason why pages were not collapsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CollapseFailure {
    /// The area or the settings do not allow a huge page here.
    NotEligible,
    /// The range has no lowest-level page table, so no 4 KiB page is mapped in it.
    NoTable,
    /// The range has a marker, a write protection, or a page that is not anonymous memory of this process.
    Unfit,
    /// More pages are missing, shared or in swap than the settings or a userfaultfd allow, or too few were accessed.
    BeyondLimits,
    /// A page is pinned, is being migrated, or is being read by another thread: a retry may succeed.
    Busy,
    /// No 2 MiB of contiguous frames are free.
    NoFrames,
    /// This page is being read from a swap device. The caller releases the locks, completes the read, and repeats the
    /// collapse.
    Reading(Page),
}

impl CollapseFailure {
    /// Returns the error for the program (`madvise_collapse_errno`).
    fn advise_error(self, page: Page) -> AdviseError {
        match self {
            Self::NotEligible | Self::NoTable | Self::Unfit | Self::BeyondLimits => {
                AdviseError::NotApplicable(page.address())
            }
            Self::Busy | Self::Reading(_) => AdviseError::Busy(page.address()),
            Self::NoFrames => AdviseError::Fault(FaultError::OutOfMemory),
        }
    }
}

/// The result of checking one 2 MiB range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// The pages can be collapsed. The value is the number of pages that are in swap.
    Small(u32),
    /// One huge page is already mapped in the range.
    Huge,
}

/// The limits of a scan on a 2 MiB range: how many of its 512 pages may be missing, shared, or in swap.
#[derive(Clone, Copy, Debug)]
struct ScanLimits {
    missing: u32,
    shared: u32,
    swapped: u32,
}

/// A scan swaps pages in only if at least this many of the resident pages in the range were accessed.
const LEAST_USED: u32 = HUGE_PAGES as u32 / 2;

/// The bits of a swap entry that prevent a collapse: the huge page could not keep the userfaultfd protection or
/// tracking of a single page.
const PROTECTED: Bits = Bits::UFFD_WP.union(Bits::WATCHED).union(Bits::IDLE);

impl<M: Machine> HugePages<'_, M> {
    /// Scans for pages to collapse from `from` on, until about `budget` pages were checked or no frames are free for a
    /// huge page. Subtracts the number of pages checked from `budget`.
    pub fn scan(&self, from: Page, budget: &mut u64) -> Scanned {
        let core = &*self.space.core;
        let mut next = from;
        while *budget > 0 {
            pause_point::<M::Threads>();
            let Some(range) = core.next_candidate(next) else {
                return Scanned::End;
            };
            next = range.end;
            *budget = budget.saturating_sub(HUGE_PAGES);
            let settings = &core.memory.huge().scan;
            let limits = ScanLimits {
                missing: settings.most_missing.load(Ordering::Relaxed),
                shared: settings.most_shared.load(Ordering::Relaxed),
                swapped: settings.most_swapped.load(Ordering::Relaxed),
            };
            if let Some(made) = core.scan_one(range, limits) {
                match made {
                    Ok(()) => {
                        settings.collapsed.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(CollapseFailure::NoFrames) => return Scanned::NoFrames(next),
                    Err(
                        CollapseFailure::NotEligible
                        | CollapseFailure::NoTable
                        | CollapseFailure::Unfit
                        | CollapseFailure::BeyondLimits
                        | CollapseFailure::Busy
                        | CollapseFailure::Reading(_),
                    ) => {}
                }
            }
        }
        Scanned::Until(next)
    }
}

impl<M: Machine> Core<M> {
    /// Collapses `range` if it meets the conditions of a scan; otherwise returns `None`.
    fn scan_one(
        &self,
        range: PageRange,
        limits: ScanLimits,
    ) -> Option<Result<(), CollapseFailure>> {
        let areas = self.areas.read(self.cpu());
        if shows_object(&areas, range) {
            let fits = self.is_mapped_small(&areas, range);
            drop(areas);
            let limits = CollapseLimits {
                missing: limits.missing.into(),
                swapped: limits.swapped.into(),
            };
            return fits.then(|| {
                if self.collapse_object(range, HugeAsker::Setting, limits)? {
                    Ok(())
                } else {
                    Err(CollapseFailure::Unfit)
                }
            });
        }
        let fit = self.look(&areas, range, HugeAsker::Setting, Some(limits));
        drop(areas);
        if !matches!(fit, Ok(Found::Small(_))) {
            return None;
        }
        Some(self.collapse_unlocked(range, HugeAsker::Setting, Some(limits)))
    }

    /// Returns the first 2 MiB range from `from` on for which the area and the settings allow a huge page.
    fn next_candidate(&self, from: Page) -> Option<PageRange> {
        let areas = self.areas.read(self.cpu());
        let rest = PageRange::new(from.min(M::Arch::USER.end), M::Arch::USER.end);
        for area in areas.map.overlapping(rest) {
            let first = area.start().max(from).number().next_multiple_of(HUGE_PAGES);
            let range = around(Page::new(first));
            if self.area_may_be_huge(area, range, HugeAsker::Setting) {
                return Some(range);
            }
        }
        None
    }

    /// Performs `MADV_COLLAPSE` (`madvise_collapse`).
    pub(crate) fn advise_collapse(&self, range: PageRange) -> Result<(), AdviseError> {
        let mut hole = None;
        let mut next = range.start;
        while next < range.end {
            let areas = self.areas.read(self.cpu());
            let rest = PageRange::new(next, range.end);
            let Some(area) = areas.map.overlapping(rest).next() else {
                hole = hole.or(Some(next));
                break;
            };
            if area.start() > next {
                hole = hole.or(Some(next));
            }
            let part = area.range().intersect(rest);
            let first = area.start().number().next_multiple_of(HUGE_PAGES);
            let any = around(Page::new(first));
            // Anonymous memory that never had a private page is not eligible (`__thp_vma_allowable_orders`).
            let untouched = area.object().is_none() && !area.has_faulted();
            if untouched || !self.area_may_be_huge(area, any, HugeAsker::Program) {
                return Err(AdviseError::NotApplicable(part.start.address()));
            }
            drop(areas);
            self.collapse_all(part)?;
            next = part.end;
        }
        hole.map_or(Ok(()), |page| Err(AdviseError::Hole(page.address())))
    }

    /// Collapses every complete 2 MiB range of `part`. Continues after a failure, unless no frames are free. Returns
    /// the error of the last failure.
    fn collapse_all(&self, part: PageRange) -> Result<(), AdviseError> {
        let mut start = part.start.number().next_multiple_of(HUGE_PAGES);
        let mut failure = Ok(());
        while start + HUGE_PAGES <= part.end.number() {
            let page = Page::new(start);
            pause_point::<M::Threads>();
            match self.collapse_one(around(page)) {
                Ok(()) => {}
                Err(found @ CollapseFailure::NoFrames) => return Err(found.advise_error(page)),
                Err(found) => failure = Err(found.advise_error(page)),
            }
            start += HUGE_PAGES;
        }
        failure
    }

    fn collapse_one(&self, range: PageRange) -> Result<(), CollapseFailure> {
        if shows_object(&self.areas.read(self.cpu()), range) {
            // The collapse succeeds once the object has the huge page, even if the huge page cannot be mapped here.
            let limits = CollapseLimits {
                missing: HUGE_PAGES,
                swapped: HUGE_PAGES,
            };
            let done = self.collapse_object(range, HugeAsker::Program, limits);
            return done.map(|_| ());
        }
        self.collapse_unlocked(range, HugeAsker::Program, None)
    }

    /// Collapses the small pages of `range` into one huge page. If a page must be read from a swap device, waits for
    /// the read with no lock held.
    fn collapse_unlocked(
        &self,
        range: PageRange,
        asker: HugeAsker,
        limits: Option<ScanLimits>,
    ) -> Result<(), CollapseFailure> {
        loop {
            let mut areas = self.areas.write();
            let collapsed = self.collapse(&mut areas, range, asker, limits);
            drop(areas);
            let Err(CollapseFailure::Reading(page)) = collapsed else {
                return collapsed;
            };
            match self.finish_reads(page, Purpose::Unasked) {
                // Another thread reads the page.
                Finished::Nothing => return Err(CollapseFailure::Busy),
                Finished::Again => {}
                Finished::Over(outcome) => self.note_read_back(outcome.map_err(failure_of)?),
            }
        }
    }

    /// Checks whether the small pages of `range` can become one huge page (`collapse_scan_pmd`).
    fn look(
        &self,
        areas: &Areas<M>,
        range: PageRange,
        asker: HugeAsker,
        limits: Option<ScanLimits>,
    ) -> Result<Found, CollapseFailure> {
        let area = areas.map.find(range.start);
        let area = area.filter(|area| self.area_may_be_huge(area, range, asker));
        let area = area.ok_or(CollapseFailure::NotEligible)?;
        let mut cursor = self.table.cursor(range);
        if !cursor.is_in_last_table() {
            return match cursor.peek() {
                Entry::Present(_) => Ok(Found::Huge),
                Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => {
                    Err(CollapseFailure::NoTable)
                }
            };
        }
        let (mut missing, mut shared, mut swapped, mut used) = (0, 0, 0, 0);
        loop {
            match cursor.peek() {
                Entry::Empty => missing += 1,
                Entry::Present(page) if !written(page.bits) || !accessed(page.bits) => {
                    return Err(CollapseFailure::Unfit);
                }
                Entry::Present(page) if page.bits.contains(Bits::BORROWED) => missing += 1,
                Entry::Present(page) => {
                    shared += u32::from(self.is_shared_page(page)?);
                    let accessed = Bits::ACCESSED | Bits::FOLDED_ACCESSED;
                    used += u32::from(page.bits.intersects(accessed));
                }
                Entry::Swapped(page) if page.bits.intersects(PROTECTED) => {
                    return Err(CollapseFailure::Unfit);
                }
                Entry::Swapped(_) => swapped += 1,
                Entry::Marker(_) => return Err(CollapseFailure::Unfit),
                Entry::Migrating(_) => return Err(CollapseFailure::Busy),
            }
            if !cursor.advance() {
                break;
            }
        }
        if missing > 0 && area.flags().intersects(AreaFlags::UFFD) {
            // A collapse would fill the missing pages without notifying the userfaultfd context.
            return Err(CollapseFailure::BeyondLimits);
        }
        match limits {
            Some(limits)
                if missing > limits.missing
                    || shared > limits.shared
                    || swapped > limits.swapped
                    || used == 0
                    || (swapped > 0 && used < LEAST_USED) =>
            {
                Err(CollapseFailure::BeyondLimits)
            }
            Some(_) | None => Ok(Found::Small(swapped)),
        }
    }

    /// Returns whether the page has references besides the one of its entry.
    ///
    /// # Errors
    /// The page cannot be collapsed.
    fn is_shared_page(&self, page: Present) -> Result<bool, CollapseFailure> {
        let frames = self.memory.frames();
        if frames.kind(page.frame) != FrameKind::Anonymous || page.bits.contains(Bits::MERGED) {
            return Err(CollapseFailure::Unfit);
        }
        if frames.pins(page.frame) != 0 {
            return Err(CollapseFailure::Busy);
        }
        Ok(frames.references(page.frame) > 1)
    }

    /// Collapses the small pages of `range` into one huge page.
    fn collapse(
        &self,
        areas: &mut Areas<M>,
        range: PageRange,
        asker: HugeAsker,
        limits: Option<ScanLimits>,
    ) -> Result<(), CollapseFailure> {
        match self.look(areas, range, asker, limits)? {
            Found::Huge => return Ok(()),
            Found::Small(swapped) if swapped > 0 => self.bring_in(areas, range)?,
            Found::Small(_) => {}
        }
        let area = areas.map.find(range.start);
        let area = area.ok_or(CollapseFailure::NotEligible)?;
        let cpu = self.cpu();
        let frames = self.memory.frames();
        let Ok(folio) = frames.allocate(FOLIO_ORDER, FrameKind::Anonymous) else {
            self.memory.count_on(cpu, Row::HugeFallbacks, 1);
            return Err(CollapseFailure::NoFrames);
        };
        if !area.has_faulted() {
            let shared = areas.map.anon_vma_around(area);
            let anon_vma = shared.unwrap_or_else(|| AnonVma::founded(self.next_anon_vma(cpu)));
            area.anon_vma.found::<M::Threads>(anon_vma);
        }
        let mut gather = self.gather();
        let decide = |_| area.entry_bits(NEW);
        let collapsed = self.table.collapse(range, folio, decide, &mut gather);
        let counts = gather.close();
        self.note_gather(cpu, counts);
        let collapsed = collapsed.ok_or(CollapseFailure::NoTable)?;
        self.note_collapsed(cpu, collapsed.copied, collapsed.zeroed);
        Ok(())
    }

    /// Swaps in the pages of `range` that are in swap (`__collapse_huge_page_swapin`).
    fn bring_in(&self, areas: &Areas<M>, range: PageRange) -> Result<(), CollapseFailure> {
        let area = areas.map.find(range.start);
        let area = area.ok_or(CollapseFailure::NotEligible)?;
        let mut left = HUGE_PAGES;
        match self.bring_back(areas, area, range, None, &mut left) {
            Ok(_) => Ok(()),
            Err((page, FaultError::WouldBlock)) => Err(CollapseFailure::Reading(page)),
            Err((_, error)) => Err(failure_of(error)),
        }
    }

    fn note_collapsed(&self, cpu: CpuId, copied: u64, zeroed: u64) {
        self.note_filled_huge(cpu);
        let memory = &*self.memory;
        memory.count_on(cpu, Row::FramesCopied, copied);
        memory.count_on(cpu, Row::FramesZeroed, zeroed);
        memory.count_on(cpu, Row::HugeCollapses, 1);
    }
}

/// Returns the failure of a collapse for which a page could not be swapped in. `error` is the error of the swap-in.
fn failure_of(error: FaultError) -> CollapseFailure {
    if error == FaultError::OutOfMemory {
        CollapseFailure::NoFrames
    } else {
        CollapseFailure::Unfit
    }
}
