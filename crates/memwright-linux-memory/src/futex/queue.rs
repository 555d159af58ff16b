//! The waiters of one bucket.

use alloc::sync::Arc;
use memwright::object::Object;
use memwright_linux_abi::M;
use memwright_linux_base::ordered::Ordered;
use memwright_linux_tasks::process::{FutexKey, FutexPosition, Thread};
use memwright_table::OutOfMemory;

/// One waiting thread.
pub(super) struct Waiter {
    pub(super) thread: Arc<Thread>,
    /// A reference that keeps the key's object alive, so that the object's address is not reused.
    pub(super) object: Option<Arc<dyn Object<M>>>,
}

/// A waiter, and the bits with which it waits. Only a wakeup with at least one of these bits wakes it.
type Entry<W> = (u32, W);

/// Selects waiters of one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) key: FutexKey,
    /// Bits, at least one of which the waiter must have.
    pub(super) bits: u32,
    /// The number below which the waiter's number must be.
    pub(super) until: u64,
}

/// The waiters of one bucket, by word. The waiters of a word are in order of arrival. The cost of finding, adding or
/// removing a waiter grows with the logarithm of the number of waiters.
pub(super) struct Queue<W = Waiter> {
    waiters: Ordered<FutexPosition, Entry<W>>,
    /// The number that the next waiter will get.
    next: u64,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self {
            waiters: Ordered::new(),
            next: 0,
        }
    }
}

impl<W> Queue<W> {
    /// Returns the list of waiters. A caller makes room in it before it adds a waiter.
    pub(super) fn list(&mut self) -> &mut Ordered<FutexPosition, Entry<W>> {
        &mut self.waiters
    }

    /// Returns the number that the next waiter will get.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Adds a waiter as the last one of its word. Returns the waiter's position.
    ///
    /// # Errors
    /// [`OutOfMemory`], which cannot occur if the caller has made room.
    pub(super) fn push(
        &mut self,
        key: FutexKey,
        bits: u32,
        waiter: W,
    ) -> Result<FutexPosition, OutOfMemory> {
        let position = (key, self.next);
        self.waiters.insert(position, (bits, waiter))?;
        self.next += 1;
        Ok(position)
    }

    /// Adds a waiter at `position` in the order of arrival. Returns the position. Needs no memory if a waiter was
    /// removed before.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn insert(
        &mut self,
        position: FutexPosition,
        bits: u32,
        waiter: W,
    ) -> Result<FutexPosition, OutOfMemory> {
        self.waiters.insert(position, (bits, waiter))?;
        Ok(position)
    }

    /// Removes the waiter at `position`. Returns the waiter and its bits.
    pub(super) fn remove(&mut self, position: FutexPosition) -> Option<Entry<W>> {
        self.waiters.remove(&position)
    }

    /// Returns the first selected waiter whose number is at least `from`, and its number.
    pub(super) fn first(&self, choice: &Choice, from: u64) -> Option<(u64, &W)> {
        self.chosen(choice, from).next()
    }

    /// Returns the number of selected waiters whose number is at least `from`, but at most `most`.
    pub(super) fn count(&self, choice: &Choice, from: u64, most: u32) -> u32 {
        self.chosen(choice, from).take(most as usize).count() as u32
    }

    fn chosen(&self, choice: &Choice, from: u64) -> impl Iterator<Item = (u64, &W)> {
        let Choice { key, bits, until } = *choice;
        self.waiters
            .iter_from(&(key, from))
            .take_while(move |((word, number), _)| *word == key && *number < until)
            .filter(move |(_, (own, _))| own & bits != 0)
            .map(|((_, number), (_, waiter))| (*number, waiter))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const WORDS: u64 = 5;

    fn word(number: u64) -> FutexKey {
        FutexKey::Private {
            space: 0x1000,
            address: number * 4,
        }
    }

    fn choice(key: FutexKey, bits: u32) -> Choice {
        Choice {
            key,
            bits,
            until: u64::MAX,
        }
    }

    /// The model: a list of the waiters in order of arrival, which is searched from its start.
    type Model = Vec<(FutexPosition, u32, u64)>;

    fn chosen(model: &Model, choice: &Choice, from: u64) -> Vec<(u64, u64)> {
        let Choice { key, bits, until } = *choice;
        let chosen = model.iter().filter(|((word, number), own, _)| {
            *word == key && (from..until).contains(number) && own & bits != 0
        });
        chosen
            .map(|((_, number), _, waiter)| (*number, *waiter))
            .collect()
    }

    #[test]
    fn it_is_a_list_in_order_of_arrival() {
        let (mut queue, mut model) = (Queue::default(), Model::new());
        let mut random = 1_u64;
        for step in 0..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let key = word((random >> 33) % WORDS);
            let bits = 1 << ((random >> 40) % 3);
            let some = Choice {
                until: queue.next() - (random >> 45) % (queue.next() + 1).min(100),
                ..choice(key, bits | 1)
            };
            let from = queue.next().saturating_sub((random >> 52) % 200);
            let expected = chosen(&model, &some, from);
            let first = queue.first(&some, from);
            assert_eq!(
                first.map(|(number, waiter)| (number, *waiter)),
                expected.first().copied()
            );
            assert_eq!(queue.count(&some, from, 7), expected.len().min(7) as u32);
            // The queue grows for 1000 steps and then shrinks for 1000, alternately.
            if (random >> 60) % 4 < if step / 1000 % 2 == 0 { 3 } else { 1 } {
                let position = queue.push(key, bits, step).unwrap();
                model.push((position, bits, step));
            } else if let Some((number, waiter)) = expected.first().copied() {
                let place = model
                    .iter()
                    .position(|(position, ..)| *position == (key, number));
                let (position, own, _) = model[place.unwrap()];
                assert_eq!(queue.remove(position), Some((own, waiter)));
                if (random >> 58).is_multiple_of(2) {
                    model.remove(place.unwrap());
                    continue;
                }
                // Move a waiter to another word of the same bucket. The waiter keeps its number.
                let moved = (word((random >> 36) % WORDS), number);
                memwright_table::handle::fail_heap_after(Some(0));
                assert_eq!(queue.insert(moved, own, waiter), Ok(moved));
                memwright_table::handle::fail_heap_after(None);
                model[place.unwrap()].0 = moved;
            }
        }
        assert!(model.len() > 100, "{}", model.len());
    }

    #[test]
    fn without_memory_no_waiter_enters() {
        let mut queue = Queue::default();
        memwright_table::handle::fail_heap_after(Some(0));
        assert_eq!(queue.push(word(0), 1, ()), Err(OutOfMemory));
        memwright_table::handle::fail_heap_after(None);
        assert_eq!(queue.next(), 0);
        assert_eq!(queue.push(word(0), 1, ()), Ok((word(0), 0)));
        assert_eq!(queue.first(&choice(word(0), 1), 0), Some((0, &())));
    }
}
