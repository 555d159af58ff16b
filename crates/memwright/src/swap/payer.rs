//! Swap charges of memcgs: groups of address spaces, each with its own limit (Linux 7.2 `mm/memcontrol.c`,
//! `__mem_cgroup_try_charge_swap`).
//!
//! A slot is charged to the memcg of the address space that swapped the page out, until the slot is freed. The charge
//! does not move when other entries come to name the slot, nor when the address space joins another memcg.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The maximum number of memcgs that can be charged.
pub const MOST_PAYERS: usize = 63;

/// The memcg that is charged for the slots of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwapPayer(u8);

impl SwapPayer {
    /// No memcg: there is no limit.
    pub const NOBODY: Self = Self(0);

    /// Returns the memcg with `number`, below [`MOST_PAYERS`].
    ///
    /// # Panics
    /// If `number` is not below that.
    #[must_use]
    pub const fn new(number: usize) -> Self {
        assert!(number < MOST_PAYERS, "there are fewer payers");
        Self(number as u8 + 1)
    }

    pub(crate) const fn from_raw(raw: u8) -> Self {
        Self(raw)
    }

    pub(crate) const fn raw(self) -> u8 {
        self.0
    }
}

/// The charge and the limit of one memcg. Changed under the lock of the devices.
struct Bill {
    slots: AtomicU64,
    most: AtomicU64,
    refused: AtomicU64,
    /// How often no slot was free.
    full: AtomicU64,
}

/// The charges of all memcgs.
pub(super) struct Bills {
    each: [Bill; MOST_PAYERS],
    /// Whether a memcg was ever opened.
    open: AtomicBool,
}

impl Bills {
    pub(super) fn new() -> Self {
        Self {
            each: core::array::from_fn(|_| Bill {
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

    fn of(&self, payer: SwapPayer) -> Option<&Bill> {
        self.each.get(usize::from(payer.0).wrapping_sub(1))
    }

    /// Whether one more slot may be charged to `payer`. Counts refusals.
    pub(super) fn allows(&self, payer: SwapPayer) -> bool {
        let Some(bill) = self.of(payer) else {
            return true;
        };
        let allowed = bill.slots.load(Ordering::Relaxed) < bill.most.load(Ordering::Relaxed);
        if !allowed {
            bill.refused.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }

    pub(super) fn charge(&self, payer: SwapPayer) {
        if let Some(bill) = self.of(payer) {
            bill.slots.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn release(&self, payer: SwapPayer) {
        if let Some(bill) = self.of(payer) {
            bill.slots.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn slots(&self, payer: SwapPayer) -> u64 {
        self.of(payer)
            .map_or(0, |bill| bill.slots.load(Ordering::Relaxed))
    }

    pub(super) fn refused(&self, payer: SwapPayer) -> u64 {
        self.of(payer)
            .map_or(0, |bill| bill.refused.load(Ordering::Relaxed))
    }

    /// Counts that no slot was free when `payer` needed one.
    pub(super) fn note_full(&self, payer: SwapPayer) {
        if let Some(bill) = self.of(payer) {
            bill.full.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn full(&self, payer: SwapPayer) -> u64 {
        self.of(payer)
            .map_or(0, |bill| bill.full.load(Ordering::Relaxed))
    }

    pub(super) fn limit(&self, payer: SwapPayer, most: u64) {
        if let Some(bill) = self.of(payer) {
            bill.most.store(most, Ordering::Relaxed);
        }
    }

    /// Resets the charge, the limit and the counts of `payer`, for a new memcg.
    pub(super) fn open(&self, payer: SwapPayer) {
        self.open.store(true, Ordering::Relaxed);
        if let Some(bill) = self.of(payer) {
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
        let bills = Bills::new();
        let (one, other) = (SwapPayer::new(0), SwapPayer::new(MOST_PAYERS - 1));
        bills.limit(one, 2);
        for (slots, allowed) in [(0, true), (1, true), (2, false)] {
            assert_eq!((bills.slots(one), bills.allows(one)), (slots, allowed));
            if allowed {
                bills.charge(one);
            }
        }
        assert_eq!((bills.refused(one), bills.refused(other)), (1, 0));
        bills.note_full(one);
        bills.note_full(SwapPayer::NOBODY);
        assert_eq!((bills.full(one), bills.full(other)), (1, 0));
        assert!(bills.allows(other) && bills.allows(SwapPayer::NOBODY));
        bills.release(one);
        assert!(bills.allows(one));
        bills.charge(SwapPayer::NOBODY);
        assert_eq!(bills.slots(SwapPayer::NOBODY), 0);
        bills.open(one);
        let now = (bills.slots(one), bills.refused(one), bills.full(one));
        assert_eq!(now, (0, 0, 0));
    }
}
