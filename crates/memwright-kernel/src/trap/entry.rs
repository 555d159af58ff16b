//! The entries to and exits from user mode, and the entries of interrupts and exceptions.
//!
//! The entries from user mode store the registers directly in the thread's `UserState`, and continue on the stack whose
//! pointer `enter_user` left in the per-CPU data. A trap returns to the caller of `enter_user`. For a system call, the
//! entry directly calls the function `serve` that was passed to `enter_user`. User mode then continues, unless `serve`
//! makes `enter_user` return. If user mode continues, only RAX has changed, so callee-saved registers are not loaded
//! again. The kernel runs with interrupts disabled, GS pointing to the per-CPU data, and AC clear. User-mode time is
//! the difference between the counter readings on entry to user mode and on exit from it.
//!
//! A shootdown interrupt in user mode saves only the registers that a function call may change.
//!
//! Double faults, NMIs, machine checks and debug exceptions can occur while the user's GS base is loaded. They run on
//! separate stacks, whose lowest word contains the address of the CPU's data.

use core::arch::global_asm;
use core::mem::offset_of;

use memwright_linux_abi::arch::x86_64::regs::UserState;

use crate::arch::{self, msr, vector};
use crate::percpu::{INTERRUPT_STACK_SIZE, KERNEL_CODE, PerCpu, USER_CODE, USER_DATA};

/// The vector that [`enter_user`] returns for a system call.
pub const SYSTEM_CALL: u64 = 256;
/// The vector that `enter_user` returns, instead of entering user mode, once the counter has reached
/// [`PerCpu::look_at`].
pub const LOOK: u64 = 257;

/// The flags with which SYSRET can return to user mode: the user's arithmetic flags, DF, AC, ID, IF and the flag that
/// is always one. If any other flag is set (including TF and RF), the kernel uses IRET.
const FAST_FLAGS: u32 = 0x24_0ed7;
/// Flags that user mode may have: [`FAST_FLAGS`], TF and RF.
const USER_FLAGS: u32 = FAST_FLAGS | 0x1_0100;
/// The flags that are always set in user mode: interrupts enabled, and the flag that is always one.
const FORCED_FLAGS: u32 = 0x202;

/// The number of instructions from the counter reading to SYSRET, both included. They count as the kernel's
/// instructions.
const EXIT_FAST: u64 = 31;
/// The number of instructions from the counter reading to SYSRET after a system call that changed only RAX.
const EXIT_CALL: u64 = 19;
/// The additional instructions of every path that ends with IRET instead of SYSRET.
const EXIT_MORE: u64 = 2;
/// The additional instructions for each comparison after the first one on a path to IRET: the comparison, its jump, and
/// the instruction that adds these to the count.
const EXIT_COMPARED: u64 = 3;
/// The additional instructions if the IRET ends an interrupt.
const EXIT_INTERRUPT: u64 = 11;
/// The number of instructions from the entry point of SYSCALL to the counter reading. They also count as the kernel's
/// instructions.
const ENTRY_CALL: u64 = 25;
/// The number of instructions from the stub of a page fault to the counter reading. Other vectors execute more
/// instructions: see `memwright_kernel_logic::retired`.
const ENTRY_TRAP: u64 = 38;
/// The number of instructions from the stub of a shootdown interrupt to the counter reading.
const ENTRY_INVALIDATE: u64 = 18;
/// The number of instructions from the counter reading to the IRET of a shootdown interrupt.
const EXIT_INVALIDATE: u64 = 15;

/// The reason why user mode ended.
#[repr(C)]
pub struct Left {
    /// The vector, or [`SYSTEM_CALL`].
    pub vector: u64,
    /// The error code; zero if the processor pushes none.
    pub error: u64,
}

unsafe extern "C" {
    /// Enters user mode with the registers of `state`. Returns at the next trap that is not a system call, or after a
    /// system call for which `serve` returned false. `serve` is called with `argument`; if it returns true, it has
    /// changed only RAX. Once the counter has reached [`PerCpu::look_at`], the function returns `LOOK` without entering
    /// user mode.
    ///
    /// # Safety
    /// The current table maps the kernel like the template. Only `serve` accesses `state` until the function returns.
    /// `argument` has the type that `serve` expects.
    pub fn enter_user(state: *mut UserState, serve: *const (), argument: *const ()) -> Left;

    /// Entry point of SYSCALL.
    pub fn system_call_entry();
}

global_asm!(
    r#"
    .text
    .balign 64
    .globl enter_user
enter_user:
    push rbp
    push rbx
    push r12
    push r13
    push r14
    push r15
    push rdx                        // the argument of `serve`
    push rsi                        // `serve`
    push rdi                        // the state; the stack is aligned for a call
    jmp to_user

    .balign 64
    .globl system_call_entry
system_call_entry:
    swapgs
    mov gs:[{cpu_scratch}], rdi
    mov rdi, gs:[{cpu_state}]
    mov [rdi + {rsp}], rsp
    mov rsp, gs:[{cpu_stack}]
    mov [rdi + {rax}], rax
    mov [rdi + {orig_rax}], rax
    mov [rdi + {rsi}], rsi
    mov rax, gs:[{cpu_scratch}]
    mov [rdi + {rdi}], rax
    mov [rdi + {rip}], rcx
    mov [rdi + {flags}], r11
    mov [rdi + {rcx}], rcx
    mov [rdi + {r11}], r11
    mov [rdi + {rbx}], rbx
    mov [rdi + {rbp}], rbp
    mov [rdi + {rdx}], rdx
    mov [rdi + {r8}], r8
    mov [rdi + {r9}], r9
    mov [rdi + {r10}], r10
    mov [rdi + {r12}], r12
    mov [rdi + {r13}], r13
    mov [rdi + {r14}], r14
    mov [rdi + {r15}], r15
    rdtsc
    shl rdx, 32
    lea rax, [rax + rdx - {entry_call}]
    mov rcx, gs:[{cpu_changed}]
    mov gs:[{cpu_changed}], rax
    sub rax, rcx
    add gs:[{cpu_user}], rax
    mov rdi, [rsp + 16]
    call [rsp + 8]
    test al, al
    jz 6f
    mov rdi, [rsp]
    rdtsc
    shl rdx, 32
    lea rax, [rax + rdx + {exit_call}]
    cmp rax, gs:[{cpu_look_at}]
    ja 6f
    mov gs:[{cpu_changed}], rax
    mov rcx, [rdi + {rip}]          // canonical: the last page of user addresses is never mapped
    mov r11, [rdi + {flags}]        // as SYSCALL saved them: interrupts are enabled
    test r11d, {not_fast}
    jnz to_user
    mov rdx, [rdi + {rdx}]
    mov r8, [rdi + {r8}]
    mov r9, [rdi + {r9}]
    mov r10, [rdi + {r10}]
    mov rsi, [rdi + {rsi}]
    mov rax, [rdi + {rax}]
    mov rsp, [rdi + {rsp}]
    swapgs
    mov rdi, [rdi + {rdi}]
    sysretq

to_user:
    mov gs:[{cpu_state}], rdi
    mov gs:[{cpu_stack}], rsp
    mov rsi, [rdi + {rip}]
    mov rax, rsi
    shr rax, 47
    jnz 3f                          // not a user address: report the fault here, not at IRET
    rdtsc
    shl rdx, 32
    lea rax, [rax + rdx + {exit_fast}]
    cmp rax, gs:[{cpu_look_at}]
    ja 7f
    mov gs:[{cpu_changed}], rax
    mov rcx, [rdi + {rcx}]
    mov r11, [rdi + {r11}]
    mov rbx, [rdi + {rbx}]
    mov rbp, [rdi + {rbp}]
    mov rdx, [rdi + {rdx}]
    mov r8, [rdi + {r8}]
    mov r9, [rdi + {r9}]
    mov r10, [rdi + {r10}]
    mov r12, [rdi + {r12}]
    mov r13, [rdi + {r13}]
    mov r14, [rdi + {r14}]
    mov r15, [rdi + {r15}]
    mov rax, [rdi + {flags}]
    cmp rcx, rsi
    jne 2f
    cmp r11, rax
    jne 4f
    test eax, {not_fast}
    jnz 5f
    or r11d, {forced}
    swapgs
    mov rax, [rdi + {rax}]
    mov rsi, [rdi + {rsi}]
    mov rsp, [rdi + {rsp}]
    mov rdi, [rdi + {rdi}]
    sysretq
5:
    add qword ptr gs:[{cpu_changed}], {exit_compared}
4:
    add qword ptr gs:[{cpu_changed}], {exit_compared}
2:
    add qword ptr gs:[{cpu_changed}], {exit_more}
to_user_slow:
    and eax, {user_flags}
    or eax, {forced}
    push {user_data}
    push [rdi + {rsp}]
    push rax
    push {user_code}
    push rsi
    swapgs
    mov rax, [rdi + {rax}]
    mov rsi, [rdi + {rsi}]
    mov rdi, [rdi + {rdi}]
    iretq
3:
    mov qword ptr [rdi + {orig_rax}], -1
    mov eax, 13                     // a general protection fault, error code 0
    xor edx, edx
leave_user:
    add rsp, 24
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret
6:
    mov eax, {system_call}
    xor edx, edx
    jmp leave_user
7:
    mov rcx, gs:[{cpu_interrupted}]
    test rcx, rcx
    jz 8f
    cmp rax, gs:[{cpu_look_after}]
    ja 8f
    add rax, {exit_interrupt}       // end of an interrupt: count its instructions up to the IRET
    mov gs:[{cpu_changed}], rax
    sub rax, rcx
    add gs:[{cpu_interrupts}], rax
    mov qword ptr gs:[{cpu_interrupted}], 0
    mov rax, gs:[{cpu_look_after}]
    mov gs:[{cpu_look_at}], rax
    mov rcx, [rdi + {rcx}]
    mov r11, [rdi + {r11}]
    mov rbx, [rdi + {rbx}]
    mov rbp, [rdi + {rbp}]
    mov rdx, [rdi + {rdx}]
    mov r8, [rdi + {r8}]
    mov r9, [rdi + {r9}]
    mov r10, [rdi + {r10}]
    mov r12, [rdi + {r12}]
    mov r13, [rdi + {r13}]
    mov r14, [rdi + {r14}]
    mov r15, [rdi + {r15}]
    mov rax, [rdi + {flags}]
    jmp to_user_slow
8:
    mov eax, {look}
    xor edx, edx
    jmp leave_user

trap_from_user:
    swapgs
    push rdi
    mov rdi, gs:[{cpu_state}]
    mov [rdi + {rax}], rax
    mov [rdi + {rsi}], rsi
    pop rax
    mov [rdi + {rdi}], rax
    mov rsi, [rsp]                  // vector
    mov rax, [rsp + 16]
    mov [rdi + {rip}], rax
    mov rax, [rsp + 32]
    and eax, gs:[{cpu_kept_flags}]
    mov [rdi + {flags}], rax
    mov rax, [rsp + 40]
    mov [rdi + {rsp}], rax
    mov rax, [rsp + 8]              // error code
    mov qword ptr [rdi + {orig_rax}], -1
    mov rsp, gs:[{cpu_stack}]
    mov [rdi + {rcx}], rcx
    mov [rdi + {r11}], r11
    mov [rdi + {rbx}], rbx
    mov [rdi + {rbp}], rbp
    mov [rdi + {rdx}], rdx
    mov [rdi + {r8}], r8
    mov [rdi + {r9}], r9
    mov [rdi + {r10}], r10
    mov [rdi + {r12}], r12
    mov [rdi + {r13}], r13
    mov [rdi + {r14}], r14
    mov [rdi + {r15}], r15
    mov r8, rax
    rdtsc
    shl rdx, 32
    lea rax, [rax + rdx - {entry_trap}]
    mov rcx, gs:[{cpu_changed}]
    mov gs:[{cpu_changed}], rax
    sub rax, rcx
    add gs:[{cpu_user}], rax
    mov rax, rsi
    mov rdx, r8
    add rsp, 24
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbx
    pop rbp
    ret

    // One stub per vector. After a stub, the stack holds, from the lowest address up, the vector, the error code, and
    // what the processor pushed.
    .balign 64
    .globl trap_stubs
trap_stubs:
    .set trap_vector, 0
    .rept 256
    .balign 16
    .if (trap_vector != 8) && (trap_vector != 10) && (trap_vector != 11) && (trap_vector != 12) && (trap_vector != 13) && (trap_vector != 14) && (trap_vector != 17) && (trap_vector != 21) && (trap_vector != 29) && (trap_vector != 30)
    push 0
    .endif
    .if trap_vector < 128
    push trap_vector
    .else
    .byte 0x68
    .long trap_vector
    .endif
    .if (trap_vector == 1) || (trap_vector == 2) || (trap_vector == 8) || (trap_vector == 18)
    jmp trap_any
    .elseif trap_vector == {invalidate}
    jmp trap_invalidate
    .else
    jmp trap
    .endif
    .set trap_vector, trap_vector + 1
    .endr

    .balign 64
trap:
    cld
    clac
    test byte ptr [rsp + 24], 3
    jnz trap_from_user
    call trap_save
    mov rdi, rsp
    call kernel_trap
    jmp trap_return

    // Another CPU requests a TLB invalidation. User mode continues at once, so only the registers that a call may
    // change are saved, on the entry stack.
trap_invalidate:
    test byte ptr [rsp + 24], 3
    jz trap
    cld
    clac
    swapgs
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    rdtsc
    shl rdx, 32
    lea rax, [rax + rdx - {entry_invalidate}]
    mov rcx, gs:[{cpu_changed}]
    mov gs:[{cpu_changed}], rax
    sub rax, rcx
    add gs:[{cpu_user}], rax
    mov gs:[{cpu_scratch}], rsp
    mov rsp, gs:[{cpu_stack}]
    call kernel_invalidate
    mov rsp, gs:[{cpu_scratch}]
    rdtsc
    shl rdx, 32
    lea rax, [rax + rdx + {exit_invalidate}]
    mov gs:[{cpu_changed}], rax
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
    swapgs
    add rsp, 16                     // vector and error code
    iretq

    // The entry of exceptions that can occur while GS is the user's.
trap_any:
    cld
    clac
    test byte ptr [rsp + 24], 3
    jz 5f
    cmp dword ptr [rsp], 1
    je trap_from_user
5:
    cmp dword ptr [rsp], 1
    jne 6f
    push rax
    lea rax, [rip + trap_stubs + 16]
    cmp [rsp + 24], rax
    pop rax
    je 7f
6:
    call trap_save
    rdgsbase rbx
    mov rax, rsp
    and rax, -{stack_size}
    mov rax, [rax]
    wrgsbase rax
    mov rdi, rsp
    call kernel_trap
    wrgsbase rbx
    jmp trap_return
    // A debug exception at the first instruction of its own stub. QEMU raises this second exception after an
    // instruction that is single-stepped and also accesses watched data. The second exception has overwritten the
    // instruction address, the flags and the stack pointer that the first one saved, so the thread gets a trap without
    // them. The other registers still have the user's values.
7:
    mov qword ptr [rsp + 16], 0
    mov qword ptr [rsp + 24], {user_code}
    mov qword ptr [rsp + 32], {forced}
    mov qword ptr [rsp + 40], 0
    jmp trap_from_user

trap_return:
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rbp
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rbx
    pop rax
    add rsp, 16                     // vector and error code
    iretq

    // Pushes the rest of a `TrapFrame`, below the return address of this routine.
trap_save:
    push rbx
    mov rbx, [rsp + 8]              // where to return
    mov [rsp + 8], rax
    push rcx
    push rdx
    push rsi
    push rdi
    push rbp
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    jmp rbx
"#,
    cpu_state = const offset_of!(PerCpu, user_state),
    cpu_stack = const offset_of!(PerCpu, kernel_stack),
    cpu_scratch = const offset_of!(PerCpu, scratch),
    cpu_changed = const offset_of!(PerCpu, changed),
    cpu_user = const offset_of!(PerCpu, user_ticks),
    cpu_kept_flags = const offset_of!(PerCpu, debug.kept_flags),
    rax = const offset_of!(UserState, regs.rax),
    rbx = const offset_of!(UserState, regs.rbx),
    rcx = const offset_of!(UserState, regs.rcx),
    rdx = const offset_of!(UserState, regs.rdx),
    rsi = const offset_of!(UserState, regs.rsi),
    rdi = const offset_of!(UserState, regs.rdi),
    rbp = const offset_of!(UserState, regs.rbp),
    r8 = const offset_of!(UserState, regs.r8),
    r9 = const offset_of!(UserState, regs.r9),
    r10 = const offset_of!(UserState, regs.r10),
    r11 = const offset_of!(UserState, regs.r11),
    r12 = const offset_of!(UserState, regs.r12),
    r13 = const offset_of!(UserState, regs.r13),
    r14 = const offset_of!(UserState, regs.r14),
    r15 = const offset_of!(UserState, regs.r15),
    rip = const offset_of!(UserState, regs.rip),
    flags = const offset_of!(UserState, regs.rflags),
    rsp = const offset_of!(UserState, regs.rsp),
    orig_rax = const offset_of!(UserState, regs.orig_rax),
    not_fast = const !FAST_FLAGS,
    user_flags = const USER_FLAGS,
    forced = const FORCED_FLAGS,
    user_data = const USER_DATA,
    user_code = const USER_CODE,
    system_call = const SYSTEM_CALL,
    exit_fast = const EXIT_FAST,
    exit_call = const EXIT_CALL,
    exit_more = const EXIT_MORE,
    exit_compared = const EXIT_COMPARED,
    exit_interrupt = const EXIT_INTERRUPT,
    cpu_look_at = const offset_of!(PerCpu, look_at),
    cpu_look_after = const offset_of!(PerCpu, look_after),
    cpu_interrupted = const offset_of!(PerCpu, interrupted),
    cpu_interrupts = const offset_of!(PerCpu, interrupt_ticks),
    look = const LOOK,
    entry_call = const ENTRY_CALL,
    entry_invalidate = const ENTRY_INVALIDATE,
    exit_invalidate = const EXIT_INVALIDATE,
    invalidate = const vector::INVALIDATE,
    entry_trap = const ENTRY_TRAP,
    stack_size = const INTERRUPT_STACK_SIZE,
);

/// Sets the registers that SYSCALL and SYSRET use on this CPU.
pub fn setup() {
    // SAFETY: EFER has enabled system calls since boot. The selectors are those of `percpu` (SYSRET adds 16 and 8 to
    // its base), and the entry point is in this module. SYSCALL clears TF, IF, DF, IOPL, NT and AC, as the kernel
    // requires.
    unsafe {
        let kernel = u64::from(KERNEL_CODE) << 32;
        let user = u64::from(USER_DATA - 8) << 48;
        arch::write_msr(msr::STAR, user | kernel);
        arch::write_msr(msr::LSTAR, system_call_entry as *const () as u64);
        arch::write_msr(msr::FMASK, 0x4_7700);
    }
}
