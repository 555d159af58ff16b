//! The list of the page stores whose pages can be swapped out (Linux 7.2 `mm/shmem.c`, `shmem_swaplist`).

use memwright_table::sync::{Lock, Rank};
use memwright_table::{Machine, OutOfMemory, Rising, Shared};

use crate::store::page_store::Store;
use crate::swap::Swap;

/// The list.
pub(crate) struct Stores<M: Machine>(Lock<Rising<Shared<Store<M>>>, M::Threads>);

impl<M: Machine> Stores<M> {
    pub(crate) fn new() -> Self {
        Self(Lock::new(Rank::ObjectRegistry, Rising::new()))
    }

    /// Returns the sum of `count` over all stores.
    pub(crate) fn sum(&self, count: impl Fn(&Store<M>) -> u64) -> u64 {
        let stores = self.0.lock();
        stores.iter().map(|store| count(store)).sum()
    }
}

impl<M: Machine> Swap<M> {
    /// Adds a store to the list, so that reclaim and swapoff find its pages.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the list cannot grow.
    pub(crate) fn list(&self, store: &Shared<Store<M>>) -> Result<(), OutOfMemory> {
        let number = self.stores.0.lock().try_push(store.clone())?;
        store.lock().listed = Some(number);
        Ok(())
    }

    /// Removes a store from the list, if it is listed.
    pub(crate) fn delist(&self, store: &Shared<Store<M>>) {
        let mut stores = self.stores.0.lock();
        let number = store.lock().listed.take();
        let listed = number.and_then(|number| stores.remove(number));
        drop(stores);
        drop(listed);
    }

    /// Returns the listed store with this number, or the first after it.
    pub(crate) fn listed(&self, number: u64) -> Option<(u64, Shared<Store<M>>)> {
        let stores = self.stores.0.lock();
        let (number, store) = stores.first_from(number)?;
        Some((number, store.clone()))
    }
}
