//! Swap readahead: the number of pages that are read together with the page that faulted (Linux 7.2 `mm/swap_state.c`,
//! `swap_vma_ra_win`).

use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::Page;

/// The maximum number of pages that one swap fault, or one system call, reads.
pub(crate) const MOST: u64 = 16;

/// The number of pages that the first swap fault of an area reads.
const FIRST: u64 = 8;

/// The readahead window of an area: the pages that its last swap fault read, and the page at which the next swap fault
/// is expected if the program accesses ascending addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    next: u64,
    /// The number of pages that the last fault intended to read, including the page that faulted; 0 before the first
    /// fault.
    wanted: u64,
    /// The number of pages before `next` that were read ahead.
    ahead: u64,
}

impl Window {
    /// The window before the first swap fault.
    pub(crate) const NONE: Self = Self {
        next: 0,
        wanted: 0,
        ahead: 0,
    };

    const fn of(word: u64) -> Self {
        Self {
            next: word >> 16,
            wanted: word >> 8 & 0xff,
            ahead: word & 0xff,
        }
    }

    const fn word(self) -> u64 {
        self.next << 16 | self.wanted << 8 | self.ahead
    }

    /// Returns the first page that was read ahead, and the number of pages that were read ahead.
    pub(crate) const fn ahead(self) -> (Page, u64) {
        (Page::new(self.next.wrapping_sub(self.ahead)), self.ahead)
    }

    /// Returns the number of pages to read from `page` on, from 1 to `MOST`. `hits` is the number of accessed pages
    /// among those read ahead. The window doubles if at least half of the pages read ahead were accessed. If no page
    /// was read ahead, it doubles if `page` is near the expected fault. Otherwise it shrinks to half, or to a quarter
    /// if `hits` is 0.
    pub(crate) fn pages_at(self, page: Page, hits: u64) -> u64 {
        if self.wanted == 0 {
            return FIRST;
        }
        let is_expected = page.number().wrapping_sub(self.next) < MOST;
        let grows = if self.ahead == 0 {
            is_expected
        } else {
            hits * 2 >= self.ahead
        };
        if grows {
            (self.wanted * 2).min(MOST)
        } else if hits == 0 {
            (self.wanted / 4).max(1)
        } else {
            (self.wanted / 2).max(1)
        }
    }

    /// Returns the window after a fault at `page` that intended to read `wanted` pages and has read `read` pages.
    pub(crate) fn after_read(page: Page, wanted: u64, read: u64) -> Self {
        Self::after(page.add(read.max(1)), wanted, read.saturating_sub(1))
    }

    /// Returns the window after a fault that intended to read `wanted` pages and has read ahead the `ahead` pages
    /// before `next`.
    pub(crate) const fn after(next: Page, wanted: u64, ahead: u64) -> Self {
        Self {
            next: next.number(),
            wanted,
            ahead,
        }
    }
}

/// A cell with the readahead window of an area. Concurrent faults on several CPUs may overwrite each other's update.
#[derive(Debug)]
pub(crate) struct WindowCell(AtomicU64);

impl WindowCell {
    pub(crate) const fn new(window: Window) -> Self {
        Self(AtomicU64::new(window.word()))
    }

    pub(crate) fn get(&self) -> Window {
        Window::of(self.0.load(Ordering::Relaxed))
    }

    /// Returns true if a fault at `page` reads only that page, and the last fault read no page ahead. The caller then
    /// need not count hits.
    pub(crate) fn is_single_at(&self, page: Page) -> bool {
        let window = self.get();
        window.ahead == 0 && window.pages_at(page, 0) == 1
    }

    pub(crate) fn set(&self, window: Window) {
        self.0.store(window.word(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_gets_more_and_who_jumps_gets_less() {
        let (mut window, mut page, mut faults) = (Window::NONE, 1000, 0);
        while page < 1512 {
            let pages = window.pages_at(Page::new(page), window.ahead);
            page += pages;
            window = Window::after(Page::new(page), pages, pages - 1);
            assert_eq!(Window::of(window.word()), window);
            faults += 1;
        }
        assert_eq!(faults, 33);
        let mut wasted = 0;
        for jump in 1..20 {
            let page = Page::new(jump * 5000);
            let pages = window.pages_at(page, 0);
            window = Window::after(page.add(pages), pages, pages - 1);
            wasted += pages - 1;
        }
        assert_eq!(wasted, 3);
        // The window grows again after it has shrunk to a single page.
        let next = Page::new(window.next);
        assert_eq!(window.pages_at(next, 0), 2);
        assert_eq!(window.pages_at(next.add(MOST), 0), 1);
    }

    #[test]
    fn what_was_used_decides_wherever_the_next_fault_is() {
        let far = Page::new(1 << 30);
        for (wanted, ahead, hits, pages) in [
            (8, 7, 7, 16),
            (8, 7, 4, 16),
            (8, 7, 3, 4),
            (8, 7, 0, 2),
            (16, 15, 15, 16),
            (16, 3, 1, 8),
            (2, 1, 0, 1),
        ] {
            let window = Window::after(Page::new(100), wanted, ahead);
            assert_eq!(window.pages_at(far, hits), pages, "{wanted} {ahead} {hits}");
        }
    }
}
