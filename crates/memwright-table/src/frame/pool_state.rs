//! The state of the huge page pool.

use super::meta::{END, Meta};
use super::subpool::Subpools;
use crate::addr::Frame;

/// The error that the pool has no page to allocate or to reserve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoHugePage;

impl core::fmt::Display for NoHugePage {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the hugetlb pool has no free page")
    }
}

impl core::error::Error for NoHugePage {}

/// The counters of the pool, in huge pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// The number of pages, free or in use (`nr_hugepages`).
    pub total: u64,
    /// The number of free pages (`free_hugepages`).
    pub free: u64,
    /// The number of free pages that are reserved (`resv_hugepages`).
    pub reserved: u64,
    /// The number of pages beyond the configured size of the pool. They are freed when they are no longer used
    /// (`surplus_hugepages`).
    pub surplus: u64,
    /// The limit on surplus pages (`nr_overcommit_hugepages`).
    pub most_surplus: u64,
}

impl PoolCounts {
    /// The number of free pages that are not reserved.
    pub(super) fn unpromised(&self) -> u64 {
        self.free - self.reserved
    }

    /// The number of pages that are not surplus (`persistent_huge_pages`).
    pub(super) fn lasting(&self) -> u64 {
        self.total - self.surplus
    }
}

/// The state that the lock of the pool protects.
pub(super) struct Pool {
    pub(super) counts: PoolCounts,
    /// The first free page. The others are linked through the metadata of their first frames.
    pub(super) head: u32,
    pub(super) subpools: Subpools,
}

impl Pool {
    pub(super) const fn new() -> Self {
        Self {
            counts: PoolCounts {
                total: 0,
                free: 0,
                reserved: 0,
                surplus: 0,
                most_surplus: 0,
            },
            head: END,
            subpools: Subpools::new(),
        }
    }

    pub(super) fn push(&mut self, head: Frame, meta: &Meta) {
        meta.set_link(self.head);
        self.head = head.number();
        self.counts.free += 1;
    }
}
