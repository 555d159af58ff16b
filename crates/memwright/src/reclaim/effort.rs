//! The limits of one call of reclaim: how much it examines, and how much it reclaims (Linux 7.2 `mm/vmscan.c`,
//! `struct scan_control`).

/// The limits of one call of reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// The maximum number of entries still to scan.
    pub look: u64,
    /// The number of pages still to reclaim.
    pub wanted: u64,
    /// Whether to reclaim only pages that are charged to a memcg: private pages, and pages of shared mappings. Pages of
    /// private file mappings, such as the text of a program, are not charged.
    pub charged: bool,
}

impl Effort {
    /// Ends the scan after `look` entries, or when `wanted` pages are reclaimed, whether or not they are charged to a
    /// memcg. Adjacent pages are reclaimed together, so a call can reclaim a few pages more.
    #[must_use]
    pub const fn new(look: u64, wanted: u64) -> Self {
        Self {
            look,
            wanted,
            charged: false,
        }
    }

    /// No limit on the number of entries scanned or of pages reclaimed.
    pub(crate) const ALL: Self = Self {
        look: u64::MAX,
        wanted: u64::MAX,
        charged: false,
    };

    /// Returns whether a limit is reached. The scan then ends.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.look == 0 || self.wanted == 0
    }
}

/// The choice among the reclaimable pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// All reclaimable pages.
    All,
    /// The pages that were not accessed since the previous scan.
    Unused,
}
