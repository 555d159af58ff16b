//! Scans that change no entry, and scans for pages that were accessed (Linux 7.3 `fs/proc/task_mmu.c`,
//! `pagemap_page_category`).

use memwright_table::sync::PausePoints;
use memwright_table::{AlikeRun, Entry, Machine, Page, PageRange, PageSize, Tracked};

use crate::mm::core::Core;
use crate::track::scan::{Look, TABLES};
use crate::types::scan::{Categories, Share, Take};
use crate::vma::idle::accessed;

/// The decision on a run of pages: whether the scan selects the run, and the categories to report. Later runs with the
/// same properties reuse the decision.
#[derive(Clone, Copy)]
struct Decision {
    run: AlikeRun,
    categories: Categories,
    wanted: bool,
}

/// The last two decisions. Two are kept because runs of two kinds often alternate.
type Decisions = [Option<Decision>; 2];

impl<M: Machine> Core<M> {
    /// Scans every entry of `range` without changing any. Passes consecutive pages with equal entries to the callback
    /// as one run. Returns the page at which the scan stopped.
    pub(super) fn scan_alike(&self, look: &mut Look<'_, M, impl Take>, range: PageRange) -> Page {
        self.scan_with(look, range, |_, found| found)
    }

    /// Scans `range`, a part of an area that is not registered for write protection, without changing any entry. No
    /// page counts as written. In an area registered for read-write protection, pages can count as accessed. A scan
    /// that selects only accessed pages skips the page tables in which no page was accessed. Returns the page at which
    /// the scan stopped.
    pub(super) fn scan_untracked(
        &self,
        look: &mut Look<'_, M, impl Take>,
        range: PageRange,
    ) -> Page {
        let only_accessed = look.scan.wants_only(Categories::ACCESSED);
        match look.area.watches_accesses() {
            _ if look.scan.wants_only(Categories::WRITTEN) => range.end,
            true if only_accessed => self.scan_touched(look, range),
            true => self.scan_with(look, range, by_access),
            false if only_accessed => range.end,
            false => self.scan_with(look, range, |_, found| found - Categories::WRITTEN),
        }
    }

    /// Scans every entry of `range`. Reports the categories that `also` returns for an entry and the categories found
    /// for it.
    #[inline(always)]
    fn scan_with(
        &self,
        look: &mut Look<'_, M, impl Take>,
        range: PageRange,
        also: impl Fn(Entry, Categories) -> Categories,
    ) -> Page {
        // In an area of an object, each page is categorized separately, because the area can contain private copies as
        // well.
        let singly = look.area.object().is_some();
        let mut decisions = [None; 2];
        let mut end = None;
        self.table.look(range).pausing().each_alike(singly, |run| {
            end = self.offer(look, run, singly, &mut decisions, &also);
            end.is_none()
        });
        end.unwrap_or(range.end)
    }

    /// Scans the entries of `range` that can have been accessed since they were armed.
    fn scan_touched(&self, look: &mut Look<'_, M, impl Take>, range: PageRange) -> Page {
        let singly = look.area.object().is_some();
        let mut decisions = [None; 2];
        let mut points = PausePoints::<M::Threads>::every(TABLES);
        let mut next = range.start;
        loop {
            next = self
                .table
                .pass_quiet(PageRange::new(next, range.end), Tracked::Accesses);
            if next == range.end {
                return next;
            }
            points.round();
            let cursor = self.table.look(PageRange::new(next, range.end));
            if !matches!(cursor.size(), PageSize::Size4K) {
                let run = cursor.run_here();
                next = run.range.end;
                if let Some(end) = self.offer(look, run, singly, &mut decisions, by_access) {
                    return end;
                }
                continue;
            }
            let end = cursor.locked_end();
            for run in cursor.accessed(next, end, !singly) {
                if let Some(end) = self.offer(look, run, singly, &mut decisions, by_access) {
                    return end;
                }
            }
            next = end;
        }
    }

    /// Passes a run to the callback if the scan selects the run. Returns the first page that the callback did not take.
    /// Returns `None` if the callback took the complete run, or if the scan does not select the run.
    #[inline(always)]
    fn offer(
        &self,
        look: &mut Look<'_, M, impl Take>,
        run: AlikeRun,
        singly: bool,
        decisions: &mut Decisions,
        also: impl Fn(Entry, Categories) -> Categories,
    ) -> Option<Page> {
        let known = decisions
            .iter()
            .flatten()
            .find(|last| run.is_like(&last.run));
        let decision = match known {
            Some(known) if !singly => *known,
            Some(_) | None => {
                let decision = self.decide(look, run, also);
                *decisions = [decisions[1], Some(decision)];
                decision
            }
        };
        if !decision.wanted {
            return None;
        }
        let pages = run.range.len();
        let taken = look
            .take
            .take(run.range, decision.categories, Share::Any)
            .min(pages);
        (taken < pages).then(|| run.range.start.add(taken))
    }

    #[inline(never)]
    fn decide(
        &self,
        look: &Look<'_, M, impl Take>,
        run: AlikeRun,
        also: impl Fn(Entry, Categories) -> Categories,
    ) -> Decision {
        let entry = run.entry();
        let found = self.categories(look.area, entry, run.size());
        let categories = look.common | also(entry, found);
        Decision {
            run,
            categories,
            wanted: look.scan.wants(categories),
        }
    }
}

/// Returns the categories of `entry`, which is in an area registered for read-write protection: the categories in
/// `found` except `WRITTEN`, and `ACCESSED` if the entry is a marker or its page was accessed.
fn by_access(entry: Entry, found: Categories) -> Categories {
    let bits = match entry {
        Entry::Present(page) => Some(page.bits),
        Entry::Swapped(page) => Some(page.bits),
        Entry::Migrating(page) => Some(page.bits),
        Entry::Empty | Entry::Marker(_) => None,
    };
    let mut found = found - Categories::WRITTEN;
    // On Linux a marker is a swap entry without read-write protection, so it counts as accessed.
    let marker = matches!(entry, Entry::Marker(_));
    found.set(Categories::ACCESSED, marker || bits.is_some_and(accessed));
    found
}
