//! The purposes for which large folios are allocated, and the counters of each purpose.

use core::sync::atomic::AtomicU64;
use memwright_table::FrameKind;

use crate::types::size_settings::SizeCounts;

/// The purpose for which a folio is allocated. It determines the frame kind and the counters of the folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FolioUse {
    /// Zeroed memory for the first store to a private mapping.
    FirstTouch,
    /// Zeroed memory for a hole in an object.
    Hole,
    /// Swap-in of pages of this frame kind.
    SwapIn(FrameKind),
}

impl FolioUse {
    pub(crate) const fn kind(self) -> FrameKind {
        match self {
            Self::FirstTouch => FrameKind::Anonymous,
            Self::Hole => FrameKind::Object,
            Self::SwapIn(kind) => kind,
        }
    }

    /// Returns whether the pages of the folio must be zeroed. Pages for swap-in need not be zeroed, because the swap-in
    /// overwrites them.
    pub(crate) const fn is_zeroed(self) -> bool {
        match self {
            Self::FirstTouch | Self::Hole => true,
            Self::SwapIn(_) => false,
        }
    }
}

impl SizeCounts {
    pub(crate) const fn made(&self, purpose: FolioUse) -> &AtomicU64 {
        match purpose {
            FolioUse::FirstTouch => &self.filled,
            FolioUse::Hole => &self.shared_filled,
            FolioUse::SwapIn(_) => &self.swapped_in,
        }
    }

    pub(crate) const fn missed(&self, purpose: FolioUse) -> &AtomicU64 {
        match purpose {
            FolioUse::FirstTouch => &self.refused,
            FolioUse::Hole => &self.shared_refused,
            FolioUse::SwapIn(_) => &self.swapped_in_smaller,
        }
    }
}
