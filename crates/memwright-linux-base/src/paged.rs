//! A vector in page-sized blocks.
//!
//! The kernel heap does not allocate large blocks, so a collection whose size a program determines is stored in
//! page-sized blocks. Only the list of blocks is contiguous; it takes 24 bytes for each block.

use crate::sync::PausePoints;
use alloc::vec::Vec;
use core::{
    mem::size_of,
    ops::{Index, IndexMut},
};
use memwright_table::{OutOfMemory, TryPush};

/// The size of a block in bytes.
const BLOCK: usize = 4096;
/// The number of sorting steps between two scheduling points.
const SORTED: u32 = 256;

/// A vector in page-sized blocks.
#[derive(Debug)]
pub struct Paged<T> {
    /// The blocks. Only the last block can have room, and no block is empty.
    blocks: Vec<Vec<T>>,
}

impl<T> Default for Paged<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Paged<T> {
    /// The number of elements per block.
    pub const TOGETHER: usize = if size_of::<T>() > BLOCK / 2 {
        1
    } else {
        BLOCK / size_of::<T>()
    };

    /// Creates an empty vector.
    #[must_use]
    pub const fn new() -> Self {
        Self { blocks: Vec::new() }
    }

    /// Returns the number of elements.
    #[must_use]
    pub fn len(&self) -> usize {
        match self.blocks.split_last() {
            Some((last, full)) => full.len() * Self::TOGETHER + last.len(),
            None => 0,
        }
    }

    /// Returns whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Returns the last block, after making room for another element.
    fn last_with_room(&mut self) -> Result<&mut Vec<T>, OutOfMemory> {
        let full = |block: &Vec<T>| block.len() == Self::TOGETHER;
        if self.blocks.last().is_none_or(full) {
            let mut block = Vec::new();
            // The first block grows as it is filled, because most vectors have few elements.
            if !self.blocks.is_empty() {
                block
                    .try_reserve_exact(Self::TOGETHER)
                    .map_err(|_| OutOfMemory)?;
            }
            self.blocks.try_push(block)?;
        }
        self.blocks.last_mut().ok_or(OutOfMemory)
    }

    /// Appends `value`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the vector is then unchanged.
    pub fn try_push(&mut self, value: T) -> Result<(), OutOfMemory> {
        let block = self.last_with_room()?;
        let result = block.try_push(value);
        self.drop_empty();
        result
    }

    /// Frees the last block if it is empty. It is empty if there was no memory for its first element, or if its only
    /// element was removed.
    fn drop_empty(&mut self) {
        if self.blocks.last().is_some_and(Vec::is_empty) {
            self.blocks.pop();
        }
    }

    /// Removes the last element and returns it.
    pub fn pop(&mut self) -> Option<T> {
        let value = self.blocks.last_mut()?.pop();
        self.drop_empty();
        value
    }

    /// Removes the element at index `number` and returns it. The last element moves to this index.
    pub fn swap_remove(&mut self, number: usize) -> Option<T> {
        if number >= self.len() {
            return None;
        }
        let last = self.pop()?;
        match self.get_mut(number) {
            Some(place) => Some(core::mem::replace(place, last)),
            None => Some(last),
        }
    }

    /// Removes the elements from index `length` on.
    pub fn truncate(&mut self, length: usize) {
        self.blocks.truncate(length.div_ceil(Self::TOGETHER));
        let before = (self.blocks.len().max(1) - 1) * Self::TOGETHER;
        if let Some(last) = self.blocks.last_mut() {
            last.truncate(length - before);
        }
    }

    /// Returns the element at index `number`.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.blocks
            .get(number / Self::TOGETHER)?
            .get(number % Self::TOGETHER)
    }

    /// Returns the element at index `number`, mutably.
    #[must_use]
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.blocks
            .get_mut(number / Self::TOGETHER)?
            .get_mut(number % Self::TOGETHER)
    }

    /// Iterates over the blocks.
    pub fn blocks(&self) -> impl Iterator<Item = &[T]> + Clone {
        self.blocks.iter().map(Vec::as_slice)
    }

    /// Iterates over the blocks mutably.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.blocks.iter_mut().map(Vec::as_mut_slice)
    }

    /// Iterates over the elements.
    pub fn iter(&self) -> impl Iterator<Item = &T> + Clone {
        self.blocks.iter().flatten()
    }

    /// Iterates over the elements mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.blocks.iter_mut().flatten()
    }

    /// Iterates over the elements from index `from` on.
    pub fn iter_from(&self, from: usize) -> impl Iterator<Item = &T> {
        let (block, within) = (from / Self::TOGETHER, from % Self::TOGETHER);
        let blocks = self.blocks.get(block..).unwrap_or_default();
        let first = blocks.first().and_then(|first| first.get(within..));
        let others = blocks.get(1..).unwrap_or_default();
        first
            .unwrap_or_default()
            .iter()
            .chain(others.iter().flatten())
    }

    /// Appends values that `make` returns until the vector has `length` elements.
    ///
    /// # Errors
    /// [`OutOfMemory`]; some elements may have been added.
    pub fn try_fill_with(
        &mut self,
        length: usize,
        mut make: impl FnMut() -> T,
    ) -> Result<(), OutOfMemory> {
        for _ in self.len()..length {
            self.try_push(make())?;
        }
        Ok(())
    }
}

impl<T: Copy> Paged<T> {
    /// Appends a copy of each of `values`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; some elements may have been added.
    pub fn try_push_all(&mut self, mut values: &[T]) -> Result<(), OutOfMemory> {
        while !values.is_empty() {
            let block = self.last_with_room()?;
            let room = Self::TOGETHER - block.len();
            let (now, later) = values.split_at(values.len().min(room));
            let result = block.try_push_all(now);
            self.drop_empty();
            result?;
            values = later;
        }
        Ok(())
    }
}

impl<T: Copy + Ord> Paged<T> {
    /// Sorts the elements and removes duplicates.
    ///
    /// # Locks
    /// The caller holds no lock except those that [sleep](crate::sync::Rank::sleeps).
    pub fn sort_and_deduplicate(&mut self) {
        if let [only] = &mut self.blocks[..] {
            only.sort_unstable();
            only.dedup();
            return;
        }
        self.sort();
        let (mut kept, length) = (1, self.len());
        let mut points = PausePoints::every(SORTED);
        for number in 1..length {
            points.round();
            if self[number] != self[kept - 1] {
                self[kept] = self[number];
                kept += 1;
            }
        }
        self.truncate(kept.min(length));
    }

    /// Sorts the elements by heap sort, which needs neither further memory nor a contiguous slice of the elements.
    ///
    /// # Locks
    /// The caller holds no lock except those that [sleep](crate::sync::Rank::sleeps).
    pub fn sort(&mut self) {
        let length = self.len();
        let mut points = PausePoints::every(SORTED);
        for root in (0..length / 2).rev() {
            points.round();
            self.sift_down(root, length);
        }
        for end in (1..length).rev() {
            points.round();
            (self[0], self[end]) = (self[end], self[0]);
            self.sift_down(0, end);
        }
    }

    fn sift_down(&mut self, mut root: usize, end: usize) {
        let value = self[root];
        loop {
            let mut child = 2 * root + 1;
            if child >= end {
                break;
            }
            if child + 1 < end && self[child] < self[child + 1] {
                child += 1;
            }
            if self[child] <= value {
                break;
            }
            self[root] = self[child];
            root = child;
        }
        self[root] = value;
    }
}

impl<T> Index<usize> for Paged<T> {
    type Output = T;

    fn index(&self, number: usize) -> &T {
        &self.blocks[number / Self::TOGETHER][number % Self::TOGETHER]
    }
}

impl<T> IndexMut<usize> for Paged<T> {
    fn index_mut(&mut self, number: usize) -> &mut T {
        &mut self.blocks[number / Self::TOGETHER][number % Self::TOGETHER]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(length: u64) -> Paged<u64> {
        let mut paged = Paged::new();
        for number in 0..length {
            paged.try_push(number).unwrap();
        }
        paged
    }

    #[test]
    fn elements_stand_in_blocks_of_a_page() {
        for length in [0, 1, 511, 512, 513, 5000] {
            let mut paged = counted(length);
            assert_eq!(paged.len() as u64, length);
            assert_eq!(paged.is_empty(), length == 0);
            assert!(paged.iter().copied().eq(0..length));
            assert!(
                paged
                    .blocks()
                    .all(|block| !block.is_empty() && block.len() <= 512)
            );
            for from in [0, 1, 512, 513, 4999, 5000, 9999] {
                let rest = paged.iter_from(from as usize).copied();
                assert!(rest.eq(from.min(length)..length), "{from} of {length}");
            }
            assert_eq!(paged.get(length as usize), None);
            paged.iter_mut().for_each(|number| *number += 1);
            assert_eq!(paged.pop(), (length > 0).then_some(length));
        }
    }

    #[test]
    fn slices_are_appended_across_blocks() {
        let bytes: Vec<u8> = (0..10_000).map(|byte| byte as u8).collect();
        for step in [1, 100, 4096, 10_000] {
            let mut paged = Paged::new();
            for part in bytes.chunks(step) {
                paged.try_push_all(part).unwrap();
            }
            assert!(paged.iter().eq(&bytes), "{step}");
            assert_eq!(paged.blocks().count(), 3);
        }
    }

    #[test]
    fn the_end_is_cut_off() {
        for (before, after) in [(0, 0), (5000, 0), (5000, 512), (5000, 513), (5000, 4999)] {
            let mut paged = counted(before);
            paged.truncate(after);
            assert_eq!(paged.len(), after);
            assert!(paged.iter().copied().eq(0..after as u64));
            paged.try_push(7).unwrap();
            assert_eq!(paged[after], 7);
        }
    }

    #[test]
    fn equal_elements_become_one() {
        for (length, different) in [
            (0, 1),
            (1, 1),
            (100, 7),
            (512, 512),
            (3000, 1),
            (9000, 2500),
        ] {
            let mut paged = Paged::new();
            for number in 0..length {
                // The multiples of 7919 reach every residue modulo `different`.
                paged.try_push((number * 7919) % different).unwrap();
            }
            paged.sort_and_deduplicate();
            let expected = 0..different.min(length);
            assert!(paged.iter().copied().eq(expected), "{length}, {different}");
        }
    }
}
