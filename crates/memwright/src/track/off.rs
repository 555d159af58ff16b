//! Tracking of written pages without the feature `tracking`: there is no scan, and every page counts as soft-dirty.

pub use crate::types::scan::{Categories, Scan, Share, Take};

use memwright_table::{Machine, Page, PageRange};

use crate::mm::theme::Tracking;
use crate::types::error::WatchError;

impl<M: Machine> Tracking<'_, M> {
    /// Does nothing: all pages stay soft-dirty.
    pub fn clear_soft_dirty(&self) {}

    /// Scans nothing.
    ///
    /// # Errors
    /// Always [`WatchError::Unsupported`].
    pub fn scan(
        &self,
        _range: PageRange,
        _scan: &Scan,
        _take: &mut impl Take,
    ) -> Result<Page, WatchError> {
        Err(WatchError::Unsupported)
    }
}
