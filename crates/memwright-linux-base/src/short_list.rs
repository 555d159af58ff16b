//! A vector whose first elements need no memory from the heap.

use crate::paged::Paged;
use memwright_table::OutOfMemory;

/// A vector for lists that are usually short: the first `N` elements are in the value itself, and the others in
/// page-sized blocks.
#[derive(Debug)]
pub struct ShortList<T, const N: usize> {
    first: heapless::Vec<T, N>,
    further: Paged<T>,
}

impl<T, const N: usize> Default for ShortList<T, N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T, const N: usize> ShortList<T, N> {
    /// The number of elements up to which the list allocates no memory.
    pub const INLINE: usize = N;

    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            first: heapless::Vec::new(),
            further: Paged::new(),
        }
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.further.len()
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Appends `value`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the list is then unchanged.
    pub fn try_push(&mut self, value: T) -> Result<(), OutOfMemory> {
        match self.first.push(value) {
            Ok(()) => Ok(()),
            Err(value) => self.further.try_push(value),
        }
    }

    /// Iterates over the elements.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.first.iter().chain(self.further.iter())
    }
}

impl<T: Copy + Ord, const N: usize> ShortList<T, N> {
    /// Sorts the elements and removes duplicates.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the order of the elements is then unspecified.
    ///
    /// # Locks
    /// The caller holds no lock except those that [sleep](crate::sync::Rank::sleeps).
    pub fn sort_and_deduplicate(&mut self) -> Result<(), OutOfMemory> {
        if self.further.is_empty() {
            self.first.sort_unstable();
            let mut last = None;
            self.first
                .retain(|value| last.replace(*value) != Some(*value));
            return Ok(());
        }
        self.further.try_push_all(&self.first)?;
        self.further.sort_and_deduplicate();
        self.first.clear();
        let front = self.further.len().min(N);
        for number in 0..front {
            // The push cannot fail, because `first` was emptied above and at most `N` elements are pushed.
            let _ = self.first.push(self.further[number]);
        }
        let left = self.further.len() - front;
        for number in 0..left {
            self.further[number] = self.further[number + front];
        }
        self.further.truncate(left);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn equal_elements_become_one_wherever_they_are() {
        for (length, different) in [(0, 1), (1, 1), (4, 2), (5, 5), (9, 3), (3000, 2500)] {
            let mut list = ShortList::<u64, 4>::new();
            for number in 0..length {
                // The multiples of 7919 reach every residue modulo `different`.
                list.try_push((number * 7919) % different).unwrap();
            }
            assert_eq!(list.len() as u64, length);
            list.sort_and_deduplicate().unwrap();
            let expected: Vec<u64> = (0..different.min(length)).collect();
            assert!(list.iter().eq(&expected), "{length}, {different}");
            assert_eq!((list.len(), list.is_empty()), (expected.len(), length == 0));
        }
    }
}
