//! The list of all address spaces. It is searched for the mappings of a page that processes share after a fork.

use alloc::vec::Vec;
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Machine, OutOfMemory, Shared, TryPush};

use crate::mm::core::Core;

/// All address spaces.
pub(crate) struct Spaces<M: Machine>(Lock<List<M>>);

struct List<M: Machine> {
    /// In order of creation.
    all: Vec<Shared<Core<M>>>,
    /// The number of the last address space that was created.
    last: u64,
}

impl<M: Machine> Spaces<M> {
    pub(crate) const fn new() -> Self {
        let list = List {
            all: Vec::new(),
            last: 0,
        };
        Self(Lock::new(Rank::Lists, list))
    }

    /// Adds a new address space and assigns its number, which is higher than that of every earlier address space, and
    /// never assigned again.
    pub(crate) fn enter(&self, space: &Shared<Core<M>>) -> Result<(), OutOfMemory> {
        let mut list = self.0.lock();
        list.last += 1;
        space.set_space_number(list.last);
        list.all.try_push(space.clone())
    }

    /// Removes an address space that has no mappings left.
    pub(crate) fn leave(&self, space: &Core<M>) {
        let mut list = self.0.lock();
        let number = space.space_number();
        let place = list
            .all
            .binary_search_by_key(&number, |one| one.space_number());
        let left = place.ok().map(|place| list.all.remove(place));
        drop(list);
        drop(left);
    }

    /// Returns all current address spaces, in order of creation.
    ///
    /// # Errors
    /// Fails if there is no heap memory for the list.
    pub(crate) fn all(&self) -> Result<Vec<Shared<Core<M>>>, OutOfMemory> {
        let list = self.0.lock();
        let mut copies = Vec::new();
        copies.try_make_room(list.all.len())?;
        copies.extend(list.all.iter().cloned());
        Ok(copies)
    }
}
