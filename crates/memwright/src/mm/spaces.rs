//! The list of all address spaces. It is searched for the mappings of a page that processes share after a fork.

use alloc::vec::Vec;
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Machine, OutOfMemory, Shared, TryPush};

use crate::mm::core::Core;

/// All address spaces, in order of creation.
pub(crate) struct Spaces<M: Machine>(Lock<Vec<Shared<Core<M>>>>);

impl<M: Machine> Spaces<M> {
    pub(crate) const fn new() -> Self {
        Self(Lock::new(Rank::Lists, Vec::new()))
    }

    /// Adds a new address space and assigns its number, which is unique and higher than that of every earlier address
    /// space.
    pub(crate) fn enter(&self, space: &Shared<Core<M>>) -> Result<(), OutOfMemory> {
        let mut all = self.0.lock();
        let number = all.last().map_or(1, |last| last.space_number() + 1);
        space.set_space_number(number);
        all.try_push(space.clone())
    }

    /// Removes an address space that has no mappings left.
    pub(crate) fn leave(&self, space: &Core<M>) {
        let mut all = self.0.lock();
        let place = all.binary_search_by_key(&space.space_number(), |one| one.space_number());
        let left = place.ok().map(|place| all.remove(place));
        drop(all);
        drop(left);
    }

    /// Returns all current address spaces, in order of creation.
    ///
    /// # Errors
    /// Fails if there is no heap memory for the list.
    pub(crate) fn all(&self) -> Result<Vec<Shared<Core<M>>>, OutOfMemory> {
        let all = self.0.lock();
        let mut copies = Vec::new();
        copies.try_make_room(all.len())?;
        copies.extend(all.iter().cloned());
        Ok(copies)
    }
}
