//! Every address space of a machine: where the pages are found that several of them show since a fork.

use alloc::vec::Vec;

use memwright_table::sync::{Lock, Rank};
use memwright_table::{Machine, OutOfMemory, Shared, TryPush};

use super::Core;

/// Every address space, in the order in which they were made.
pub(crate) struct Spaces<M: Machine>(Lock<Vec<Shared<Core<M>>>>);

impl<M: Machine> Spaces<M> {
    pub(crate) const fn new() -> Self {
        Self(Lock::new(Rank::Leaf, Vec::new()))
    }

    /// Adds a space that was just made, and gives it its number, which no other has and which is higher than that of
    /// every space before.
    pub(crate) fn enter(&self, space: &Shared<Core<M>>) -> Result<(), OutOfMemory> {
        let mut all = self.0.lock();
        let number = all.last().map_or(1, |last| last.space_number() + 1);
        space.set_space_number(number);
        all.try_push(space.clone())
    }

    /// Takes a space out of which nothing is mapped any more.
    pub(crate) fn leave(&self, space: &Core<M>) {
        let mut all = self.0.lock();
        let place = all.binary_search_by_key(&space.space_number(), |one| one.space_number());
        let left = place.ok().map(|place| all.remove(place));
        drop(all);
        drop(left);
    }

    /// All that there are now, in their order.
    ///
    /// # Errors
    /// No heap for the list.
    pub(crate) fn all(&self) -> Result<Vec<Shared<Core<M>>>, OutOfMemory> {
        let all = self.0.lock();
        let mut copies = Vec::new();
        copies.try_make_room(all.len())?;
        copies.extend(all.iter().cloned());
        Ok(copies)
    }
}
