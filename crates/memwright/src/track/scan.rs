//! Asking for pages by what they are, and write-protecting those that were written in the same step
//! (Linux 7.2 `fs/proc/task_mmu.c`, `PAGEMAP_SCAN`).

use bitflags::bitflags;
use memwright_table::{Bits, Entry, Extent, Gather, Machine, Marks, Page, PageRange, PageSize};

use super::{arm_written, is_by_dirty, written};
use crate::error::WatchError;
use crate::space::{AddressSpace, Area, Core};
use crate::vma::AreaFlags;

bitflags! {
    /// What a page is. The values are those of `PAGE_IS_...` in Linux's `include/uapi/linux/fs.h`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Categories: u64 {
        /// Stores are tracked by asynchronous write protection.
        const TRACKED = 1;
        /// Written since it was write-protected, or never protected.
        const WRITTEN = 1 << 1;
        /// Of a file, or of shared memory.
        const FILE = 1 << 2;
        /// In memory.
        const PRESENT = 1 << 3;
        /// In swap.
        const SWAPPED = 1 << 4;
        /// The shared zero page.
        const ZERO = 1 << 5;
        /// Mapped by a huge entry.
        const HUGE = 1 << 6;
        /// Written since soft-dirty was cleared.
        const SOFT_DIRTY = 1 << 7;
        /// A guard.
        const GUARD = 1 << 8;
    }
}

/// Which pages are asked for, and what becomes of them.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Categories that count as had where a page does not have them.
    pub inverted: Categories,
    /// Categories that a page must have.
    pub all: Categories,
    /// Categories of which it must have one, unless there are none.
    pub any: Categories,
    /// Written pages that are found are write-protected. Memory whose stores are not tracked is passed over.
    pub protect: bool,
    /// Such memory is an error.
    pub only_tracked: bool,
}

impl Scan {
    /// Whether pages of these categories are asked for.
    fn wants(&self, categories: Categories) -> bool {
        let seen = categories ^ self.inverted;
        seen.contains(self.all) && (self.any.is_empty() || seen.intersects(self.any))
    }

    /// Whether an area with these can have such pages.
    fn wants_area(&self, categories: Categories) -> bool {
        (categories ^ self.inverted).contains(self.all & Categories::TRACKED)
    }
}

/// What of an area every page of it has; `None` if the scan passes over it.
fn of_area(flags: AreaFlags, scan: &Scan) -> Result<Option<Categories>, WatchError> {
    let mut categories = Categories::empty();
    if flags.contains(AreaFlags::UFFD_WP | AreaFlags::UFFD_ASYNC) {
        categories |= Categories::TRACKED;
    } else if scan.only_tracked {
        return Err(WatchError::NotWritable);
    } else if scan.protect {
        return Ok(None);
    }
    categories.set(
        Categories::SOFT_DIRTY,
        flags.contains(AreaFlags::SOFT_DIRTY),
    );
    Ok(scan.wants_area(categories).then_some(categories))
}

impl<M: Machine> AddressSpace<M> {
    /// Hands runs of pages that `scan` asks for to `take`, upwards, each with its categories; `take` says how many of
    /// their pages it took. Returns where the scan ended: at the first page that was not taken, or at the range's end.
    /// What was protected is so on every CPU before it returns. The address space is locked meanwhile: `take` must not
    /// enter it.
    ///
    /// # Errors
    /// [`WatchError::NotWritable`] for memory that is not tracked, where the scan wants tracked memory only (Linux's
    /// EPERM); [`WatchError::OutOfMemory`]. What was taken before stays so.
    pub fn scan(
        &self,
        range: PageRange,
        scan: &Scan,
        take: &mut dyn FnMut(PageRange, Categories) -> u64,
    ) -> Result<Page, WatchError> {
        let core = &*self.core;
        let cpu = core.cpu();
        let areas = core.areas.read(cpu);
        let mut gather = core.gather();
        let mut result = Ok(range.end);
        for area in areas.map.overlapping(range) {
            let part = area.range().intersect(range);
            result = match of_area(area.flags(), scan) {
                Ok(Some(common)) => core.scan_area(area, part, common, scan, take, &mut gather),
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

impl<M: Machine> Core<M> {
    fn scan_area(
        &self,
        area: &Area<M>,
        range: PageRange,
        common: Categories,
        scan: &Scan,
        take: &mut dyn FnMut(PageRange, Categories) -> u64,
        gather: &mut Gather<'_, M>,
    ) -> Result<Page, WatchError> {
        let flags = area.flags();
        let mut cursor = self.table.cursor(range);
        loop {
            let extent = cursor.entry();
            let categories = common | self.categories(area, extent);
            let mut end = extent.range.end;
            if scan.wants(categories) {
                let taken = take(extent.range, categories).min(extent.range.len());
                end = extent.range.start.add(taken);
                let protects = scan.protect && taken > 0;
                if protects && is_one_page(extent) && categories.contains(Categories::WRITTEN) {
                    if let Entry::Present(page) = extent.entry {
                        let edit = arm_written(is_by_dirty(flags, page.size), page.bits);
                        cursor.edit(edit.set, edit.clear, gather);
                    }
                } else if protects && is_protectable(extent.entry, categories) {
                    // Markers, and parts of huge pages: more than one slot may change its shape.
                    drop(cursor);
                    self.protect_part(area, PageRange::new(extent.range.start, end), gather)?;
                    if end == range.end {
                        return Ok(end);
                    }
                    cursor = self.table.cursor(PageRange::new(end, range.end));
                    if taken < extent.range.len() {
                        return Ok(end);
                    }
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

    fn categories(&self, area: &Area<M>, extent: Extent) -> Categories {
        let flags = area.flags();
        let mut found = Categories::empty();
        let mut set = |category, there| found.set(category, there);
        match extent.entry {
            Entry::Empty => {
                // Where a table is, something was there and went without a trace: what is there now may differ.
                let went = matches!(extent.size, PageSize::Size4K);
                set(
                    Categories::WRITTEN,
                    went && flags.contains(AreaFlags::UFFD_ASYNC),
                );
                return found;
            }
            Entry::Marker(marker) => {
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
                set(Categories::FILE, !zero && !self.is_anonymous(page.frame));
                set(Categories::ZERO, zero);
                set(Categories::HUGE, !matches!(page.size, PageSize::Size4K));
                set(Categories::SOFT_DIRTY, area.is_soft_dirty(page.bits));
            }
        }
        found
    }
}

fn is_one_page(extent: Extent) -> bool {
    matches!(extent.entry, Entry::Present(page) if matches!(page.size, PageSize::Size4K))
}

/// Whether an entry that is not one page is protected by a scan that found it: what is written, and what is not there.
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
