//! A vector that is stored in blocks. Its elements are accessed by number.
//!
//! The heap of a kernel may be unable to allocate large blocks. The first block grows with the number of elements. Each
//! further block is allocated with room for [`BLOCK`] elements.

use alloc::vec::Vec;
use core::ops::{Index, IndexMut};
use memwright_table::{OutOfMemory, TryPush};

/// The number of elements in a full block.
const BLOCK: usize = 64;

/// A vector in blocks. Elements are added at the end only.
#[derive(Debug)]
pub(crate) struct Blocks<T>(
    /// The blocks. All blocks except the last one are full.
    Vec<Vec<T>>,
);

impl<T> Blocks<T> {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns the number of elements.
    pub(crate) fn len(&self) -> usize {
        match self.0.split_last() {
            Some((last, full)) => full.len() * BLOCK + last.len(),
            None => 0,
        }
    }

    /// Adds an element, and returns its number.
    pub(crate) fn try_push(&mut self, value: T) -> Result<u32, OutOfMemory> {
        let number = self.len();
        if number % BLOCK == 0 && number / BLOCK == self.0.len() {
            let mut block = Vec::new();
            if number > 0 {
                block.try_make_room(BLOCK)?;
            }
            self.0.try_push(block)?;
        }
        let last = self.0.last_mut().ok_or(OutOfMemory)?;
        last.try_push(value)?;
        Ok(number as u32)
    }

    /// Returns an element, or `None` if `number` is out of range.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let number = number as usize;
        self.0.get(number / BLOCK)?.get(number % BLOCK)
    }

    /// Returns a mutable reference to an element, or `None` if `number` is out of range.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        let number = number as usize;
        self.0.get_mut(number / BLOCK)?.get_mut(number % BLOCK)
    }

    /// Iterates over the elements.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flatten()
    }
}

impl<T: Copy> Blocks<T> {
    /// Returns a copy of the vector.
    pub(crate) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let mut copy = Self::new();
        for value in self.iter() {
            copy.try_push(*value)?;
        }
        Ok(copy)
    }
}

impl<T> Index<u32> for Blocks<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        self.get(number).expect("an element with this number")
    }
}

impl<T> IndexMut<u32> for Blocks<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.get_mut(number).expect("an element with this number")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_keep_their_numbers() {
        let mut blocks = Blocks::new();
        for value in 0..1000 {
            assert_eq!(blocks.try_push(value * 3), Ok(value));
            assert_eq!(blocks.len(), value as usize + 1);
        }
        blocks[64] = 7;
        let copy = blocks.try_clone().unwrap();
        for value in 0..1000 {
            let expected = if value == 64 { 7 } else { value * 3 };
            assert_eq!(
                (blocks[value], copy.get(value)),
                (expected, Some(&expected))
            );
        }
        assert_eq!(blocks.get(1000), None);
        assert_eq!(blocks.get(u32::MAX), None);
        assert_eq!(blocks.iter().count(), 1000);
    }
}
