//! Reads and writes user memory through the user's own mapping.
//!
//! Each routine permits access to user memory (STAC), accesses it by a few known instructions, and forbids access again
//! (CLAC). If one of these instructions faults, the page-fault handler calls the personality to make the page
//! accessible, and the instruction is retried. If the page cannot be made accessible, the routine resumes at its fix-up
//! address and reports the failure: a copy returns the number of bytes left, and a word access returns all ones. No
//! routine checks beforehand whether the memory is mapped.

use core::arch::global_asm;
use core::sync::atomic::{AtomicPtr, Ordering};

use memwright_linux_abi::host::{KernelEvents, UserFault};

use memwright_linux_base::sync::{assert_may_sleep, pause_point};
use memwright_table::{Frame, PAGE_SIZE};

use crate::memory::paging::{DIRECT_BASE, USER_LIMIT};
use crate::percpu;

global_asm!(
    r#"
    // u64 user_copy(to, from, length): returns the number of bytes not copied
    .balign 32
    .globl user_copy
user_copy:
    mov rcx, rdx
    shr rcx, 3
    and edx, 7
    stac
user_copy_words:
    rep movsq
    mov ecx, edx
user_copy_bytes:
    rep movsb
user_copy_end:
    clac
    mov rax, rcx
    ret
user_copy_words_failed:             // continue bytewise up to the faulting byte
    lea rcx, [rdx + rcx * 8]
    jmp user_copy_bytes

    // u64 user_clear(to, length): returns the number of bytes not cleared
    .balign 32
    .globl user_clear
user_clear:
    mov rcx, rsi
    shr rcx, 3
    and esi, 7
    xor eax, eax
    stac
user_clear_words:
    rep stosq
    mov ecx, esi
user_clear_bytes:
    rep stosb
user_clear_end:
    clac
    mov rax, rcx
    ret
user_clear_words_failed:
    lea rcx, [rsi + rcx * 8]
    jmp user_clear_bytes

    // u64 user_load(address): returns the word, or all ones on a fault
    .balign 32
    .globl user_load
user_load:
    stac
user_load_word:
    mov eax, [rdi]
    clac
    ret

    // u64 user_exchange(address, old, new): returns the previous word, or all ones on a fault
    .balign 32
    .globl user_exchange
user_exchange:
    mov eax, esi
    stac
user_exchange_word:
    lock cmpxchg [rdi], edx
    clac
    mov eax, eax
    ret

    // u64 user_peek(address) and user_try_exchange(address, old, new): like user_load and user_exchange, but no page is
    // made accessible on a fault, so the caller may hold locks
    .balign 32
    .globl user_peek
user_peek:
    stac
user_peek_word:
    mov eax, [rdi]
    clac
    ret

    .balign 32
    .globl user_try_exchange
user_try_exchange:
    mov eax, esi
    stac
user_try_exchange_word:
    lock cmpxchg [rdi], edx
    clac
    mov eax, eax
    ret

    .globl user_word_failed
user_word_failed:
    clac
    mov rax, -1
    ret

    .section .rodata.user_fixups, "a", @progbits
    .balign 8
    .globl user_fixups
user_fixups:
    .quad user_copy_words, user_copy_words_failed
    .quad user_copy_bytes, user_copy_end
    .quad user_clear_words, user_clear_words_failed
    .quad user_clear_bytes, user_clear_end
    .quad user_load_word, user_word_failed
    .quad user_exchange_word, user_word_failed

    .globl user_attempts
user_attempts:
    .quad user_peek_word, user_try_exchange_word
    .text
"#
);

unsafe extern "C" {
    fn user_copy(to: u64, from: u64, length: u64) -> u64;
    fn user_clear(to: u64, length: u64) -> u64;
    fn user_load(address: u64) -> u64;
    fn user_exchange(address: u64, old: u32, new: u32) -> u64;
    fn user_peek(address: u64) -> u64;
    fn user_try_exchange(address: u64, old: u32, new: u32) -> u64;
    /// The address at which a word access resumes if its fault was not resolved.
    fn user_word_failed();
    /// Pairs of addresses: the address of an instruction that can fault, and the address at which to resume if the
    /// fault cannot be resolved.
    static user_fixups: [[u64; 2]; 6];
    /// The instructions whose faults are never resolved: they resume at `user_word_failed`.
    static user_attempts: [u64; 2];
}

/// Returns the address at which to resume after an unresolved fault of the instruction at `address`; `None` if that
/// instruction must not fault.
pub fn fixup(address: u64) -> Option<u64> {
    // SAFETY: the table is a constant of the image.
    let table = unsafe { &user_fixups };
    table
        .iter()
        .find(|pair| pair[0] == address)
        .map(|pair| pair[1])
}

/// Returns the address at which to resume after a fault of the instruction at `address`. Returns `None` if faults of
/// that instruction can be resolved.
#[cold]
pub fn attempt_fixup(address: u64) -> Option<u64> {
    // SAFETY: the table is a constant of the image.
    let table = unsafe { &user_attempts };
    table
        .contains(&address)
        .then_some(user_word_failed as *const () as u64)
}

/// The receiver of the callbacks, set by [`set_events`]; null until then. A reference to a trait object does not fit in
/// an `AtomicPtr`, so this pointer points to the reference.
static EVENTS: AtomicPtr<&'static dyn KernelEvents> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the receiver of the callbacks. `slot` is never freed.
pub fn set_events(slot: &'static mut &'static dyn KernelEvents) {
    EVENTS.store(slot, Ordering::Release);
}

/// Returns the receiver of the callbacks, once it is set.
pub fn events() -> Option<&'static dyn KernelEvents> {
    let slot = EVENTS.load(Ordering::Acquire);
    // SAFETY: a non-null pointer is from `set_events`, whose argument is never changed or freed.
    unsafe { slot.as_ref() }.copied()
}

/// Calls the personality to make `address` accessible. Returns whether to retry the access.
pub fn resolve(address: u64, write: bool) -> bool {
    events().is_some_and(|events| events.user_fault(address, write))
}

/// Returns whether the `length` bytes at `address` are entirely in the user half.
fn is_user(address: u64, length: usize) -> bool {
    address
        .checked_add(length as u64)
        .is_some_and(|end| end <= USER_LIMIT)
}

/// The size in bytes below which a copy is not counted, because counting it would cost about as much as the copy.
const SMALL: usize = 256;
/// The number of bytes copied between two scheduling points.
const STRETCH: u64 = 64 << 10;

/// Adds a copy of `length` bytes to this CPU's count of copied bytes. Runs a scheduling point every `STRETCH` bytes,
/// because many copies together can take long. The scheduling point is permitted, because the caller of a copy never
/// holds a lock: every copy may have to wait for a page.
#[inline(always)]
fn count(length: usize) {
    if length < SMALL {
        return;
    }
    assert_may_sleep();
    let copied = &percpu::current().copied;
    percpu::add(copied, length as u64);
    if copied.load(Ordering::Relaxed) >= STRETCH {
        copied.store(0, Ordering::Relaxed);
        pause_point();
    }
}

fn outcome(address: u64, length: usize, left: u64) -> Result<(), UserFault> {
    count(length);
    if left == 0 {
        return Ok(());
    }
    let done = length - left as usize;
    Err(UserFault {
        address: address + done as u64,
        done,
    })
}

/// Copies from user memory.
///
/// # Errors
/// The first address that could not be read, and the number of bytes copied before it.
#[inline]
pub fn copy_from_user(to: &mut [u8], from: u64) -> Result<(), UserFault> {
    if !is_user(from, to.len()) {
        return Err(UserFault {
            address: from,
            done: 0,
        });
    }
    // SAFETY: `to` is a slice of kernel memory. The source is in the user half, where a fault is fixed up; no reference
    // to user memory exists.
    let left = unsafe { user_copy(to.as_mut_ptr() as u64, from, to.len() as u64) };
    outcome(from, to.len(), left)
}

/// Copies to user memory.
///
/// # Errors
/// The first address that could not be written, and the number of bytes copied before it.
#[inline]
pub fn copy_to_user(to: u64, from: &[u8]) -> Result<(), UserFault> {
    if !is_user(to, from.len()) {
        return Err(UserFault {
            address: to,
            done: 0,
        });
    }
    // SAFETY: the argument of `copy_from_user` applies, with source and target exchanged.
    let left = unsafe { user_copy(to, from.as_ptr() as u64, from.len() as u64) };
    outcome(to, from.len(), left)
}

/// Returns the direct-map address of the part of `frame` with `length` bytes at `offset`.
///
/// # Panics
/// If the part extends beyond the frame.
fn in_frame(frame: Frame, offset: usize, length: usize) -> u64 {
    assert!(length <= PAGE_SIZE && offset <= PAGE_SIZE - length);
    DIRECT_BASE + frame.address().as_u64() + offset as u64
}

/// Copies a part of a frame to user memory. The caller holds a reference to the frame.
///
/// # Errors
/// The first address that could not be written, and the number of bytes copied before it.
#[inline]
pub fn copy_frame_to_user(
    to: u64,
    frame: Frame,
    offset: usize,
    length: usize,
) -> Result<(), UserFault> {
    let from = in_frame(frame, offset, length);
    if !is_user(to, length) {
        return Err(UserFault {
            address: to,
            done: 0,
        });
    }
    // SAFETY: the source is in one frame of the direct map, and the target is in the user half, where a fault is fixed
    // up. Processes that map the frame may change it during the copy, because no Rust reference to it exists.
    let left = unsafe { user_copy(to, from, length as u64) };
    outcome(to, length, left)
}

/// Copies user memory into a part of a frame. The caller holds a reference to the frame.
///
/// # Errors
/// The first address that could not be read, and the number of bytes copied before it.
#[inline]
pub fn copy_frame_from_user(
    frame: Frame,
    offset: usize,
    length: usize,
    from: u64,
) -> Result<(), UserFault> {
    let to = in_frame(frame, offset, length);
    if !is_user(from, length) {
        return Err(UserFault {
            address: from,
            done: 0,
        });
    }
    // SAFETY: the argument of `copy_frame_to_user` applies, with source and target exchanged.
    let left = unsafe { user_copy(to, from, length as u64) };
    outcome(from, length, left)
}

/// Zeroes user memory.
///
/// # Errors
/// The first address that could not be written, and the number of bytes zeroed before it.
pub fn clear_user(to: u64, length: usize) -> Result<(), UserFault> {
    if !is_user(to, length) {
        return Err(UserFault {
            address: to,
            done: 0,
        });
    }
    let mut done = 0;
    while done < length {
        let (part, at) = ((length - done).min(STRETCH as usize), to + done as u64);
        // SAFETY: the range is in the user half, where a fault is fixed up.
        let left = unsafe { user_clear(at, part as u64) };
        outcome(at, part, left).map_err(|fault| UserFault {
            done: done + fault.done,
            ..fault
        })?;
        done += part;
    }
    Ok(())
}

fn word(address: u64, value: u64) -> Result<u32, UserFault> {
    u32::try_from(value).map_err(|_| UserFault { address, done: 0 })
}

/// Loads a word of user memory.
///
/// # Errors
/// The address could not be read.
pub fn user_load32(address: u64) -> Result<u32, UserFault> {
    if !is_user(address, 4) {
        return Err(UserFault { address, done: 0 });
    }
    // SAFETY: the word is in the user half, where a fault is fixed up.
    word(address, unsafe { user_load(address) })
}

/// Atomically replaces a word of user memory with `new` if it equals `old`. Returns the previous value.
///
/// # Errors
/// The address could not be written.
pub fn user_compare_exchange32(address: u64, old: u32, new: u32) -> Result<u32, UserFault> {
    if !is_user(address, 4) {
        return Err(UserFault { address, done: 0 });
    }
    // SAFETY: the word is in the user half, where a fault is fixed up.
    word(address, unsafe { user_exchange(address, old, new) })
}

/// Loads a word of user memory. Returns `None` on a fault; no attempt is made to make the page accessible.
pub fn user_peek32(address: u64) -> Option<u32> {
    if !is_user(address, 4) {
        return None;
    }
    // SAFETY: the word is in the user half, where a fault is fixed up.
    u32::try_from(unsafe { user_peek(address) }).ok()
}

/// Compares and exchanges like [`user_compare_exchange32`]. Returns `None` on a fault; no attempt is made to make the
/// page accessible.
pub fn user_try_exchange32(address: u64, old: u32, new: u32) -> Option<u32> {
    if !is_user(address, 4) {
        return None;
    }
    // SAFETY: the word is in the user half, where a fault is fixed up.
    u32::try_from(unsafe { user_try_exchange(address, old, new) }).ok()
}
