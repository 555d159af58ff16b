//! A set of numbers, stored as runs of consecutive numbers.

use alloc::vec::Vec;
use core::ops::Range;
use memwright_table::{OutOfMemory, TryPush};

/// Sorted, nonempty runs. No two of them overlap or are adjacent.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: Vec<Range<u64>>,
}

impl Runs {
    pub(crate) const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// Returns how many numbers are in the set.
    pub(crate) fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.end - run.start).sum()
    }

    /// Returns how many numbers of `range` are in the set.
    pub(crate) fn count(&self, range: &Range<u64>) -> u64 {
        let runs = self.runs.iter();
        runs.map(|run| {
            let (start, end) = (run.start.max(range.start), run.end.min(range.end));
            end.saturating_sub(start)
        })
        .sum()
    }

    /// Reserves space for `runs` more runs, so that the next `runs` insertions cannot fail.
    ///
    /// # Errors
    /// There is no heap memory.
    pub(crate) fn make_room(&mut self, runs: usize) -> Result<(), OutOfMemory> {
        self.runs.try_make_room(runs)
    }

    /// Adds the numbers of `range`, and returns how many of them were not in the set.
    ///
    /// # Errors
    /// There is no heap memory. Nothing is added.
    pub(crate) fn insert(&mut self, range: Range<u64>) -> Result<u64, OutOfMemory> {
        if range.is_empty() {
            return Ok(0);
        }
        let before = self.len();
        // Merge the runs that overlap the range or are adjacent to it.
        let first = self.runs.partition_point(|run| run.end < range.start);
        let last = self.runs.partition_point(|run| run.start <= range.end);
        if first == last {
            self.runs.try_insert(first, range)?;
        } else {
            let start = self.runs[first].start.min(range.start);
            let end = self.runs[last - 1].end.max(range.end);
            self.runs[first] = start..end;
            self.runs.drain(first + 1..last);
        }
        Ok(self.len() - before)
    }

    /// Removes the numbers of `range`, and returns how many were in the set.
    ///
    /// # Errors
    /// There is no heap memory to split a run. Nothing is removed.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> Result<u64, OutOfMemory> {
        if range.is_empty() {
            return Ok(0);
        }
        let before = self.len();
        let mut index = self.runs.partition_point(|run| run.end <= range.start);
        // Only a run that extends beyond both ends of the range is split. There is at most one such run, and it is the
        // first run that overlaps the range.
        let splits = |run: &Range<u64>| run.start < range.start && range.end < run.end;
        if self.runs.get(index).is_some_and(splits) {
            self.runs.try_make_room(1)?;
        }
        while let Some(run) = self.runs.get(index).filter(|run| run.start < range.end) {
            let (head, tail) = (run.start..range.start, range.end..run.end);
            match (head.is_empty(), tail.is_empty()) {
                (true, true) => {
                    self.runs.remove(index);
                    continue;
                }
                (false, true) => self.runs[index] = head,
                (true, false) => self.runs[index] = tail,
                (false, false) => {
                    self.runs[index] = head;
                    self.runs.try_insert(index + 1, tail)?;
                }
            }
            index += 1;
        }
        Ok(before - self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_meet_and_are_cut() {
        let mut runs = Runs::new();
        // Columns: whether the step adds or removes, the range, how many numbers change, and the edges of the runs
        // afterwards.
        let steps: [(bool, Range<u64>, u64, &[u64]); 9] = [
            (true, 4..6, 2, &[4, 6]),
            (true, 8..9, 1, &[4, 6, 8, 9]),
            (true, 0..1, 1, &[0, 1, 4, 6, 8, 9]),
            (true, 5..8, 2, &[0, 1, 4, 9]),
            (true, 4..9, 0, &[0, 1, 4, 9]),
            (false, 6..7, 1, &[0, 1, 4, 6, 7, 9]),
            (false, 0..5, 2, &[5, 6, 7, 9]),
            (false, 3..3, 0, &[5, 6, 7, 9]),
            (false, 5..20, 3, &[]),
        ];
        for (add, range, changed, edges) in steps {
            let done = if add {
                runs.insert(range.clone())
            } else {
                runs.remove(range.clone())
            };
            assert_eq!(done, Ok(changed), "{range:?}");
            let left = runs.runs.iter().flat_map(|run| [run.start, run.end]);
            assert!(left.eq(edges.iter().copied()), "{range:?}");
        }
        runs.insert(2..5).unwrap();
        let counts = (runs.count(&(0..3)), runs.count(&(4..9)), runs.len());
        assert_eq!(counts, (1, 1, 3));
    }
}
