//! How deep the kernel's stacks become. With debug assertions a new stack is filled with a pattern: where the pattern ends,
//! the deepest call ended.

use core::sync::atomic::{AtomicU64, Ordering};

use memwright_linux::host::StackDepth;

use crate::context;

/// What a stack holds where no call ever reached: a value that is neither an address nor a likely number.
const PATTERN: u64 = 0x5ac5_3e1d_0b4a_71c9;
/// Bytes of a word of the pattern.
const WORD: u64 = 8;

/// The fullest stack so far, [packed](pack). One word and no lock: every system call looks at it, also where the
/// uses of locks are counted.
static DEEPEST: AtomicU64 = AtomicU64::new(pack(StackDepth {
    used: 0,
    size: 1,
    call: None,
}));

/// In a packed depth: the system call is not known.
const NO_CALL: u64 = 0xffff;

/// From the highest bits on: 24 of the bytes in use, 24 of the size, 16 of the number of the system call.
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
/// They are mapped, belong to a stack, and nothing uses them.
pub unsafe fn fill(bottom: u64, end: u64) {
    if cfg!(debug_assertions) {
        for address in (bottom..end).step_by(WORD as usize) {
            // SAFETY: the caller vouches for the bytes.
            unsafe { (address as *mut u64).write(PATTERN) };
        }
    }
}

/// Looks how much of a stack was ever used. `call` is the system call that ran on it last, if that is known.
///
/// # Safety
/// The stack is mapped, and stays so meanwhile.
pub unsafe fn look(bottom: u64, top: u64, call: Option<u64>) {
    let untouched = |address: &u64| {
        // SAFETY: the caller vouches that the stack is mapped; any bytes are a number.
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
    // It fails where a stack was used more.
    let _ = DEEPEST.fetch_update(Ordering::Relaxed, Ordering::Relaxed, deeper);
}

/// After a system call: notes it if it used more of this thread's stack than anything before used of any.
pub fn after_call(number: u64) {
    let Some((bottom, top)) = context::stack_of(crate::arch::stack_pointer()) else {
        return;
    };
    let deepest = unpack(DEEPEST.load(Ordering::Relaxed));
    let known = deepest.used * (top - bottom) / deepest.size;
    let below = (top - known).saturating_sub(WORD) & !(WORD - 1);
    // SAFETY: the word lies in the stack that this CPU runs on; any bytes are a number.
    if below >= bottom && unsafe { (below as *const u64).read_volatile() } != PATTERN {
        // SAFETY: this CPU runs on the stack.
        unsafe { look(bottom, top, Some(number)) };
    }
}

/// The fullest stack of all; none without debug assertions.
pub fn deepest() -> Option<StackDepth> {
    if !cfg!(debug_assertions) {
        return None;
    }
    context::look_at_all();
    Some(unpack(DEEPEST.load(Ordering::Relaxed)))
}

/// What is known without looking further, for the report of a failure.
pub fn known() -> Option<StackDepth> {
    cfg!(debug_assertions).then(|| unpack(DEEPEST.load(Ordering::Relaxed)))
}
