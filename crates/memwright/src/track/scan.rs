//! Scanning for pages by category. A scan can also write-protect the written pages in the same step (Linux 7.3
//! `fs/proc/task_mmu.c`, `PAGEMAP_SCAN`).
//!
//! A scan that selects only written pages skips unwritten ones: complete page tables whose pages were not accessed
//! since the last such scan, and runs of entries in other page tables. The skipping is reliable because a scan that
//! also protects first clears the accessed bits of the entries that point to the page tables, and flushes
//! ([`Table::settle`](memwright_table::Table)). The scan flushes again before it returns, for the pages that it has
//! write-protected.

use memwright_table::sync::PausePoints;
use memwright_table::{
    AlikeRun, Bits, Cursor, Entry, Extent, Gather, Machine, Marks, Page, PageRange, PageSize,
    Prepared, Swapped, Tracked,
};

use crate::mm::areas::cuts_hugetlb;
use crate::mm::core::Core;
use crate::mm::space::{AREAS, Area};
use crate::mm::theme::Tracking;
use crate::types::error::WatchError;
use crate::types::huge::HUGE_PAGES;
use crate::types::scan::{Categories, Scan, Share, Take};
use crate::vma::area::AreaFlags;
use crate::vma::written::{arm_written, is_by_dirty, written};

/// Returns whether stores to an area with these flags are tracked by asynchronous write protection.
fn is_tracked(flags: AreaFlags) -> bool {
    flags.contains(AreaFlags::UFFD_WP | AreaFlags::UFFD_ASYNC)
}

/// Returns the categories that all pages of an area with `flags` have, or `None` if the scan skips the area.
fn of_area(flags: AreaFlags, scan: &Scan) -> Result<Option<Categories>, WatchError> {
    let mut categories = Categories::empty();
    if is_tracked(flags) {
        categories |= Categories::TRACKED;
    } else if scan.only_tracked {
        return Err(WatchError::NotWritable);
    } else if scan.protect || flags.contains(AreaFlags::PHYSICAL) {
        return Ok(None);
    }
    categories.set(
        Categories::SOFT_DIRTY,
        flags.contains(AreaFlags::SOFT_DIRTY),
    );
    Ok(scan.wants_area(categories).then_some(categories))
}

impl<M: Machine> Tracking<'_, M> {
    /// Passes the pages that `scan` selects to `take`, in ascending order, with their categories. Returns where the
    /// scan stopped: at the first page that was not taken, or at the end of the range. Write protection is effective on
    /// every CPU before this function returns. The address space is locked for reading: `take` must not call into it.
    ///
    /// # Errors
    /// [`WatchError::NotWritable`] (Linux's EPERM) if the scan requires tracking and some memory has no tracked stores,
    /// or [`WatchError::OutOfMemory`]. Pages already taken stay taken.
    pub fn scan(
        &self,
        range: PageRange,
        scan: &Scan,
        take: &mut impl Take,
    ) -> Result<Page, WatchError> {
        let core = &*self.space.core;
        let cpu = core.cpu();
        let areas = core.areas.read(cpu);
        let mut gather = core.gather();
        let mut result = Ok(range.end);
        let mut passed = range.start;
        if scan.protect && scan.wants_only(Categories::WRITTEN) {
            for area in areas.map.overlapping(range) {
                let part = area.range().intersect(range);
                if is_tracked(area.flags()) {
                    let first = core.table.settle(part, Tracked::Stores, &mut gather);
                    if part.contains(passed) {
                        passed = first;
                    }
                }
            }
            gather.flush();
        }
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.overlapping(range) {
            points.round();
            let mut part = area.range().intersect(range);
            part.start = part.start.max(passed.min(part.end));
            result = match of_area(area.flags(), scan) {
                Ok(Some(common)) => {
                    let mut look = Look {
                        area,
                        common,
                        scan,
                        take: &mut *take,
                        known: None,
                    };
                    if area.flags().contains(AreaFlags::UFFD_WP) {
                        core.scan_area(&mut look, part, &mut gather)
                    } else {
                        Ok(core.scan_untracked(&mut look, part))
                    }
                }
                Ok(None) => continue,
                Err(error) => Err(error),
            };
            match result {
                Ok(end) if end == part.end => result = Ok(range.end),
                Ok(_) | Err(_) => break,
            }
        }
        let counts = gather.close();
        drop(areas);
        core.note_gather(cpu, counts);
        result
    }
}

/// The state of a scan in one area.
pub(super) struct Look<'a, M: Machine, T> {
    pub(super) area: &'a Area<M>,
    /// The categories of every page of the area.
    pub(super) common: Categories,
    pub(super) scan: &'a Scan,
    pub(super) take: &'a mut T,
    /// The decisions for the last run of pages. Later runs with the same properties reuse them.
    known: Option<Known>,
}

impl<M: Machine, T: Take> Look<'_, M, T> {
    /// Offers the pages of an entry to the callback, and returns how many the callback took. If only a part of a huge
    /// page can be protected, offers the pages as small pages: Linux splits the huge page first, before it is reported
    /// (Linux 7.3 `pagemap_scan_thp_entry`). Returns `None` if the scan does not select the small pages.
    fn take_of(&mut self, pages: PageRange, categories: Categories) -> Option<u64> {
        let mut take =
            |categories, share| self.take.take(pages, categories, share).min(pages.len());
        let pooled = self.area.flags().contains(AreaFlags::HUGETLB);
        let huge = categories.contains(Categories::HUGE | Categories::WRITTEN);
        if !self.scan.protect || !(pooled || huge) {
            return Some(take(categories, Share::Any));
        }
        let whole = pooled || pages.len() == HUGE_PAGES;
        let taken = if whole {
            take(categories, Share::Whole)
        } else {
            0
        };
        if pooled || taken > 0 {
            return Some(taken);
        }
        let small = categories - Categories::HUGE;
        let wanted = self.scan.wants(small);
        wanted.then(|| take(small, Share::Any))
    }
}

/// The decisions of a scan for written pages on a run of pages. Later runs with the same properties reuse the
/// decisions.
struct Known {
    run: AlikeRun,
    categories: Categories,
    wanted: bool,
    /// Whether the entries of the run map pages. If they do, they are protected together, unless the address space may
    /// have pinned pages.
    present: bool,
    arm: Prepared,
}

/// The result of scanning one page table.
struct Looked {
    /// The page at which the scan of the page table stopped.
    end: Page,
    /// Whether any page was selected.
    found: bool,
    /// Whether the scan visited every entry of the page table, and all of them are unwritten now.
    unwritten: bool,
}

/// The number of runs that a scan write-protects before it passes them to the callback.
const TOGETHER: usize = 8;

/// The number of page tables between two scheduling points of a scan for written pages.
pub(super) const TABLES: u32 = 4;

impl<M: Machine> Core<M> {
    fn scan_area(
        &self,
        look: &mut Look<'_, M, impl Take>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<Page, WatchError> {
        if !look.scan.wants_only(Categories::WRITTEN) {
            return if look.scan.protect {
                self.scan_each(look, range, gather)
            } else {
                Ok(self.scan_alike(look, range))
            };
        }
        let mut next = range.start;
        let mut written_before = false;
        let mut points = PausePoints::<M::Threads>::every(TABLES);
        loop {
            // After a page table with written pages, do not try to skip the next one: it is likely to have written
            // pages too.
            if !written_before {
                next = self
                    .table
                    .pass_quiet(PageRange::new(next, range.end), Tracked::Stores);
            }
            if next == range.end {
                return Ok(next);
            }
            let mut cursor = self
                .table
                .scanning_cursor(PageRange::new(next, range.end))
                .pausing();
            if !matches!(cursor.size(), PageSize::Size4K) {
                let slot = cursor.entry().range;
                drop(cursor);
                next = self.scan_each(look, slot, gather)?;
                if next < slot.end {
                    return Ok(next);
                }
                continue;
            }
            let end = Page::new((next.number() / HUGE_PAGES + 1) * HUGE_PAGES).min(range.end);
            let may_be_quiet = look.scan.protect && cursor.may_become_quiet(gather);
            let looked = self.look_at_table(look, &mut cursor, end, gather);
            if looked.unwritten && may_be_quiet {
                cursor.end_look(Tracked::Stores, true);
            }
            if looked.end < end {
                return Ok(looked.end);
            }
            written_before = looked.found;
            next = end;
            drop(cursor);
            points.round();
        }
    }

    /// Scans every entry of `range`, and write-protects the selected pages if `Scan::protect` is set. Returns the page
    /// at which the scan stopped.
    fn scan_each(
        &self,
        look: &mut Look<'_, M, impl Take>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<Page, WatchError> {
        let mut cursor = self.table.cursor(range).pausing();
        loop {
            let extent = cursor.entry();
            let found = self.categories(look.area, extent.entry, extent.size);
            let categories = look.common | found;
            let mut end = extent.range.end;
            if look.scan.wants(categories) {
                // A hugetlb page is write-protected completely or not at all.
                let pooled = look.area.flags().contains(AreaFlags::HUGETLB);
                if look.scan.protect && pooled && cuts_hugetlb(look.area.flags(), extent.range) {
                    return Ok(extent.range.start);
                }
                let Some(taken) = look.take_of(extent.range, categories) else {
                    if end == range.end || !cursor.advance() {
                        return Ok(range.end);
                    }
                    continue;
                };
                end = extent.range.start.add(taken);
                let protects = look.scan.protect && taken > 0;
                if protects && is_one_page(extent) && categories.contains(Categories::WRITTEN) {
                    let by_dirty = is_by_dirty(look.area.flags(), PageSize::Size4K);
                    self.protect_one(by_dirty, &mut cursor, gather);
                } else if protects && is_protectable(extent.entry, categories) {
                    // Protecting a marker or a part of a huge page can change more than this entry, so it needs a
                    // cursor of its own.
                    drop(cursor);
                    let part = PageRange::new(extent.range.start, end);
                    self.protect_part(look.area, part, gather)?;
                    if end == range.end || taken < extent.range.len() {
                        return Ok(end);
                    }
                    cursor = self.table.cursor(PageRange::new(end, range.end)).pausing();
                    continue;
                }
                if taken < extent.range.len() {
                    return Ok(end);
                }
            }
            if end == range.end || !cursor.advance() {
                return Ok(range.end);
            }
        }
    }

    /// Scans for written pages from the cursor's position to `end`, in one lowest page table.
    fn look_at_table(
        &self,
        look: &mut Look<'_, M, impl Take>,
        cursor: &mut Cursor<'_, M>,
        end: Page,
        gather: &mut Gather<'_, M>,
    ) -> Looked {
        // In an area of an object, each page is categorized separately, because the area can contain private copies as
        // well.
        let alike = look.area.object().is_none();
        let by_dirty = is_by_dirty(look.area.flags(), PageSize::Size4K);
        let arm = |bits| arm_written(by_dirty, bits);
        // One call is enough, because no other thread can pin a page of this table while the cursor holds the
        // page-table lock.
        let pinned = self.may_have_pinned();
        let mut looked = Looked {
            end,
            found: false,
            unwritten: true,
        };
        let mut from = cursor.position();
        if alike && !pinned && look.scan.protect {
            (from, looked.found) = protect_known(look, cursor, end, gather);
            if from == end {
                return looked;
            }
        }
        for run in cursor.touched(from, end, alike, Tracked::Stores) {
            let pages = run.range.len();
            let fits = |known: &Known| alike && run.is_like(&known.run);
            if !look.known.as_ref().is_some_and(fits) {
                let entry = run.entry();
                let found = self.categories(look.area, entry, PageSize::Size4K);
                let categories = look.common | found;
                look.known = Some(Known {
                    run,
                    categories,
                    wanted: look.scan.wants(categories),
                    present: matches!(entry, Entry::Present(_)),
                    arm: cursor.prepare(&run, arm, gather),
                });
            }
            let Some(known) = &look.known else { continue };
            if !known.wanted {
                looked.unwritten &= !known.categories.contains(Categories::WRITTEN);
                continue;
            }
            let taken = look
                .take
                .take(run.range, known.categories, Share::Any)
                .min(pages);
            if look.scan.protect {
                let mut done = 0;
                if known.present && !pinned {
                    done = cursor.edit_prepared(&run, taken, &known.arm, gather);
                }
                for page in done..taken {
                    cursor.seek(run.range.start.add(page));
                    looked.unwritten &= self.protect_one(by_dirty, cursor, gather);
                }
            }
            looked.found = true;
            if taken < pages {
                looked.end = run.range.start.add(taken);
                looked.unwritten = false;
                break;
            }
        }
        looked
    }

    /// Write-protects the entry at the cursor. Returns whether the entry is unwritten now.
    fn protect_one(
        &self,
        by_dirty: bool,
        cursor: &mut Cursor<'_, M>,
        gather: &mut Gather<'_, M>,
    ) -> bool {
        match cursor.peek() {
            // The owner of a pin can write to the page without using the entry, so leave it unprotected (rule:
            // exclusive-before-pin).
            Entry::Present(page) if self.is_pinned(page) => false,
            Entry::Present(page) => {
                let edit = arm_written(by_dirty, page.bits);
                cursor.edit(edit.set, edit.clear, gather);
                true
            }
            Entry::Swapped(page) => {
                let edit = arm_written(by_dirty, page.bits);
                let bits = ((page.bits - edit.clear) | edit.set) & Bits::CARRIED;
                cursor.replace(Entry::Swapped(Swapped { bits, ..page }), gather);
                true
            }
            Entry::Empty | Entry::Marker(_) => {
                cursor.mark_here(Marks::UFFD_WP);
                true
            }
            Entry::Migrating(_) => false,
        }
    }

    /// Returns the categories of an entry in a page table whose entries map pages of `size`.
    pub(super) fn categories(&self, area: &Area<M>, entry: Entry, size: PageSize) -> Categories {
        let flags = area.flags();
        let mut found = Categories::empty();
        let mut set = |category, there| found.set(category, there);
        let pooled = flags.contains(AreaFlags::HUGETLB);
        match entry {
            Entry::Empty => {
                // The page of an empty entry may have been written and then unmapped without leaving a marker (rule:
                // never-under-report). This does not apply to hugetlb pages (Linux 7.3 `pagemap_scan_pte_hole`).
                set(Categories::WRITTEN, !pooled);
                // Every hugetlb entry counts as huge, even an empty one (`pagemap_hugetlb_category`).
                let huge = pooled && matches!(size, PageSize::Size2M);
                set(Categories::HUGE, huge);
                return found;
            }
            Entry::Marker(marker) => {
                // On Linux a marker is a swap entry, so it counts as swapped.
                set(Categories::SWAPPED, true);
                set(Categories::HUGE, pooled);
                set(Categories::GUARD, marker.marks.contains(Marks::GUARD));
                set(Categories::WRITTEN, !marker.marks.contains(Marks::UFFD_WP));
                return found;
            }
            Entry::Swapped(page) => {
                set(Categories::SWAPPED, true);
                set(Categories::WRITTEN, written(page.bits));
                set(Categories::SOFT_DIRTY, area.is_soft_dirty(page.bits));
            }
            Entry::Migrating(page) => {
                set(Categories::SWAPPED, true);
                set(Categories::WRITTEN, written(page.bits));
                set(Categories::SOFT_DIRTY, area.is_soft_dirty(page.bits));
            }
            Entry::Present(page) => {
                let zero = page.bits.contains(Bits::BORROWED);
                set(Categories::PRESENT, true);
                set(Categories::WRITTEN, written(page.bits));
                let file = !zero && area.object().is_some() && !self.is_private(page.frame);
                set(Categories::FILE, file);
                set(Categories::ZERO, zero);
                set(Categories::HUGE, !matches!(page.size, PageSize::Size4K));
                set(Categories::SOFT_DIRTY, area.is_soft_dirty(page.bits));
            }
        }
        found
    }
}

/// Handles the pages of one lowest page table, from the cursor's position to `end`. Write-protects the written pages
/// that have the properties of the last run, and passes them to the callback. Stops at a page with other properties, or
/// when the callback may have no space. Returns the page at which it stopped, and whether any page was write-protected.
/// The caller has checked that no page of the table is pinned.
fn protect_known<M: Machine, T: Take>(
    look: &mut Look<'_, M, T>,
    cursor: &Cursor<'_, M>,
    end: Page,
    gather: &mut Gather<'_, M>,
) -> (Page, bool) {
    let (mut from, mut found) = (cursor.position(), false);
    let is_for_all = |known: &&Known| known.wanted && known.present && known.arm.changes();
    let Some(known) = look.known.as_ref().filter(is_for_all) else {
        return (from, found);
    };
    let mut runs = [PageRange::default(); TOGETHER];
    loop {
        let most = look.take.room();
        let edited = cursor.edit_written(from, end, most, &known.arm, &mut runs, gather);
        for run in &runs[..edited.runs] {
            let taken = look.take.take(*run, known.categories, Share::Any);
            debug_assert_eq!(taken, run.len(), "less room than said");
        }
        (from, found) = (edited.end, found || edited.pages > 0);
        if edited.pages == 0 || from == end {
            return (from, found);
        }
    }
}

/// Returns whether the entry maps a single 4 KiB page or is a marker for one. For such an entry, protecting the page
/// changes this entry alone.
fn is_one_page(extent: Extent) -> bool {
    match extent.entry {
        Entry::Present(page) => matches!(page.size, PageSize::Size4K),
        Entry::Marker(_) => matches!(extent.size, PageSize::Size4K),
        Entry::Empty | Entry::Swapped(_) | Entry::Migrating(_) => false,
    }
}

/// Returns whether a scan that write-protects must change a selected entry for which `is_one_page` returned false. It
/// must if the entry is empty or was written.
fn is_protectable(entry: Entry, categories: Categories) -> bool {
    match entry {
        Entry::Empty => true,
        Entry::Marker(_) | Entry::Swapped(_) | Entry::Migrating(_) => {
            categories.contains(Categories::WRITTEN)
        }
        Entry::Present(page) => {
            !matches!(page.size, PageSize::Size4K) && categories.contains(Categories::WRITTEN)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Categories = Categories::empty();

    fn scan(inverted: Categories, all: Categories, any: Categories) -> Scan {
        Scan {
            inverted,
            all,
            any,
            protect: false,
            only_tracked: false,
        }
    }

    #[test]
    fn masks_choose_pages() {
        let (w, f, p) = (Categories::WRITTEN, Categories::FILE, Categories::PRESENT);
        #[rustfmt::skip]
        let rows = [
            ("everything",                 NONE, NONE,  NONE,  NONE,  true),
            ("all of them",                NONE, w | p, NONE,  w | p, true),
            ("one is missing",             NONE, w | p, NONE,  p,     false),
            ("one of them",                NONE, NONE,  w | f, f | p, true),
            ("none of them",               NONE, NONE,  w | f, p,     false),
            ("present and not of a file",  f,    f | p, NONE,  p,     true),
            ("present, but of a file",     f,    f | p, NONE,  f | p, false),
        ];
        for (name, inverted, all, any, page, wanted) in rows {
            assert_eq!(scan(inverted, all, any).wants(page), wanted, "{name}");
        }
    }

    #[test]
    fn memory_that_is_not_tracked_is_passed_over_or_refused() {
        let tracked = AreaFlags::UFFD_WP | AreaFlags::UFFD_ASYNC;
        let look = scan(NONE, NONE, NONE);
        let protect = Scan {
            protect: true,
            ..look
        };
        let strict = Scan {
            only_tracked: true,
            ..look
        };
        assert_eq!(of_area(AreaFlags::empty(), &look), Ok(Some(NONE)));
        assert_eq!(of_area(AreaFlags::empty(), &protect), Ok(None));
        let refused = Err(WatchError::NotWritable);
        assert_eq!(of_area(AreaFlags::UFFD_WP, &strict), refused);
        assert_eq!(of_area(tracked, &strict), Ok(Some(Categories::TRACKED)));
        assert_eq!(of_area(tracked, &protect), Ok(Some(Categories::TRACKED)));
        let wants = scan(NONE, Categories::TRACKED, NONE);
        assert_eq!(of_area(AreaFlags::empty(), &wants), Ok(None));
    }
}
