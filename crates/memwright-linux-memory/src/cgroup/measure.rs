//! Measures the charge of a group: the frames that its processes map, and the frames of objects charged to it. Each
//! frame is counted once.

use super::Cgroups;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use memwright::Sight;
use memwright_linux_abi::{Memory, Space};
use memwright_linux_tasks::process::{Cgroup, CountedPages, Walked};
use memwright_table::{
    Bits, Entry, FrameKind, Page, PageRange, PageSize, Present, TryPush, VirtAddr,
};

/// The charge of a group, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Charge {
    /// Pages of private memory.
    pub private: u64,
    /// The part of `private` that huge pages of 2 MiB map.
    pub huge: u64,
    /// Pages of shared memory.
    pub shared: u64,
    /// The part of `shared` for which two reasons exist: a process of the group maps the page, and the object of the
    /// page is charged to the group.
    both: u64,
}

impl Charge {
    /// Returns the total charge.
    pub const fn pages(&self) -> u64 {
        self.private + self.shared
    }
}

/// The method and precision of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measurement {
    /// For a comparison with the limit. Estimates the charge from the counters if the counters exceeded the charge by
    /// at most a 64th at the last walk. Otherwise walks.
    Bound,
    /// For a file that reports the charge. Uses the counters if they equalled the charge at the last walk. Otherwise
    /// walks.
    Value,
    /// Walks the memory of the group's processes.
    Walk,
}

/// A bitmap of the frames that were counted so far.
#[derive(Default)]
struct Seen(Vec<u64>);

impl Seen {
    /// Returns how many of the `count` frames from `first` on are counted for the first time, and marks these frames as
    /// counted. If there is no memory for the bitmap, returns `count`, because it is better to overcharge the group
    /// than to undercharge it.
    fn note(&mut self, first: u64, count: u64) -> u64 {
        let words = (first + count).div_ceil(64) as usize;
        if self.0.try_fill(words, 0).is_err() {
            return count;
        }
        let mut new = 0;
        for frame in first..first + count {
            let word = &mut self.0[(frame / 64) as usize];
            let bit = 1 << (frame % 64);
            new += u64::from(*word & bit == 0);
            *word |= bit;
        }
        new
    }
}

#[derive(Default)]
struct Measuring {
    seen: Seen,
    charge: Charge,
}

impl Measuring {
    /// Adds the frames that the page-table entry `page` maps. `shared` states whether the area is shared, and `kind` is
    /// the kind of the frames.
    fn add(&mut self, page: Present, shared: bool, kind: FrameKind) {
        if page.bits.contains(Bits::BORROWED) {
            return;
        }
        let count = page.size.pages();
        let first = u64::from(page.frame.number());
        match kind {
            FrameKind::Anonymous | FrameKind::Merged => {
                let new = if page.bits.contains(Bits::EXCLUSIVE) {
                    count
                } else {
                    self.seen.note(first, count)
                };
                self.charge.private += new;
                if page.size != PageSize::Size4K {
                    self.charge.huge += new;
                }
            }
            FrameKind::Object if shared => {
                self.charge.shared += self.seen.note(first, count);
            }
            // The group is not charged for frames of files, frames without an owner, and frames of the hugetlb pool,
            // which has separate limits.
            FrameKind::Object
            | FrameKind::Hole
            | FrameKind::Free
            | FrameKind::Reserved
            | FrameKind::Kernel
            | FrameKind::Table
            | FrameKind::Zero
            | FrameKind::Slab
            | FrameKind::Pool
            | FrameKind::PoolAnonymous
            | FrameKind::PoolObject => {}
        }
    }

    fn add_space(&mut self, memory: &Memory, space: &Space) {
        let all = PageRange::new(Page::new(0), VirtAddr::USER_END.page());
        let frames = memory.frames();
        space.usage().survey(all, |sight| {
            if let Sight::Entry(area, extent, _) = sight
                && let Entry::Present(page) = extent.entry
            {
                self.add(page, area.is_shared(), frames.kind(page.frame));
            }
            true
        });
    }
}

impl Cgroups {
    /// Returns the charge of the group.
    pub fn charge(&self, group: &Cgroup) -> Charge {
        let mut measuring = Measuring::default();
        // The address spaces counted so far, sorted by their address in kernel memory.
        let mut spaces: Vec<Arc<Space>> = Vec::new();
        for process in self.oom.tasks.living_in(group) {
            let Some(space) = process.space() else {
                continue;
            };
            // Processes created with `CLONE_VM` share one address space, which must be counted only once.
            let place = spaces.binary_search_by_key(&Arc::as_ptr(&space), Arc::as_ptr);
            if let Err(place) = place {
                measuring.add_space(&self.oom.memory, &space);
                // If there is no memory for this entry, the address space may be counted twice.
                let _ = spaces.try_insert(place, space);
            }
        }
        self.oom.memory.visit_objects(group.memcg(), &mut |frame| {
            let first = u64::from(frame.number());
            let new = measuring.seen.note(first, 1);
            measuring.charge.shared += new;
            measuring.charge.both += 1 - new;
        });
        measuring.charge
    }

    /// Measures the group, and returns its charge in pages. Also sets the value of `ever` at which the group is
    /// measured again. Before this value is reached, the charge cannot exceed the limit, or rise far above the recorded
    /// peak.
    pub fn measure(&self, group: &Cgroup, how: Measurement) -> u64 {
        self.measured(group, how).pages
    }

    /// Measures the group like [`measure`](Self::measure). Returns the measurement, which can also be recorded for the
    /// group above.
    pub(super) fn measured(&self, group: &Cgroup, how: Measurement) -> Measured {
        loop {
            let changes = group.changes.load(Ordering::SeqCst);
            // Read the value first, so that pages that are mapped during the measurement count as mapped after the
            // measurement.
            let ever = self.ever();
            let measured = Measured {
                ever,
                pages: self.pages(group, how),
            };
            measured.note(group);
            // Measure again if a process joined the group or the limit changed during the measurement.
            if group.changes.load(Ordering::SeqCst) == changes {
                return measured;
            }
        }
    }

    /// Returns whether `above` is charged for the same processes and objects as `below`, which is a group directly
    /// below it.
    pub(super) fn is_charged_like(&self, above: &Cgroup, below: &Cgroup) -> bool {
        let population = &above.population;
        let alone = (population.members(), population.children()) == (0, 1);
        let objects = |group: &Cgroup| self.oom.memory.swap().objects_of(group.memcg());
        alone && below.population.is_populated() && objects(above) == objects(below)
    }

    /// Returns the charge of the group in pages.
    fn pages(&self, group: &Cgroup, how: Measurement) -> u64 {
        let counted = self.counted(group);
        let estimate = group.walked.lock().as_mut().and_then(|walked| {
            let tolerance = match how {
                Measurement::Bound => walked.pages() / 64,
                Measurement::Value => 0,
                Measurement::Walk => return None,
            };
            walked.estimate(counted, tolerance)
        });
        estimate.unwrap_or_else(|| {
            let charge = self.charge(group);
            let pages = charge.pages();
            let walked = Walked::new(counted, charge.private, pages, charge.both == 0);
            *group.walked.lock() = Some(walked);
            pages
        })
    }

    /// Returns the sums of the page counters of the group's address spaces. If several processes share an address
    /// space, it is counted once per process.
    fn counted(&self, group: &Cgroup) -> CountedPages {
        let mut counted = CountedPages {
            charged: self.oom.memory.object_pages(group.memcg()),
            changes: group.changes.load(Ordering::SeqCst),
            ..CountedPages::default()
        };
        for process in self.oom.tasks.living_in(group) {
            if let Some(space) = process.space() {
                let (all, objects) = (
                    space.usage().resident_pages(),
                    space.usage().resident_object_pages(),
                );
                counted.private += all.saturating_sub(objects);
                counted.mapped += objects;
                counted.spaces += 1;
            }
        }
        counted
    }
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// The value of `Cgroups::ever` when the measurement began.
    ever: u64,
    pub(super) pages: u64,
}

impl Measured {
    /// Records the measurement in `group`: updates the peak, and the value of `ever` at which the group is measured
    /// again.
    pub(super) fn note(&self, group: &Cgroup) {
        let pages = self.pages;
        if pages <= group.most() {
            group.peak.fetch_max(pages, Ordering::Relaxed);
        }
        let room = room(pages, group.peak(), group.most());
        let look_at = self.ever.saturating_add(room);
        group.look_at.store(look_at, Ordering::SeqCst);
    }
}

/// Returns how many more pages can be mapped before a group with a charge of `pages` must be measured again.
fn room(pages: u64, peak: u64, most: u64) -> u64 {
    let notable = peak.max(pages) + (pages / 8).max(64);
    most.min(notable).saturating_sub(pages)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use memwright_table::Frame;

    #[test]
    fn frames_are_charged_once() {
        let (x, b) = (Bits::EXCLUSIVE, Bits::BORROWED);
        let none = Bits::empty();
        let (anon, object) = (FrameKind::Anonymous, FrameKind::Object);
        #[rustfmt::skip]
        let rows = [
            ("its own",                      vec![(1, x, false, anon), (2, x, false, anon)], (2, 0)),
            ("shown twice since a fork",     vec![(7, none, false, anon), (7, none, false, anon)], (1, 0)),
            ("merged",                       vec![(9, none, false, FrameKind::Merged); 3], (1, 0)),
            ("of zeroes",                    vec![(0, b, false, FrameKind::Zero)], (0, 0)),
            ("shared memory",                vec![(64, none, true, object), (64, none, true, object)], (0, 1)),
            ("a file, privately",            vec![(65, none, false, object)], (0, 0)),
            ("of the pool",                  vec![(512, none, true, FrameKind::PoolObject)], (0, 0)),
        ];
        for (name, entries, (private, shared)) in rows {
            let mut measuring = Measuring::default();
            for (frame, bits, is_shared, kind) in entries {
                let page = Present {
                    frame: Frame::new(frame),
                    size: PageSize::Size4K,
                    bits,
                };
                measuring.add(page, is_shared, kind);
            }
            let charge = measuring.charge;
            assert_eq!((charge.private, charge.shared), (private, shared), "{name}");
        }
    }

    #[test]
    fn it_is_measured_again_before_it_passes_its_limit_or_its_peak_by_much() {
        for (pages, peak, most, expected) in [
            (100, 100, 120, 20),
            (120, 120, 120, 0),
            (130, 120, 120, 0),
            (100, 100, 10_000, 64),
            (100, 500, 10_000, 464),
            (8000, 8000, u64::MAX, 1000),
        ] {
            assert_eq!(room(pages, peak, most), expected, "{pages} {peak} {most}");
        }
    }

    #[test]
    fn a_part_of_a_huge_page_is_not_charged_again() {
        let mut measuring = Measuring::default();
        let whole = Present {
            frame: Frame::new(512),
            size: PageSize::Size2M,
            bits: Bits::empty(),
        };
        let part = Present {
            frame: Frame::new(600),
            size: PageSize::Size4K,
            bits: Bits::empty(),
        };
        measuring.add(part, false, FrameKind::Anonymous);
        measuring.add(whole, false, FrameKind::Anonymous);
        assert_eq!(
            (measuring.charge.private, measuring.charge.huge),
            (512, 511)
        );
    }
}
