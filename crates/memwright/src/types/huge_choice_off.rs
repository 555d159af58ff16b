//! The choice of the memory that gets huge pages and folios, without the feature `huge`: no memory gets them, whatever
//! the settings are.

use crate::types::folio_orders::FolioOrders;
use crate::types::huge::{HugeMode, SharedSetting};
use crate::types::huge_settings::HugeSettings;
use crate::types::size_settings::SizeSettings;

impl HugeSettings {
    /// Returns false.
    pub(crate) fn any_shared_of_pages(&self) -> bool {
        false
    }

    /// Returns [`FolioOrders::NONE`].
    pub(crate) fn shared_orders(&self, _setting: SharedSetting, _asked: bool) -> FolioOrders {
        FolioOrders::NONE
    }

    /// Returns `None`.
    pub(crate) fn largest_shared(&self, _setting: SharedSetting) -> Option<u8> {
        None
    }

    /// Returns false.
    pub(crate) fn allows_shared(&self, _setting: SharedSetting, _asked: bool) -> bool {
        false
    }
}

impl SizeSettings {
    /// Returns false.
    pub(crate) fn any_of_pages(&self) -> bool {
        false
    }

    /// Returns [`FolioOrders::NONE`].
    pub(crate) fn orders(
        &self,
        _inherited: HugeMode,
        _allows: impl Fn(HugeMode) -> bool,
    ) -> FolioOrders {
        FolioOrders::NONE
    }
}
