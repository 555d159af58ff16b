//! The number of pages in the swap cache.

use core::sync::atomic::{AtomicU64, Ordering};

/// The number of slots whose page is in memory as well. The number is changed only under the lock of the devices, so a
/// change needs no atomic read-modify-write instruction.
pub(super) struct CachedPages(AtomicU64);

impl CachedPages {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        self.0
            .store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn subtract(&self, count: u64) {
        self.0
            .store(self.get().wrapping_sub(count), Ordering::Relaxed);
    }
}
