//! A queue in blocks of at most a page, whose capacity is reserved before elements are added.

use alloc::{collections::VecDeque, vec::Vec};
use memwright_linux_base::paged::Paged;
use memwright_table::{OutOfMemory, TryPush};

/// A queue that is stored in blocks, because the kernel heap has no large allocations. A push within the reserved
/// capacity cannot fail. Elements are removed from the front of the first block, and the space that they leave is
/// unused until the block is empty. `find_room` therefore allocates one block more than the elements need.
pub(in crate::fs) struct Queue<T> {
    /// The block from which elements are removed. It is empty only if the queue is empty. A short queue has only this
    /// block.
    first: VecDeque<T>,
    /// The blocks after the first. None is empty, and all but the last are full.
    further: VecDeque<VecDeque<T>>,
    /// Empty blocks for later use.
    spare: Vec<VecDeque<T>>,
    length: usize,
    /// The capacity of all blocks together (`capacity`) and of the largest block (`largest`), in elements.
    capacity: usize,
    largest: usize,
}

/// Memory for more elements. It is allocated before the lock that protects the queue is acquired.
pub(in crate::fs) struct QueueRoom<T> {
    blocks: Vec<VecDeque<T>>,
    further: VecDeque<VecDeque<T>>,
    spare: Vec<VecDeque<T>>,
}

impl<T> Queue<T> {
    /// Capacity of the largest blocks, in elements.
    const TOGETHER: usize = Paged::<T>::TOGETHER;
    /// Capacity of the first block that is allocated, in elements.
    const LEAST: usize = 8;

    pub(in crate::fs) const fn new() -> Self {
        Self {
            first: VecDeque::new(),
            further: VecDeque::new(),
            spare: Vec::new(),
            length: 0,
            capacity: 0,
            largest: 0,
        }
    }

    pub(in crate::fs) const fn len(&self) -> usize {
        self.length
    }

    #[cfg(test)]
    const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns how many elements fit in any case, even if elements were removed from the first block.
    pub(in crate::fs) const fn room(&self) -> usize {
        self.capacity - self.largest
    }

    /// Returns the number of blocks besides the first, and the capacity of all blocks together in elements.
    pub(in crate::fs) fn size(&self) -> (usize, usize) {
        (self.further.len() + self.spare.len(), self.capacity)
    }

    /// Allocates the blocks by which a queue of this [size](Self::size) must grow to hold `wanted` elements. Each new
    /// block is as large as all blocks before it together, but at most a page.
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
        // The lists get room for twice as many blocks, so that they are reallocated rarely.
        let lists = 2 * (count + found.len());
        let (mut further, mut spare) = (VecDeque::new(), Vec::new());
        further.try_reserve_exact(lists).map_err(|_| OutOfMemory)?;
        spare.try_reserve_exact(lists).map_err(|_| OutOfMemory)?;
        Ok(QueueRoom {
            blocks: found,
            further,
            spare,
        })
    }

    /// Adds the blocks in `room` to the queue. If the lists of blocks in the queue are too short, replaces them by the
    /// lists in `room`. Adds nothing if the lists in `room` are too short too.
    #[expect(clippy::disallowed_methods, reason = "there is room in the lists")]
    pub(in crate::fs) fn take_room(&mut self, room: &mut QueueRoom<T>) {
        let count = self.size().0 + room.blocks.len();
        if self.further.capacity() < count || self.spare.capacity() < count {
            if room.further.capacity() < count || room.spare.capacity() < count {
                return;
            }
            room.further.append(&mut self.further);
            room.spare.append(&mut self.spare);
            core::mem::swap(&mut self.further, &mut room.further);
            core::mem::swap(&mut self.spare, &mut room.spare);
        }
        for block in room.blocks.drain(..) {
            self.capacity += block.capacity();
            self.largest = self.largest.max(block.capacity());
            if self.first.capacity() == 0 {
                self.first = block;
            } else {
                self.spare.push(block);
            }
        }
    }

    /// Appends an element. Returns the element as the error if there is no room.
    #[expect(clippy::disallowed_methods, reason = "there is room")]
    pub(in crate::fs) fn push(&mut self, value: T) -> Result<(), T> {
        let is_full = |block: &VecDeque<T>| block.len() == block.capacity();
        if self.further.is_empty() && !is_full(&self.first) {
            self.first.push_back(value);
        } else {
            if self.further.back().is_none_or(is_full) {
                match self.spare.pop() {
                    Some(block) => self.further.push_back(block),
                    None => return Err(value),
                }
            }
            match self.further.back_mut() {
                Some(last) => last.push_back(value),
                None => return Err(value),
            }
        }
        self.length += 1;
        Ok(())
    }

    pub(in crate::fs) fn front(&self) -> Option<&T> {
        self.first.front()
    }

    #[expect(clippy::disallowed_methods, reason = "there is room for every block")]
    pub(in crate::fs) fn pop_front(&mut self) -> Option<T> {
        let value = self.first.pop_front()?;
        self.length -= 1;
        if self.first.is_empty()
            && let Some(next) = self.further.pop_front()
        {
            self.spare.push(core::mem::replace(&mut self.first, next));
        }
        Some(value)
    }

    fn block_mut(&mut self, index: usize) -> &mut VecDeque<T> {
        match index.checked_sub(1) {
            None => &mut self.first,
            Some(index) => &mut self.further[index],
        }
    }

    /// Removes the elements for which `keep` returns `false`. The others keep their order and fill the first blocks.
    #[expect(
        clippy::disallowed_methods,
        reason = "there is room for every block and element"
    )]
    pub(in crate::fs) fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut to = 0;
        for from in 0..=self.further.len() {
            self.block_mut(from).retain(|value| keep(value));
            while to < from {
                let target = self.block_mut(to);
                if target.len() == target.capacity() {
                    to += 1;
                } else if let Some(value) = self.block_mut(from).pop_front() {
                    self.block_mut(to).push_back(value);
                } else {
                    break;
                }
            }
        }
        while self.further.back().is_some_and(VecDeque::is_empty) {
            self.spare.extend(self.further.pop_back());
        }
        self.length = self.first.len() + self.further.iter().map(VecDeque::len).sum::<usize>();
    }
}

#[cfg(test)]
mod tests {
    use super::Queue;
    use alloc::collections::VecDeque;
    use memwright_linux_base::draws::draws;

    #[test]
    fn it_is_a_queue_that_finds_the_room_that_was_made() {
        let (mut queue, mut model) = (Queue::new(), VecDeque::new());
        let mut below = draws(1);
        for step in 0..60_000_u64 {
            let grows = step % 20_000 < 12_000;
            if below(5) < if grows { 4 } else { 1 } {
                if queue.room() < model.len() + 1 {
                    let found = Queue::<u64>::find_room(queue.size(), model.len() + 1);
                    queue.take_room(&mut found.ok().unwrap());
                    assert!(queue.room() > model.len());
                }
                // Elements were removed from the first block, whose free space cannot be used. The push must succeed
                // nevertheless.
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
