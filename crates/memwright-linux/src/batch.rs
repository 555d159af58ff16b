//! A few things that are noted together under a lock.

use alloc::vec::{Drain, Vec};
use memwright_table::OutOfMemory;

/// A list with room for a fixed number of things. Nothing is allocated after it was made, so that it can be filled under
/// any lock.
pub struct Batch<T>(Vec<T>);

impl<T> Batch<T> {
    /// An empty batch for `most` things.
    ///
    /// # Errors
    /// The heap has no room for them.
    pub fn with_room(most: usize) -> Result<Self, OutOfMemory> {
        let mut things = Vec::new();
        things.try_reserve_exact(most).map_err(|_| OutOfMemory)?;
        Ok(Self(things))
    }

    /// Whether another thing fits.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.len() < self.0.capacity()
    }

    /// Adds a thing, unless the batch is full; returns whether another one fits.
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

    /// The last thing that was added.
    pub fn last_mut(&mut self) -> Option<&mut T> {
        self.0.last_mut()
    }

    /// The things, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.0.iter_mut()
    }

    /// Takes all things out, in order.
    pub fn drain(&mut self) -> Drain<'_, T> {
        self.0.drain(..)
    }
}
