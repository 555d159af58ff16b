//! The registers of a thread, as a tracer reads and writes them (Linux 7.2 `arch/x86/kernel/ptrace.c` and
//! `arch/x86/kernel/fpu/regset.c`).

use memwright_linux_abi::{
    abi::Plain,
    abi_struct,
    arch::x86_64::{
        regs::{FpuArea, TRAP_FLAG, USER_FLAGS, UserRegs, UserState},
        uapi::{FP_SOFTWARE_BYTES, USER_CS, USER_DS},
        xstate,
    },
    errno::Errno,
    host::{Cpus, Registers},
};
use memwright_linux_vfs::user::USER_END;

abi_struct! {
    /// `struct user_regs_struct` of `asm/user_64.h`.
    pub struct UserRegisters {
        /// R15.
        pub r15: u64,
        /// R14.
        pub r14: u64,
        /// R13.
        pub r13: u64,
        /// R12.
        pub r12: u64,
        /// RBP.
        pub rbp: u64,
        /// RBX.
        pub rbx: u64,
        /// R11.
        pub r11: u64,
        /// R10.
        pub r10: u64,
        /// R9.
        pub r9: u64,
        /// R8.
        pub r8: u64,
        /// RAX.
        pub rax: u64,
        /// RCX.
        pub rcx: u64,
        /// RDX.
        pub rdx: u64,
        /// RSI.
        pub rsi: u64,
        /// RDI.
        pub rdi: u64,
        /// The number of the system call that the thread has entered; all ones outside a system call.
        pub orig_rax: u64,
        /// RIP.
        pub rip: u64,
        /// CS.
        pub cs: u64,
        /// RFLAGS.
        pub rflags: u64,
        /// RSP.
        pub rsp: u64,
        /// SS.
        pub ss: u64,
        /// FS base.
        pub fs_base: u64,
        /// GS base.
        pub gs_base: u64,
        /// DS, ES, FS and GS: zero for 64-bit programs.
        pub segments: [u64; 4],
    }
}

/// Returns the registers of a thread in a ptrace stop.
pub(crate) fn general(state: &UserState) -> UserRegisters {
    let regs = &state.regs;
    UserRegisters {
        r15: regs.r15,
        r14: regs.r14,
        r13: regs.r13,
        r12: regs.r12,
        rbp: regs.rbp,
        rbx: regs.rbx,
        r11: regs.r11,
        r10: regs.r10,
        r9: regs.r9,
        r8: regs.r8,
        rax: regs.rax,
        rcx: regs.rcx,
        rdx: regs.rdx,
        rsi: regs.rsi,
        rdi: regs.rdi,
        orig_rax: regs.orig_rax,
        rip: regs.rip,
        cs: USER_CS.into(),
        rflags: regs.rflags,
        rsp: regs.rsp,
        ss: USER_DS.into(),
        fs_base: state.fs_base,
        gs_base: state.gs_base,
        segments: [0; 4],
    }
}

/// Flags that a tracer may change: the flags that user code may set, and the trap flag.
const TRACER_FLAGS: u64 = USER_FLAGS | TRAP_FLAG;

/// Replaces the registers of a thread in a ptrace stop.
///
/// # Errors
/// `EIO` for segments other than those of 64-bit programs and for FS or GS bases outside user memory.
pub(crate) fn set_general(state: &mut UserState, wanted: &UserRegisters) -> Result<(), Errno> {
    let segments =
        wanted.cs == USER_CS.into() && wanted.ss == USER_DS.into() && wanted.segments == [0; 4];
    if !segments || wanted.fs_base >= USER_END || wanted.gs_base >= USER_END {
        return Err(Errno::EIO);
    }
    state.fs_base = wanted.fs_base;
    state.gs_base = wanted.gs_base;
    state.regs = UserRegs {
        rax: wanted.rax,
        rbx: wanted.rbx,
        rcx: wanted.rcx,
        rdx: wanted.rdx,
        rsi: wanted.rsi,
        rdi: wanted.rdi,
        rbp: wanted.rbp,
        r8: wanted.r8,
        r9: wanted.r9,
        r10: wanted.r10,
        r11: wanted.r11,
        r12: wanted.r12,
        r13: wanted.r13,
        r14: wanted.r14,
        r15: wanted.r15,
        rip: wanted.rip,
        rflags: (state.regs.rflags & !TRACER_FLAGS) | (wanted.rflags & TRACER_FLAGS),
        rsp: wanted.rsp,
        orig_rax: wanted.orig_rax,
    };
    Ok(())
}

/// Size of the legacy region (`struct user_fpregs_struct`) in bytes.
const LEGACY: usize = 512;

/// The extended state of a thread in a ptrace stop, in the format of the register sets.
pub(crate) struct Extended<'a> {
    /// The source of the enabled features.
    pub(crate) registers: &'a dyn Registers,
    /// The source of the layout of the features' components.
    pub(crate) cpus: &'a dyn Cpus,
}

impl Extended<'_> {
    /// Returns the size in bytes of the complete set (`NT_X86_XSTATE`).
    pub(crate) fn size(&self) -> usize {
        self.registers.fpu_size()
    }

    /// Returns the complete set. It begins with the legacy region (`NT_PRFPREG`), whose software-reserved bytes contain
    /// the mask of enabled features.
    pub(crate) fn show(&self, area: &FpuArea) -> FpuArea {
        let mut shown = area.clone();
        self.reset_absent(&mut shown);
        let software = &mut shown.bytes[FP_SOFTWARE_BYTES..LEGACY];
        software.fill(0);
        self.registers.fpu_features().to_bytes(&mut software[..8]);
        shown
    }

    /// Replaces the legacy region.
    pub(crate) fn set_legacy(&self, area: &mut FpuArea, bytes: &[u8]) {
        self.reset_absent(area);
        area.bytes[..bytes.len()].copy_from_slice(bytes);
        // Mark the x87 and SSE components as present: after the write, they may no longer be in their initial state.
        area.bytes[FpuArea::HEADER] |= 3;
        xstate::sanitize(area, self.registers.fpu_features(), true);
    }

    /// Replaces the complete set. Components that its header marks as absent are reset to their initial state.
    ///
    /// # Errors
    /// `EFAULT` if the size differs, `EINVAL` if the header contains features that are not enabled or sets reserved
    /// bits.
    pub(crate) fn replace(&self, area: &mut FpuArea, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.len() != self.size() {
            return Err(Errno::EFAULT);
        }
        let header = &bytes[FpuArea::HEADER..FpuArea::HEADER + 64];
        let features = self.registers.fpu_features();
        if u64::from_bytes(&header[..8]) & !features != 0
            || header[8..].iter().any(|byte| *byte != 0)
        {
            return Err(Errno::EINVAL);
        }
        area.bytes[..bytes.len()].copy_from_slice(bytes);
        xstate::sanitize(area, features, true);
        self.reset_absent(area);
        Ok(())
    }

    /// Sets the components that the header marks as absent to their initial state.
    fn reset_absent(&self, area: &mut FpuArea) {
        let present = u64::from_bytes(&area.bytes[FpuArea::HEADER..FpuArea::HEADER + 8]);
        let absent = self.registers.fpu_features() & !present;
        if absent & 1 != 0 {
            area.bytes[..24].copy_from_slice(&FpuArea::INITIAL.bytes[..24]);
            area.bytes[32..160].fill(0);
        }
        if absent & 2 != 0 {
            area.bytes[160..416].fill(0);
        }
        for component in 2..63 {
            if absent & (1 << component) != 0 {
                let [size, offset, ..] = self.cpus.cpuid(0xd, component);
                let end = (offset + size) as usize;
                if let Some(bytes) = area.bytes.get_mut(offset as usize..end) {
                    bytes.fill(0);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{TRAP_FLAG, UserRegisters, UserState, general, set_general};
    use memwright_linux_abi::{abi::Plain, errno::Errno};
    use memwright_linux_vfs::user::USER_END;

    #[test]
    fn the_layout_is_that_of_the_interface() {
        assert_eq!(UserRegisters::SIZE, 27 * 8);
        let mut state = UserState::start(0x1000, 0x2000);
        state.regs.r15 = 15;
        state.regs.rdi = 1;
        let mut bytes = [0; UserRegisters::SIZE];
        general(&state).to_bytes(&mut bytes);
        let word = |at: usize| u64::from_bytes(&bytes[at * 8..at * 8 + 8]);
        assert_eq!(
            [word(0), word(14), word(15), word(16), word(17), word(19)],
            [15, 1, u64::MAX, 0x1000, 0x33, 0x2000]
        );
    }

    #[test]
    fn what_a_tracer_may_set() {
        let start = UserState::start(0x1000, 0x2000);
        let wanted = general(&start);
        let set = |change: fn(&mut UserRegisters)| {
            let (mut state, mut wanted) = (start, wanted);
            change(&mut wanted);
            set_general(&mut state, &wanted).map(|()| state)
        };
        assert_eq!(set(|_| ()), Ok(start));
        for refused in [
            (|regs| regs.cs = 0x10) as fn(&mut UserRegisters),
            |regs| regs.ss = 0,
            |regs| regs.segments[0] = 8,
            |regs| regs.fs_base = USER_END,
            |regs| regs.gs_base = u64::MAX,
        ] {
            assert_eq!(set(refused), Err(Errno::EIO));
        }
        // Interrupts stay enabled and the I/O privilege level stays 0, whatever the tracer requests.
        let flags = set(|regs| regs.rflags = 0x3000 | TRAP_FLAG).expect("legal");
        assert_eq!(flags.regs.rflags, 0x202 | TRAP_FLAG);
    }
}
