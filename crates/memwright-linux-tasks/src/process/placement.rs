//! The NUMA policy of a thread.

use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use memwright::{PlacePolicy, PolicyId};
use memwright_linux_abi::Memory;

/// The NUMA policy of a thread. It applies to areas without a policy of their own.
#[derive(Debug, Default)]
pub struct ThreadPlacement {
    id: AtomicU16,
    /// Number of pages that were interleaved since the policy was set.
    turn: AtomicU64,
}

impl ThreadPlacement {
    /// Returns the policy, if there is one.
    pub fn policy(&self, memory: &Memory) -> Option<PlacePolicy> {
        memory.placement(PolicyId::from_bits(self.id.load(Ordering::Relaxed)))
    }

    /// Returns the number of pages that were interleaved since the policy was set.
    pub fn turn(&self) -> u64 {
        self.turn.load(Ordering::Relaxed)
    }

    /// Counts one more interleaved page. Returns the number before.
    pub fn take_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// Sets the policy, and resets the count of interleaved pages.
    pub fn set(&self, id: PolicyId) {
        self.id.store(id.bits(), Ordering::Relaxed);
        self.turn.store(0, Ordering::Relaxed);
    }

    /// Copies the policy of the parent thread `maker`.
    pub fn inherit(&self, maker: &Self) {
        self.id
            .store(maker.id.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}
