//! The registers of user mode.

use crate::arch::x86_64::{
    debug::DebugRegisters,
    regs::{FpuArea, UserRegs, UserState},
};

/// The registers of user mode that stay in the processor while the kernel runs.
pub trait Registers: Sync {
    /// Loads the FS and GS bases of user mode from `user`, where they must be canonical. The bases belong to the
    /// running thread: `switch_context` saves and restores them.
    fn load_bases(&self, user: &UserState);

    /// Stores the FS and GS bases of user mode in `user`.
    fn store_bases(&self, user: &mut UserState);

    /// Stores the extended state of the processor in `area`.
    fn save_fpu(&self, area: &mut FpuArea);

    /// Loads the extended state of the processor from `area`, which `save_fpu` wrote or
    /// [`xstate::sanitize`](crate::arch::x86_64::xstate::sanitize) checked.
    fn restore_fpu(&self, area: &FpuArea);

    /// Returns the number of bytes of an [`FpuArea`] that the processor uses, which is the size of the standard XSAVE
    /// format for the enabled features.
    fn fpu_size(&self) -> usize;

    /// Returns the features enabled in XCR0.
    fn fpu_features(&self) -> u64;

    /// Sets the protection-key rights (PKRU) of the running thread, if [`fpu_features`](Self::fpu_features) includes
    /// protection keys.
    fn set_key_rights(&self, rights: u32);

    /// Returns the registers with which the running thread last left user mode; `None` if it has not been in user mode
    /// yet. If it left by a system call, these are the registers after the SYSCALL instruction.
    fn entered_with(&self) -> Option<UserRegs>;

    /// Loads `registers` into the debug registers of this CPU, unless this CPU has loaded the same values last. The
    /// values stay loaded until the next call of this function, even while other threads run.
    fn load_debug(&self, registers: &DebugRegisters);
}
