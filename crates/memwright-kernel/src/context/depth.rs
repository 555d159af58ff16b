//! Measures the depth of kernel stacks. With debug assertions, a new stack is filled with a pattern. Calls overwrite
//! the pattern from the top down, so the deepest call ended where the intact part of the pattern ends.

use core::sync::atomic::{AtomicU64, Ordering};

use memwright_linux_abi::host::StackDepth;

/// The value of stack memory that was never used. It is neither an address nor a likely number.
const PATTERN: u64 = 0x5ac5_3e1d_0b4a_71c9;
/// Size of a word of the pattern in bytes.
const WORD: u64 = 8;

/// The largest depth so far, [packed](pack) into one atomic word. It is not a value under a lock, because every system
/// call reads it, and such a lock would appear in the lock statistics.
static DEEPEST: AtomicU64 = AtomicU64::new(pack(StackDepth {
    used: 0,
    size: 1,
    call: None,
}));

/// The system-call number of a packed depth if the system call is unknown.
const NO_CALL: u64 = 0xffff;

/// Packs a depth into a word. From the highest bit down, the word contains the bytes used (24 bits), the size of the
/// stack (24 bits) and the system-call number (16 bits).
const fn pack(depth: StackDepth) -> u64 {
    let call = match depth.call {
        Some(call) if call < NO_CALL => call,
        Some(_) | None => NO_CALL,
    };
    depth.used << 40 | depth.size << 16 | call
}

const fn unpack(packed: u64) -> StackDepth {
    let call = packed & 0xffff;
    StackDepth {
        used: packed >> 40,
        size: packed >> 16 & 0xff_ffff,
        call: if call == NO_CALL { None } else { Some(call) },
    }
}

/// Fills the bytes from `bottom` to `end` with the pattern.
///
/// # Safety
/// The bytes are mapped, belong to a stack, and are not in use.
pub unsafe fn fill(bottom: u64, end: u64) {
    if cfg!(debug_assertions) {
        for address in (bottom..end).step_by(WORD as usize) {
            // SAFETY: the caller guarantees the range.
            unsafe { (address as *mut u64).write(PATTERN) };
        }
    }
}

/// Measures the largest depth that a stack has reached since it was filled, and records the depth if no larger one is
/// recorded. `call` is the last system call that ran on the stack, if it is known.
///
/// # Safety
/// The stack from `bottom` to `top` is mapped, and stays mapped during the call.
pub unsafe fn look(bottom: u64, top: u64, call: Option<u64>) {
    let untouched = |address: &u64| {
        // SAFETY: the caller guarantees that the stack is mapped; all bit patterns are valid.
        unsafe { (*address as *const u64).read_volatile() == PATTERN }
    };
    let mut words = (bottom..top).step_by(WORD as usize);
    let lowest = words.find(|address| !untouched(address)).unwrap_or(top);
    let depth = StackDepth {
        used: top - lowest,
        size: top - bottom,
        call,
    };
    let deeper = |packed| {
        let deepest = unpack(packed);
        (depth.used * deepest.size > deepest.used * depth.size).then_some(pack(depth))
    };
    // The update fails if a larger depth is recorded already.
    let _ = DEEPEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, deeper);
}

/// Records the depth of the stack on which the caller runs, if the system call `number` has exceeded the largest depth
/// of any stack so far. Called after each system call.
///
/// # Safety
/// The requirements of [`look`] apply.
pub unsafe fn after_call(bottom: u64, top: u64, number: u64) {
    let deepest = unpack(DEEPEST.load(Ordering::Relaxed));
    let known = deepest.used * (top - bottom) / deepest.size;
    let below = (top - known).saturating_sub(WORD) & !(WORD - 1);
    // SAFETY: the word is in the stack, which the caller guarantees to be mapped; all bit patterns are valid.
    if below >= bottom && unsafe { (below as *const u64).read_volatile() } != PATTERN {
        // SAFETY: guaranteed by the caller.
        unsafe { look(bottom, top, Some(number)) };
    }
}

/// Returns the largest depth recorded so far, without measuring; `None` without debug assertions.
pub fn known() -> Option<StackDepth> {
    cfg!(debug_assertions).then(|| unpack(DEEPEST.load(Ordering::Relaxed)))
}
