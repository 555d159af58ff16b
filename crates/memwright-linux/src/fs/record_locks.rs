//! Advisory locks on ranges of a file: `fcntl` record locks, and `flock` as a lock on all of it.

use alloc::collections::BTreeMap;

/// Who holds a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// A process, by its id: the locks of `F_SETLK`.
    Process(u64),
    /// An open file, by its identity: the locks of `F_OFD_SETLK` and `flock`.
    OpenFile(u64),
}

/// How much a lock excludes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strength {
    /// Others may hold shared locks too.
    Shared,
    /// Nobody else may hold any.
    Exclusive,
}

/// A lock that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose it is.
    pub holder: Holder,
    /// Shared or exclusive.
    pub strength: Strength,
    /// First byte.
    pub first: u64,
    /// Last byte; `u64::MAX` for the end of the file, wherever it comes to be.
    pub last: u64,
}

impl Record {
    fn overlaps(&self, first: u64, last: u64) -> bool {
        self.first <= last && first <= self.last
    }

    fn conflicts(&self, other: &Self) -> bool {
        self.holder != other.holder
            && self.overlaps(other.first, other.last)
            && (self.strength == Strength::Exclusive || other.strength == Strength::Exclusive)
    }
}

/// The locks of one file.
///
/// What one holder has does not overlap, so a change of its own locks finds them by their first
/// bytes. Exclusive locks overlap no other lock at all. Shared locks of several holders may overlap
/// one another; they are ordered by size and then by first byte, so that a search for those that
/// reach into a range looks at few that end before it.
#[derive(Debug, Default)]
pub struct RecordLocks {
    /// Every lock, by its holder and its first byte: its last byte, and its strength.
    held: BTreeMap<(Holder, u64), (u64, Strength)>,
    /// The exclusive locks by their first bytes: last byte and holder.
    exclusive: BTreeMap<u64, (u64, Holder)>,
    /// The shared locks by size, first byte and holder: their last bytes.
    shared: BTreeMap<(u32, u64, Holder), u64>,
}

/// The least holder in the order of the maps.
const LEAST: Holder = Holder::Process(0);

/// The class of a range by its size: from `1 << class` bytes to twice as many.
const fn size_class(first: u64, last: u64) -> u32 {
    // The whole file has 2^64 bytes.
    match (last - first).checked_add(1) {
        Some(length) => length.ilog2(),
        None => u64::BITS,
    }
}

/// The lowest first byte of a range of this class that reaches up to `first`.
const fn lowest_start(class: u32, first: u64) -> u64 {
    // One less than the longest range of the class has.
    let reach = match class {
        0..63 => (2 << class) - 2,
        63 => u64::MAX - 1,
        _ => u64::MAX,
    };
    first.saturating_sub(reach)
}

impl RecordLocks {
    /// No locks.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            exclusive: BTreeMap::new(),
            shared: BTreeMap::new(),
        }
    }

    /// The lock with the lowest first byte that stands in the way of `wanted`.
    #[must_use]
    pub fn conflict(&self, wanted: &Record) -> Option<Record> {
        let exclusive = self.exclusive_conflict(wanted);
        let shared = match wanted.strength {
            Strength::Exclusive => self.shared_conflict(wanted),
            Strength::Shared => None,
        };
        exclusive
            .into_iter()
            .chain(shared)
            .min_by_key(|record| record.first)
    }

    fn exclusive_conflict(&self, wanted: &Record) -> Option<Record> {
        let before = self.exclusive.range(..wanted.first).next_back();
        let within = self.exclusive.range(wanted.first..=wanted.last);
        let mut records = before
            .into_iter()
            .chain(within)
            .map(|(&first, &(last, holder))| Record {
                holder,
                strength: Strength::Exclusive,
                first,
                last,
            });
        records.find(|record| record.conflicts(wanted))
    }

    fn shared_conflict(&self, wanted: &Record) -> Option<Record> {
        let mut lowest: Option<Record> = None;
        let mut next = self.shared.first_key_value();
        while let Some((&(class, ..), _)) = next {
            let start = lowest_start(class, wanted.first);
            let reaching = self
                .shared
                .range((class, start, LEAST)..)
                .take_while(|((of, first, _), _)| *of == class && *first <= wanted.last);
            let found = reaching
                .map(|(&(_, first, holder), &last)| Record {
                    holder,
                    strength: Strength::Shared,
                    first,
                    last,
                })
                .find(|record| record.conflicts(wanted));
            lowest = lowest
                .into_iter()
                .chain(found)
                .min_by_key(|record| record.first);
            next = self.shared.range((class + 1, 0, LEAST)..).next();
        }
        lowest
    }

    /// Removes what `holder` holds between `first` and `last`; what lies outside stays.
    pub fn release(&mut self, holder: Holder, first: u64, last: u64) {
        while let Some(record) = self
            .last_of(holder, last)
            .filter(|record| record.last >= first)
        {
            self.remove(&record);
            if record.first < first {
                self.insert(&Record {
                    last: first - 1,
                    ..record
                });
            }
            if record.last > last {
                self.insert(&Record {
                    first: last + 1,
                    ..record
                });
            }
        }
    }

    /// Takes the lock, in place of what its holder held on that range. Locks of the same strength
    /// that adjoin it become one with it, as `F_GETLK` shows (`posix_lock_inode` of Linux 6.18,
    /// `fs/locks.c`).
    ///
    /// # Errors
    /// The lock that stands in the way; nothing has changed then.
    pub fn acquire(&mut self, wanted: Record) -> Result<(), Record> {
        if let Some(conflict) = self.conflict(&wanted) {
            return Err(conflict);
        }
        self.release(wanted.holder, wanted.first, wanted.last);
        let mut merged = wanted;
        let of_strength = |record: &Record| record.strength == wanted.strength;
        if let Some(end) = wanted.first.checked_sub(1) {
            let before = self.last_of(wanted.holder, end);
            if let Some(before) = before.filter(|record| record.last == end && of_strength(record))
            {
                self.remove(&before);
                merged.first = before.first;
            }
        }
        if let Some(start) = wanted.last.checked_add(1) {
            let after = self.last_of(wanted.holder, start);
            if let Some(after) = after.filter(|record| record.first == start && of_strength(record))
            {
                self.remove(&after);
                merged.last = after.last;
            }
        }
        self.insert(&merged);
        Ok(())
    }

    /// Removes everything that `holder` holds; returns whether there was anything.
    pub fn release_all(&mut self, holder: Holder) -> bool {
        let before = self.held.len();
        self.release(holder, 0, u64::MAX);
        before != self.held.len()
    }

    /// Whether no lock is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// The last lock of a holder that begins at this byte or before.
    fn last_of(&self, holder: Holder, at: u64) -> Option<Record> {
        let mut before = self.held.range((holder, 0)..=(holder, at));
        let (&(holder, first), &(last, strength)) = before.next_back()?;
        Some(Record {
            holder,
            strength,
            first,
            last,
        })
    }

    fn insert(&mut self, record: &Record) {
        let Record {
            holder,
            strength,
            first,
            last,
        } = *record;
        self.held.insert((holder, first), (last, strength));
        match strength {
            Strength::Exclusive => {
                self.exclusive.insert(first, (last, holder));
            }
            Strength::Shared => {
                let class = size_class(first, last);
                self.shared.insert((class, first, holder), last);
            }
        }
    }

    fn remove(&mut self, record: &Record) {
        self.held.remove(&(record.holder, record.first));
        match record.strength {
            Strength::Exclusive => {
                self.exclusive.remove(&record.first);
            }
            Strength::Shared => {
                let class = size_class(record.first, record.last);
                self.shared.remove(&(class, record.first, record.holder));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Holder = Holder::Process(1);
    const B: Holder = Holder::Process(2);

    fn record(holder: Holder, strength: Strength, first: u64, last: u64) -> Record {
        Record {
            holder,
            strength,
            first,
            last,
        }
    }

    #[test]
    fn unlocking_the_middle_leaves_both_ends() {
        let mut locks = RecordLocks::new();
        locks
            .acquire(record(A, Strength::Exclusive, 0, u64::MAX))
            .unwrap();
        locks.release(A, 10, 19);
        assert_eq!(locks.acquire(record(B, Strength::Shared, 10, 19)), Ok(()));
        let left = record(A, Strength::Exclusive, 0, 9);
        let right = record(A, Strength::Exclusive, 20, u64::MAX);
        assert_eq!(locks.acquire(record(B, Strength::Shared, 9, 12)), Err(left));
        assert_eq!(
            locks.acquire(record(B, Strength::Shared, 12, 20)),
            Err(right)
        );
        assert!(locks.release_all(A));
        assert!(!locks.release_all(A));
        assert_eq!(
            locks.acquire(record(B, Strength::Exclusive, 0, u64::MAX)),
            Ok(())
        );
    }

    #[test]
    fn sharing_and_conversion() {
        let mut locks = RecordLocks::new();
        locks.acquire(record(A, Strength::Shared, 0, 9)).unwrap();
        locks.acquire(record(B, Strength::Shared, 5, 9)).unwrap();
        let shared = record(B, Strength::Shared, 5, 9);
        assert_eq!(
            locks.acquire(record(A, Strength::Exclusive, 0, 9)),
            Err(shared)
        );
        assert_eq!(locks.acquire(record(A, Strength::Exclusive, 0, 4)), Ok(()));
        assert!(locks.conflict(&record(B, Strength::Shared, 4, 4)).is_some());
        assert!(locks.conflict(&record(B, Strength::Shared, 5, 5)).is_none());
        locks.release_all(A);
        locks.release_all(B);
        assert!(locks.is_empty());
    }

    #[test]
    fn adjoining_locks_of_one_strength_become_one() {
        let mut locks = RecordLocks::new();
        for (first, last, strength) in [
            (0, 9, Strength::Shared),
            (20, 29, Strength::Shared),
            (30, 39, Strength::Exclusive),
            (10, 19, Strength::Shared),
        ] {
            locks.acquire(record(A, strength, first, last)).unwrap();
        }
        let whole = record(B, Strength::Exclusive, 0, u64::MAX);
        assert_eq!(
            locks.conflict(&whole),
            Some(record(A, Strength::Shared, 0, 29))
        );
        locks.acquire(record(A, Strength::Shared, 30, 39)).unwrap();
        assert_eq!(
            locks.conflict(&whole),
            Some(record(A, Strength::Shared, 0, 39))
        );
    }

    #[test]
    fn ranges_of_every_size_are_found() {
        assert_eq!(size_class(0, u64::MAX), 64);
        assert_eq!(size_class(5, 5), 0);
        assert_eq!(lowest_start(64, 5), 0);
        assert_eq!(lowest_start(63, u64::MAX), 1);
        assert_eq!(lowest_start(1, 9), 7);
        // Compared with looking at every lock: ranges, holders and strengths from a fixed sequence.
        let mut locks = RecordLocks::new();
        let mut plain: alloc::vec::Vec<Record> = alloc::vec::Vec::new();
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..20_000 {
            let holder = Holder::Process(random(6) + 1);
            let first = random(200);
            let last = match random(8) {
                0 => u64::MAX,
                1 => first,
                _ => first + random(60),
            };
            let strength = [Strength::Shared, Strength::Exclusive][usize::from(random(4) == 0)];
            let wanted = record(holder, strength, first, last);
            let in_the_way = plain.iter().any(|other| other.conflicts(&wanted));
            assert_eq!(locks.conflict(&wanted).is_some(), in_the_way, "{wanted:?}");
            if random(3) == 0 {
                locks.release(holder, first, last);
            } else if locks.acquire(wanted).is_err() {
                continue;
            }
            // The plain list is the set of locked ranges, cut where the holder's changed.
            let mut kept = alloc::vec::Vec::new();
            for old in plain.drain(..) {
                if old.holder != holder || !old.overlaps(first, last) {
                    kept.push(old);
                    continue;
                }
                if old.first < first {
                    kept.push(record(holder, old.strength, old.first, first - 1));
                }
                if old.last > last {
                    kept.push(record(holder, old.strength, last + 1, old.last));
                }
            }
            plain = kept;
            let holds = locks
                .last_of(holder, first)
                .is_some_and(|own| own.last >= first);
            if holds {
                plain.push(wanted);
            }
        }
    }
}
