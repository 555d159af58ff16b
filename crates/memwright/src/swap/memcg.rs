//! Swap charges of memcgs: groups of address spaces, each with its own limit (Linux 7.2 `mm/memcontrol.c`,
//! `__mem_cgroup_try_charge_swap`).
//!
//! A slot is charged to the memcg of the address space that swapped the page out, until the slot is freed. The charge
//! does not move when other entries come to name the slot, nor when the address space joins another memcg.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::types::memcg::{MAX_MEMCGS, Memcg};

/// The charge and the limit of one memcg. Changed under the lock of the devices.
struct SwapCharge {
    slots: AtomicU64,
    most: AtomicU64,
    refused: AtomicU64,
    /// How often no slot was free.
    full: AtomicU64,
}

/// The charges of all memcgs.
pub(crate) struct SwapCharges {
    each: [SwapCharge; MAX_MEMCGS],
    /// Whether a memcg was ever opened.
    open: AtomicBool,
}

impl SwapCharges {
    pub(super) fn new() -> Self {
        Self {
            each: core::array::from_fn(|_| SwapCharge {
                slots: AtomicU64::new(0),
                most: AtomicU64::new(u64::MAX),
                refused: AtomicU64::new(0),
                full: AtomicU64::new(0),
            }),
            open: AtomicBool::new(false),
        }
    }

    /// Whether a memcg was ever opened.
    pub(super) fn are_open(&self) -> bool {
        self.open.load(Ordering::Relaxed)
    }

    fn of(&self, memcg: Memcg) -> Option<&SwapCharge> {
        self.each.get(usize::from(memcg.0).wrapping_sub(1))
    }

    /// Whether one more slot may be charged to `memcg`. Counts refusals.
    pub(super) fn allows(&self, memcg: Memcg) -> bool {
        let Some(bill) = self.of(memcg) else {
            return true;
        };
        let allowed = bill.slots.load(Ordering::Relaxed) < bill.most.load(Ordering::Relaxed);
        if !allowed {
            bill.refused.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }

    pub(super) fn charge(&self, memcg: Memcg) {
        if let Some(bill) = self.of(memcg) {
            bill.slots.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn release(&self, memcg: Memcg) {
        if let Some(bill) = self.of(memcg) {
            bill.slots.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn slots(&self, memcg: Memcg) -> u64 {
        self.of(memcg)
            .map_or(0, |bill| bill.slots.load(Ordering::Relaxed))
    }

    pub(super) fn refused(&self, memcg: Memcg) -> u64 {
        self.of(memcg)
            .map_or(0, |bill| bill.refused.load(Ordering::Relaxed))
    }

    /// Counts that no slot was free when `memcg` needed one.
    pub(super) fn note_full(&self, memcg: Memcg) {
        if let Some(bill) = self.of(memcg) {
            bill.full.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn full(&self, memcg: Memcg) -> u64 {
        self.of(memcg)
            .map_or(0, |bill| bill.full.load(Ordering::Relaxed))
    }

    pub(super) fn limit(&self, memcg: Memcg, most: u64) {
        if let Some(bill) = self.of(memcg) {
            bill.most.store(most, Ordering::Relaxed);
        }
    }

    /// Resets the charge, the limit and the counts of `memcg`, for a new memcg.
    pub(crate) fn open(&self, memcg: Memcg) {
        self.open.store(true, Ordering::Relaxed);
        if let Some(bill) = self.of(memcg) {
            bill.slots.store(0, Ordering::Relaxed);
            bill.most.store(u64::MAX, Ordering::Relaxed);
            bill.refused.store(0, Ordering::Relaxed);
            bill.full.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payer_has_no_more_than_it_may() {
        let bills = SwapCharges::new();
        let (one, other) = (Memcg::new(0), Memcg::new(MAX_MEMCGS - 1));
        bills.limit(one, 2);
        for (slots, allowed) in [(0, true), (1, true), (2, false)] {
            assert_eq!((bills.slots(one), bills.allows(one)), (slots, allowed));
            if allowed {
                bills.charge(one);
            }
        }
        assert_eq!((bills.refused(one), bills.refused(other)), (1, 0));
        bills.note_full(one);
        bills.note_full(Memcg::NOBODY);
        assert_eq!((bills.full(one), bills.full(other)), (1, 0));
        assert!(bills.allows(other) && bills.allows(Memcg::NOBODY));
        bills.release(one);
        assert!(bills.allows(one));
        bills.charge(Memcg::NOBODY);
        assert_eq!(bills.slots(Memcg::NOBODY), 0);
        bills.open(one);
        let now = (bills.slots(one), bills.refused(one), bills.full(one));
        assert_eq!(now, (0, 0, 0));
    }
}
