//! Debug exceptions: single steps and hardware breakpoints (Linux 7.2 `arch/x86/kernel/traps.c`, `exc_debug_user`).

use crate::ptrace::Traced;
use memwright_linux_abi::{
    arch::x86_64::{
        debug::{DebugRegisters, STATUS_STEP},
        regs::{RESUME_FLAG, TRAP_FLAG},
    },
    signal::{Signal, SignalInfo, code},
};
use memwright_linux_tasks::process::force_fault;
use memwright_table::VirtAddr;

/// The meaning of a debug exception for the thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Cause {
    /// A breakpoint of another thread, whose debug registers were still loaded on this CPU.
    Foreign,
    /// The thread gets SIGTRAP with this `si_code`. The mask contains its breakpoints that were hit.
    Own(i32, u64),
}

/// Returns the cause of a debug exception. `status` is the value of DR6, and `registers` are the debug registers of the
/// thread.
fn cause(registers: &DebugRegisters, status: u64) -> Cause {
    let hits = registers.hits(status);
    if status & STATUS_STEP != 0 {
        Cause::Own(code::TRAP_TRACE, hits)
    } else if hits != 0 {
        Cause::Own(code::TRAP_HWBKPT, hits)
    } else if DebugRegisters::reports_hit(status) {
        Cause::Foreign
    } else {
        Cause::Own(code::TRAP_BRKPT, 0)
    }
}

impl Traced<'_> {
    /// Loads the thread's breakpoints before it enters user mode. Before a single step, the data breakpoints are not
    /// loaded: the handler of the step compares the data instead. QEMU raises two exceptions if a single-stepped
    /// instruction accesses the data of a breakpoint, and the second exception overwrites the state that the kernel
    /// saved at the first one.
    pub(crate) fn load_breakpoints(&self) {
        let registers = self.registers.debug.get();
        let steps = self.registers.state().regs.rflags & TRAP_FLAG != 0;
        let loaded = if steps {
            self.registers.watched.set(self.watched(&registers));
            registers.without_data()
        } else {
            registers
        };
        self.registers.processor().load_debug(&loaded);
    }

    /// Returns the data at the addresses of the data breakpoints, with 0 for memory that cannot be read.
    fn watched(&self, registers: &DebugRegisters) -> [u64; 4] {
        core::array::from_fn(|slot| {
            let mut bytes = [0; 8];
            if let Some((address, length)) = registers.data(slot) {
                let at = VirtAddr::new(address);
                let _ = self
                    .current
                    .with_space(|space| space.read(at, &mut bytes[..length]));
            }
            u64::from_le_bytes(bytes)
        })
    }

    /// Returns the mask of the data breakpoints whose data a single step has changed.
    fn changed(&self, registers: &DebugRegisters) -> u64 {
        let (before, after) = (self.registers.watched.get(), self.watched(registers));
        let slots = (0..4).filter(|slot| before[*slot] != after[*slot]);
        slots.fold(0, |changed, slot| changed | 1 << slot)
    }

    /// Handles a debug exception. `status` is the value of DR6.
    pub(crate) fn debug_exception(&self, status: u64) {
        let mut registers = self.registers.debug.get();
        let stepped = status & STATUS_STEP != 0 && registers.is_active();
        let changed = if stepped { self.changed(&registers) } else { 0 };
        let (code, hits) = match cause(&registers, status | changed) {
            Cause::Foreign => {
                self.registers.processor().load_debug(&registers);
                return;
            }
            Cause::Own(code, hits) => (code, hits),
        };
        registers.status = status & STATUS_STEP | hits;
        self.registers.debug.set(registers);
        if registers.stops_before(hits) {
            let mut regs = self.registers.state().regs;
            regs.rflags |= RESUME_FLAG;
            self.registers.replace_registers(regs);
        }
        let instruction = self.registers.state().regs.rip;
        let info = SignalInfo::fault(Signal::SIGTRAP, code, instruction);
        force_fault(self.current.thread, info);
    }
}

#[cfg(test)]
mod tests {
    use super::{Cause, DebugRegisters, STATUS_STEP, cause, code};

    #[test]
    fn only_own_breakpoints_count() {
        let registers = DebugRegisters {
            control: 1,
            ..DebugRegisters::default()
        };
        let none = DebugRegisters::default();
        for (registers, status, expected) in [
            (registers, 1, Cause::Own(code::TRAP_HWBKPT, 1)),
            (registers, 2, Cause::Foreign),
            (registers, STATUS_STEP | 3, Cause::Own(code::TRAP_TRACE, 1)),
            (none, 1, Cause::Foreign),
            (none, STATUS_STEP, Cause::Own(code::TRAP_TRACE, 0)),
            (none, 0, Cause::Own(code::TRAP_BRKPT, 0)),
        ] {
            assert_eq!(cause(&registers, status), expected, "{status:#x}");
        }
    }
}
