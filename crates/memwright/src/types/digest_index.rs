//! A hash index by digests of contents. It uses open addressing, and its growth can fail.

use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};

/// The minimum capacity of an index that is not empty.
const FEWEST: usize = 64;

/// Maps digests to values. Several values may have the same digest.
pub(crate) struct Index<T> {
    /// The slots of the hash table. Each slot is empty, or has a value and its digest. The number of slots is 0 or a
    /// power of two. At least a quarter of the slots are empty.
    places: Vec<Option<(u64, T)>>,
    used: usize,
}

impl<T: Copy> Index<T> {
    pub(crate) const fn new() -> Self {
        Self {
            places: Vec::new(),
            used: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.used
    }

    /// Returns the number of bytes of memory that the index takes.
    pub(crate) fn bytes(&self) -> usize {
        self.places.len() * size_of::<Option<(u64, T)>>()
    }

    /// Reserves room for one more value.
    pub(crate) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        if (self.used + 1) * 4 <= self.places.len() * 3 {
            return Ok(());
        }
        let count = (self.places.len() * 2).max(FEWEST);
        let mut places = Vec::new();
        places.try_make_room(count)?;
        for _ in 0..count {
            places.try_push(None)?;
        }
        let old = core::mem::replace(&mut self.places, places);
        for (digest, value) in old.into_iter().flatten() {
            let place = self.free_place(digest);
            self.places[place] = Some((digest, value));
        }
        Ok(())
    }

    /// Adds a value. The caller must have made room for it with [`reserve`](Self::reserve).
    pub(crate) fn insert(&mut self, digest: u64, value: T) {
        let place = self.free_place(digest);
        self.places[place] = Some((digest, value));
        self.used += 1;
    }

    /// Returns the first value with this digest for which `fits` holds.
    pub(crate) fn find(&self, digest: u64, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut place = self.home(digest)?;
        while let Some((found, value)) = &self.places[place] {
            if *found == digest && fits(value) {
                return Some(*value);
            }
            place = self.after(place);
        }
        None
    }

    /// Returns a mutable reference to the first value with this digest for which `fits` holds.
    pub(crate) fn find_mut(&mut self, digest: u64, fits: impl Fn(&T) -> bool) -> Option<&mut T> {
        let mut place = self.home(digest)?;
        while let Some((found, value)) = &self.places[place] {
            if *found == digest && fits(value) {
                return self.places[place].as_mut().map(|(_, value)| value);
            }
            place = self.after(place);
        }
        None
    }

    /// Removes the first value with this digest for which `fits` holds.
    pub(crate) fn remove(&mut self, digest: u64, fits: impl Fn(&T) -> bool) -> Option<T> {
        let mut place = self.home(digest)?;
        while let Some((found, value)) = self.places[place] {
            if found == digest && fits(&value) {
                self.empty(place);
                return Some(value);
            }
            place = self.after(place);
        }
        None
    }

    /// Removes the values for which `keep` returns false.
    pub(crate) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for place in 0..self.places.len() {
            while let Some((_, value)) = &self.places[place] {
                if keep(value) {
                    break;
                }
                self.empty(place);
            }
        }
    }

    /// Removes all values and frees the memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }

    /// Removes all values and keeps the memory.
    pub(crate) fn forget(&mut self) {
        self.places.fill(None);
        self.used = 0;
    }

    /// Returns the values, with their digests.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, T)> + '_ {
        self.places.iter().flatten().copied()
    }

    /// Returns the slot at which a search for a digest begins, or `None` if the table has no slots.
    fn home(&self, digest: u64) -> Option<usize> {
        let mask = self.places.len().checked_sub(1)?;
        Some(digest as usize & mask)
    }

    fn after(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }

    fn free_place(&self, digest: u64) -> usize {
        let mut place = digest as usize & (self.places.len() - 1);
        while self.places[place].is_some() {
            place = self.after(place);
        }
        place
    }

    /// Empties a slot. Moves later values into the gap where needed, so that searches still find them.
    fn empty(&mut self, place: usize) {
        let mask = self.places.len() - 1;
        self.used -= 1;
        let (mut hole, mut next) = (place, place);
        loop {
            self.places[hole] = None;
            loop {
                next = self.after(next);
                let Some((digest, _)) = self.places[next] else {
                    return;
                };
                let way = next.wrapping_sub(digest as usize) & mask;
                if way >= next.wrapping_sub(hole) & mask {
                    break;
                }
            }
            self.places[hole] = self.places[next];
            hole = next;
        }
    }
}

/// Returns the digest under which the index stores a page. `node` is the node of the page if pages of different nodes
/// must not be merged, otherwise `None`.
pub(crate) const fn key_of(digest: u64, node: Option<u8>) -> u64 {
    match node {
        None => digest,
        Some(node) => digest ^ (node as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn what_is_kept_is_found() {
        let mut index = Index::new();
        assert_eq!(index.find(1, |_| true), None);
        // Digests for which searches begin at the same few slots. Some of the digests are equal.
        let digests: Vec<u64> = (0..300)
            .map(|number| (number % 7) * 64 + number % 3 + 62)
            .collect();
        for (value, digest) in digests.iter().enumerate() {
            index.reserve().unwrap();
            index.insert(*digest, value);
        }
        for modulus in [2, 3, 5, 7] {
            index.retain(|value| value % modulus != 0);
            let left = |value: usize| {
                [2, 3, 5, 7]
                    .iter()
                    .take_while(|one| **one <= modulus)
                    .all(|one| value % one != 0)
            };
            for (value, digest) in digests.iter().enumerate() {
                let found = index.find(*digest, |one| *one == value);
                assert_eq!(found, left(value).then_some(value), "{value}");
            }
            assert_eq!(index.len(), (0..300).filter(|value| left(*value)).count());
            assert_eq!(index.iter().count(), index.len());
        }
        let last = index.iter().next().map(|(digest, _)| digest).unwrap();
        let before = index.len();
        assert_eq!(index.remove(last, |_| false), None);
        *index.find_mut(last, |_| true).unwrap() = 1_000;
        assert_eq!(index.remove(last, |value| *value == 1_000), Some(1_000));
        assert_eq!(index.len(), before - 1);
        index.forget();
        assert_eq!((index.len(), index.find(62, |_| true)), (0, None));
    }
}
