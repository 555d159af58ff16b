//! The list of the userfaultfd events of an operation without the feature `uffd`: it is empty.

use crate::types::uffd::{Watch, WatchEvent};

/// The events of one operation, of which there are none.
#[derive(Debug, Default)]
pub(crate) struct Notices;

impl Notices {
    pub(crate) const NONE: Self = Self;

    /// Returns 0.
    pub(crate) fn len(&self) -> usize {
        0
    }

    /// Adds nothing: no area has a context.
    pub(crate) fn add(&mut self, _watch: Option<&Watch>, _event: WatchEvent) {}

    /// Adds nothing.
    pub(crate) fn add_at(&mut self, _index: usize, _watch: Option<&Watch>, _event: WatchEvent) {}

    /// Never calls `witness`: there is no event.
    pub(crate) fn tell(&self, _witness: &mut dyn FnMut(&Watch, WatchEvent)) {}
}
