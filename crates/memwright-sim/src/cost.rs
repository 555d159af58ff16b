//! Counts of hardware events, per CPU.

/// Counts of one CPU since the machine was created, or between two points in time ([`Cost::since`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Accesses for which the TLB held the translation.
    pub hits: u64,
    /// Page walks for an access.
    pub walks: u64,
    /// Entries that the walks in `walks` read; a hit in a paging-structure cache saves up to three per walk.
    pub walk_reads: u64,
    /// Page faults delivered.
    pub faults: u64,
    /// Page faults that a stale TLB entry with fewer rights caused (also in `faults`).
    pub stale_faults: u64,
    /// Page walks of a store whose translation the TLB held without the dirty bit.
    pub dirty_walks: u64,
    /// Translations filled without an access.
    pub speculative_fills: u64,
    /// Translations evicted without an invalidation.
    pub evictions: u64,
    /// Invalidations that this CPU executed on itself.
    pub local_invalidations: u64,
    /// Interrupts that this CPU sent, one per target.
    pub interrupts_sent: u64,
    /// Invalidation interrupts that this CPU received.
    pub interrupts_taken: u64,
    /// TLB entries that invalidations and root loads dropped.
    pub entries_dropped: u64,
    /// Loads of the table root.
    pub root_loads: u64,
    /// Root loads that kept the translations cached under the tag of the root (also in `root_loads`).
    pub kept_loads: u64,
}

impl Cost {
    /// Returns the counts since `earlier` was taken.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.combine(earlier, |now, then| now - then)
    }

    /// Returns the sum of the counts of `self` and `other`.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.combine(other, |one, two| one + two)
    }

    fn combine(&self, other: &Self, with: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            hits: with(self.hits, other.hits),
            walks: with(self.walks, other.walks),
            walk_reads: with(self.walk_reads, other.walk_reads),
            faults: with(self.faults, other.faults),
            stale_faults: with(self.stale_faults, other.stale_faults),
            dirty_walks: with(self.dirty_walks, other.dirty_walks),
            speculative_fills: with(self.speculative_fills, other.speculative_fills),
            evictions: with(self.evictions, other.evictions),
            local_invalidations: with(self.local_invalidations, other.local_invalidations),
            interrupts_sent: with(self.interrupts_sent, other.interrupts_sent),
            interrupts_taken: with(self.interrupts_taken, other.interrupts_taken),
            entries_dropped: with(self.entries_dropped, other.entries_dropped),
            root_loads: with(self.root_loads, other.root_loads),
            kept_loads: with(self.kept_loads, other.kept_loads),
        }
    }
}
