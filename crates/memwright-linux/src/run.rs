//! The main loop of a thread: user mode, a trap, handling the trap, and back.

use crate::{
    context::Context,
    current::Current,
    deliver::{After, deliver},
    probe_step,
    ptrace::Traced,
    thread_registers::ThreadRegisters,
};
use alloc::sync::Arc;
use memwright::Access;
use memwright_linux_abi::{
    arch::x86_64::{
        exception::{floating_point_code, signal_for},
        regs::FpuArea,
        signal_frame::LastFault,
    },
    host::{Host, Registers, Trap},
    signal::{Detail, Signal, SignalInfo, code},
};
use memwright_linux_base::sync;
use memwright_linux_memory::{
    faults::Faults,
    userfault::{Accessor, Resolved},
};
use memwright_linux_sched::scheduler::Work;
use memwright_linux_tasks::{
    probes::Probes,
    process::{ExitStatus, Thread, force_fault},
};
use memwright_linux_vfs::user::USER_END;
use memwright_table::VirtAddr;

/// A machine that runs user mode.
pub trait Execution: Host {
    /// Runs a thread in user mode until a trap. Returns the trap on the same kernel stack, with interrupts disabled.
    /// [`UserThread::serve`] handles system calls; user mode continues after a call unless `serve` returns false. The
    /// machine accesses the thread's state through `ThreadRegisters::state_pointer`, and only while user mode runs.
    fn run_user(&self, thread: &UserThread<'_>) -> Trap;
}

/// A thread, as the machine sees it while it runs the thread in user mode.
pub struct UserThread<'a>(Context<'a>);

/// Clears [`Work::RESTARTABLE`] after a system call in which the thread waited. Does nothing if another flag is set, or
/// if the thread is no longer on the CPU whose number its `struct rseq` contains. No critical section needs to be
/// aborted, because a critical section contains no system call.
fn settle_after_call(thread: &Thread) {
    if thread.work() == Work::RESTARTABLE && thread.is_known_on(sync::cpu()) {
        thread.set_work(Work::RESTARTABLE, false);
    }
}

impl<'a> UserThread<'a> {
    pub(crate) fn new(context: Context<'a>) -> Self {
        Self(context)
    }

    /// Returns the user registers of the thread.
    #[inline]
    pub fn registers(&self) -> &ThreadRegisters<'a> {
        &self.0.registers
    }

    /// Executes the system call that the user registers contain. Returns true if the thread can return to user mode at
    /// once; only RAX has changed in this case. Returns false if `run_user` must return [`Trap::Syscall`].
    #[inline]
    pub fn serve(&self) -> bool {
        self.0.serve()
    }

    /// Runs user code until the thread exits.
    pub(crate) fn run(&self, machine: &dyn Execution) -> ExitStatus {
        let context = &self.0;
        let (current, kernel) = (&context.current, context.kernel);
        let traced = Traced::new(current, &context.registers, context.oom());
        loop {
            let work = current.thread.work();
            if !work.is_empty() {
                // Clear the flag, which requests that all registers are loaded: `run_user` does this on each call.
                current.thread.set_work(Work::REGISTERS, false);
                if work.contains(Work::CONTROL) {
                    current.thread.set_work(Work::CONTROL, false);
                    kernel.serve_control();
                }
                if work.contains(Work::MIGRATE) {
                    kernel.scheduler.migrate(current.thread);
                }
                if work.contains(Work::CPU_TIME) {
                    current.thread.set_work(Work::CPU_TIME, false);
                    current.process().resume_cpu_timers(current.thread);
                }
                if work.contains(Work::CGROUP) {
                    kernel.cgroups.look(current.thread);
                }
                if let After::Exit(status) = deliver(&traced) {
                    traced.exit(status);
                    return status;
                }
                // Load the breakpoints last: during the steps above, the thread may have moved to another CPU or got
                // other breakpoints.
                if current.thread.work().contains(Work::DEBUG) {
                    traced.load_breakpoints();
                }
                context.choose_handlers();
            }
            match machine.run_user(self) {
                // `serve` has executed the call. The next iteration handles the flags that remain set.
                Trap::Syscall => settle_after_call(current.thread),
                Trap::PageFault {
                    address,
                    write,
                    fetch,
                    present,
                } => {
                    page_fault(
                        current,
                        &kernel.faults,
                        address,
                        Access {
                            write,
                            fetch,
                            user: true,
                        },
                        present,
                    );
                }
                Trap::KeyFault { address, write } => key_fault(current, address, write),
                Trap::Exception { vector, error } => {
                    exception(&traced, kernel.probes, vector, error);
                }
                Trap::Timer | Trap::Reschedule => {
                    kernel.scheduler.tick(current.thread);
                }
                Trap::Control => kernel.serve_control(),
            }
        }
    }
}

#[inline]
fn page_fault(current: &Current<'_>, faults: &Faults, address: u64, access: Access, present: bool) {
    let resolved = if address < USER_END {
        current.with_space(|space| {
            faults.resolve(current.thread, space, address, access, Accessor::Program)
        })
    } else {
        Resolved::Signal(Signal::SIGSEGV, code::SEGV_MAPERR)
    };
    let info = match resolved {
        Resolved::Retry => return,
        Resolved::Signal(signal, code) => SignalInfo::fault(signal, code, address),
        Resolved::Key(key) => SignalInfo::key(address, key),
        Resolved::Poison(size) => SignalInfo::poison(address, size),
    };
    refuse_access(current.thread, access, present, info, address);
}

/// Handles an access to a present page that its protection key denies. The access is denied even if the page has got
/// another key since the trap (Linux 7.2 `arch/x86/mm/fault.c`, `bad_area_access_from_pkeys`).
#[cold]
#[inline(never)]
fn key_fault(current: &Current<'_>, address: u64, write: bool) {
    let key = current.with_space(|space| space.protection_keys().at(VirtAddr::new(address)));
    let access = if write { Access::WRITE } else { Access::READ };
    refuse_access(
        current.thread,
        access,
        true,
        SignalInfo::key(address, key),
        address,
    );
}

/// Records a denied access as the thread's last fault, and raises the signal.
#[cold]
fn refuse_access(
    thread: &Arc<Thread>,
    access: Access,
    present: bool,
    info: SignalInfo,
    address: u64,
) {
    let by_key = matches!(info.detail, Detail::Key { .. });
    let error = u64::from(present)
        | u64::from(access.write) << 1
        | 1 << 2
        | u64::from(access.fetch) << 4
        | u64::from(by_key && present) << 5;
    *thread.last_fault.lock() = LastFault {
        vector: 14,
        error,
        address,
    };
    if info.signal != Signal::SIGKILL {
        force_fault(thread, info);
    }
}

#[cold]
#[inline(never)]
fn exception(traced: &Traced<'_>, probes: &Probes, vector: u8, error: u64) {
    let (current, registers) = (traced.current, traced.registers);
    let served = match vector {
        1 => {
            if !probe_step::stepped(probes, current, registers) {
                traced.debug_exception(error);
            }
            true
        }
        3 => probe_step::met_breakpoint(probes, current, registers),
        _ => false,
    };
    if served {
        return;
    }
    let instruction = registers.state().regs.rip;
    let floating_point = if matches!(vector, 16 | 19) {
        pending_exceptions(registers.processor())
    } else {
        0
    };
    *current.thread.last_fault.lock() = LastFault {
        vector: vector.into(),
        error,
        address: 0,
    };
    let code = floating_point_code(floating_point);
    force_fault(current.thread, signal_for(vector, instruction, code));
}

/// Returns the unmasked exceptions that are pending in the x87 and SSE state.
fn pending_exceptions(processor: &dyn Registers) -> u32 {
    let mut area = FpuArea::INITIAL;
    processor.save_fpu(&mut area);
    let half = |at: usize| u32::from(u16::from_le_bytes([area.bytes[at], area.bytes[at + 1]]));
    let (control, status, mxcsr) = (half(0), half(2), half(24));
    (status & !control | mxcsr & !(mxcsr >> 7)) & 0x3f
}
