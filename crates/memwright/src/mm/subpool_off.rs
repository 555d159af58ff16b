//! Subpools of the hugetlb pool without the feature `hugetlb`: none can be created.

use alloc::sync::Arc;
use core::convert::Infallible;
use core::marker::PhantomData;
use memwright_table::{Frames, Machine, SubpoolCounts};

use crate::types::error::ObjectError;

/// A limit on the huge pages of several files. Never created.
pub struct HugeSubpool<M: Machine> {
    never: Infallible,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> HugeSubpool<M> {
    /// Creates nothing.
    ///
    /// # Errors
    /// Always [`ObjectError::OutOfMemory`].
    pub fn new(
        _frames: Arc<Frames<M>>,
        _most: Option<u64>,
        _least: Option<u64>,
    ) -> Result<Self, ObjectError> {
        Err(ObjectError::OutOfMemory)
    }

    /// Never called.
    pub fn counts(&self) -> Option<SubpoolCounts> {
        match self.never {}
    }
}
