//! Settings and counters of KSM (Linux 7.2 `mm/ksm.c`).

use core::sync::atomic::{AtomicBool, AtomicU32};

/// The counts of the KSM pages of an address space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergedPages {
    /// The number of entries that map KSM frames.
    pub merged: u64,
    /// The number of entries that map the zero page because they were merged.
    pub zero: u64,
    /// The number of pages in the KSM index that have no other page with the same contents.
    pub lone: u64,
    /// The number of bytes of the KSM index that the pages counted in `lone` take.
    pub lone_bytes: u64,
}

/// The settings of KSM.
#[derive(Debug)]
pub struct MergeSettings {
    /// The number of pages that one batch of the scan examines (`pages_to_scan`).
    pub pages: AtomicU32,
    /// The time between two batches, in milliseconds (`sleep_millisecs`).
    pub sleep: AtomicU32,
    /// The maximum number of entries that map one KSM frame (`max_page_sharing`).
    pub most_sharing: AtomicU32,
    /// The time between two searches for KSM frames that no entry maps, in milliseconds
    /// (`stable_node_chains_prune_millisecs`).
    pub prune: AtomicU32,
    /// Whether the entries of zero-filled pages are changed to map the zero page (`use_zero_pages`).
    pub zero_pages: AtomicBool,
    /// Whether pages of different NUMA nodes are merged (`merge_across_nodes`). The setting changes only while no page
    /// is merged.
    pub across_nodes: AtomicBool,
}

impl MergeSettings {
    /// The settings after boot.
    pub(crate) const fn new() -> Self {
        Self {
            pages: AtomicU32::new(100),
            sleep: AtomicU32::new(20),
            most_sharing: AtomicU32::new(256),
            prune: AtomicU32::new(2000),
            zero_pages: AtomicBool::new(false),
            across_nodes: AtomicBool::new(true),
        }
    }
}

/// The counts of KSM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// The number of KSM frames that entries map (`pages_shared`).
    pub shared: u64,
    /// The number of entries that map KSM frames, minus one for each frame (`pages_sharing`).
    pub sharing: u64,
    /// The number of pages in the index that have no other page with the same contents (`pages_unshared`).
    pub unshared: u64,
    /// The number of pages whose contents changed between two scans, in the last complete pass (`pages_volatile`).
    pub volatile: u64,
    /// The number of page contents for which there is more than one KSM frame, because the number of entries that map a
    /// frame is limited (`stable_node_chains`).
    pub chains: u64,
    /// The number of KSM frames with the contents that `chains` counts (`stable_node_dups`).
    pub duplicates: u64,
    /// The number of complete passes over all mergeable memory (`full_scans`).
    pub rounds: u64,
    /// The number of bytes of memory that the indexes take.
    pub index_bytes: u64,
}
