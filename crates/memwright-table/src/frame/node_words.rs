//! Frames whose words are the slots of a node of a tree.

#[cfg(all(target_arch = "x86_64", not(miri), not(feature = "interleave")))]
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use super::Frames;
use super::data::WORDS;
use crate::addr::Frame;
use crate::machine::Machine;

/// The number of words that [`zero_bits`] checks.
pub(crate) const TOGETHER: usize = 8;

/// The words of a data frame, and the owner in its metadata. The frame is checked once, and not for each access to a
/// word or to the owner.
#[derive(Clone, Copy, Debug)]
pub struct NodeWords<'f> {
    words: &'f [AtomicU64; WORDS],
    owner: &'f AtomicU64,
}

impl<M: Machine> Frames<M> {
    /// Returns the 64-bit words of `frame`, with its owner.
    ///
    /// # Panics
    /// If the frame holds no data.
    #[inline]
    pub fn node_words(&self, frame: Frame) -> NodeWords<'_> {
        NodeWords {
            words: self.words64(frame),
            owner: &self.meta(frame).owner,
        }
    }
}

impl<'f> NodeWords<'f> {
    /// Returns the word `number`.
    ///
    /// # Panics
    /// If the frame has no such word.
    #[inline]
    pub fn word(self, number: u64) -> &'f AtomicU64 {
        &self.words[number as usize]
    }

    /// Like [`Frames::change_owner`].
    #[inline(always)]
    pub fn change_owner(self, change: impl FnOnce(u64) -> u64) {
        let owner = change(self.owner.load(Ordering::Relaxed));
        self.owner.store(owner, Ordering::Relaxed);
    }

    /// Returns those bits of `wanted` whose words are not 0. Bit 0 stands for word `first`.
    ///
    /// # Panics
    /// If the frame has no word for a bit in `wanted`.
    #[inline]
    pub fn filled(self, first: u64, wanted: u64) -> u64 {
        let (mut rest, mut left) = (&self.words[first as usize..], wanted);
        let (mut zeros, mut place) = (0, 0);
        while left != 0 {
            let Some((together, more)) = rest.split_first_chunk() else {
                return filled_of_few(rest, left) << place | wanted & !zeros & ((1 << place) - 1);
            };
            // A group without a wanted word is not read.
            if left as u8 != 0 {
                zeros |= zero_bits(together, || ()) << place;
            }
            (rest, left, place) = (more, left >> TOGETHER, place + TOGETHER);
        }
        wanted & !zeros
    }
}

/// Returns those bits of `wanted` whose words are not 0. For `words` that are too few for [`zero_bits`].
#[cold]
fn filled_of_few(words: &[AtomicU64], wanted: u64) -> u64 {
    assert!(wanted >> words.len() == 0, "a frame has 512 words");
    let filled = words.iter().rev().fold(0, |bits, word| {
        bits << 1 | u64::from(word.load(Ordering::Relaxed) != 0)
    });
    filled & wanted
}

/// Returns a bitmap of those of `words` that are 0; bit 0 is the first word. Calls `visit` before it reads a word,
/// except where one instruction both reads the word and compares it.
///
/// For an atomic load, the compiler needs five instructions per word. An x86 comparison reads the word and leaves the
/// result in the carry flag, which the next instruction shifts into the bitmap. Miri and the interleaver see every load.
#[inline(always)]
pub(crate) fn zero_bits(words: &[AtomicU64; TOGETHER], visit: impl Fn()) -> u64 {
    #[cfg(all(target_arch = "x86_64", not(miri), not(feature = "interleave")))]
    {
        let _ = visit;
        let bits: u64;
        // SAFETY: reads the words of `words`, each by one access of its size, like relaxed loads. Writes no memory and
        // does not use the stack.
        unsafe {
            asm!(
                "xor {bits:e}, {bits:e}",
                "cmp qword ptr [{words} + 56], 1",
                "adc {bits:e}, {bits:e}",
                "cmp qword ptr [{words} + 48], 1",
                "adc {bits:e}, {bits:e}",
                "cmp qword ptr [{words} + 40], 1",
                "adc {bits:e}, {bits:e}",
                "cmp qword ptr [{words} + 32], 1",
                "adc {bits:e}, {bits:e}",
                "cmp qword ptr [{words} + 24], 1",
                "adc {bits:e}, {bits:e}",
                "cmp qword ptr [{words} + 16], 1",
                "adc {bits:e}, {bits:e}",
                "cmp qword ptr [{words} + 8], 1",
                "adc {bits:e}, {bits:e}",
                "cmp qword ptr [{words}], 1",
                "adc {bits:e}, {bits:e}",
                words = in(reg) words.as_ptr(),
                bits = out(reg) bits,
                options(readonly, nostack),
            );
        }
        bits
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri), not(feature = "interleave"))))]
    {
        words.iter().rev().fold(0, |bits, word| {
            visit();
            bits << 1 | u64::from(word.load(Ordering::Relaxed) == 0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bitmaps_name_the_words_that_are_filled() {
        let owner = AtomicU64::new(0);
        let words: [AtomicU64; WORDS] = core::array::from_fn(|_| AtomicU64::new(0));
        for filled in [3, 8, 15, 16, 17, 500, 505, 511] {
            words[filled].store(1 << 63, Ordering::Relaxed);
        }
        let node = NodeWords {
            words: &words,
            owner: &owner,
        };
        for (first, wanted) in [
            (0, u64::MAX),
            (0, 0),
            (0, 1 << 3),
            (1, 0xff00),
            (3, 0x8001),
            (448, u64::MAX),
            (500, 0xfff),
            (503, 0x1ff),
            (511, 1),
            (512, 0),
        ] {
            let is_filled = |bit: &u64| {
                wanted >> bit & 1 != 0 && words[(first + bit) as usize].load(Ordering::Relaxed) != 0
            };
            let expected = (0..64)
                .filter(is_filled)
                .fold(0, |bits, bit| bits | 1 << bit);
            assert_eq!(node.filled(first, wanted), expected, "{first}, {wanted:#x}");
        }
    }

    #[test]
    #[should_panic(expected = "a frame has 512 words")]
    fn a_word_past_the_end_is_refused() {
        let words: [AtomicU64; WORDS] = core::array::from_fn(|_| AtomicU64::new(0));
        let node = NodeWords {
            words: &words,
            owner: &AtomicU64::new(0),
        };
        node.filled(510, 4);
    }
}
