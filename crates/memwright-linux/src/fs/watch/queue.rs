//! A queue in blocks of at most a page, whose capacity is reserved ahead of use.

use crate::paged::Paged;
use alloc::{collections::VecDeque, vec::Vec};
use memwright_table::{OutOfMemory, TryPush};

/// A queue that is stored in blocks, because the heap has no large allocations. A push must find room within the
/// reserved capacity. Elements are taken off the first block, and its free part cannot be used until the block is
/// empty. The capacity therefore includes one more block.
pub(in crate::fs) struct Queue<T> {
    /// The blocks with elements. All but the last are full, except that elements can have been taken off the first.
    blocks: VecDeque<VecDeque<T>>,
    /// Empty blocks.
    spare: Vec<VecDeque<T>>,
    length: usize,
    /// `capacity` is the capacity of all blocks in elements, and `largest` that of the largest block.
    capacity: usize,
    largest: usize,
}

/// Memory for more elements, which is allocated before the lock of the queue is taken.
pub(in crate::fs) struct QueueRoom<T> {
    blocks: Vec<VecDeque<T>>,
    queue: VecDeque<VecDeque<T>>,
    spare: Vec<VecDeque<T>>,
}

impl<T> Queue<T> {
    /// Capacity of the largest blocks, in elements.
    const TOGETHER: usize = Paged::<T>::TOGETHER;
    /// Capacity of the first block that is allocated, in elements.
    const LEAST: usize = 8;

    pub(in crate::fs) const fn new() -> Self {
        Self {
            blocks: VecDeque::new(),
            spare: Vec::new(),
            length: 0,
            capacity: 0,
            largest: 0,
        }
    }

    pub(in crate::fs) const fn len(&self) -> usize {
        self.length
    }

    pub(in crate::fs) const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the number of elements that fit in any case, however many were taken off the first block.
    pub(in crate::fs) const fn room(&self) -> usize {
        self.capacity - self.largest
    }

    /// Returns the number of blocks, and the capacity of all of them in elements.
    pub(in crate::fs) fn size(&self) -> (usize, usize) {
        (self.blocks.len() + self.spare.len(), self.capacity)
    }

    /// Allocates the blocks that a queue of this [size](Self::size) lacks to hold `wanted` elements. Each block is as
    /// large as all blocks before it together, up to a page.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(in crate::fs) fn find_room(
        (count, capacity): (usize, usize),
        wanted: usize,
    ) -> Result<QueueRoom<T>, OutOfMemory> {
        let (mut found, mut capacity) = (Vec::new(), capacity);
        while capacity < wanted + capacity.clamp(Self::LEAST, Self::TOGETHER) {
            let size = capacity.clamp(Self::LEAST, Self::TOGETHER);
            let mut block = VecDeque::new();
            block.try_reserve_exact(size).map_err(|_| OutOfMemory)?;
            capacity += block.capacity();
            found.try_push(block)?;
        }
        // The lists have room for twice as many blocks, so that they are rarely reallocated.
        let lists = 2 * (count + found.len());
        let (mut queue, mut spare) = (VecDeque::new(), Vec::new());
        queue.try_reserve_exact(lists).map_err(|_| OutOfMemory)?;
        spare.try_reserve_exact(lists).map_err(|_| OutOfMemory)?;
        Ok(QueueRoom {
            blocks: found,
            queue,
            spare,
        })
    }

    /// Adds the allocated blocks to the queue. Does nothing if neither the queue's lists of blocks nor the new lists
    /// have room for all blocks.
    #[expect(clippy::disallowed_methods, reason = "there is room in the lists")]
    pub(in crate::fs) fn take_room(&mut self, room: &mut QueueRoom<T>) {
        let count = self.size().0 + room.blocks.len();
        if self.blocks.capacity() < count || self.spare.capacity() < count {
            if room.queue.capacity() < count || room.spare.capacity() < count {
                return;
            }
            room.queue.append(&mut self.blocks);
            room.spare.append(&mut self.spare);
            core::mem::swap(&mut self.blocks, &mut room.queue);
            core::mem::swap(&mut self.spare, &mut room.spare);
        }
        for block in room.blocks.drain(..) {
            self.capacity += block.capacity();
            self.largest = self.largest.max(block.capacity());
            self.spare.push(block);
        }
    }

    /// Appends an element. Returns the element as the error if there is no room.
    #[expect(clippy::disallowed_methods, reason = "there is room")]
    pub(in crate::fs) fn push(&mut self, value: T) -> Result<(), T> {
        let is_full = |block: &VecDeque<T>| block.len() == block.capacity();
        if self.blocks.back().is_none_or(is_full) {
            match self.spare.pop() {
                Some(block) => self.blocks.push_back(block),
                None => return Err(value),
            }
        }
        match self.blocks.back_mut() {
            Some(last) => last.push_back(value),
            None => return Err(value),
        }
        self.length += 1;
        Ok(())
    }

    pub(in crate::fs) fn front(&self) -> Option<&T> {
        self.blocks.front()?.front()
    }

    #[expect(clippy::disallowed_methods, reason = "there is room for every block")]
    pub(in crate::fs) fn pop_front(&mut self) -> Option<T> {
        let first = self.blocks.front_mut()?;
        let value = first.pop_front()?;
        self.length -= 1;
        if first.is_empty() {
            self.spare.extend(self.blocks.pop_front());
        }
        Some(value)
    }

    /// Removes the elements for which `keep` returns `false`, and moves the others together.
    #[expect(
        clippy::disallowed_methods,
        reason = "there is room for every block and element"
    )]
    pub(in crate::fs) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut to = 0;
        for from in 0..self.blocks.len() {
            self.blocks[from].retain(|value| keep(value));
            while to < from {
                if self.blocks[to].len() == self.blocks[to].capacity() {
                    to += 1;
                } else if let Some(value) = self.blocks[from].pop_front() {
                    self.blocks[to].push_back(value);
                } else {
                    break;
                }
            }
        }
        while self.blocks.back().is_some_and(VecDeque::is_empty) {
            self.spare.extend(self.blocks.pop_back());
        }
        self.length = self.blocks.iter().map(VecDeque::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;
    use alloc::collections::VecDeque;

    #[test]
    fn it_is_a_queue_that_finds_the_room_that_was_made() {
        let (mut queue, mut model) = (Queue::new(), VecDeque::new());
        let mut random = 1_u64;
        for step in 0..60_000_u64 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let grows = step % 20_000 < 12_000;
            if (random >> 40) % 5 < if grows { 4 } else { 1 } {
                if queue.room() < model.len() + 1 {
                    let found = Queue::<u64>::find_room(queue.size(), model.len() + 1);
                    queue.take_room(&mut found.ok().unwrap());
                    assert!(queue.room() > model.len());
                }
                // A first block from which elements were taken wastes room, but the push must still succeed.
                assert!(queue.push(step).is_ok());
                model.push_back(step);
            } else {
                assert_eq!(queue.front(), model.front());
                assert_eq!(queue.pop_front(), model.pop_front());
            }
            if step % 7000 == 0 {
                queue.retain(|value| value % 3 != 0);
                model.retain(|value| value % 3 != 0);
            }
            assert_eq!(
                (queue.len(), queue.is_empty()),
                (model.len(), model.is_empty())
            );
        }
        assert!(queue.size().0 > 2);
        while let Some(value) = model.pop_front() {
            assert_eq!(queue.pop_front(), Some(value));
        }
        assert!(queue.is_empty());
    }
}
