//! Constants of the x86-64 interface that `linux-raw-sys` lacks, each with the header that defines it.

/// `asm/ucontext.h`, `uc_flags`: the frame contains the extended state.
pub const UC_FP_XSTATE: u64 = 1;
/// `asm/ucontext.h`, `uc_flags`: the frame contains SS.
pub const UC_SIGCONTEXT_SS: u64 = 2;
/// `asm/ucontext.h`, `uc_flags`: `sigreturn` restores SS from the frame and does not repair an invalid value.
pub const UC_STRICT_RESTORE_SS: u64 = 4;
/// `asm/sigcontext.h`: first magic, in the software bytes of the legacy region.
pub const FP_XSTATE_MAGIC1: u32 = 0x4650_5853;
/// `asm/sigcontext.h`: second magic, after the extended state.
pub const FP_XSTATE_MAGIC2: u32 = 0x4650_5845;
/// `asm/sigcontext.h`: size of the second magic in bytes.
pub const FP_XSTATE_MAGIC2_SIZE: usize = 4;
/// `asm/sigcontext.h`: offset of `struct _fpx_sw_bytes` in the legacy region.
pub const FP_SOFTWARE_BYTES: usize = 464;
/// `asm/segment.h`: user code segment selector.
pub const USER_CS: u16 = 0x33;
/// `asm/segment.h`: user data segment selector.
pub const USER_DS: u16 = 0x2b;
/// `asm/prctl.h`.
pub const ARCH_SET_GS: u64 = 0x1001;
/// `asm/prctl.h`.
pub const ARCH_SET_FS: u64 = 0x1002;
/// `asm/prctl.h`.
pub const ARCH_GET_FS: u64 = 0x1003;
/// `asm/prctl.h`.
pub const ARCH_GET_GS: u64 = 0x1004;
