//! Maps of physical memory. The frame allocator gets all usable memory except the first MiB, the kernel image, the
//! kernel's own page tables, and the initial archive.

use super::pvh::PhysicalRange;

const PAGE: u64 = 4096;

/// The maximum number of separate ranges. Memory in ranges beyond this number is not used.
pub const MOST_RANGES: usize = 32;

/// Ranges of physical memory in whole pages, in the order in which they were added.
#[derive(Clone, Copy)]
pub struct MemoryMap {
    ranges: [PhysicalRange; MOST_RANGES],
    count: usize,
}

impl MemoryMap {
    /// Creates an empty map.
    pub const fn new() -> Self {
        Self {
            ranges: [PhysicalRange { start: 0, end: 0 }; MOST_RANGES],
            count: 0,
        }
    }

    /// Adds the pages that are entirely in `range`.
    pub fn add(&mut self, range: PhysicalRange) {
        let start = range.start.next_multiple_of(PAGE);
        let end = range.end & !(PAGE - 1);
        if start < end && self.count < MOST_RANGES {
            self.ranges[self.count] = PhysicalRange { start, end };
            self.count += 1;
        }
    }

    /// Removes every page that overlaps `taken`.
    pub fn remove(&mut self, taken: PhysicalRange) {
        let taken = PhysicalRange {
            start: taken.start & !(PAGE - 1),
            end: taken.end.next_multiple_of(PAGE),
        };
        let before = *self;
        *self = Self::new();
        for range in before.iter() {
            self.add(PhysicalRange {
                start: range.start,
                end: range.end.min(taken.start),
            });
            self.add(PhysicalRange {
                start: range.start.max(taken.end),
                end: range.end,
            });
        }
    }

    /// Iterates over the ranges.
    pub fn iter(&self) -> impl Iterator<Item = PhysicalRange> + '_ {
        self.ranges[..self.count].iter().copied()
    }

    /// Removes the lowest page from the map and returns its address, or `None` if no page starts below `limit`.
    pub fn take_page(&mut self, limit: u64) -> Option<u64> {
        let range = self.ranges[..self.count]
            .iter_mut()
            .filter(|range| range.start < range.end && range.start < limit)
            .min_by_key(|range| range.start)?;
        let page = range.start;
        range.start += PAGE;
        Some(page)
    }
}
