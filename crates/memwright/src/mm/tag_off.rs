//! The name of an area. Without the feature `uffd`, no area has a userfaultfd context.

use alloc::sync::Arc;
use memwright_table::OutOfMemory;
use memwright_table::handle::Shared;

use crate::types::area_name::AreaName;
use crate::types::uffd::Watch;

/// The name of an area. Few areas have one, so an area stores one pointer to a tag.
pub(crate) struct Tag {
    /// The name of anonymous memory.
    name: Option<Arc<AreaName>>,
}

impl Tag {
    /// Creates a tag. Returns `None` if there is nothing to store.
    pub(crate) fn new(
        _watcher: Option<Watch>,
        name: Option<Arc<AreaName>>,
    ) -> Result<Option<Shared<Self>>, OutOfMemory> {
        if name.is_none() {
            return Ok(None);
        }
        Shared::try_new(Self { name }).map(Some)
    }

    /// Returns whether `watcher` is `None`: no area has a context.
    pub(crate) fn has_watcher(&self, watcher: Option<&Watch>) -> bool {
        watcher.is_none()
    }

    /// Returns whether the name is `name`; for `None`, whether there is no name.
    pub(crate) fn has_name(&self, name: Option<&Arc<AreaName>>) -> bool {
        match (&self.name, name) {
            (None, None) => true,
            (Some(own), Some(other)) => Arc::ptr_eq(own, other) || own == other,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Returns `None`.
    pub(crate) fn watcher(&self) -> Option<&Watch> {
        None
    }

    /// Returns the name.
    #[inline]
    pub(crate) fn name(&self) -> Option<&Arc<AreaName>> {
        self.name.as_ref()
    }
}
