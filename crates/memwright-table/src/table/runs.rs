//! Functions that find runs of consecutive slots with a common property, several slots at a time.

#[cfg(all(target_arch = "x86_64", not(miri), not(feature = "interleave")))]
use core::arch::asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::Encoding;
pub(super) use crate::frame::TOGETHER;
use crate::frame::zero_bits;
use crate::machine::Machine;
use crate::sync::{Step, Threads, step};

/// Combines the words of `TOGETHER` slots by the instruction `$instruction`, whose effect is `$combine`, a function
/// with the neutral element `$neutral`.
///
/// For atomic loads, the compiler needs two instructions per word. An x86 instruction can read the word and combine it
/// at once, which makes scans of sparse tables a third cheaper. Miri and the interleaver see every load.
macro_rules! fold_bits {
    ($threads:ty, $slots:expr, $instruction:literal, $neutral:expr, $combine:expr) => {{
        let slots: &[AtomicU64; TOGETHER] = $slots;
        #[cfg(all(target_arch = "x86_64", not(miri), not(feature = "interleave")))]
        {
            // Compiles to nothing without the interleaver.
            step::<$threads>(Step::Entry);
            let result: u64;
            // SAFETY: reads the words of `slots`, each by one access of its size, like relaxed loads. Writes no memory
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
                    words = in(reg) slots.as_ptr(),
                    result = out(reg) result,
                    options(readonly, nostack),
                );
            }
            result
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri), not(feature = "interleave"))))]
        {
            let combine: fn(u64, u64) -> u64 = $combine;
            slots.iter().fold($neutral, |all, slot| {
                step::<$threads>(Step::Entry);
                combine(all, slot.load(Ordering::Relaxed))
            })
        }
    }};
}

/// Skips the leading slots for which a condition holds, and returns the rest. `one` decides the condition for a single
/// slot. If `all` returns true for a group of slots, the condition holds for each of them.
#[inline(always)]
pub(super) fn pass_while<H: Threads>(
    slots: &[AtomicU64],
    all: impl Fn(&[AtomicU64; TOGETHER]) -> bool,
    one: impl Fn(u64) -> bool,
) -> &[AtomicU64] {
    let fails = |slot: &AtomicU64| {
        step::<H>(Step::Entry);
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
/// bits, two groups are checked together, so that sparse tables cost less than with [`pass_while`], and dense ones the
/// same.
#[inline(always)]
pub(super) fn pass_clear<H: Threads>(slots: &[AtomicU64], bits: u64) -> &[AtomicU64] {
    let is_clear = |word| word & bits == 0;
    let mut rest = slots;
    if let Some((first, more)) = rest.split_first_chunk() {
        if !is_clear(some_bits::<H>(first)) {
            return pass_while::<H>(rest, |_| false, is_clear);
        }
        rest = more;
    }
    while let Some((pair, more)) = rest.split_first_chunk::<{ 2 * TOGETHER }>() {
        if let (Some(first), Some(second)) = (pair.first_chunk(), pair.last_chunk()) {
            let (some, others) = (some_bits::<H>(first), some_bits::<H>(second));
            if !is_clear(some | others) {
                if is_clear(some) {
                    rest = &rest[TOGETHER..];
                }
                return pass_while::<H>(rest, |_| false, is_clear);
            }
        }
        rest = more;
    }
    pass_while::<H>(rest, |slots| is_clear(some_bits::<H>(slots)), is_clear)
}

/// Skips groups of `TOGETHER` slots for which `all` holds, and returns the index of the first slot after them. To bound
/// the cost, it checks only if `at` is the start of a group.
#[inline(always)]
pub(super) fn pass_together(
    slots: &[AtomicU64],
    at: usize,
    all: impl Fn(&[AtomicU64; TOGETHER]) -> bool,
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
pub(super) fn some_bits<H: Threads>(slots: &[AtomicU64; TOGETHER]) -> u64 {
    fold_bits!(H, slots, "or", 0, |some, word| some | word)
}

/// Returns the intersection of the bits of `slots`.
#[inline(always)]
pub(super) fn every_bit<H: Threads>(slots: &[AtomicU64; TOGETHER]) -> u64 {
    fold_bits!(H, slots, "and", u64::MAX, |every, word| every & word)
}

/// Whether all of `slots` are empty.
#[inline(always)]
pub(super) fn all_empty<H: Threads>(slots: &[AtomicU64; TOGETHER]) -> bool {
    some_bits::<H>(slots) == 0
}

/// Returns a bitmap of the empty ones of `slots`, at most 64. Bit 0 is the first slot.
#[inline(always)]
pub(super) fn empty_bits<H: Threads>(slots: &[AtomicU64]) -> u64 {
    let (mut rest, mut bits, mut place) = (slots, 0, 0);
    while let Some((together, more)) = rest.split_first_chunk() {
        bits |= zero_bits(together, || step::<H>(Step::Entry)) << place;
        place += TOGETHER;
        rest = more;
    }
    match rest {
        [] => bits,
        [_, ..] => bits | empty_bits_of_few::<H>(rest) << place,
    }
}

/// Returns the bitmap of fewer slots than a group.
#[cold]
fn empty_bits_of_few<H: Threads>(slots: &[AtomicU64]) -> u64 {
    slots.iter().rev().fold(0, |bits, slot| {
        step::<H>(Step::Entry);
        bits << 1 | u64::from(slot.load(Ordering::Relaxed) == 0)
    })
}

/// Whether none of `slots`, in a last-level table, maps a page.
#[inline(always)]
pub(super) fn none_present<M: Machine>(slots: &[AtomicU64; TOGETHER]) -> bool {
    !M::Arch::is_present(some_bits::<M::Threads>(slots))
}

/// Whether all of `slots`, at `level`, map pages with rights. `false` means unknown.
#[inline(always)]
pub(super) fn are_pages<M: Machine>(slots: &[AtomicU64; TOGETHER], level: u8) -> bool {
    M::Arch::are_pages(every_bit::<M::Threads>(slots), level)
}

/// Skips the leading slots that have these attributes, and returns the rest.
#[inline(always)]
pub(super) fn pass_alike<M: Machine>(slots: &[AtomicU64], attributes: u64) -> &[AtomicU64] {
    let mut rest = slots;
    while let [first, others @ ..] = rest {
        step::<M::Threads>(Step::Entry);
        if M::Arch::attributes(first.load(Ordering::Relaxed)) != attributes {
            break;
        }
        rest = others;
    }
    rest
}

/// Returns the number of leading `slots` that have these attributes.
#[inline(never)]
pub(super) fn count_alike<M: Machine>(slots: &[AtomicU64], attributes: u64) -> usize {
    let alike = |slot: &AtomicU64| {
        step::<M::Threads>(Step::Entry);
        M::Arch::attributes(slot.load(Ordering::Relaxed)) == attributes
    };
    slots.iter().take_while(|slot| alike(slot)).count()
}
