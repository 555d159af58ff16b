//! The address spaces of the machine without the features that search them, `huge`, `numa` and `share`: the address
//! spaces are only numbered.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::{Machine, OutOfMemory, Shared};

use crate::mm::core::Core;

/// The number of the last address space that was created.
pub(crate) struct Spaces<M: Machine> {
    last: AtomicU64,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Spaces<M> {
    pub(crate) const fn new() -> Self {
        Self {
            last: AtomicU64::new(0),
            machine: PhantomData,
        }
    }

    /// Assigns the number of a new address space, which is higher than the number of every earlier address space.
    pub(crate) fn enter(
        &self,
        space: &Shared<Core<M>>,
        _parent: Option<&Core<M>>,
    ) -> Result<(), OutOfMemory> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        space.set_place(number, 0);
        Ok(())
    }

    /// Does nothing.
    pub(crate) fn leave(&self, _space: &Core<M>) {}
}
