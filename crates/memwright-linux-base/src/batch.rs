//! Fixed-capacity lists that can be filled under a lock.

use alloc::vec::{Drain, Vec};
use memwright_table::OutOfMemory;

/// A list with a fixed capacity. It allocates no memory after its creation, so it can be filled under any lock.
pub struct Batch<T>(Vec<T>);

impl<T> Batch<T> {
    /// Creates an empty batch with a capacity of `most`.
    ///
    /// # Errors
    /// `OutOfMemory` if the heap has no memory for the list.
    pub fn with_room(most: usize) -> Result<Self, OutOfMemory> {
        let mut things = Vec::new();
        things.try_reserve_exact(most).map_err(|_| OutOfMemory)?;
        Ok(Self(things))
    }

    /// Returns whether another item fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.len() < self.0.capacity()
    }

    /// Adds an item, or drops it if the batch is full. Returns whether another item fits.
    #[allow(
        clippy::disallowed_methods,
        reason = "there is room: nothing is allocated"
    )]
    pub fn push(&mut self, thing: T) -> bool {
        if self.has_room() {
            self.0.push(thing);
        }
        self.has_room()
    }

    /// Returns the item added last.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.0.last_mut()
    }

    /// Iterates over the items, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// Removes all items and returns them in order.
    pub fn drain(&mut self) -> Drain<'_, T> {
        self.0.drain(..)
    }
}
