//! NUMA without the feature `numa`: no policy is set, no page is migrated, and no entry becomes a hint. A page is still
//! allocated on the node of the CPU that touches it first.

use memwright_table::{Machine, NodeChoice, Page, PageRange, VirtAddr};

use crate::mm::space::Area;
use crate::mm::theme::Numa;
use crate::types::migration::{BindError, Moved, Moving, Unmoved};
use crate::types::numa_policy::{PlacePolicy, PolicyId};

impl<M: Machine> Numa<'_, M> {
    /// Sets no policy.
    ///
    /// # Errors
    /// [`BindError::Unsupported`], unless `policy` is `None`.
    pub fn bind(
        &self,
        _address: VirtAddr,
        _length: u64,
        policy: Option<PlacePolicy>,
        _strict: bool,
    ) -> Result<(), BindError> {
        match policy {
            Some(_) => Err(BindError::Unsupported),
            None => Ok(()),
        }
    }

    /// Sets no home node.
    ///
    /// # Errors
    /// Always [`BindError::Unsupported`].
    pub fn set_home_node(
        &self,
        _address: VirtAddr,
        _length: u64,
        _home: u8,
        _may: impl Fn(PlacePolicy) -> bool,
    ) -> Result<(), BindError> {
        Err(BindError::Unsupported)
    }

    /// Returns `None` if there is no area at `address`, otherwise `Some(None)`.
    pub fn placement_at(&self, address: VirtAddr) -> Option<Option<PlacePolicy>> {
        let core = &*self.space.core;
        let areas = core.areas.read(core.cpu());
        areas.map.find(address.page())?;
        Some(None)
    }

    /// Never calls `visit`.
    pub fn placed_pages(
        &self,
        _range: PageRange,
        _near: u8,
        _visit: &mut dyn FnMut(Page, u8, Option<NodeChoice>) -> bool,
    ) {
    }

    /// Fails: the node of a page is not looked up.
    ///
    /// # Errors
    /// Always [`Unmoved::Unmovable`].
    pub fn node_of(&self, _page: Page) -> Result<u8, Unmoved> {
        Err(Unmoved::Unmovable)
    }

    /// Migrates no page.
    ///
    /// # Errors
    /// Always [`Unmoved::Unmovable`].
    pub fn migrate(
        &self,
        _page: Page,
        _choice: NodeChoice,
        _moving: Moving,
    ) -> Result<Moved, Unmoved> {
        Err(Unmoved::Unmovable)
    }

    /// Returns false.
    pub fn wants_hints(&self, round: u64) -> bool {
        self.space.core.pace().is_due(round)
    }

    /// Does nothing.
    pub fn end_scan_for_hints(&self, round: u64) {
        self.space.core.pace().end_scan(round);
    }

    /// Installs no hint. Returns `None`, as at the end of the address space.
    pub fn scan_for_hints(&self, _from: Page, _budget: &mut u64) -> Option<Page> {
        None
    }
}

impl<M: Machine> Area<M> {
    /// Returns [`PolicyId::NONE`].
    pub fn placement_of(&self, _page: Page) -> PolicyId {
        PolicyId::NONE
    }
}
