//! Subpools: the limit and the guarantee of pages that a hugetlbfs mount has in the pool (Linux 7.3 `mm/hugetlb.c`,
//! `struct hugepage_subpool`).
//!
//! The lock of the pool protects the subpools. A page in use records its subpool in the owner field of its metadata.

extern crate alloc as rust_alloc;

use rust_alloc::vec::Vec;

use super::NoHugePage;
use crate::handle::{OutOfMemory, TryPush};

/// Identifies a subpool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubpoolId(u32);

impl SubpoolId {
    /// No subpool: only the pool limits the number of pages.
    pub const NONE: Self = Self(0);

    /// Returns the value that the owner field of a page stores.
    pub(super) const fn to_owner(self) -> u64 {
        self.0 as u64
    }

    /// Returns the id from an owner field, which [`Self::to_owner`] encoded.
    pub(super) const fn from_owner(owner: u64) -> Self {
        Self(owner as u32)
    }
}

/// The counters of a subpool, in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubpoolCounts {
    /// The maximum number of pages that are reserved or in use; `None` for no limit (`max_hpages`).
    pub most: Option<u64>,
    /// The number of pages that the pool guarantees the subpool; `None` for no guarantee (`min_hpages`).
    pub least: Option<u64>,
    /// The number of pages of the guarantee that are reserved in the pool but neither reserved by a mapping nor in use
    /// (`rsv_hpages`).
    pub spare: u64,
    /// The number of pages that are reserved by mappings or in use.
    pub held: u64,
}

impl SubpoolCounts {
    /// Adds `pages` pages to `held`. Returns how many of them the caller must reserve in the pool; the guarantee covers
    /// the others.
    ///
    /// # Errors
    /// [`NoHugePage`] if the limit would be exceeded. The counters are unchanged then.
    fn get(&mut self, pages: u64) -> Result<u64, NoHugePage> {
        let held = self.held.checked_add(pages).ok_or(NoHugePage)?;
        if self.most.is_some_and(|most| held > most) {
            return Err(NoHugePage);
        }
        self.held = held;
        let spare = self.spare.min(pages);
        self.spare -= spare;
        Ok(pages - spare)
    }

    /// Subtracts `pages` pages from `held`. Returns how many reservations in the pool the caller must release. As on
    /// Linux, a subpool without a limit keeps reservations for `least` pages even while more pages are in use.
    fn put(&mut self, pages: u64) -> u64 {
        self.held -= pages;
        let Some(least) = self.least else {
            return pages;
        };
        if self.most.is_some() && self.held >= least {
            return pages;
        }
        let spare = self.spare + pages;
        self.spare = spare.min(least);
        spare - self.spare
    }
}

/// The list element of one subpool id.
#[derive(Clone, Copy)]
enum Slot {
    /// The counters of a subpool, and whether its mount still exists.
    Used(SubpoolCounts, bool),
    /// The id is unused. The value is the index of the next unused element.
    Free(Option<u32>),
}

/// All subpools.
pub(super) struct Subpools {
    slots: Vec<Slot>,
    free: Option<u32>,
}

impl Subpools {
    pub(super) const fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: None,
        }
    }

    /// Adds a subpool. The caller has reserved all of its guaranteed pages in the pool.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the list of subpools cannot grow.
    pub(super) fn open(
        &mut self,
        most: Option<u64>,
        least: Option<u64>,
    ) -> Result<SubpoolId, OutOfMemory> {
        let counts = SubpoolCounts {
            most,
            least,
            spare: least.unwrap_or(0),
            held: 0,
        };
        let slot = Slot::Used(counts, true);
        let index = match self.free {
            Some(index) => {
                let Slot::Free(next) = self.slots[index as usize] else {
                    unreachable!("the list of unused slots contains a subpool");
                };
                self.free = next;
                self.slots[index as usize] = slot;
                index
            }
            None => {
                self.slots.try_push(slot)?;
                (self.slots.len() - 1) as u32
            }
        };
        Ok(SubpoolId(index + 1))
    }

    fn slot(&mut self, id: SubpoolId) -> Option<&mut Slot> {
        let index = id.0.checked_sub(1)?;
        self.slots.get_mut(index as usize)
    }

    fn counts(&mut self, id: SubpoolId) -> Option<&mut SubpoolCounts> {
        match self.slot(id)? {
            Slot::Used(counts, _) => Some(counts),
            Slot::Free(_) => unreachable!("{id:?} is not in use"),
        }
    }

    /// Returns the counters of a subpool; `None` for [`SubpoolId::NONE`].
    pub(super) fn read(&mut self, id: SubpoolId) -> Option<SubpoolCounts> {
        self.counts(id).copied()
    }

    /// Sets the counters of a subpool to those that [`Self::read`] returned.
    pub(super) fn restore(&mut self, id: SubpoolId, before: Option<SubpoolCounts>) {
        if let (Some(counts), Some(before)) = (self.counts(id), before) {
            *counts = before;
        }
    }

    /// Adds `pages` pages to a subpool. Returns how many of them the caller must reserve in the pool.
    ///
    /// # Errors
    /// [`NoHugePage`] if the limit would be exceeded.
    pub(super) fn get(&mut self, id: SubpoolId, pages: u64) -> Result<u64, NoHugePage> {
        self.counts(id)
            .map_or(Ok(pages), |counts| counts.get(pages))
    }

    /// Subtracts `pages` pages from a subpool. Returns how many reservations in the pool the caller must release.
    pub(super) fn put(&mut self, id: SubpoolId, pages: u64) -> u64 {
        self.counts(id).map_or(pages, |counts| counts.put(pages))
    }

    /// Records that the mount of a subpool was destroyed.
    pub(super) fn close(&mut self, id: SubpoolId) {
        if let Some(Slot::Used(_, open)) = self.slot(id) {
            *open = false;
        }
    }

    /// Frees the subpool `id` if it has no mount and no pages. Returns the number of reservations in the pool that the
    /// caller must release, which is 0 if the subpool stays.
    pub(super) fn finish(&mut self, id: SubpoolId) -> u64 {
        let free = self.free;
        let Some(slot) = self.slot(id) else {
            return 0;
        };
        match *slot {
            Slot::Used(counts, false) if counts.held == 0 => {
                *slot = Slot::Free(free);
                self.free = Some(id.0 - 1);
                counts.spare
            }
            Slot::Used(..) | Slot::Free(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One step: true for `get` and false for `put`, the number of pages, the result, and `spare` and `held`
    /// afterwards.
    type Step = (bool, u64, Result<u64, NoHugePage>, (u64, u64));

    fn walk(most: Option<u64>, least: Option<u64>, steps: &[Step]) {
        let mut counts = SubpoolCounts {
            most,
            least,
            spare: least.unwrap_or(0),
            held: 0,
        };
        for (number, &(takes, pages, expected, left)) in steps.iter().enumerate() {
            let done = if takes {
                counts.get(pages)
            } else {
                Ok(counts.put(pages))
            };
            let seen = (done, (counts.spare, counts.held));
            assert_eq!(seen, (expected, left), "{most:?}, {least:?}, step {number}");
        }
    }

    #[test]
    fn the_limit_and_the_guarantee_hold() {
        walk(
            Some(3),
            None,
            &[
                (true, 2, Ok(2), (0, 2)),
                (true, 2, Err(NoHugePage), (0, 2)),
                (true, 1, Ok(1), (0, 3)),
                (true, u64::MAX, Err(NoHugePage), (0, 3)),
                (false, 3, Ok(3), (0, 0)),
            ],
        );
        walk(
            Some(3),
            Some(2),
            &[
                (true, 1, Ok(0), (1, 1)),
                (true, 2, Ok(1), (0, 3)),
                (false, 1, Ok(1), (0, 2)),
                (false, 1, Ok(0), (1, 1)),
                (false, 1, Ok(0), (2, 0)),
            ],
        );
        walk(
            None,
            Some(2),
            &[
                (true, 4, Ok(2), (0, 4)),
                (false, 1, Ok(0), (1, 3)),
                (false, 2, Ok(1), (2, 1)),
                (false, 1, Ok(1), (2, 0)),
            ],
        );
    }

    #[test]
    fn a_subpool_ends_with_its_last_page() {
        let mut all = Subpools::new();
        let first = all.open(Some(2), Some(1)).unwrap();
        let second = all.open(None, Some(1)).unwrap();
        assert_eq!(all.get(first, 2), Ok(1));
        all.close(first);
        assert_eq!(all.finish(first), 0);
        assert_eq!(all.put(first, 2), 1);
        assert_eq!(all.finish(first), 1);
        // The free id is reused.
        assert_eq!(all.open(None, None), Ok(first));
        assert_eq!(all.finish(second), 0);
        assert_eq!(all.get(SubpoolId::NONE, 7), Ok(7));
        assert_eq!(all.put(SubpoolId::NONE, 7), 7);
        assert_eq!(all.read(SubpoolId::NONE), None);
    }
}
