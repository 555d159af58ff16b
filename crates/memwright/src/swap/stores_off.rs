//! The list of page stores without the feature `reclaim`: it is empty.

use core::marker::PhantomData;
use memwright_table::{Machine, OutOfMemory, Shared};

use crate::store::page_store::Store;
use crate::swap::Swap;

/// The list, which stores nothing.
pub(crate) struct Stores<M: Machine>(PhantomData<fn() -> M>);

impl<M: Machine> Stores<M> {
    pub(crate) fn new() -> Self {
        Self(PhantomData)
    }
}

impl<M: Machine> Swap<M> {
    /// Adds nothing: no pages of objects are reclaimed.
    ///
    /// # Errors
    /// None.
    pub(crate) fn list(&self, _store: &Shared<Store<M>>) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Removes nothing.
    pub(crate) fn delist(&self, _store: &Shared<Store<M>>) {}

    /// Returns `None`.
    pub(crate) fn listed(&self, _number: u64) -> Option<(u64, Shared<Store<M>>)> {
        None
    }
}
