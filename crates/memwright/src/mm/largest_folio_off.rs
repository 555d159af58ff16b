//! Allocations of folios without the feature `huge`: there are none.

use memwright_table::{FolioPages, Machine};

use crate::mm::memory::Memory;
use crate::types::folio_orders::FolioOrders;
use crate::types::folio_use::FolioUse;

impl<M: Machine> Memory<M> {
    /// Allocates nothing. Returns `None`: single pages are to be allocated.
    pub(crate) fn largest_folio(
        &self,
        _purpose: FolioUse,
        _orders: FolioOrders,
        _ahead: impl FnMut(u8),
    ) -> Option<(FolioPages<'_, M>, u8)> {
        None
    }

    /// Counts nothing: no folio is in use.
    pub(crate) fn count_folio(&self, _purpose: FolioUse, _order: u8) {}
}
