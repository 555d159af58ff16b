//! The list of NUMA policies without the feature `numa`: it has none.

use core::marker::PhantomData;
use memwright_table::OutOfMemory;

use crate::types::numa_policy::{PlacePolicy, PolicyId};

/// The list of all policies, which is empty.
pub(crate) struct Policies<H>(PhantomData<fn() -> H>);

impl<H> Policies<H> {
    pub(crate) const fn new() -> Self {
        Self(PhantomData)
    }

    /// Adds no policy.
    ///
    /// # Errors
    /// Always [`OutOfMemory`].
    pub(crate) fn number(&self, _policy: PlacePolicy) -> Result<PolicyId, OutOfMemory> {
        Err(OutOfMemory)
    }

    /// Returns `None`.
    pub(crate) fn get(&self, _id: PolicyId) -> Option<PlacePolicy> {
        None
    }
}
