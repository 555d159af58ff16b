//! Injected disk errors, for tests with swapped-out pages that cannot be read (like Linux's `fail_make_request`,
//! `block/blk-core.c` of 7.2, but with a count instead of a probability).

use core::sync::atomic::{AtomicU64, Ordering};

/// Selects the transfers of a disk that fail: about one in a given number. If two runs have the same sequence of
/// transfers, the same transfers fail in both runs.
pub struct Faults {
    /// About one in `each` transfers fails; none fails if `each` is 0.
    each: u32,
    asked: AtomicU64,
}

impl Faults {
    /// Creates the selection. About one in `each` transfers fails; none fails if `each` is 0.
    pub const fn new(each: u32) -> Self {
        Self {
            each,
            asked: AtomicU64::new(0),
        }
    }

    /// Counts a transfer. Returns whether it fails.
    pub fn next_fails(&self) -> bool {
        self.each != 0 && fails(self.asked.fetch_add(1, Ordering::Relaxed), self.each)
    }
}

/// Returns whether the transfer `number` fails. The failures are not evenly spaced, because evenly spaced failures
/// could always hit the same pages of a program that accesses its pages in turn.
const fn fails(number: u64, each: u32) -> bool {
    // The finaliser of SplitMix64.
    let mut word = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31).is_multiple_of(each as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn about_one_in_so_many_fails() {
        for (each, least, most) in [
            (0, 0, 0),
            (1, 10_000, 10_000),
            (10, 900, 1100),
            (1000, 5, 15),
        ] {
            let faults = Faults::new(each);
            let count = (0..10_000).filter(|_| faults.next_fails()).count();
            assert!((least..=most).contains(&count), "{each}: {count}");
        }
    }
}
