//! The reference of an area to an object without the feature `objects`: no area has one.

use alloc::sync::Arc;
use core::convert::Infallible;
use core::marker::PhantomData;
use core::ops::Range;
use memwright_table::{Machine, OutOfMemory, Page, Shared};

use crate::mm::core::Core;
use crate::mm::mappings::Mappings;
use crate::mm::object::Object;
use crate::types::error::MapError;
use crate::types::interval_tree::IntervalId;

/// Returns [`MapError::Unsupported`]: no area can map an object.
pub(crate) fn check_objects() -> Result<(), MapError> {
    Err(MapError::Unsupported)
}

/// The reference of an area to an object. Never created.
pub(crate) struct Attachment<M: Machine> {
    never: Infallible,
    machine: PhantomData<fn() -> M>,
}

impl<M: Machine> Attachment<M> {
    /// Creates nothing: no area can map an object.
    ///
    /// # Errors
    /// Always [`OutOfMemory`].
    pub(crate) fn new(
        _object: Arc<dyn Object<M>>,
        _space: &Shared<Core<M>>,
        _span: Range<u64>,
        _page: Page,
    ) -> Result<Self, OutOfMemory> {
        Err(OutOfMemory)
    }

    pub(crate) fn of_child(
        &self,
        _object: &Arc<dyn Object<M>>,
        _child: &Shared<Core<M>>,
        _previous: Option<(&Self, &Self)>,
    ) -> Result<Self, OutOfMemory> {
        match self.never {}
    }

    pub(crate) fn elsewhere(&self, _span: Range<u64>, _page: Page) -> Result<Self, OutOfMemory> {
        match self.never {}
    }

    pub(crate) fn reach(&self, _end: u64) {
        match self.never {}
    }

    pub(crate) fn object(&self) -> &Arc<dyn Object<M>> {
        match self.never {}
    }

    pub(super) fn is_in(&self, _mappings: &Mappings<M>, _interval: IntervalId) -> bool {
        match self.never {}
    }

    pub(crate) fn same(&self, _other: &Self) -> bool {
        match self.never {}
    }

    pub(crate) fn unreserved(&self) -> Option<Self> {
        match self.never {}
    }
}

impl<M: Machine> Clone for Attachment<M> {
    fn clone(&self) -> Self {
        match self.never {}
    }
}
