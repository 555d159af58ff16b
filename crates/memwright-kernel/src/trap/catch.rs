//! Runs a function that is expected to raise an exception, and continues after it.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::trap::frame::TrapFrame;

global_asm!(
    r#"
    // u64 selftest_guarded(function, argument, save: *mut u64): returns 0 if the function returned
    .globl selftest_guarded
selftest_guarded:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    push rdx
    mov [rdx], rsp
    mov rax, rdi
    mov rdi, rsi
    call rax
    xor eax, eax
    .globl selftest_landing
selftest_landing:
    pop rdx
    mov qword ptr [rdx], 0
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
"#
);

unsafe extern "C" {
    fn selftest_guarded(function: extern "C" fn(u64), argument: u64, save: *mut u64) -> u64;
    fn selftest_landing();
}

/// The stack pointer with which a test continues after an exception; 0 while no exception is expected.
static STACK: AtomicU64 = AtomicU64::new(0);
static VECTOR: AtomicU64 = AtomicU64::new(0);
static ERROR: AtomicU64 = AtomicU64::new(0);
static ADDRESS: AtomicU64 = AtomicU64::new(0);

/// An exception that a test provoked.
pub struct Caught {
    /// The vector.
    pub vector: u64,
    /// The error code.
    pub error: u64,
    /// The value of CR2.
    pub address: u64,
}

/// Calls `function` and returns the exception that it raised, if any. An exception ends the function without dropping
/// the values that it owns, so the function must own none.
pub fn catch(function: extern "C" fn(u64), argument: u64) -> Option<Caught> {
    // SAFETY: only the self-tests call `catch`, and their functions own no values. The code that continues after an
    // exception restores the callee-saved registers.
    let met = unsafe { selftest_guarded(function, argument, STACK.as_ptr()) };
    (met != 0).then(|| Caught {
        vector: VECTOR.load(Ordering::Relaxed),
        error: ERROR.load(Ordering::Relaxed),
        address: ADDRESS.load(Ordering::Relaxed),
    })
}

/// Makes a test continue after an exception that it expects. Returns whether the exception was expected.
pub fn caught(frame: &mut TrapFrame, address: u64) -> bool {
    let stack = STACK.load(Ordering::Relaxed);
    if stack == 0 {
        return false;
    }
    VECTOR.store(frame.vector, Ordering::Relaxed);
    ERROR.store(frame.error, Ordering::Relaxed);
    ADDRESS.store(address, Ordering::Relaxed);
    frame.rip = selftest_landing as *const () as u64;
    frame.rsp = stack;
    frame.rax = 1;
    true
}
