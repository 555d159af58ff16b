//! The reference of an area to the object that it maps.

use alloc::sync::Arc;
use core::ops::Range;
use memwright_table::{Machine, OutOfMemory, Page, Shared};

use crate::mm::core::Core;
use crate::mm::mappings::Mappings;
use crate::mm::object::Object;
use crate::types::error::MapError;
use crate::types::interval_tree::IntervalId;

/// Returns `Ok`: an area can map an object.
pub(crate) fn check_objects() -> Result<(), MapError> {
    Ok(())
}

/// The reference of an area to an object. It keeps the object alive, and it keeps the area in the object's list.
pub(crate) struct Attachment<M: Machine> {
    object: Arc<dyn Object<M>>,
    space: Shared<Core<M>>,
    interval: IntervalId,
}

impl<M: Machine> Attachment<M> {
    /// Adds an area of `space` to the object's list. The area maps the pages `span` of the object from `page` on.
    pub(crate) fn new(
        object: Arc<dyn Object<M>>,
        space: &Shared<Core<M>>,
        span: Range<u64>,
        page: Page,
    ) -> Result<Self, OutOfMemory> {
        let interval = object.mappings().attach(space, span, page)?;
        if !object.is_memory() || object.huge().is_some() {
            space.note_special_areas();
        }
        Ok(Self {
            object,
            space: space.clone(),
            interval,
        })
    }

    /// Returns the attachment of the copy of this area in a forked child. `object` is the object that the child maps,
    /// which has the same list. `previous` has the attachments of the previous area in the parent and in the child, if
    /// they have any.
    pub(crate) fn of_child(
        &self,
        object: &Arc<dyn Object<M>>,
        child: &Shared<Core<M>>,
        previous: Option<(&Self, &Self)>,
    ) -> Result<Self, OutOfMemory> {
        if let Some((_, copy)) = previous.filter(|(own, copy)| {
            own.interval == self.interval && Arc::ptr_eq(&copy.object, object)
        }) {
            return Ok(copy.clone());
        }
        let interval = object.mappings().attach_copy(self.interval, child)?;
        if !object.is_memory() || object.huge().is_some() {
            child.note_special_areas();
        }
        Ok(Self {
            object: object.clone(),
            space: child.clone(),
            interval,
        })
    }

    /// Returns an attachment to the same object for another area of the address space, which maps the pages `span` of
    /// the object from `page` on.
    pub(crate) fn elsewhere(&self, span: Range<u64>, page: Page) -> Result<Self, OutOfMemory> {
        Self::new(self.object.clone(), &self.space, span, page)
    }

    /// Records that the area maps the pages of the object below index `end`.
    pub(crate) fn reach(&self, end: u64) {
        self.object.mappings().reach(self.interval, end);
    }

    pub(crate) fn object(&self) -> &Arc<dyn Object<M>> {
        &self.object
    }

    /// Returns whether the attachment refers to the object with the list `mappings`, and to its interval `interval`.
    pub(super) fn is_in(&self, mappings: &Mappings<M>, interval: IntervalId) -> bool {
        self.interval == interval && core::ptr::eq(self.object.mappings(), mappings)
    }

    /// Returns whether both attachments refer to the same open object, and the object permits that its areas merge.
    pub(crate) fn same(&self, other: &Self) -> bool {
        core::ptr::addr_eq(Arc::as_ptr(&self.object), Arc::as_ptr(&other.object))
            && self.may_merge()
    }

    #[cold]
    fn may_merge(&self) -> bool {
        self.object.merges_areas()
    }

    /// Returns an attachment to the same object without the mapping's reservation, or `None` if the mapping has no
    /// reservation.
    pub(crate) fn unreserved(&self) -> Option<Self> {
        let object = self.object.unreserved()?.clone();
        object.mappings().attach_part(self.interval);
        Some(Self {
            object,
            space: self.space.clone(),
            interval: self.interval,
        })
    }
}

impl<M: Machine> Clone for Attachment<M> {
    fn clone(&self) -> Self {
        self.object.mappings().attach_part(self.interval);
        Self {
            object: self.object.clone(),
            space: self.space.clone(),
            interval: self.interval,
        }
    }
}

impl<M: Machine> Drop for Attachment<M> {
    fn drop(&mut self) {
        self.object.mappings().detach(self.interval);
    }
}
