//! The registers of user mode and the area for the extended state.

/// The general registers of a thread in user mode. The fields have the names of `struct user_regs_struct`.
///
/// There are no fields for the code and stack segments, because user mode always executes 64-bit code, so these
/// segments are constant.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct UserRegs {
    /// RAX: system-call number on entry, result on return.
    pub rax: u64,
    /// RBX.
    pub rbx: u64,
    /// RCX.
    pub rcx: u64,
    /// RDX: third argument.
    pub rdx: u64,
    /// RSI: second argument.
    pub rsi: u64,
    /// RDI: first argument.
    pub rdi: u64,
    /// RBP.
    pub rbp: u64,
    /// R8: fifth argument.
    pub r8: u64,
    /// R9: sixth argument.
    pub r9: u64,
    /// R10: fourth argument.
    pub r10: u64,
    /// R11.
    pub r11: u64,
    /// R12.
    pub r12: u64,
    /// R13.
    pub r13: u64,
    /// R14.
    pub r14: u64,
    /// R15.
    pub r15: u64,
    /// Instruction pointer.
    pub rip: u64,
    /// Flags.
    pub rflags: u64,
    /// Stack pointer.
    pub rsp: u64,
    /// RAX on entry to a system call; `u64::MAX` outside system calls.
    pub orig_rax: u64,
}

/// The registers of a thread in user mode. The host loads and stores the general registers at each entry to and exit
/// from user mode. The FS and GS bases and the extended state (x87, SSE, AVX) stay in the processor while the thread
/// runs; a context switch saves and restores them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(C)]
pub struct UserState {
    /// General registers.
    pub regs: UserRegs,
    /// FS base (thread pointer), as last stored by [`store_bases`](crate::host::Registers::store_bases).
    pub fs_base: u64,
    /// GS base of user mode, as last stored by [`store_bases`](crate::host::Registers::store_bases).
    pub gs_base: u64,
}

/// The flags with which a new program starts: interrupts enabled, and the bit that is always one.
pub const INITIAL_FLAGS: u64 = 0x202;

/// TF: the processor traps after each instruction.
pub const TRAP_FLAG: u64 = 0x100;

/// RF: the next instruction raises no exception for a breakpoint at its address.
pub const RESUME_FLAG: u64 = 0x1_0000;

/// Flags that user code may set (`FIX_EFLAGS` of Linux 7.2, `arch/x86/include/asm/sighandling.h`): AC, OF, DF, TF, SF,
/// ZF, AF, PF, CF and RF.
pub const USER_FLAGS: u64 = 0x5_0dd5;

impl UserState {
    /// Returns the state in which a program starts: all zero except the instruction pointer, the stack pointer, the
    /// flags and `orig_rax`.
    pub fn start(entry: u64, stack: u64) -> Self {
        Self {
            regs: UserRegs {
                rip: entry,
                rsp: stack,
                rflags: INITIAL_FLAGS,
                orig_rax: u64::MAX,
                ..UserRegs::default()
            },
            fs_base: 0,
            gs_base: 0,
        }
    }
}

/// The extended state of one thread in the standard (non-compacted) XSAVE format.
///
/// The host uses the first `fpu_size` bytes of it.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub struct FpuArea {
    /// The legacy region, the header and the extended components.
    pub bytes: [u8; Self::SIZE],
}

impl FpuArea {
    /// Size in bytes: enough for x87, SSE, AVX, AVX-512 and protection keys.
    pub const SIZE: usize = 2752;
    /// Offset of the XSAVE header (its first word is XSTATE_BV).
    pub const HEADER: usize = 512;
    /// The initial state. XSTATE_BV is zero, so XRSTOR initialises every component. The control words also have their
    /// initial values, for code that reads the legacy region.
    pub const INITIAL: Self = Self {
        bytes: {
            let mut bytes = [0; Self::SIZE];
            // FCW = 0x037f, MXCSR = 0x1f80.
            bytes[0] = 0x7f;
            bytes[1] = 0x03;
            bytes[24] = 0x80;
            bytes[25] = 0x1f;
            bytes
        },
    };
}
