//! Files of huge pages without the feature `hugetlb`: they have no pages, and none can be added.

use alloc::sync::Arc;
use core::convert::Infallible;
use core::marker::PhantomData;
use core::ops::Range;
use memwright_table::{Frame, Machine};

use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::mm::object::{Object, ObjectIdentity};
use crate::mm::subpool::HugeSubpool;
use crate::types::error::ObjectError;
use crate::types::huge::HUGE_PAGES;

/// The size of a huge page in bytes.
pub const HUGE_BYTES: u64 = HUGE_PAGES << 12;

/// A file of huge pages, which has no pages.
pub struct HugeFile<M: Machine> {
    pub(crate) mappings: Mappings<M>,
    pub(crate) identity: ObjectIdentity,
    pub(crate) name: &'static str,
}

/// The hugetlb file that an area maps. Never created: no area maps one.
pub struct HugeView<'a, M: Machine> {
    never: Infallible,
    file: PhantomData<&'a HugeFile<M>>,
}

impl<M: Machine> HugeView<'_, M> {
    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn reserve(&self, _range: Range<u64>) -> Result<(), ObjectError> {
        match self.never {}
    }

    /// Never called.
    pub fn grow_to(&self, _size: u64) {
        match self.never {}
    }
}

impl<M: Machine> HugeFile<M> {
    /// Creates a file without pages. `name` is its path in /proc/PID/maps.
    pub fn new(
        _memory: Arc<Memory<M>>,
        _size: u64,
        identity: ObjectIdentity,
        name: &'static str,
    ) -> Self {
        Self {
            mappings: Mappings::new(),
            identity,
            name,
        }
    }

    /// Returns the file.
    #[must_use]
    pub fn in_subpool(self, _subpool: Option<Arc<HugeSubpool<M>>>) -> Self {
        self
    }

    /// Returns 0.
    pub fn size(&self) -> u64 {
        0
    }

    /// Returns 0.
    pub fn resident(&self) -> u64 {
        0
    }

    /// Reserves nothing.
    ///
    /// # Errors
    /// Always [`ObjectError::OutOfMemory`].
    pub fn reserve(&self, _range: Range<u64>) -> Result<(), ObjectError> {
        Err(ObjectError::OutOfMemory)
    }

    /// Does nothing: the size stays 0.
    pub fn grow_to(&self, _size: u64) {}

    /// Creates nothing.
    ///
    /// # Errors
    /// Always [`ObjectError::OutOfMemory`].
    pub fn allocate(&self, _start: u64, _end: u64) -> Result<(), ObjectError> {
        Err(ObjectError::OutOfMemory)
    }

    /// Returns no frame.
    ///
    /// # Errors
    /// Always [`ObjectError::BeyondEnd`].
    pub fn frame_at(&self, _index: u64) -> Result<Option<Frame>, ObjectError> {
        Err(ObjectError::BeyondEnd)
    }
}

/// The object of a private mapping with a reservation. Never created: no page can be reserved.
pub struct PrivateHuge<M: Machine> {
    pub(crate) never: Infallible,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> PrivateHuge<M> {
    /// Reserves nothing.
    ///
    /// # Errors
    /// Always [`ObjectError::OutOfMemory`].
    pub fn new(
        _memory: Arc<Memory<M>>,
        _object: Arc<dyn Object<M>>,
        _range: Range<u64>,
    ) -> Result<Self, ObjectError> {
        Err(ObjectError::OutOfMemory)
    }
}
