//! NUMA policies of shared memory (Linux 7.2 `mm/mempolicy.c`, `struct shared_policy`).

use alloc::vec::Vec;
use core::ops::Range;
use memwright_table::{OutOfMemory, TryPush};

use crate::types::numa_policy::PolicyId;

/// The NUMA policies of the pages of an object, by range. All mappings of the object share them. The ranges are sorted,
/// nonempty and disjoint.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    runs: Vec<(Range<u64>, PolicyId)>,
}

impl Placed {
    pub(crate) const fn new() -> Self {
        Self { runs: Vec::new() }
    }

    /// Returns whether no page has a policy.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the policy of page `index`, or `PolicyId::NONE` if no policy was set.
    pub(crate) fn get(&self, index: u64) -> PolicyId {
        let place = self.runs.partition_point(|(run, _)| run.end <= index);
        match self.runs.get(place) {
            Some((run, policy)) if run.contains(&index) => *policy,
            Some(_) | None => PolicyId::NONE,
        }
    }

    /// Sets the policy of the pages in `range`, or removes it if `policy` is `PolicyId::NONE`.
    ///
    /// # Errors
    /// There is no heap memory. Nothing has changed.
    pub(crate) fn set(&mut self, range: Range<u64>, policy: PolicyId) -> Result<(), OutOfMemory> {
        if range.is_empty() {
            return Ok(());
        }
        // Reserve room for the new range, and for an existing range that it splits in two.
        self.runs.try_make_room(2)?;
        let first = self.runs.partition_point(|(run, _)| run.end <= range.start);
        let last = self.runs.partition_point(|(run, _)| run.start < range.end);
        let cut = &self.runs[first..last];
        let head = cut.first().map(|(run, own)| (run.start..range.start, *own));
        let tail = cut.last().map(|(run, own)| (range.end..run.end, *own));
        let parts = [head, (!policy.is_none()).then_some((range, policy)), tail];
        let parts = parts
            .into_iter()
            .flatten()
            .filter(|(run, _)| !run.is_empty());
        self.runs.splice(first..last, parts);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_last_holds() {
        let id = PolicyId::from_bits;
        let mut placed = Placed::new();
        let mut plain = [0; 40];
        for (range, policy) in [
            (10..20, 1),
            (15..25, 2),
            (12..14, 3),
            (0..11, 0),
            (13..16, 0),
            (30..31, 4),
            (5..35, 5),
            (9..9, 6),
            (7..8, 0),
            (0..40, 7),
            (20..30, 0),
        ] {
            plain[range.start as usize..range.end as usize].fill(policy);
            assert_eq!(placed.set(range.clone(), id(policy)), Ok(()));
            for (index, policy) in plain.iter().enumerate() {
                assert_eq!(placed.get(index as u64), id(*policy), "{index}, {range:?}");
            }
            assert!(
                placed
                    .runs
                    .windows(2)
                    .all(|two| two[0].0.end <= two[1].0.start)
            );
            assert!(
                placed
                    .runs
                    .iter()
                    .all(|(run, own)| !run.is_empty() && !own.is_none())
            );
        }
    }
}
