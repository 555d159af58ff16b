//! The ranges of physical memory that were passed to the frame allocator.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::boot::memory_map::{MOST_RANGES, MemoryMap};

/// The ranges, each with its first byte and the address after its last byte.
static RANGES: [[AtomicU64; 2]; MOST_RANGES] =
    [const { [const { AtomicU64::new(0) }; 2] }; MOST_RANGES];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Records the ranges of `free`. Called once, before the memory is passed to the frame allocator.
pub fn set(free: &MemoryMap) {
    for (slot, range) in RANGES.iter().zip(free.iter()) {
        slot[0].store(range.start, Ordering::Relaxed);
        slot[1].store(range.end, Ordering::Relaxed);
    }
    COUNT.store(free.iter().count(), Ordering::Release);
}

/// Returns whether all of `[start, end)` is in one of the ranges.
pub fn contain(start: u64, end: u64) -> bool {
    let count = COUNT.load(Ordering::Acquire);
    RANGES[..count].iter().any(|range| {
        range[0].load(Ordering::Relaxed) <= start && end <= range[1].load(Ordering::Relaxed)
    })
}
