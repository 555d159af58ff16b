//! The properties that few areas have: a userfaultfd context, and a name.

use alloc::sync::Arc;
use memwright_table::OutOfMemory;
use memwright_table::handle::Shared;

use crate::types::area_name::AreaName;
use crate::types::uffd::Watch;

/// The userfaultfd context and the name of an area. Few areas have a context or a name, so an area stores one pointer
/// to a tag, and areas with equal properties can share the tag.
pub(crate) struct Tag {
    /// The userfaultfd context that handles faults in the area. The area's flags select the kinds of faults that it
    /// handles.
    watcher: Option<Watch>,
    /// The name of anonymous memory.
    name: Option<Arc<AreaName>>,
}

impl Tag {
    /// Creates a tag. Returns `None` if there is nothing to store.
    pub(crate) fn new(
        watcher: Option<Watch>,
        name: Option<Arc<AreaName>>,
    ) -> Result<Option<Shared<Self>>, OutOfMemory> {
        if watcher.is_none() && name.is_none() {
            return Ok(None);
        }
        Shared::try_new(Self { watcher, name }).map(Some)
    }

    /// Returns whether the userfaultfd context is `watcher`; for `None`, whether there is no context.
    pub(crate) fn has_watcher(&self, watcher: Option<&Watch>) -> bool {
        match (&self.watcher, watcher) {
            (None, None) => true,
            (Some(own), Some(other)) => Watch::ptr_eq(own, other),
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Returns whether the name is `name`; for `None`, whether there is no name.
    pub(crate) fn has_name(&self, name: Option<&Arc<AreaName>>) -> bool {
        match (&self.name, name) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own == other,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Returns the userfaultfd context.
    #[inline]
    pub(crate) fn watcher(&self) -> Option<&Watch> {
        self.watcher.as_ref()
    }

    /// Returns the name.
    #[inline]
    pub(crate) fn name(&self) -> Option<&Arc<AreaName>> {
        self.name.as_ref()
    }
}
