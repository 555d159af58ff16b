//! Errors of disks, made on purpose: what a program does whose pages cannot be read (as Linux's `fail_make_request`,
//! `block/blk-core.c` of 7.2, with a count instead of a share).

use core::sync::atomic::{AtomicU64, Ordering};

/// Which transfers of a disk fail: about one in so many, the same on every run that asks for the same transfers in
/// the same order.
pub struct Faults {
    /// 0 for none.
    each: u32,
    asked: AtomicU64,
}

impl Faults {
    /// About one in `each` fails; none if that is 0.
    pub const fn new(each: u32) -> Self {
        Self {
            each,
            asked: AtomicU64::new(0),
        }
    }

    /// Whether the next transfer fails.
    pub fn next_fails(&self) -> bool {
        self.each != 0 && fails(self.asked.fetch_add(1, Ordering::Relaxed), self.each)
    }
}

/// Whether transfer `number` is among those that fail. They come at no fixed distance: a program that goes round its
/// pages would meet the same ones each time.
const fn fails(number: u64, each: u32) -> bool {
    // The finaliser of SplitMix64.
    let mut word = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (word ^ word >> 31) % each as u64 == 0
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
