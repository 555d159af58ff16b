//! Memory is short: pages that nobody used for a while go out (Linux 7.2 `mm/vmscan.c`).
//!
//! Pages are aged where they are mapped, by a walk of the spaces that own them, as Linux's generations are
//! (`walk_mm`): one look clears the accessed bit, the next one finds whether it was set again. So no page has to be
//! found from its frame, and pages that lie together are looked at, flushed and written together.

use memwright_table::{Machine, Page, PageRange};

use crate::space::{AddressSpace, Core};

/// How much is looked at, and how much is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Entries to look at, at most.
    pub look: u64,
    /// Pages that are to leave.
    pub wanted: u64,
}

impl Effort {
    /// Whatever it takes.
    pub(crate) const ALL: Self = Self {
        look: u64::MAX,
        wanted: u64::MAX,
    };

    /// Whether it is over.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.look == 0 || self.wanted == 0
    }
}

/// Which of the pages that may leave do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// Each.
    All,
    /// Those that nobody used since they were looked at before.
    Unused,
}

impl<M: Machine> AddressSpace<M> {
    /// Ages pages from `from` on and sends those out that nobody used since they were looked at before. Takes what it
    /// did off `effort`. Returns where to go on when that is over, or `None` at the end.
    pub fn reclaim(&self, from: Page, effort: &mut Effort) -> Option<Page> {
        let core = &*self.core;
        let mut next = from.min(Page::USER_END);
        while next < Page::USER_END {
            let rest = PageRange::new(next, Page::USER_END);
            // Up to the first area with an object, whose pages go without a lock.
            let (private_end, shown) = core.reclaim_private(rest, effort);
            if effort.is_over() {
                return Some(private_end);
            }
            next = core.page_out_objects(shown?, Choice::Unused, effort);
            if effort.is_over() {
                return Some(next);
            }
        }
        None
    }
}

impl<M: Machine> Core<M> {
    /// Reclaims private pages of `range`, through the first area that shows an object whose pages may leave. Returns where
    /// it ended, and the pages of that area.
    fn reclaim_private(&self, range: PageRange, effort: &mut Effort) -> (Page, Option<PageRange>) {
        let areas = self.areas.read(self.cpu());
        for area in areas.map.overlapping(range) {
            let part = area.range().intersect(range);
            if self.may_leave(area) && area.has_faulted() {
                let end = self.page_out(area, part, Choice::Unused, effort);
                if effort.is_over() {
                    return (end, None);
                }
            }
            if self.object_may_leave(area) {
                return (part.end, Some(part));
            }
        }
        (range.end, None)
    }
}
