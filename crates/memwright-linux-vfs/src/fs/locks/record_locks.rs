//! Advisory locks on ranges of a file: `fcntl` record locks, and `flock` as a lock on the complete range.
//!
//! The ranges of a holder are stored together and sorted by offset. Adjacent ranges of equal strength are merged.
//! `F_GETLK` reports the first conflict in the order in which holders took the first of their present locks (Linux 7.3
//! `fs/locks.c`, `posix_lock_inode`).
//!
//! A file can have a hundred thousand holders. The ranges of one holder form a group, and a map finds the group of a
//! holder. The search for a conflict first compares the requested range with the span of each group, which takes a few
//! instructions. For a shared lock, the search is skipped while no other holder has an exclusive lock.

use crate::fs::locks::{
    ranges::Ranges,
    record::{Holder, Record, Strength},
};
use memwright_linux_base::{ordered::Ordered, paged::Paged};
use memwright_table::OutOfMemory;

/// The reason why a lock was not taken. The locks of the holder are unchanged then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireError {
    /// A lock of another holder conflicts. The field is the first such lock.
    Conflict(Record),
    /// There is no memory for the lock.
    OutOfMemory,
}

/// The locks of one holder, which has locked at least one range.
#[derive(Debug)]
struct Group {
    holder: Holder,
    /// Sequence number of the group. The holder with a smaller number took the first of its present locks earlier.
    since: u64,
    /// The first and the last byte that the holder has locked.
    span: (u64, u64),
    ranges: Ranges,
}

impl Group {
    /// Returns whether one of the ranges can overlap the range of `wanted`.
    fn may_overlap(&self, wanted: &Record) -> bool {
        self.span.0 <= wanted.last && wanted.first <= self.span.1
    }

    /// Returns the first range of this group that conflicts with `wanted`, or `None` if there is none. `wanted` belongs
    /// to another holder.
    fn conflict(&self, wanted: &Record) -> Option<Record> {
        let found = self
            .ranges
            .overlapping(wanted.first, wanted.last)
            .find(|range| {
                range.strength == Strength::Exclusive || wanted.strength == Strength::Exclusive
            })?;
        Some(Record {
            holder: self.holder,
            strength: found.strength,
            first: found.first,
            last: found.last,
        })
    }
}

/// The locks of one file.
#[derive(Debug, Default)]
pub struct RecordLocks {
    /// The groups, in arbitrary order.
    groups: Paged<Group>,
    /// The index of each holder's group.
    by_holder: Ordered<Holder, usize>,
    /// Number of groups that have an exclusive lock.
    exclusive: usize,
    /// The sequence number (`since`) of the next group.
    next: u64,
}

impl RecordLocks {
    /// Creates an empty set of locks.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            groups: Paged::new(),
            by_holder: Ordered::new(),
            exclusive: 0,
            next: 0,
        }
    }

    /// Returns the first lock of another holder that conflicts with `wanted`, or `None` if there is none.
    #[must_use]
    pub fn conflict(&self, wanted: &Record) -> Option<Record> {
        let own = self.group(wanted.holder);
        let own_exclusive = own.is_some_and(|group| group.ranges.has_exclusive());
        let exclusive = self.exclusive - usize::from(own_exclusive);
        if wanted.strength == Strength::Shared && exclusive == 0 {
            return None;
        }
        let (mut earliest, mut first) = (u64::MAX, None);
        for group in self.groups.blocks().flatten() {
            // Compare `since` first: once a conflict was found, most of the other groups have a greater number.
            if group.since < earliest
                && group.may_overlap(wanted)
                && group.holder != wanted.holder
                && let Some(conflict) = group.conflict(wanted)
            {
                (earliest, first) = (group.since, Some(conflict));
            }
        }
        first
    }

    /// Returns the number of ranges that `holder` has locked.
    #[must_use]
    pub fn ranges_of(&self, holder: Holder) -> usize {
        self.group(holder).map_or(0, |group| group.ranges.len())
    }

    fn group(&self, holder: Holder) -> Option<&Group> {
        self.groups.get(*self.by_holder.get(&holder)?)
    }

    /// Locks or unlocks a range for the holder of the group at `index`. Removes the group if the holder has no lock
    /// left.
    fn set(
        &mut self,
        index: usize,
        (first, last): (u64, u64),
        strength: Option<Strength>,
    ) -> Result<(), OutOfMemory> {
        let Some(group) = self.groups.get_mut(index) else {
            return Ok(());
        };
        let before = usize::from(group.ranges.has_exclusive());
        group.ranges.set(first, last, strength)?;
        self.exclusive = self.exclusive - before + usize::from(group.ranges.has_exclusive());
        match group.ranges.span() {
            Some(span) => group.span = span,
            None => drop(self.take(index)),
        }
        Ok(())
    }

    /// Removes the group at `index` and returns it.
    fn take(&mut self, index: usize) -> Option<Group> {
        let group = self.groups.swap_remove(index)?;
        self.by_holder.remove(&group.holder);
        self.exclusive -= usize::from(group.ranges.has_exclusive());
        if let Some(moved) = self.groups.get(index)
            && let Some(place) = self.by_holder.get_mut(&moved.holder)
        {
            *place = index;
        }
        Some(group)
    }

    /// Unlocks the bytes from `first` to `last`, inclusive, for `holder`. The holder's locks outside of this range
    /// stay.
    ///
    /// # Errors
    /// [`OutOfMemory`] if a lock must be split and memory is exhausted. The locks are unchanged then.
    pub fn release(&mut self, holder: Holder, first: u64, last: u64) -> Result<(), OutOfMemory> {
        match self.by_holder.get(&holder) {
            Some(&index) => self.set(index, (first, last), None),
            None => Ok(()),
        }
    }

    /// Takes the lock `wanted`, which replaces the locks that its holder has in the range of `wanted`.
    ///
    /// # Errors
    /// [`AcquireError`].
    pub fn acquire(&mut self, wanted: Record) -> Result<(), AcquireError> {
        if let Some(conflict) = self.conflict(&wanted) {
            return Err(AcquireError::Conflict(conflict));
        }
        self.take_over(wanted)
            .map_err(|OutOfMemory| AcquireError::OutOfMemory)
    }

    /// Locks the range of `wanted` for its holder. No lock of another holder conflicts.
    fn take_over(&mut self, wanted: Record) -> Result<(), OutOfMemory> {
        let span = (wanted.first, wanted.last);
        if let Some(&index) = self.by_holder.get(&wanted.holder) {
            return self.set(index, span, Some(wanted.strength));
        }
        let mut ranges = Ranges::new();
        ranges.set(wanted.first, wanted.last, Some(wanted.strength))?;
        self.by_holder.insert(wanted.holder, self.groups.len())?;
        let pushed = self.groups.try_push(Group {
            holder: wanted.holder,
            since: self.next,
            span,
            ranges,
        });
        if pushed.is_err() {
            self.by_holder.remove(&wanted.holder);
            return pushed;
        }
        self.next += 1;
        self.exclusive += usize::from(wanted.strength == Strength::Exclusive);
        Ok(())
    }

    /// Removes all locks of `holder`. Returns the number of ranges that it had locked.
    pub fn release_all(&mut self, holder: Holder) -> usize {
        let index = self.by_holder.get(&holder).copied();
        let group = index.and_then(|index| self.take(index));
        group.map_or(0, |group| group.ranges.len())
    }

    /// Returns whether no lock is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Strength::{Exclusive, Shared};
    use alloc::{vec, vec::Vec};

    const A: Holder = Holder::Process(1);
    const B: Holder = Holder::Process(2);
    const C: Holder = Holder::OpenFile(1);

    fn record(holder: Holder, strength: Strength, first: u64, last: u64) -> Record {
        Record {
            holder,
            strength,
            first,
            last,
        }
    }

    /// Returns the ranges that `holder` has locked.
    fn held(locks: &RecordLocks, holder: Holder) -> Vec<(u64, u64, Strength)> {
        let group = locks.groups.iter().find(|group| group.holder == holder);
        group.map_or(Vec::new(), |group| {
            let parts = group.ranges.overlapping(0, u64::MAX);
            parts
                .map(|range| (range.first, range.last, range.strength))
                .collect()
        })
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let mut locks = RecordLocks::new();
        locks.acquire(record(A, Exclusive, 0, u64::MAX)).unwrap();
        locks.release(A, 10, 19).unwrap();
        assert_eq!(locks.acquire(record(B, Shared, 10, 19)), Ok(()));
        let left = AcquireError::Conflict(record(A, Exclusive, 0, 9));
        let right = AcquireError::Conflict(record(A, Exclusive, 20, u64::MAX));
        assert_eq!(locks.acquire(record(B, Shared, 9, 12)), Err(left));
        assert_eq!(locks.acquire(record(B, Shared, 12, 20)), Err(right));
        assert_eq!(locks.ranges_of(A), 2);
        assert_eq!(locks.release_all(A), 2);
        assert_eq!(locks.release_all(A), 0);
        assert_eq!(locks.acquire(record(B, Exclusive, 0, u64::MAX)), Ok(()));
    }

    #[test]
    fn sharing_and_conversion() {
        let mut locks = RecordLocks::new();
        locks.acquire(record(A, Shared, 0, 9)).unwrap();
        locks.acquire(record(B, Shared, 5, 9)).unwrap();
        let shared = AcquireError::Conflict(record(B, Shared, 5, 9));
        assert_eq!(locks.acquire(record(A, Exclusive, 0, 9)), Err(shared));
        assert_eq!(locks.acquire(record(A, Exclusive, 0, 4)), Ok(()));
        assert!(locks.conflict(&record(B, Shared, 4, 4)).is_some());
        assert!(locks.conflict(&record(B, Shared, 5, 5)).is_none());
        locks.release_all(A);
        locks.release_all(B);
        assert!(locks.is_empty());
    }

    #[test]
    fn ranges_join_and_part() {
        let all = u64::MAX;
        let cases = [
            // Adjacent ranges of equal strength are merged.
            (10, 19, Some(Exclusive), vec![(10, 19, Exclusive)]),
            (20, 29, Some(Exclusive), vec![(10, 29, Exclusive)]),
            (0, 9, Some(Exclusive), vec![(0, 29, Exclusive)]),
            // Locking a part of a locked range with equal strength changes nothing.
            (5, 6, Some(Exclusive), vec![(0, 29, Exclusive)]),
            (
                10,
                19,
                Some(Shared),
                vec![(0, 9, Exclusive), (10, 19, Shared), (20, 29, Exclusive)],
            ),
            (
                15,
                24,
                None,
                vec![(0, 9, Exclusive), (10, 14, Shared), (25, 29, Exclusive)],
            ),
            (
                40,
                all,
                Some(Shared),
                vec![
                    (0, 9, Exclusive),
                    (10, 14, Shared),
                    (25, 29, Exclusive),
                    (40, all, Shared),
                ],
            ),
            (
                12,
                39,
                Some(Shared),
                vec![(0, 9, Exclusive), (10, all, Shared)],
            ),
            (0, all, None, vec![]),
        ];
        let mut locks = RecordLocks::new();
        for (first, last, strength, expected) in cases {
            match strength {
                Some(strength) => locks.acquire(record(A, strength, first, last)).unwrap(),
                None => locks.release(A, first, last).unwrap(),
            }
            assert_eq!(held(&locks, A), expected, "{first} {last} {strength:?}");
        }
        assert!(locks.is_empty());
    }

    #[test]
    fn conflicts_are_found_by_holder_then_by_place() {
        let mut locks = RecordLocks::new();
        locks.acquire(record(A, Exclusive, 100, 109)).unwrap();
        locks.acquire(record(B, Exclusive, 0, 9)).unwrap();
        locks.acquire(record(A, Exclusive, 50, 59)).unwrap();
        let wanted = record(C, Exclusive, 0, u64::MAX);
        assert_eq!(locks.conflict(&wanted), Some(record(A, Exclusive, 50, 59)));
        // A holder that replaces its only lock keeps its place in the order of conflicts. A holder that releases its
        // locks and takes a new one is the last.
        locks.acquire(record(A, Shared, 50, 59)).unwrap();
        assert_eq!(locks.conflict(&wanted), Some(record(A, Shared, 50, 59)));
        locks.release(A, 0, u64::MAX).unwrap();
        locks.acquire(record(A, Exclusive, 50, 59)).unwrap();
        assert_eq!(locks.conflict(&wanted), Some(record(B, Exclusive, 0, 9)));
    }

    /// A model for comparison: the ranges of each holder, in the order of the holders.
    type Listed = Vec<(Holder, Vec<(u64, u64, Strength)>)>;

    fn first_conflict(model: &Listed, wanted: &Record) -> Option<Record> {
        let others = model.iter().filter(|(holder, _)| *holder != wanted.holder);
        let mut ranges = others.flat_map(|(holder, ranges)| {
            let record = |&(first, last, strength)| record(*holder, strength, first, last);
            ranges.iter().map(record)
        });
        ranges.find(|one| {
            let overlaps = one.first <= wanted.last && wanted.first <= one.last;
            overlaps && (one.strength == Exclusive || wanted.strength == Exclusive)
        })
    }

    #[test]
    fn an_index_finds_what_a_search_of_all_holders_finds() {
        let mut locks = RecordLocks::new();
        let mut model: Listed = Vec::new();
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let holder = Holder::OpenFile(random(9));
            let first = random(40);
            let last = first + random(4);
            let strength = [Exclusive, Shared, Shared][random(3) as usize];
            let wanted = record(holder, strength, first, last);
            match random(4) {
                0 => locks.release(holder, first, last).unwrap(),
                1 if random(4) == 0 => drop(locks.release_all(holder)),
                _ => {
                    let expected = match first_conflict(&model, &wanted) {
                        Some(conflict) => Err(AcquireError::Conflict(conflict)),
                        None => Ok(()),
                    };
                    assert_eq!(locks.acquire(wanted), expected);
                }
            }
            model.retain(|(other, _)| *other != holder || locks.ranges_of(holder) > 0);
            if locks.ranges_of(holder) > 0 && model.iter().all(|(other, _)| *other != holder) {
                model.push((holder, Vec::new()));
            }
            for (holder, ranges) in &mut model {
                *ranges = held(&locks, *holder);
                assert_eq!(ranges.len(), locks.ranges_of(*holder));
            }
        }
    }
}
