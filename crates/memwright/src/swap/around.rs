//! How many pages come back with the one that faulted (Linux 7.2 `mm/swap_state.c`, `swap_vma_ra_win`).

use core::sync::atomic::{AtomicU64, Ordering};

use memwright_table::Page;

/// The most pages that one fault, or one call, brings back.
pub(crate) const MOST: u64 = 16;
/// Pages that the first fault brings back.
const FIRST: u64 = 8;

/// What the last fault for a swapped page brought back in an area, and where the next one is expected if the program
/// goes on upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    next: u64,
    /// Pages that were wanted, the one that faulted among them; 0 before any fault.
    wanted: u64,
    /// Pages before `next` that came though nobody had asked for them.
    ahead: u64,
}

impl Window {
    /// Before any fault.
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

    /// The first of the pages that nobody had asked for, and how many they were.
    pub(crate) const fn ahead(self) -> (Page, u64) {
        (Page::new(self.next.wrapping_sub(self.ahead)), self.ahead)
    }

    /// How many pages from `page` on a fault there brings back, if so many of those that nobody had asked for were used
    /// since: twice as many as the last if these were half of them, or if there was none and this page was expected
    /// about here; else half as many, and one alone if they were none of several.
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

    /// Whether a fault at `page` brings no other back: none came with the last that could have been used since.
    pub(crate) fn is_single_at(self, page: Page) -> bool {
        self.ahead == 0 && self.pages_at(page, 0) == 1
    }

    /// After a fault for which so many pages were wanted, of which so many were asked for, from `page` on.
    pub(crate) fn after_read(page: Page, wanted: u64, read: u64) -> Self {
        Self::after(page.add(read.max(1)), wanted, read.saturating_sub(1))
    }

    /// After a fault for which so many pages were wanted, and so many came before `next` beside the one that faulted.
    pub(crate) const fn after(next: Page, wanted: u64, ahead: u64) -> Self {
        Self {
            next: next.number(),
            wanted,
            ahead,
        }
    }
}

/// The window of an area. Faults on several CPUs may each take it for theirs.
#[derive(Debug)]
pub(crate) struct WindowCell(AtomicU64);

impl WindowCell {
    pub(crate) const fn new(window: Window) -> Self {
        Self(AtomicU64::new(window.word()))
    }

    pub(crate) fn get(&self) -> Window {
        Window::of(self.0.load(Ordering::Relaxed))
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
        // From one page at a time up again.
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
