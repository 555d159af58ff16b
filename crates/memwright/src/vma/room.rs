//! get_unmapped_area: finding a free range for a new area (Linux 7.2 `mm/vma.c`, `unmapped_area` and
//! `unmapped_area_topdown`).

use core::ops::Range;
use memwright_table::{Page, PageRange};

use crate::vma::area::{Area, AreaFlags, Backed};
use crate::vma::map::{AreaMap, Position};
use crate::vma::order::{ChunkId, Toward};

/// The number of pages that stay free below an area that grows downwards (Linux 7.2 `stack_guard_gap`).
pub(crate) const STACK_GUARD_PAGES: u64 = 256;

impl<B: Backed> Area<B> {
    /// Returns the end of the free range below this area that a new area may use. If this area grows downwards, that
    /// range ends where the stack guard pages begin.
    pub(crate) fn start_with_guard(&self) -> Page {
        if self.flags.contains(AreaFlags::GROWSDOWN) {
            Page::new(self.range.start.number().saturating_sub(STACK_GUARD_PAGES))
        } else {
            self.range.start
        }
    }
}

/// The result of the last search downwards: a range of addresses in which no gap has `pages` pages or more. A search
/// for at least `pages` pages need not examine this range.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full {
    /// The end of the bounds within which the search was made.
    end: Page,
    /// No gap between `from` and `end` has this number of pages or more.
    pages: u64,
    from: Page,
}

impl Full {
    /// The value that stands for no result: the next search begins at the end of its bounds.
    pub(super) const UNKNOWN: Self = Self {
        end: Page::new(0),
        pages: u64::MAX,
        from: Page::new(0),
    };

    /// Records that there is now a gap of `pages` pages below the area that starts at `above`.
    #[inline]
    pub(super) fn note_gap(&mut self, pages: u64, above: Page) {
        if pages >= self.pages {
            self.from = self.from.max(above);
        }
    }

    /// Returns the page from which a search downwards for `pages` pages below `end` can start.
    fn start(&self, pages: u64, end: Page) -> Page {
        if self.end == end && self.pages <= pages {
            self.from.min(end)
        } else {
            end
        }
    }
}

impl<B: Backed> AreaMap<B> {
    /// Returns whether `range` is free: no area overlaps it, and no guard page of the area above does.
    pub(crate) fn is_free(&self, range: PageRange) -> bool {
        let above = self.at_or_after(range.start);
        above.is_none_or(|above| self.get(above).start_with_guard() >= range.end)
    }

    /// Returns the highest start of a free run of `pages` pages inside `bounds`.
    ///
    /// If a gap below an area that grows downwards is large enough only together with the area's guard pages, these
    /// guard pages also limit the rest of the search (Linux 7.3 `mm/vma.c`, `unmapped_area_topdown`).
    pub(crate) fn highest_room(&mut self, pages: u64, bounds: PageRange) -> Option<Page> {
        let mut ceiling = self.full.start(pages, bounds.end);
        // The area above the gap that is examined.
        let mut above = self.at_or_after(ceiling);
        let mut guarded = false;
        loop {
            let below = match above {
                Some(position) => self.previous(position),
                None => self.end_of(self.order.last()),
            };
            let floor = below.map_or(Page::new(0), |below| self.get(below).range.end);
            let floor = floor.max(bounds.start).number();
            let fits = |ceiling: Page| {
                let start = ceiling.number().checked_sub(pages)?;
                (start >= floor).then(|| Page::new(start))
            };
            let area = above.map(|above| self.get(above));
            if fits(area.map_or(ceiling, |area| ceiling.min(area.range.start))).is_some() {
                ceiling = area.map_or(ceiling, |area| ceiling.min(area.start_with_guard()));
                if let Some(start) = fits(ceiling) {
                    let (end, from) = (bounds.end, area.map(|area| area.range.start));
                    let from = from.unwrap_or(end).min(end);
                    // If guard pages limited this search, record no result, because the next search must find the same
                    // guard pages: they limit it too.
                    self.full = if guarded {
                        Full::UNKNOWN
                    } else {
                        Full { end, pages, from }
                    };
                    return Some(start);
                }
                guarded = true;
            }
            let roomy = self.lower_gap(above, pages)?;
            if self.get(roomy).range.start <= bounds.start {
                return None;
            }
            above = Some(roomy);
        }
    }

    /// Returns the lowest start of a free run of `pages` pages inside `bounds`.
    pub(crate) fn lowest_room(&mut self, pages: u64, bounds: PageRange) -> Option<Page> {
        let mut floor = bounds.start;
        let mut above = self.at_or_after(floor);
        loop {
            let ceiling = match above {
                Some(position) => self.get(position).start_with_guard().min(bounds.end),
                None => bounds.end,
            };
            if floor.number().checked_add(pages)? <= ceiling.number() {
                return Some(floor);
            }
            above = self.higher_gap(above?, pages);
            let below = match above {
                Some(position) => self.previous(position),
                None => self.end_of(self.order.last()),
            };
            floor = floor.max(self.get(below?).range.end);
            if floor >= bounds.end {
                return None;
            }
        }
    }

    /// Returns the position of the nearest area below the one at `position` that has a gap of at least `pages` pages
    /// below it. If `position` is `None`, the search begins at the end of the map.
    fn lower_gap(&mut self, position: Option<Position>, pages: u64) -> Option<Position> {
        let Position {
            mut chunk,
            mut slot,
        } = match position {
            Some(position) => position,
            None => {
                let chunk = self.order.last()?;
                let slot = self.areas(chunk).len();
                Position { chunk, slot }
            }
        };
        loop {
            if self.room(chunk) >= pages {
                if let Some(slot) = self.roomy_slot(chunk, 0..slot, Toward::Lower, pages) {
                    return Some(Position { chunk, slot });
                }
                if slot == self.areas(chunk).len() {
                    self.tighten(chunk);
                }
            }
            chunk = self.order.roomy(chunk, Toward::Lower, pages)?;
            slot = self.areas(chunk).len();
        }
    }

    /// Returns the position of the nearest area above the one at `position` that has a gap of at least `pages` pages
    /// below it.
    fn higher_gap(&mut self, position: Position, pages: u64) -> Option<Position> {
        let (mut chunk, mut first) = (position.chunk, position.slot + 1);
        loop {
            if self.room(chunk) >= pages {
                let slots = first..self.areas(chunk).len();
                if let Some(slot) = self.roomy_slot(chunk, slots, Toward::Higher, pages) {
                    return Some(Position { chunk, slot });
                }
                if first == 0 {
                    self.tighten(chunk);
                }
            }
            chunk = self.order.roomy(chunk, Toward::Higher, pages)?;
            first = 0;
        }
    }

    /// Returns a slot, among `slots` of a chunk, whose area has a gap of at least `pages` pages below it: the last such
    /// slot for `Toward::Lower`, otherwise the first.
    fn roomy_slot(
        &self,
        chunk: ChunkId,
        slots: Range<usize>,
        toward: Toward,
        pages: u64,
    ) -> Option<usize> {
        let areas = self.areas(chunk);
        let mut slots = slots.filter(|slot| {
            let gap = match slot.checked_sub(1) {
                Some(below) => areas[*slot].range.start.number() - areas[below].range.end.number(),
                None => self.gap_before(Position { chunk, slot: 0 }),
            };
            gap >= pages
        });
        match toward {
            Toward::Lower => slots.next_back(),
            Toward::Higher => slots.next(),
        }
    }
}
