//! Estimates the charge of a cgroup between two walks over the memory of its processes.
//!
//! A walk counts each frame once, even if several processes of the group map it, and its cost grows with the number of
//! pages. Reading the counters of the address spaces costs little, but the counters count a frame once for each
//! page-table entry that maps it. While processes map and unmap private memory only, and few frames are counted twice,
//! the counters give an estimate that is never below the charge.

/// The maximum number of estimates before the next walk.
const MOST_ESTIMATES: u32 = 64;

/// The sums of the counters of the address spaces in a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountedPages {
    /// Private pages, counted once for each page-table entry that maps them.
    pub private: u64,
    /// Pages of objects, counted once for each page-table entry that maps them.
    pub mapped: u64,
    /// Pages of objects that are in memory and charged to the group.
    pub charged: u64,
    /// Number of address spaces.
    pub spaces: u64,
    /// The value of `Cgroup::changes` when the counters were read.
    pub changes: u64,
}

/// The result of a walk.
#[derive(Clone, Copy, Debug)]
pub struct Walked {
    /// The counters when the walk began.
    counted: CountedPages,
    /// Private pages that the walk found, each counted once.
    private: u64,
    /// The charge in pages: private pages and pages of objects, each counted once.
    pages: u64,
    /// Whether no process mapped a page of an object that is charged to the group.
    apart: bool,
    /// The number of estimates since the walk.
    estimates: u32,
}

impl Walked {
    /// Records a walk that began with the counters `counted` and found `private` private pages, and `pages` pages in
    /// total. `apart` states whether no process mapped a page of an object that is charged to the group.
    pub fn new(counted: CountedPages, private: u64, pages: u64, apart: bool) -> Self {
        Self {
            counted,
            private,
            pages,
            apart,
            estimates: 0,
        }
    }

    /// Returns the charge in pages that the walk found.
    pub fn pages(&self) -> u64 {
        self.pages
    }

    /// Estimates the charge in pages from the present counters `now`. The estimate is never below the charge. It is at
    /// most `tolerance` pages above the charge, unless the number of frames that several page-table entries map has
    /// grown since the walk. Returns `None` if a walk is necessary.
    pub fn estimate(&mut self, now: CountedPages, tolerance: u64) -> Option<u64> {
        let then = self.counted;
        let same = CountedPages {
            private: now.private,
            charged: if self.apart {
                now.charged
            } else {
                then.charged
            },
            ..then
        };
        // The counter exceeds the number of private pages that the walk found, because several page-table entries map
        // the same frame. A copy-on-write fault on such an entry reduces this excess, so the estimate is too high by at
        // most this excess.
        let twice = then.private.abs_diff(self.private);
        if now != same || twice > tolerance || self.estimates == MOST_ESTIMATES {
            return None;
        }
        self.estimates += 1;
        let others = self.pages - self.private;
        Some(now.private + (others + now.charged).saturating_sub(then.charged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_that_comes_and_goes_needs_no_walk() {
        let now = |private, mapped, charged, spaces, changes| CountedPages {
            private,
            mapped,
            charged,
            spaces,
            changes,
        };
        let counted = now(1000, 20, 30, 2, 5);
        #[rustfmt::skip]
        let rows = [
            // Columns: the private pages that the walk found; `apart`; the present counters; the estimate.
            (1000, true,  now(1000, 20, 30, 2, 5), Some(1050)),
            (1000, true,  now(1100, 20, 30, 2, 5), Some(1150)),
            (1000, true,  now( 900, 20, 30, 2, 5), Some(950)),
            ( 990, true,  now(1100, 20, 30, 2, 5), Some(1150)),
            (1000, true,  now(1000, 20, 37, 2, 5), Some(1057)),
            (1000, true,  now(1000, 20,  0, 2, 5), Some(1020)),
            (1000, false, now(1100, 20, 30, 2, 5), Some(1150)),
            (1000, false, now(1100, 20, 31, 2, 5), None),
            // The counter of private pages exceeds the number that the walk found by more than the tolerance.
            ( 980, true,  now(1100, 20, 30, 2, 5), None),
            // The number of mapped object pages, the number of address spaces, or a limit has changed.
            (1000, true,  now(1100, 21, 30, 2, 5), None),
            (1000, true,  now(1100, 20, 30, 3, 5), None),
            (1000, true,  now(1100, 20, 30, 2, 6), None),
        ];
        for (private, apart, now, expected) in rows {
            let mut walked = Walked::new(counted, private, private + 50, apart);
            assert_eq!(
                walked.estimate(now, 16),
                expected,
                "{private} {apart} {now:?}"
            );
        }
    }

    #[test]
    fn a_walk_is_repeated_after_some_estimates() {
        let counted = CountedPages::default();
        let mut walked = Walked::new(counted, 0, 0, true);
        let estimates = (0..1000).map_while(|_| walked.estimate(counted, 0));
        assert_eq!(estimates.count(), MOST_ESTIMATES as usize);
    }
}
