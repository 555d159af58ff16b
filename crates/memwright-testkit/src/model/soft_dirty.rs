//! The soft-dirty state of pages.

use super::Model;
use super::page::{ObjectNumber, Source, Stored};

impl Model {
    /// Clears the soft-dirty state of all pages (`/proc/PID/clear_refs`).
    pub fn clear_soft_dirty(&mut self, process: usize) {
        for mapped in self.space(process).pages.values_mut() {
            mapped.since_cleared = Stored::No;
        }
    }

    /// Allows a page to count as soft-dirty without a store.
    pub fn blur_soft_dirty(&mut self, process: usize, page: u64) {
        if let Ok(mapped) = self.mapped(process, page) {
            mapped.since_cleared.blur();
        }
    }

    /// Returns each mapped page, and whether the model requires it to be soft-dirty, requires it not to be, or permits
    /// both.
    pub fn soft_dirty(&self, process: usize) -> impl Iterator<Item = (u64, Stored)> + '_ {
        let pages = self.spaces[&process].pages.iter();
        pages.map(|(&page, mapped)| (page, mapped.since_cleared))
    }

    /// Returns the object that is mapped at `page` and the index within the object, or `None` if `page` is not part of
    /// a shared mapping.
    pub fn shared_page(&self, process: usize, page: u64) -> Option<(ObjectNumber, u64)> {
        match self.spaces[&process].pages.get(&page)?.source {
            Source::Shared { object, index } => Some((object, index)),
            Source::Anonymous | Source::Private { .. } => None,
        }
    }

    /// Allows every page to count as soft-dirty. A new area is soft-dirty as a whole, and so is any area with which it
    /// merges.
    pub(super) fn became_soft_dirty(&mut self, process: usize) {
        for mapped in self.space(process).pages.values_mut() {
            mapped.since_cleared.blur();
        }
    }
}
