//! The counts of shared page tables that address spaces have stopped sharing because an entry was to change.

use core::sync::atomic::{AtomicU64, Ordering};

/// The counts of page tables that address spaces stopped sharing, and of the flushes for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnsharedCounts {
    /// The number of tables that were copied.
    pub copied: u64,
    /// The number of tables that an address space took over without a copy, because it was the last one that shared
    /// them.
    pub taken: u64,
    /// The number of flushes on the CPU that copied a table.
    pub local: u64,
    /// The number of shootdowns for copied tables.
    pub remote: u64,
    /// The number of CPUs that the shootdowns for copied tables interrupted, summed over the shootdowns.
    pub interrupted: u64,
}

/// The counts of all CPUs together, because owning a table is rare.
#[derive(Debug, Default)]
pub(crate) struct Unshared {
    copied: AtomicU64,
    taken: AtomicU64,
    local: AtomicU64,
    remote: AtomicU64,
    interrupted: AtomicU64,
}

impl Unshared {
    pub(super) fn counts(&self) -> UnsharedCounts {
        let load = |cell: &AtomicU64| cell.load(Ordering::Relaxed);
        UnsharedCounts {
            copied: load(&self.copied),
            taken: load(&self.taken),
            local: load(&self.local),
            remote: load(&self.remote),
            interrupted: load(&self.interrupted),
        }
    }

    /// Counts a table that was taken.
    pub(crate) fn note_taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a copied table. `flushes` are the numbers of local flushes, of shootdowns and of interrupted CPUs.
    pub(crate) fn note_copied(&self, flushes: [u32; 3]) {
        self.copied.fetch_add(1, Ordering::Relaxed);
        let cells = [&self.local, &self.remote, &self.interrupted];
        for (cell, count) in cells.into_iter().zip(flushes) {
            cell.fetch_add(count.into(), Ordering::Relaxed);
        }
    }
}
