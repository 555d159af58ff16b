//! The selection of pages by a scan (Linux 7.3 `fs/proc/task_mmu.c`, `PAGEMAP_SCAN`).

use bitflags::bitflags;
use memwright_table::PageRange;

bitflags! {
    /// The categories of a page. The values are those of `PAGE_IS_...` in Linux's `include/uapi/linux/fs.h`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Categories: u64 {
        /// Stores to the page are tracked by asynchronous write protection.
        const TRACKED = 1;
        /// The page was written since it was write-protected, or was never protected. Only for areas that are
        /// registered for write protection.
        const WRITTEN = 1 << 1;
        /// The page belongs to a file or to shared memory.
        const FILE = 1 << 2;
        /// The page is in memory.
        const PRESENT = 1 << 3;
        /// The page is in swap.
        const SWAPPED = 1 << 4;
        /// The page is the shared zero page.
        const ZERO = 1 << 5;
        /// The page is mapped by a huge entry.
        const HUGE = 1 << 6;
        /// The page was written since soft-dirty was cleared.
        const SOFT_DIRTY = 1 << 7;
        /// The page is a guard page.
        const GUARD = 1 << 8;
        /// The page was accessed since it was read-write-protected, or was never protected. Only for areas that are
        /// registered for read-write protection.
        const ACCESSED = 1 << 9;
    }
}

/// The part of a run that the callback is allowed to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// As many pages as the callback has space for.
    Any,
    /// All pages of the run or none.
    Whole,
}

/// The callback that takes the pages that a scan selects. A closure with the arguments of `take` is a callback, too.
pub trait Take {
    /// Takes pages of `run`, from its first page on, and returns their number. The runs come in ascending order. Every
    /// page of the run has the categories `categories`.
    fn take(&mut self, run: PageRange, categories: Categories, share: Share) -> u64;

    /// Returns the minimum number of pages that the next calls of `take` will take, even if each page is a run of its
    /// own. A scan can write-protect this many pages before it passes them to `take`.
    fn room(&self) -> u64;
}

impl<T: FnMut(PageRange, Categories, Share) -> u64> Take for T {
    fn take(&mut self, run: PageRange, categories: Categories, share: Share) -> u64 {
        self(run, categories, share)
    }

    fn room(&self) -> u64 {
        0
    }
}

/// The pages that a scan selects, and the options of the scan.
#[derive(Clone, Copy, Debug)]
pub struct Scan {
    /// Categories that are inverted before the masks apply.
    pub inverted: Categories,
    /// Categories that a page must have.
    pub all: Categories,
    /// Categories of which a page must have at least one. Ignored if empty.
    pub any: Categories,
    /// Whether the scan write-protects the written pages that it selects. If it does, it skips memory without tracked
    /// stores.
    pub protect: bool,
    /// Whether the scan returns an error for memory without tracked stores.
    pub only_tracked: bool,
}

impl Scan {
    /// Returns the scan for the pages that were written since they were last write-protected, in memory that is tracked
    /// asynchronously. If `protect` is set, the scan write-protects them again.
    #[must_use]
    pub const fn written(protect: bool) -> Self {
        Self {
            inverted: Categories::empty(),
            all: Categories::WRITTEN,
            any: Categories::empty(),
            protect,
            only_tracked: true,
        }
    }

    /// Returns whether the scan selects pages of these categories.
    pub(crate) fn wants(&self, categories: Categories) -> bool {
        let seen = categories ^ self.inverted;
        seen.contains(self.all) && (self.any.is_empty() || seen.intersects(self.any))
    }

    /// Returns whether the scan selects only pages that have `category`.
    pub(crate) fn wants_only(&self, category: Categories) -> bool {
        !self.inverted.contains(category) && (self.all.contains(category) || self.any == category)
    }

    /// Returns whether the scan can select pages of an area whose pages all have `categories`.
    pub(crate) fn wants_area(&self, categories: Categories) -> bool {
        (categories ^ self.inverted).contains(self.all & Categories::TRACKED)
    }
}
