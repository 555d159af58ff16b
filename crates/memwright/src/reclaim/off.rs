//! Reclaim without the feature `reclaim`: no page is reclaimed.

pub(crate) mod effort;

use memwright_table::{Machine, Page, PageRange};

use crate::mm::core::Core;
use crate::mm::space::AddressSpace;
use crate::reclaim::effort::Effort;

impl<M: Machine> AddressSpace<M> {
    /// Reclaims nothing. Returns `None`, as at the end of the address space.
    pub fn reclaim(&self, _from: Page, _effort: &mut Effort) -> Option<Page> {
        None
    }
}

impl<M: Machine> Core<M> {
    /// Does nothing: no page is reclaimed.
    pub(crate) fn deactivate(&self, _range: PageRange) {}
}
