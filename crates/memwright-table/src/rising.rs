//! A list whose elements have ascending numbers and can be removed anywhere.
//!
//! The heap has no large blocks, so the list stores the elements in blocks of a page, in the order of their numbers. A
//! lookup is a binary search; a removal moves the later elements of the same block.

extern crate alloc as rust_alloc;

use crate::handle::{OutOfMemory, TryPush};
use rust_alloc::vec::Vec;

/// The size of a block in bytes.
const BLOCK: usize = 4096;

/// A list of numbered elements.
#[derive(Debug)]
pub struct Rising<T> {
    /// The blocks of elements. Only the last block can be empty, after `take_room`.
    blocks: Vec<Vec<(u64, T)>>,
    length: usize,
    next: u64,
}

/// Preallocated memory for more elements.
pub struct RisingRoom<T> {
    block: Vec<(u64, T)>,
    /// A replacement for the list of blocks, if that list is full.
    list: Vec<Vec<(u64, T)>>,
}

impl<T> Default for Rising<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Rising<T> {
    /// The number of elements in a block.
    const TOGETHER: usize = if size_of::<(u64, T)>() > BLOCK / 2 {
        1
    } else {
        BLOCK / size_of::<(u64, T)>()
    };

    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            blocks: Vec::new(),
            length: 0,
            next: 0,
        }
    }

    /// The number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether the list is empty.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Appends an element. Returns its number, which is higher than that of every earlier element.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the list is unchanged then.
    pub fn try_push(&mut self, value: T) -> Result<u64, OutOfMemory> {
        let number = self.next;
        match self.blocks.last_mut() {
            Some(last) if last.len() < Self::TOGETHER => last.try_push((number, value))?,
            Some(_) | None => {
                let mut block = Vec::new();
                block.try_push((number, value))?;
                self.blocks.try_push(block)?;
            }
        }
        self.length += 1;
        self.next += 1;
        Ok(number)
    }

    /// Inserts an element with the number `number`. If `number` is higher than all present numbers, as usual, the
    /// element is appended.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the list is unchanged then.
    pub fn try_insert(&mut self, number: u64, value: T) -> Result<(), OutOfMemory> {
        if number >= self.next {
            let before = core::mem::replace(&mut self.next, number);
            let pushed = self.try_push(value);
            if pushed.is_err() {
                self.next = before;
            }
            return pushed.map(drop);
        }
        let index = self.block_of(number);
        let Some(block) = self.blocks.get_mut(index) else {
            let mut block = Vec::new();
            block.try_push((number, value))?;
            self.blocks.try_push(block)?;
            self.length += 1;
            return Ok(());
        };
        let place = block.partition_point(|(other, _)| *other < number);
        block.try_insert(place, (number, value))?;
        self.length += 1;
        Ok(())
    }

    /// Whether one more element fits without an allocation.
    #[must_use]
    pub fn has_room(&self) -> bool {
        let last = self.blocks.last();
        last.is_some_and(|last| last.len() < last.capacity().min(Self::TOGETHER))
    }

    /// Returns the capacity, in blocks, that a new list of blocks needs so that one more element fits; 0 if the present
    /// list has room.
    #[must_use]
    pub fn wanted(&self) -> usize {
        if self.blocks.len() < self.blocks.capacity() {
            0
        } else {
            2 * self.blocks.len() + 4
        }
    }

    /// Allocates memory for `elements` more elements and for a list of `list` blocks. Whatever `elements` is, the
    /// memory is for at least 4 elements and for at most one block of them.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn find_room(list: usize, elements: usize) -> Result<RisingRoom<T>, OutOfMemory> {
        let mut room = RisingRoom {
            block: Vec::new(),
            list: Vec::new(),
        };
        let elements = elements.clamp(4, Self::TOGETHER);
        room.block
            .try_reserve_exact(elements)
            .map_err(|_| OutOfMemory)?;
        room.list.try_make_room(list)?;
        Ok(room)
    }

    /// Takes over the preallocated memory that the list needs for one more element.
    pub fn take_room(&mut self, room: &mut RisingRoom<T>) {
        if self.blocks.capacity() < room.list.capacity() {
            room.list.append(&mut self.blocks);
            core::mem::swap(&mut self.blocks, &mut room.list);
        }
        if self.has_room() {
            return;
        }
        let list_has_room = self.blocks.len() < self.blocks.capacity();
        match self.blocks.last_mut() {
            Some(last) if last.len() < Self::TOGETHER => {
                if last.capacity() < room.block.capacity() {
                    room.block.append(last);
                    core::mem::swap(last, &mut room.block);
                }
            }
            Some(_) | None if list_has_room => {
                self.blocks.push(core::mem::take(&mut room.block));
            }
            Some(_) | None => {}
        }
    }

    /// Returns the index of the first block whose last element has the number `number` or a higher one.
    fn block_of(&self, number: u64) -> usize {
        let ends_before = |block: &Vec<(u64, T)>| block.last().is_some_and(|last| last.0 < number);
        self.blocks.partition_point(ends_before)
    }

    /// Returns the first element whose number is `number` or higher, together with its number.
    #[must_use]
    pub fn first_from(&self, number: u64) -> Option<(u64, &T)> {
        let block = self.blocks.get(self.block_of(number))?;
        let place = block.partition_point(|(other, _)| *other < number);
        block.get(place).map(|(number, value)| (*number, value))
    }

    /// Returns the element with the number `number`.
    #[must_use]
    pub fn get(&self, number: u64) -> Option<&T> {
        let (found, value) = self.first_from(number)?;
        (found == number).then_some(value)
    }

    /// Removes the element with the number `number`.
    pub fn remove(&mut self, number: u64) -> Option<T> {
        let index = self.block_of(number);
        let block = self.blocks.get_mut(index)?;
        let place = block.binary_search_by_key(&number, |(number, _)| *number);
        let (_, value) = block.remove(place.ok()?);
        self.length -= 1;
        self.join(index);
        Some(value)
    }

    /// Removes block `index` if it is empty. Otherwise merges it with the next block if the elements of both fill at
    /// most half a block.
    fn join(&mut self, index: usize) {
        let length = |index: usize| self.blocks.get(index).map_or(Self::TOGETHER, Vec::len);
        if length(index) == 0 {
            self.blocks.remove(index);
        } else if length(index) + length(index + 1) <= Self::TOGETHER / 2 {
            let block = &self.blocks[index];
            if block.capacity() - block.len() >= length(index + 1) {
                let mut behind = self.blocks.remove(index + 1);
                self.blocks[index].append(&mut behind);
            }
        }
    }

    /// Iterates over the elements in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.blocks.iter().flatten().map(|(_, value)| value)
    }

    /// Removes the elements for which `keep` returns false.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        for block in &mut self.blocks {
            block.retain(|(_, value)| keep(value));
        }
        self.blocks.retain(|block| !block.is_empty());
        self.length = self.blocks.iter().map(Vec::len).sum();
    }

    /// Removes the last element.
    pub fn pop(&mut self) -> Option<T> {
        while self.blocks.last().is_some_and(Vec::is_empty) {
            self.blocks.pop();
        }
        let (_, value) = self.blocks.last_mut()?.pop()?;
        self.length -= 1;
        Some(value)
    }

    /// Returns the last element.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        let last = self.blocks.iter().rev().find_map(|block| block.last());
        last.map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rust_alloc::collections::BTreeMap;

    #[test]
    fn numbers_may_come_late() {
        let mut list = Rising::new();
        for number in [1, 5, 3, 9, 2, 7] {
            list.try_insert(number, number).unwrap();
        }
        assert_eq!(list.try_push(10), Ok(10));
        assert!(list.iter().eq(&[1, 2, 3, 5, 7, 9, 10]));
        list.retain(|number| *number < 3);
        assert_eq!((list.try_insert(6, 6), list.len()), (Ok(()), 3));
        assert!(list.iter().eq(&[1, 2, 6]));
    }

    #[test]
    fn it_is_a_map_whose_keys_rise() {
        let (mut list, mut map) = (Rising::new(), BTreeMap::new());
        let mut random = 1_u64;
        for step in 0..20_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let number = (random >> 33) % (list.next + 1);
            if step % 5000 < 3000 || random >> 63 == 0 {
                if step % 2 == 0 && !list.has_room() {
                    let found = Rising::<u64>::find_room(list.wanted(), list.len());
                    list.take_room(&mut found.ok().unwrap());
                    // The list keeps an empty block for the next push.
                }
                let number = list.try_push(step).unwrap();
                assert!(map.insert(number, step).is_none());
                assert!(map.last_key_value().unwrap().0 == &number);
            } else if step % 3 == 0 {
                assert_eq!(list.pop(), map.pop_last().map(|(_, value)| value));
            } else {
                assert_eq!(list.remove(number), map.remove(&number));
            }
            assert_eq!(list.len(), map.len());
            let next = map.range(number..).next();
            let next = next.map(|(number, value)| (*number, value));
            assert_eq!(list.first_from(number), next);
            assert_eq!(list.get(number), map.get(&number));
            assert_eq!(list.last(), map.values().last());
        }
        list.retain(|value| value % 3 == 0);
        map.retain(|_, value| *value % 3 == 0);
        assert!(list.iter().eq(map.values()) && list.len() == map.len());
        assert!(list.blocks.len() <= list.len() / (Rising::<u64>::TOGETHER / 16) + 2);
    }
}
