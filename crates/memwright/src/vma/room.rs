//! get_unmapped_area: finding a free range for a new area (Linux 7.2 `mm/vma.c`, `unmapped_area` and
//! `unmapped_area_topdown`).

use memwright_table::{Page, PageRange};

use crate::vma::area::{Area, AreaFlags, Backed};
use crate::vma::map::AreaMap;

/// The number of pages that stay free below an area that grows downwards (Linux 7.2 `stack_guard_gap`).
pub(crate) const STACK_GUARD_PAGES: u64 = 256;

impl<B: Backed> Area<B> {
    /// Returns the end of the range below this area that a new area may use. If this area grows downwards, that is
    /// below its start by the stack guard pages.
    pub(crate) fn start_with_guard(&self) -> Page {
        if self.flags.contains(AreaFlags::GROWSDOWN) {
            Page::new(self.range.start.number().saturating_sub(STACK_GUARD_PAGES))
        } else {
            self.range.start
        }
    }
}

impl<B: Backed> AreaMap<B> {
    /// Returns the highest start of a free run of `pages` pages inside `bounds`.
    pub(crate) fn highest_room(&mut self, pages: u64, bounds: PageRange) -> Option<Page> {
        let fits = |floor: Page, ceiling: Page| {
            let floor = floor.max(bounds.start).number();
            let start = ceiling.number().checked_sub(pages)?;
            (start >= floor).then(|| Page::new(start))
        };
        // The guard pages below an area that is above the bounds can reach into the bounds.
        let mut ceiling = bounds.end;
        if let Some(above) = self.at_or_after(bounds.end) {
            ceiling = ceiling.min(self.get(above).start_with_guard());
        }
        for index in (0..self.chunks.len()).rev() {
            let chunk = &self.chunks[index];
            let last = chunk.areas.last()?;
            if chunk.areas[0].range.start >= bounds.end {
                continue;
            }
            if chunk.room < pages {
                // No gap before an area of this chunk is large enough. The gap above the chunk's last area may be large
                // enough.
                if let Some(start) = fits(last.range.end, ceiling) {
                    return Some(start);
                }
                ceiling = ceiling.min(chunk.areas[0].start_with_guard());
                continue;
            }
            for area in chunk.areas.iter().rev() {
                if let Some(start) = fits(area.range.end, ceiling) {
                    return Some(start);
                }
                ceiling = ceiling.min(area.start_with_guard());
                if ceiling <= bounds.start {
                    return None;
                }
            }
            self.tighten(index);
        }
        fits(Page::new(0), ceiling)
    }

    /// Returns the lowest start of a free run of `pages` pages inside `bounds`.
    pub(crate) fn lowest_room(&self, pages: u64, bounds: PageRange) -> Option<Page> {
        let mut floor = bounds.start;
        let mut next = self.at_or_after(floor);
        loop {
            let ceiling = match next {
                Some(position) => self.get(position).start_with_guard().min(bounds.end),
                None => bounds.end,
            };
            if floor.number().checked_add(pages)? <= ceiling.number() {
                return Some(floor);
            }
            let position = next?;
            floor = floor.max(self.get(position).range.end);
            if floor >= bounds.end {
                return None;
            }
            next = self.next(position);
        }
    }

    /// Lowers the upper bound of a chunk to its largest actual gap.
    fn tighten(&mut self, index: usize) {
        let mut floor = match index
            .checked_sub(1)
            .and_then(|below| self.chunks[below].areas.last())
        {
            Some(below) => below.range.end.number(),
            None => 0,
        };
        let chunk = &mut self.chunks[index];
        chunk.room = 0;
        for area in &chunk.areas {
            chunk.room = chunk.room.max(area.range.start.number() - floor);
            floor = area.range.end.number();
        }
    }
}
