//! Functions that find runs of consecutive slots with a common property, several slots at a time.

#[cfg(all(target_arch = "x86_64", not(miri), not(feature = "interleave")))]
use core::arch::asm;
use core::sync::atomic::Ordering;

use crate::arch::{TableSlot, word};
pub(super) use crate::frame::TOGETHER;
use crate::frame::zero_bits;
use crate::machine::{Machine, SlotOf};
use crate::sync::{Step, step};

/// Combines the words of `TOGETHER` slots by the instruction `$instruction`, whose effect is `$combine`, a function
/// with the neutral element `$neutral`.
///
/// For atomic loads, the compiler needs two instructions per word. An x86 instruction can read the word and combine it
/// at once, which makes scans of sparse tables a third cheaper. Miri and the interleaver see every load.
macro_rules! fold_bits {
    ($machine:ty, $slots:expr, $instruction:literal, $neutral:expr, $combine:expr) => {{
        let slots: &[SlotOf<$machine>; TOGETHER] = $slots;
        #[cfg(all(target_arch = "x86_64", not(miri), not(feature = "interleave")))]
        if let Some(words) = TableSlot::as_words(slots) {
            // Compiles to nothing without the interleaver.
            step::<<$machine as Machine>::Threads>(Step::Entry);
            let result: u64;
            // SAFETY: reads the words of `words`, each by one access of its size, like relaxed loads. Writes no memory
            // and does not use the stack.
            unsafe {
                asm!(
                    "mov {result}, [{words}]",
                    concat!($instruction, " {result}, [{words} + 8]"),
                    concat!($instruction, " {result}, [{words} + 16]"),
                    concat!($instruction, " {result}, [{words} + 24]"),
                    concat!($instruction, " {result}, [{words} + 32]"),
                    concat!($instruction, " {result}, [{words} + 40]"),
                    concat!($instruction, " {result}, [{words} + 48]"),
                    concat!($instruction, " {result}, [{words} + 56]"),
                    words = in(reg) words.as_ptr(),
                    result = out(reg) result,
                    options(readonly, nostack),
                );
            }
            return result;
        }
        let combine: fn(u64, u64) -> u64 = $combine;
        slots.iter().fold($neutral, |all, slot| {
            step::<<$machine as Machine>::Threads>(Step::Entry);
            combine(all, slot.load(Ordering::Relaxed))
        })
    }};
}

/// Skips the leading slots for which a condition holds, and returns the rest. `one` decides the condition for a single
/// slot. If `all` returns true for a group of slots, the condition holds for each slot of the group.
#[inline(always)]
pub(super) fn pass_while<M: Machine>(
    slots: &[SlotOf<M>],
    all: impl Fn(&[SlotOf<M>; TOGETHER]) -> bool,
    one: impl Fn(u64) -> bool,
) -> &[SlotOf<M>] {
    let fails = |slot: &SlotOf<M>| {
        step::<M::Threads>(Step::Entry);
        !one(slot.load(Ordering::Relaxed))
    };
    let mut rest = slots;
    while let Some((together, more)) = rest.split_first_chunk::<TOGETHER>() {
        if !all(together) {
            if let Some(at) = together.iter().position(fails) {
                return &rest[at..];
            }
        }
        rest = more;
    }
    let passed = rest.iter().position(fails).unwrap_or(rest.len());
    &rest[passed..]
}

/// Skips the leading slots in which no bit of `bits` is set, and returns the rest. After a first group without these
/// bits, two groups are checked together. Sparse tables therefore cost less than with [`pass_while`], and dense tables
/// cost the same.
#[inline(always)]
pub(super) fn pass_clear<M: Machine>(slots: &[SlotOf<M>], bits: u64) -> &[SlotOf<M>] {
    let is_clear = |word| word & bits == 0;
    let mut rest = slots;
    if let Some((first, more)) = rest.split_first_chunk() {
        if !is_clear(some_bits::<M>(first)) {
            return pass_while::<M>(rest, |_| false, is_clear);
        }
        rest = more;
    }
    while let Some((pair, more)) = rest.split_first_chunk::<{ 2 * TOGETHER }>() {
        if let (Some(first), Some(second)) = (pair.first_chunk(), pair.last_chunk()) {
            let (some, others) = (some_bits::<M>(first), some_bits::<M>(second));
            if !is_clear(some | others) {
                if is_clear(some) {
                    rest = &rest[TOGETHER..];
                }
                return pass_while::<M>(rest, |_| false, is_clear);
            }
        }
        rest = more;
    }
    pass_while::<M>(rest, |slots| is_clear(some_bits::<M>(slots)), is_clear)
}

/// Skips groups of `TOGETHER` slots for which `all` holds, and returns the index of the first slot after them. To bound
/// the cost, it checks groups only if `at` is the start of a group.
#[inline(always)]
pub(super) fn pass_together<S: TableSlot>(
    slots: &[S],
    at: usize,
    all: impl Fn(&[S; TOGETHER]) -> bool,
) -> usize {
    if at % TOGETHER != 0 {
        return at;
    }
    let mut rest = &slots[at..];
    while let Some((together, more)) = rest.split_first_chunk() {
        if !all(together) {
            break;
        }
        rest = more;
    }
    slots.len() - rest.len()
}

/// Returns the union of the bits of `slots`.
#[inline(always)]
pub(super) fn some_bits<M: Machine>(slots: &[SlotOf<M>; TOGETHER]) -> u64 {
    fold_bits!(M, slots, "or", 0, |some, word| some | word)
}

/// Returns the intersection of the bits of `slots`.
#[inline(always)]
pub(super) fn every_bit<M: Machine>(slots: &[SlotOf<M>; TOGETHER]) -> u64 {
    fold_bits!(M, slots, "and", u64::MAX, |every, word| every & word)
}

/// Whether all of `slots` are empty.
#[inline(always)]
pub(super) fn all_empty<M: Machine>(slots: &[SlotOf<M>; TOGETHER]) -> bool {
    some_bits::<M>(slots) == 0
}

/// Returns a bitmap of the empty ones of `slots`, at most 64. Bit 0 is the first slot.
#[inline(always)]
pub(super) fn empty_bits<M: Machine>(slots: &[SlotOf<M>]) -> u64 {
    let (mut rest, mut bits, mut place) = (slots, 0, 0);
    while let Some((together, more)) = rest.split_first_chunk() {
        bits |= match TableSlot::as_words(together) {
            Some(words) => zero_bits(words, || step::<M::Threads>(Step::Entry)),
            None => empty_bits_of_few::<M>(together),
        } << place;
        place += TOGETHER;
        rest = more;
    }
    match rest {
        [] => bits,
        [_, ..] => bits | empty_bits_of_few::<M>(rest) << place,
    }
}

/// Returns the bitmap of the empty ones among at most 64 slots. Reads one slot at a time.
#[cold]
fn empty_bits_of_few<M: Machine>(slots: &[SlotOf<M>]) -> u64 {
    slots.iter().rev().fold(0, |bits, slot| {
        step::<M::Threads>(Step::Entry);
        bits << 1 | u64::from(slot.load(Ordering::Relaxed) == 0)
    })
}

/// Whether none of `slots` maps a page or points to a table.
#[inline(always)]
pub(super) fn none_present<M: Machine>(slots: &[SlotOf<M>; TOGETHER]) -> bool {
    !word::is_present(some_bits::<M>(slots))
}

/// Whether all of `slots`, at `level`, map pages with rights. `false` means unknown.
#[inline(always)]
pub(super) fn are_pages<M: Machine>(slots: &[SlotOf<M>; TOGETHER], level: u8) -> bool {
    word::are_pages(every_bit::<M>(slots), level)
}

/// Skips the leading slots whose entries have the attributes `attributes`, and returns the rest.
#[inline(always)]
pub(super) fn pass_alike<M: Machine>(slots: &[SlotOf<M>], attributes: u64) -> &[SlotOf<M>] {
    let mut rest = slots;
    while let [first, others @ ..] = rest {
        step::<M::Threads>(Step::Entry);
        if word::attributes(first.load(Ordering::Relaxed)) != attributes {
            break;
        }
        rest = others;
    }
    rest
}

/// Returns the number of leading `slots` whose entries have the attributes `attributes`.
#[inline(never)]
pub(super) fn count_alike<M: Machine>(slots: &[SlotOf<M>], attributes: u64) -> usize {
    let alike = |slot: &SlotOf<M>| {
        step::<M::Threads>(Step::Entry);
        word::attributes(slot.load(Ordering::Relaxed)) == attributes
    };
    slots.iter().take_while(|slot| alike(slot)).count()
}
