//! The layout of the memory that the kernel and the program share for a ring. The kernel chooses the offsets and
//! returns them to the program. The sizes of the structures are fixed (`include/uapi/linux/io_uring.h` of Linux 7.2).

use linux_raw_sys::io_uring as uapi;
use memwright_table::PAGE_SIZE;

/// Offset of the head of the submission ring, in bytes; the kernel writes the head. Heads and tails are in separate
/// cache lines, because the kernel and the program write to them.
pub const SUBMIT_HEAD: u32 = 0;
/// Offset of the tail of the submission ring; the program writes the tail.
pub const SUBMIT_TAIL: u32 = 64;
/// Offset of the head of the completion ring; the program writes the head.
pub const COMPLETE_HEAD: u32 = 128;
/// Offset of the tail of the completion ring; the kernel writes the tail.
pub const COMPLETE_TAIL: u32 = 192;
/// Offset of the number of entries of the submission ring, minus one.
pub const SUBMIT_MASK: u32 = 256;
/// Offset of the number of entries of the completion ring, minus one.
pub const COMPLETE_MASK: u32 = 260;
/// Offset of the number of entries of the submission ring.
pub const SUBMIT_ENTRIES: u32 = 264;
/// Offset of the number of entries of the completion ring.
pub const COMPLETE_ENTRIES: u32 = 268;
/// Offset of the number of submissions that were dropped because of an invalid entry number.
pub const DROPPED: u32 = 272;
/// Offset of the flags of the submission ring, which are always zero.
pub const SUBMIT_FLAGS: u32 = 276;
/// Offset of the flags of the completion ring, which the kernel ignores.
pub const COMPLETE_FLAGS: u32 = 280;
/// Offset of the number of completions that were dropped because the completion ring was full.
pub const OVERFLOW: u32 = 284;
/// Offset of the array of completions.
pub const COMPLETIONS: u32 = 320;

/// Size of a completion in bytes.
pub const COMPLETION_SIZE: u32 = 16;
/// Size of a submission in bytes.
pub const SUBMISSION_SIZE: u32 = 64;

/// Maximum number of submissions of a ring (`IORING_MAX_ENTRIES`).
const MOST_SUBMISSIONS: u32 = 32768;
/// Maximum number of completions of a ring (`IORING_MAX_CQ_ENTRIES`).
const MOST_COMPLETIONS: u32 = 2 * MOST_SUBMISSIONS;

/// The sizes of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Number of submissions, a power of two.
    pub submissions: u32,
    /// Number of completions, a power of two.
    pub completions: u32,
}

impl Sizes {
    /// Computes the sizes of a ring from the numbers that a program requests. If `clamped` is true, reduces numbers
    /// that are too large to the maximum. Returns `None` for invalid sizes (`io_uring/io_uring.c`,
    /// `io_uring_fill_params`).
    #[must_use]
    pub fn new(submissions: u32, completions: Option<u32>, clamped: bool) -> Option<Self> {
        let fit = |count: u32, most: u32| {
            let count = if clamped { count.min(most) } else { count };
            (1..=most)
                .contains(&count)
                .then(|| count.next_power_of_two())
        };
        let submissions = fit(submissions, MOST_SUBMISSIONS)?;
        let completions = match completions {
            Some(count) => fit(count, MOST_COMPLETIONS).filter(|count| *count >= submissions)?,
            None => 2 * submissions,
        };
        Some(Self {
            submissions,
            completions,
        })
    }

    /// Returns the offset of the submission ring's array of entry numbers, in bytes.
    #[must_use]
    pub fn array(self) -> u32 {
        COMPLETIONS + self.completions * COMPLETION_SIZE
    }

    /// Returns the number of pages that contain both rings.
    #[must_use]
    pub fn ring_pages(self) -> u64 {
        u64::from(self.array() + self.submissions * 4).div_ceil(PAGE_SIZE as u64)
    }

    /// Returns the number of pages that contain the submissions.
    #[must_use]
    pub fn submission_pages(self) -> u64 {
        u64::from(self.submissions * SUBMISSION_SIZE).div_ceil(PAGE_SIZE as u64)
    }

    /// Returns the page of the shared memory that `mmap` maps at the file offset of `index` pages. Returns `None` if
    /// `mmap` maps no page at this offset. The offsets of the two rings map the same pages, which contain both rings.
    /// In the shared memory, the pages of the submissions follow those of the rings.
    #[must_use]
    pub fn page_at(self, index: u64) -> Option<u64> {
        let page = |offset: u32| u64::from(offset) / PAGE_SIZE as u64;
        let (both, entries) = (page(uapi::IORING_OFF_CQ_RING), page(uapi::IORING_OFF_SQES));
        let rings = self.ring_pages();
        if index >= entries {
            (index - entries < self.submission_pages()).then_some(rings + index - entries)
        } else {
            let within = if index >= both { index - both } else { index };
            (within < rings).then_some(within)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_two() {
        let sizes = |submissions, completions| {
            Some(Sizes {
                submissions,
                completions,
            })
        };
        #[rustfmt::skip]
        let rows = [
            (0,      None,     false, None),
            (0,      None,     true,  None),
            (1,      None,     false, sizes(1, 2)),
            (5,      None,     false, sizes(8, 16)),
            (32768,  None,     false, sizes(32768, 65536)),
            (32769,  None,     false, None),
            (40000,  None,     true,  sizes(32768, 65536)),
            (8,      Some(4),  false, None),
            (8,      Some(0),  false, None),
            (8,      Some(17), false, sizes(8, 32)),
        ];
        for (submissions, completions, clamped, expected) in rows {
            let found = Sizes::new(submissions, completions, clamped);
            assert_eq!(found, expected, "{submissions} {completions:?} {clamped}");
        }
    }

    #[test]
    fn both_offsets_show_the_rings() {
        let sizes = Sizes::new(64, None, false).unwrap();
        assert_eq!((sizes.array(), sizes.ring_pages()), (320 + 128 * 16, 1));
        #[rustfmt::skip]
        let rows = [
            (0,       Some(0)),
            (1,       None),
            (0x8000,  Some(0)),
            (0x8001,  None),
            (0x10000, Some(1)),
            (0x10001, None),
        ];
        for (index, expected) in rows {
            assert_eq!(sizes.page_at(index), expected, "{index:#x}");
        }
    }
}
