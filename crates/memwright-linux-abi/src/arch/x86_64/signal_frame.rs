//! The signal frame on the user stack (`struct rt_sigframe`).

use super::{
    regs::{USER_FLAGS, UserRegs},
    uapi::{UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS, USER_CS, USER_DS},
};
use crate::{
    abi::Plain,
    abi_struct,
    signal::{AlternateStack, SignalInfo},
};

abi_struct! {
    /// `struct sigcontext` of `asm/sigcontext.h`, 64-bit.
    pub struct SignalContext {
        /// R8 to R15.
        pub high: [u64; 8],
        /// RDI.
        pub rdi: u64,
        /// RSI.
        pub rsi: u64,
        /// RBP.
        pub rbp: u64,
        /// RBX.
        pub rbx: u64,
        /// RDX.
        pub rdx: u64,
        /// RAX.
        pub rax: u64,
        /// RCX.
        pub rcx: u64,
        /// RSP.
        pub rsp: u64,
        /// RIP.
        pub rip: u64,
        /// RFLAGS.
        pub rflags: u64,
        /// CS, GS, FS, SS.
        pub segments: [u16; 4],
        /// Error code of the last fault.
        pub error: u64,
        /// Vector of the last fault.
        pub vector: u64,
        /// First word of the thread's signal mask.
        pub old_mask: u64,
        /// Address of the last page fault.
        pub address: u64,
        /// Address of the extended state, or null.
        pub extended_state: u64,
        /// Reserved.
        pub reserved: [u64; 8],
    }
}

abi_struct! {
    /// Return address and `struct ucontext` of `asm/ucontext.h`; `siginfo_t` follows it.
    pub struct FrameHead {
        /// Return address of the handler: `sa_restorer`.
        pub restorer: u64,
        /// `uc_flags`.
        pub flags: u64,
        /// `uc_link`, null.
        pub link: u64,
        /// `uc_stack`.
        pub stack: AlternateStack,
        /// `uc_mcontext`.
        pub context: SignalContext,
        /// `uc_sigmask`.
        pub mask: u64,
    }
}

/// Size in bytes of the frame without the extended state.
pub const FRAME_SIZE: usize = FrameHead::SIZE + SignalInfo::SIZE;

/// Size in bytes of the red zone: the area below the stack pointer that leaf functions may use.
const RED_ZONE: u64 = 128;

/// The addresses of the parts of a signal frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FramePlace {
    /// The address of the frame, which is also the handler's stack pointer.
    pub frame: u64,
    /// The address of the extended state, aligned to 64 bytes.
    pub extended_state: u64,
}

/// Chooses the address of a signal frame: below the red zone of the interrupted stack, or at the top of the alternate
/// stack (`get_sigframe` of Linux 7.2, `arch/x86/kernel/signal.c`). Returns `None` if the frame does not fit on the
/// alternate stack.
pub fn place(
    stack_pointer: u64,
    alternate: Option<&AlternateStack>,
    extended_size: usize,
) -> Option<FramePlace> {
    let top = match alternate {
        Some(stack) => stack.base.wrapping_add(stack.size),
        None => stack_pointer.wrapping_sub(RED_ZONE),
    };
    let extended_state = top.wrapping_sub(extended_size as u64) & !63;
    // Align the handler's stack pointer as after a call instruction, which leaves it 8 bytes below a multiple of 16.
    let frame = (extended_state.wrapping_sub(FRAME_SIZE as u64) & !15).wrapping_sub(8);
    match alternate {
        Some(stack) if frame < stack.base || frame > stack.base.wrapping_add(stack.size) => None,
        _ => Some(FramePlace {
            frame,
            extended_state,
        }),
    }
}

/// The last exception of a thread in user mode, which signal frames report.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LastFault {
    /// Vector.
    pub vector: u64,
    /// Error code.
    pub error: u64,
    /// Address of the last page fault.
    pub address: u64,
}

/// Builds the head of a signal frame from the registers and the signal state of the interrupted thread.
pub fn compose(
    regs: &UserRegs,
    place: FramePlace,
    restorer: u64,
    stack: AlternateStack,
    mask: u64,
    fault: LastFault,
) -> FrameHead {
    FrameHead {
        restorer,
        flags: UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS,
        link: 0,
        stack,
        context: SignalContext {
            high: [
                regs.r8, regs.r9, regs.r10, regs.r11, regs.r12, regs.r13, regs.r14, regs.r15,
            ],
            rdi: regs.rdi,
            rsi: regs.rsi,
            rbp: regs.rbp,
            rbx: regs.rbx,
            rdx: regs.rdx,
            rax: regs.rax,
            rcx: regs.rcx,
            rsp: regs.rsp,
            rip: regs.rip,
            rflags: regs.rflags,
            segments: [USER_CS, 0, 0, USER_DS],
            error: fault.error,
            vector: fault.vector,
            old_mask: mask,
            address: fault.address,
            extended_state: place.extended_state,
            reserved: [0; 8],
        },
        mask,
    }
}

/// Returns the registers that `sigreturn` restores from the frame's `context`. The flags that user code must not change
/// are taken from `current`.
pub fn restore(context: &SignalContext, current: &UserRegs) -> UserRegs {
    let [r8, r9, r10, r11, r12, r13, r14, r15] = context.high;
    UserRegs {
        rax: context.rax,
        rbx: context.rbx,
        rcx: context.rcx,
        rdx: context.rdx,
        rsi: context.rsi,
        rdi: context.rdi,
        rbp: context.rbp,
        r8,
        r9,
        r10,
        r11,
        r12,
        r13,
        r14,
        r15,
        rip: context.rip,
        rflags: (current.rflags & !USER_FLAGS) | (context.rflags & USER_FLAGS),
        rsp: context.rsp,
        orig_rax: u64::MAX,
    }
}

/// Returns whether the processor can return to user mode with the selectors in the frame after their privilege level is
/// forced to 3. The code selector must be the one of 64-bit code, because 32-bit code is not supported. SS must be the
/// data segment if the frame has `UC_STRICT_RESTORE_SS` (Linux 7.3 `arch/x86/kernel/signal_64.c`,
/// `restore_sigcontext`).
pub fn selectors_return(head: &FrameHead) -> bool {
    const USER: u16 = 3;
    let [code, _, _, stack] = head.context.segments;
    let strict = head.flags & UC_STRICT_RESTORE_SS != 0;
    code | USER == USER_CS && (!strict || stack | USER == USER_DS)
}

/// The flags that are cleared when a handler starts: DF, RF and TF.
pub const HANDLER_CLEARED_FLAGS: u64 = 0x400 | 0x1_0000 | 0x100;

/// Offset of `struct ucontext` in the frame.
pub const UCONTEXT_OFFSET: u64 = 8;
/// Offset of `siginfo_t` in the frame.
pub const SIGINFO_OFFSET: u64 = FrameHead::SIZE as u64;

#[cfg(test)]
mod tests {
    use super::{
        FRAME_SIZE, FrameHead, FramePlace, LastFault, SignalContext, compose, place, restore,
        selectors_return,
    };
    use crate::{abi::Plain, arch::x86_64::regs::UserRegs, signal::AlternateStack};

    #[test]
    fn sizes_are_those_of_the_interface() {
        assert_eq!(SignalContext::SIZE, 256);
        assert_eq!(FrameHead::SIZE, 8 + 304);
        assert_eq!(FRAME_SIZE, 440);
    }

    #[test]
    fn frames_are_aligned_and_leave_the_red_zone() {
        let on_stack = place(0x7fff_ffff_e123, None, 836).expect("always fits");
        assert_eq!(on_stack.extended_state % 64, 0);
        assert!(on_stack.extended_state + 836 <= 0x7fff_ffff_e123 - 128);
        assert_eq!(on_stack.frame % 16, 8);
        assert!(on_stack.frame + FRAME_SIZE as u64 <= on_stack.extended_state);
    }

    #[test]
    fn a_small_alternate_stack_is_refused() {
        let mut stack = AlternateStack {
            base: 0x10_000,
            flags: 0,
            padding: 0,
            size: 0x1000,
        };
        assert!(place(1, Some(&stack), 836).is_some());
        stack.size = 1024;
        assert_eq!(place(1, Some(&stack), 836), None);
    }

    #[test]
    fn selectors_of_the_kernel_do_not_return() {
        let place = FramePlace {
            frame: 0,
            extended_state: 64,
        };
        let (regs, stack) = (UserRegs::default(), AlternateStack::default());
        for (code, data, flags, expected) in [
            (0x33, 0x2b, 7, true),
            (0x30, 0x28, 7, true),
            (0x10, 0x2b, 7, false),
            (0, 0x2b, 7, false),
            (0x33, 0x18, 7, false),
            (0x33, 0, 7, false),
            (0x33, 0, 3, true),
        ] {
            let mut head = compose(&regs, place, 0, stack, 0, LastFault::default());
            head.context.segments = [code, 0, 0, data];
            head.flags = flags;
            assert_eq!(selectors_return(&head), expected, "{code:#x} {data:#x}");
        }
    }

    #[test]
    fn registers_come_back_and_flags_are_filtered() {
        let regs = UserRegs {
            rax: 1,
            r15: 15,
            rip: 0x1000,
            rsp: 0x2000,
            rflags: 0x246,
            orig_rax: u64::MAX,
            ..UserRegs::default()
        };
        let where_to = FramePlace {
            frame: 0,
            extended_state: 64,
        };
        let stack = AlternateStack::default();
        let mut head = compose(&regs, where_to, 0, stack, 5, LastFault::default());
        assert_eq!(restore(&head.context, &regs), regs);
        // Set IOPL and clear IF, which user code must not change.
        head.context.rflags = 0x3001;
        assert_eq!(restore(&head.context, &regs).rflags, 0x203);
        let mut bytes = [0; FrameHead::SIZE];
        head.to_bytes(&mut bytes);
        // uc_sigmask is the last field of the head.
        assert_eq!(bytes[304..312], [5, 0, 0, 0, 0, 0, 0, 0]);
    }
}
