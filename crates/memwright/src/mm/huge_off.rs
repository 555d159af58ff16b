//! Transparent huge pages without the feature `huge`: no memory gets one.

use memwright_table::{Machine, PageRange};

use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::space::Area;
use crate::mm::theme::HugePages;
use crate::types::folio_orders::FolioOrders;
use crate::types::huge::HugeMode;
use crate::vma::huge::HugeAsker;

impl<M: Machine> Memory<M> {
    /// Returns [`HugeMode::Never`].
    pub fn huge_mode(&self) -> HugeMode {
        HugeMode::Never
    }

    /// Returns false.
    pub fn may_collapse(&self, _asked: bool) -> bool {
        false
    }

    /// Does nothing: there is no huge zero page.
    pub(crate) fn drop_huge_zero_frame(&self) {}
}

impl<M: Machine> HugePages<'_, M> {
    /// Returns false.
    pub fn may_be_huge(&self, _area: &Area<M>) -> bool {
        false
    }
}

impl<M: Machine> Core<M> {
    /// Returns [`FolioOrders::NONE`].
    pub(crate) fn folio_orders(&self, _area: &Area<M>) -> FolioOrders {
        FolioOrders::NONE
    }

    /// Returns false.
    pub(crate) fn area_may_be_huge(
        &self,
        _area: &Area<M>,
        _range: PageRange,
        _asker: HugeAsker,
    ) -> bool {
        false
    }
}
