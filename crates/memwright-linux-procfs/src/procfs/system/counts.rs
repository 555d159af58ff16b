//! Counts the locked frames for the files that report their number. Each read of such a file counts them, because the
//! kernel maintains no counter of locked frames.

use core::fmt;
use memwright::{AreaFlags, Sight};
use memwright_linux_abi::Memory;
use memwright_linux_base::paged::Paged;
use memwright_linux_tasks::process::Tasks;
use memwright_table::{Bits, Entry, Frame, VirtAddr};

/// A set of frames.
struct FrameSet(Paged<u64>);

impl FrameSet {
    /// Creates an empty set for the frames below `end`.
    fn new(end: u32) -> Result<Self, fmt::Error> {
        let words = (end as usize).div_ceil(64);
        let mut set = Paged::new();
        set.try_fill_with(words, || 0).map_err(|_| fmt::Error)?;
        Ok(Self(set))
    }

    /// Adds the `count` frames that start with `first`.
    fn insert(&mut self, first: Frame, count: u32) {
        let first = first.number() as usize;
        for number in first..first + count as usize {
            self.0[number / 64] |= 1 << (number % 64);
        }
    }

    fn len(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

/// Returns the number of resident frames in locked areas of all processes. A frame that several processes map is
/// counted once (`NR_MLOCK` of Linux 7.2).
///
/// # Errors
/// [`fmt::Error`] if the heap is exhausted.
pub fn locked(tasks: &Tasks, memory: &Memory) -> Result<u64, fmt::Error> {
    let mut found: Option<FrameSet> = None;
    for process in tasks.processes() {
        let Some(space) = process.space() else {
            continue;
        };
        if space.usage().totals().locked == 0 {
            continue;
        }
        let set = match &mut found {
            Some(set) => set,
            None => found.insert(FrameSet::new(memory.frames().end())?),
        };
        let mut from = VirtAddr::new(0);
        let next = |from| {
            space.find(from, |area| {
                let locked = area.flags().contains(AreaFlags::LOCKED);
                (area.range(), locked)
            })
        };
        while let Some((range, locked)) = next(from) {
            from = range.end.address();
            if !locked {
                continue;
            }
            space.usage().survey(range, |sight| {
                if let Sight::Entry(_, extent, _) = sight {
                    match extent.entry {
                        Entry::Present(page) if !page.bits.contains(Bits::BORROWED) => {
                            set.insert(page.frame, extent.range.len() as u32);
                        }
                        Entry::Present(_)
                        | Entry::Empty
                        | Entry::Swapped(_)
                        | Entry::Migrating(_)
                        | Entry::Marker(_) => {}
                    }
                }
                true
            });
        }
    }
    Ok(found.map_or(0, |set| set.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_counts_once() {
        let mut set = FrameSet::new(130).unwrap();
        for (first, count) in [(0, 1), (63, 2), (129, 1), (64, 1), (0, 2)] {
            set.insert(Frame::new(first), count);
        }
        assert_eq!(set.len(), 5);
    }
}
