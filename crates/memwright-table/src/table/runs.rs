//! Functions that find runs of consecutive slots with a common property, several slots at a time.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::entry::x86_64;
use crate::sync::{Step, step};

/// The number of entries that are checked together.
pub(super) const TOGETHER: usize = 8;

/// Skips the leading slots for which a condition holds, and returns the rest. `all` may confirm the condition for a
/// group of slots at once; `one` decides it for a single slot.
#[inline(always)]
pub(super) fn pass_while(
    slots: &[AtomicU64],
    all: impl Fn(&[AtomicU64; TOGETHER]) -> bool,
    one: impl Fn(u64) -> bool,
) -> &[AtomicU64] {
    let mut rest = slots;
    loop {
        while let Some((together, more)) = rest.split_first_chunk::<TOGETHER>() {
            if !all(together) {
                break;
            }
            rest = more;
        }
        let near = rest.get(..TOGETHER).unwrap_or(rest);
        let passed = near.iter().take_while(|slot| {
            step(Step::Entry);
            one(slot.load(Ordering::Relaxed))
        });
        let passed = passed.count();
        rest = &rest[passed..];
        if rest.is_empty() || passed < near.len() {
            return rest;
        }
    }
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
fn any_bits(slots: &[AtomicU64; TOGETHER]) -> u64 {
    slots.iter().fold(0, |some, slot| {
        step(Step::Entry);
        some | slot.load(Ordering::Relaxed)
    })
}

/// Whether all of `slots` are empty.
#[inline(always)]
pub(super) fn all_empty(slots: &[AtomicU64; TOGETHER]) -> bool {
    any_bits(slots) == 0
}

/// Whether none of `slots`, in a last-level table, maps a page.
#[inline(always)]
pub(super) fn none_present(slots: &[AtomicU64; TOGETHER]) -> bool {
    !x86_64::is_present(any_bits(slots))
}

/// Whether all of `slots`, at `level`, map pages with rights. `false` means unknown.
#[inline(always)]
pub(super) fn are_pages(slots: &[AtomicU64; TOGETHER], level: u8) -> bool {
    let every = slots.iter().fold(u64::MAX, |every, slot| {
        step(Step::Entry);
        every & slot.load(Ordering::Relaxed)
    });
    x86_64::are_pages(every, level)
}

/// Skips the leading slots that have these attributes, and returns the rest.
#[inline(always)]
pub(super) fn pass_alike(slots: &[AtomicU64], attributes: u64) -> &[AtomicU64] {
    let mut rest = slots;
    while let [first, others @ ..] = rest {
        step(Step::Entry);
        if x86_64::attributes(first.load(Ordering::Relaxed)) != attributes {
            break;
        }
        rest = others;
    }
    rest
}

/// Returns the number of leading `slots` that have these attributes.
#[inline(never)]
pub(super) fn count_alike(slots: &[AtomicU64], attributes: u64) -> usize {
    let alike = |slot: &AtomicU64| {
        step(Step::Entry);
        x86_64::attributes(slot.load(Ordering::Relaxed)) == attributes
    };
    slots.iter().take_while(|slot| alike(slot)).count()
}
