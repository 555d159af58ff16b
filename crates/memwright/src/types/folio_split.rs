//! The requests and results of splits and collapses of folios.

use memwright_table::Page;

/// The way in which folios are split: into what order, and completely or only around one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FolioSplit {
    /// The order of the resulting folios; 0 for single pages. Folios of this order or a smaller one are not split.
    pub order: u32,
    /// The page around which to split, by its number in the folio: the folio is halved until the part that contains
    /// this page has the order `order`. With `None`, or a page beyond the folio, the complete folio is split.
    pub at: Option<u64>,
}

impl FolioSplit {
    /// Splits folios completely, into single pages.
    pub const SINGLE: Self = Self { order: 0, at: None };
}

/// The numbers of folios that a split has found and split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FolioSplits {
    /// The number of folios found whose order is larger than the target. A folio that is mapped by 4 KiB entries and
    /// could not be split counts once for each entry.
    pub found: u64,
    /// The number of folios among `found` that were split.
    pub split: u64,
}

impl FolioSplits {
    pub(crate) fn add(&mut self, split: bool) {
        self.found += 1;
        self.split += u64::from(split);
    }
}

/// The page at which a scan for pages to collapse stopped, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scanned {
    /// The scan has used up its budget, and continues from this page.
    Until(Page),
    /// The scan has reached the end of the address space.
    End,
    /// No frames were free for a huge page. The caller continues the scan from this page later.
    NoFrames(Page),
}
