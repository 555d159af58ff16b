//! The charge of a cgroup between two walks over its memory.
//!
//! A walk counts each frame once, however many processes of the group map it, and costs time for each page. The counters
//! of the address spaces cost nothing, but count a frame for each entry that maps it. While nothing but private memory
//! comes and goes, and few frames are counted twice, the difference between two sums of the counters is that of the
//! charge.

/// Most estimates after a walk.
const MOST_ESTIMATES: u32 = 64;

/// The part of the limit by which an estimate may be too low, as a divisor: a store to a frame that two processes of the
/// group map gives one of them a frame of its own, and the counters do not change.
const TOLERANCE: u64 = 64;

/// What the counters say about the memory of a cgroup.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CountedPages {
    /// Private pages, as often as processes map them.
    pub(crate) private: u64,
    /// Pages of objects that processes map or that are charged to the group, as often as they are found.
    pub(crate) objects: u64,
    /// Address spaces.
    pub(crate) spaces: u64,
    /// The value of `Cgroup::changes`.
    pub(crate) changes: u64,
}

/// The result of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walked {
    /// The counters when the walk began.
    counted: CountedPages,
    /// Private pages.
    private: u64,
    /// All pages.
    pages: u64,
    /// The number of estimates since then.
    estimates: u32,
}

impl Walked {
    /// Records a walk that began with these counters and found `private` private pages, and `pages` pages in total.
    pub(crate) fn new(counted: CountedPages, private: u64, pages: u64) -> Self {
        Self {
            counted,
            private,
            pages,
            estimates: 0,
        }
    }

    /// Returns the charge in pages, given the present counters and the limit. Returns `None` if only a walk can tell.
    pub(crate) fn estimate(&mut self, now: CountedPages, most: u64) -> Option<u64> {
        let same = CountedPages {
            private: now.private,
            ..self.counted
        };
        let twice = self.counted.private.abs_diff(self.private);
        if now != same || twice > most / TOLERANCE || self.estimates == MOST_ESTIMATES {
            return None;
        }
        self.estimates += 1;
        Some((self.pages + now.private).saturating_sub(self.counted.private))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_memory_that_comes_and_goes_needs_no_walk() {
        let counted = CountedPages {
            private: 1000,
            objects: 20,
            spaces: 2,
            changes: 5,
        };
        let now = |private, objects, spaces, changes| CountedPages {
            private,
            objects,
            spaces,
            changes,
        };
        #[rustfmt::skip]
        let rows = [
            // private pages found, the counters now, the estimate
            (1000, now(1000, 20, 2, 5), Some(1020)),
            (1000, now(1100, 20, 2, 5), Some(1120)),
            (1000, now( 900, 20, 2, 5), Some(920)),
            ( 990, now(1100, 20, 2, 5), Some(1110)),
            // More frames have two entries than may be overlooked.
            ( 980, now(1100, 20, 2, 5), None),
            // A page of an object, a process, or a limit has changed.
            (1000, now(1100, 21, 2, 5), None),
            (1000, now(1100, 20, 3, 5), None),
            (1000, now(1100, 20, 2, 6), None),
        ];
        for (private, now, expected) in rows {
            let mut walked = Walked::new(counted, private, private + 20);
            assert_eq!(walked.estimate(now, 1024), expected, "{private} {now:?}");
        }
    }

    #[test]
    fn a_walk_is_repeated_after_some_estimates() {
        let counted = CountedPages::default();
        let mut walked = Walked::new(counted, 0, 0);
        let estimates = (0..1000).map_while(|_| walked.estimate(counted, 1024));
        assert_eq!(estimates.count(), MOST_ESTIMATES as usize);
    }
}
