//! Filling huge pages without the feature `hugetlb`: no area has hugetlb pages.

use memwright_table::{Frame, Machine, Page};

use crate::mm::theme::Uffd;
use crate::types::error::FillError;
use crate::types::uffd::Fill;
use crate::uffd::fill::Place;

impl<M: Machine> Uffd<'_, M> {
    /// Fills nothing.
    ///
    /// # Errors
    /// Always [`FillError::NotApplicable`].
    pub fn fill_hugetlb<E: From<FillError>>(
        &self,
        _page: Page,
        _protect: bool,
        _write: &mut dyn FnMut(Frame, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        Err(FillError::NotApplicable.into())
    }
}

impl<M: Machine> Place<'_, M> {
    /// Fills nothing.
    pub(super) fn fill_hugetlb(&self, _fill: Fill<'_>) -> Result<(), FillError> {
        Err(FillError::NotApplicable)
    }
}
