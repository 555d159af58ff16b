//! userfaultfd without the feature `uffd`: no memory is registered.

pub use crate::types::error::{FillError, MoveError, WatchError};
pub use crate::types::uffd::{
    Fill, Relocation, Watch, WatchEvent, WatchEvents, WatchModes, Watched, WatchedFault, Watcher,
};

use memwright_table::{Bits, Edit, Frame, Gather, Machine, Page, PageRange, PageSize, VirtAddr};

use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::mm::theme::Uffd;

impl<M: Machine> Uffd<'_, M> {
    /// Registers nothing.
    ///
    /// # Errors
    /// Always [`WatchError::Unsupported`].
    pub fn watch(
        &self,
        _address: VirtAddr,
        _length: u64,
        _watch: &Watch,
        _modes: WatchModes,
    ) -> Result<(), WatchError> {
        Err(WatchError::Unsupported)
    }

    /// Unregisters nothing.
    ///
    /// # Errors
    /// Always [`WatchError::Unsupported`].
    pub fn unwatch(
        &self,
        _address: VirtAddr,
        _length: u64,
        _watch: &Watch,
    ) -> Result<(), WatchError> {
        Err(WatchError::Unsupported)
    }

    /// Does nothing: no memory is registered.
    pub fn forget_watch(&self, _watch: &Watch) {}

    /// Returns `None`.
    pub fn watched(&self, _page: Page) -> Option<Watched> {
        None
    }

    /// Protects nothing.
    ///
    /// # Errors
    /// Always [`WatchError::Unsupported`].
    pub fn write_protect(
        &self,
        _address: VirtAddr,
        _length: u64,
        _protect: bool,
    ) -> Result<(), WatchError> {
        Err(WatchError::Unsupported)
    }

    /// Protects nothing.
    ///
    /// # Errors
    /// Always [`WatchError::Unsupported`].
    pub fn read_write_protect(
        &self,
        _address: VirtAddr,
        _length: u64,
        _protect: bool,
    ) -> Result<(), WatchError> {
        Err(WatchError::Unsupported)
    }

    /// Does nothing: no memory is registered.
    pub fn count_accesses(&self, _watch: &Watch, _counts: bool) {}

    /// Returns `None`.
    pub fn fill_unit(&self, _range: PageRange) -> Option<PageSize> {
        None
    }

    /// Fills nothing.
    ///
    /// # Errors
    /// Always [`FillError::NotWatched`].
    pub fn fill(&self, _page: Page, _fill: Fill<'_>, _protect: bool) -> Result<(), FillError> {
        Err(FillError::NotWatched)
    }

    /// Fills nothing.
    ///
    /// # Errors
    /// Always [`FillError::NotWatched`].
    pub fn fill_hugetlb<E: From<FillError>>(
        &self,
        _page: Page,
        _protect: bool,
        _write: &mut dyn FnMut(Frame, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        Err(FillError::NotWatched.into())
    }

    /// Moves nothing. Returns 0 pages and the error.
    ///
    /// # Errors
    /// Always [`MoveError::NotWatched`].
    pub fn relocate(
        &self,
        _relocation: &Relocation,
        _watch: &Watch,
    ) -> (u64, Result<(), MoveError>) {
        (0, Err(MoveError::NotWatched))
    }
}

impl<M: Machine> Core<M> {
    /// Protects nothing.
    ///
    /// # Errors
    /// Always [`WatchError::Unsupported`].
    pub(crate) fn protect_part(
        &self,
        _area: &Area<M>,
        _range: PageRange,
        _gather: &mut Gather<'_, M>,
    ) -> Result<(), WatchError> {
        Err(WatchError::Unsupported)
    }

    /// Does nothing: no page is armed.
    pub(crate) fn forget_past_idle(&self, _area: &Area<M>, _gather: &mut Gather<'_, M>) {}

    /// Does nothing: no page is armed.
    pub(crate) fn open_copies(&self, _area: &Area<M>, _range: PageRange) {}

    /// Does nothing: no page is armed.
    pub(crate) fn mark_accessed(&self, _area: &Area<M>, _range: PageRange) {}

    /// Does nothing: no area is registered for read-write protection.
    pub(crate) fn edit_armed(
        &self,
        _area: &Area<M>,
        _range: PageRange,
        _rule: impl Fn(Bits) -> Edit,
        _gather: &mut Gather<'_, M>,
    ) {
    }
}
