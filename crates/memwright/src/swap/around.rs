//! How many pages come back with the one that faulted (Linux 7.2 `mm/swap_state.c`, `swap_vma_ra_win`).

use memwright_table::Page;

/// The most pages that one fault brings back.
const MOST: u64 = 16;
/// Pages that the first fault brings back.
const FIRST: u64 = 8;

/// What a CPU's last fault for a swapped page brought back in an address space, and where the next one is expected if
/// the program goes on upwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    next: u64,
    pages: u64,
}

impl Window {
    /// From the word that keeps it; 0 before any fault.
    pub(crate) const fn of(word: u64) -> Self {
        Self {
            next: word >> 8,
            pages: word & 0xff,
        }
    }

    /// The word that keeps it.
    pub(crate) const fn word(self) -> u64 {
        self.next << 8 | self.pages
    }

    /// How many pages from `page` on a fault there brings back: twice as many as the last if it was expected about here,
    /// else half as many.
    pub(crate) fn pages_at(self, page: Page) -> u64 {
        if self.pages == 0 {
            return FIRST;
        }
        let ahead = page.number().wrapping_sub(self.next);
        if ahead < MOST {
            (self.pages * 2).min(MOST)
        } else {
            (self.pages / 2).max(1)
        }
    }

    /// After a fault for which so many pages were wanted, of which all before `next` are there.
    pub(crate) const fn after(next: Page, pages: u64) -> Self {
        Self {
            next: next.number(),
            pages,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_gets_more_and_who_jumps_gets_less() {
        let (mut window, mut page, mut faults) = (Window::of(0), 1000, 0);
        while page < 1512 {
            let pages = window.pages_at(Page::new(page));
            page += pages;
            window = Window::after(Page::new(page), pages);
            assert_eq!(Window::of(window.word()), window);
            faults += 1;
        }
        assert_eq!(faults, 33);
        let mut wasted = 0;
        for jump in 1..20 {
            let page = Page::new(jump * 5000);
            let pages = window.pages_at(page);
            window = Window::after(page.add(pages), pages);
            wasted += pages - 1;
        }
        assert_eq!(wasted, 7 + 3 + 1);
    }
}
