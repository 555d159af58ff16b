//! The main loop of a thread: user mode, a trap, handling the trap, and back.

use crate::{
    Space,
    arch::x86_64::{
        exception::{floating_point_code, signal_for},
        regs::FpuArea,
        signal_frame::LastFault,
    },
    context::Context,
    deliver::{After, deliver},
    host::{Host, Trap},
    kernel::Kernel,
    lifecycle::exit_thread,
    process::{ExitStatus, Start, Thread, force_fault},
    ptrace::Traced,
    scheduler::Work,
    signal::{Detail, Signal, SignalInfo, code},
    syscall::handlers,
    user::USER_END,
    userfault::{Accessor, Resolved, Waited},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright::{Access, FaultError, uffd::WatchedFault};
use memwright_table::VirtAddr;

/// Most consecutive retries of a fault while other threads allocate all memory that becomes free
/// (`MAX_RECLAIM_RETRIES`).
const MOST_WAITS: u32 = 16;

/// A machine that runs user mode.
pub trait Execution: Host {
    /// Runs a thread in user mode until a trap. Returns the trap on the same kernel stack, with interrupts disabled.
    /// [`Context::serve`] serves system calls; user mode continues after a call unless `serve` returns
    /// false. The machine accesses the state through [`Context::state_pointer`], and only while user mode runs.
    fn run_user(&self, context: &Context<'_>) -> Trap;
}

/// Entry point on a thread's kernel stack.
pub(crate) fn thread_main(kernel: &'static Kernel, machine: &dyn Execution, id: u32) -> ! {
    kernel.scheduler.finish_switch();
    let thread = kernel
        .tasks
        .thread(id)
        .expect("a thread that was just made");
    let status = match thread.take_start() {
        Some(Start::User(state)) => {
            kernel.host.load_bases(&state);
            run(
                machine,
                &Context::new(
                    kernel,
                    &thread,
                    state,
                    handlers(kernel.manifest.system_calls),
                ),
            )
        }
        Some(Start::Program) => run_program(kernel, machine, &thread),
        None => unreachable!("a thread starts once"),
    };
    kernel.end_thread(&thread, status);
    kernel.scheduler.leave(thread)
}

impl Kernel {
    /// Ends a thread, and its process after its last thread.
    fn end_thread(&self, thread: &Arc<Thread>, status: ExitStatus) {
        let Some(end) = exit_thread(self.futexes, thread, status) else {
            return;
        };
        end.release(self.vfs, &self.sockets, &self.semaphores);
        if let Some(status) = end.publish(&self.cgroups) {
            self.host.mark_run_ends();
            self.program_ended(status);
        }
    }
}

/// Executes the program of the manifest.
fn run_program(
    kernel: &'static Kernel,
    machine: &dyn Execution,
    thread: &Arc<Thread>,
) -> ExitStatus {
    let context = Context::new(
        kernel,
        thread,
        Default::default(),
        handlers(kernel.manifest.system_calls),
    );
    kernel.host.mark_run_begins();
    match kernel
        .programs
        .execute_manifest(&context.current, &context.registers, &kernel.manifest)
    {
        Ok(()) => run(machine, &context),
        Err((error, text)) => {
            kernel.not_started(error, &text);
            ExitStatus::Exited(127)
        }
    }
}

/// Clears the only work flag of a thread that has waited in a call and is still on the CPU that its restartable sequence
/// names: a call is in no critical section, so there is nothing to abort.
fn settle_after_call(thread: &Thread, host: &dyn Host) {
    if thread.work() == Work::RESTARTABLE && thread.is_known_on(host.cpu()) {
        thread.set_work(Work::RESTARTABLE, false);
    }
}

/// Runs user code until the thread exits.
fn run(machine: &dyn Execution, context: &Context<'_>) -> ExitStatus {
    loop {
        let work = context.thread.work();
        if !work.is_empty() {
            // `run_user` reloads all registers.
            context.thread.set_work(Work::REGISTERS, false);
            if work.contains(Work::CONTROL) {
                context.thread.set_work(Work::CONTROL, false);
                context.kernel.serve_control();
            }
            if work.contains(Work::MIGRATE) {
                let scheduler = &context.kernel.scheduler;
                scheduler.migrate(context.thread);
            }
            if work.contains(Work::CPU_TIME) {
                context.thread.set_work(Work::CPU_TIME, false);
                context.process().resume_cpu_timers(context.thread);
            }
            if work.contains(Work::CGROUP) {
                context.kernel.cgroups.look(context.thread);
            }
            let traced = Traced::new(
                &context.current,
                &context.registers,
                context.tasks(),
                context.oom(),
            );
            if let After::Exit(status) = deliver(&traced, context.tasks(), context.oom()) {
                traced.exit(status);
                return status;
            }
            // Only now, because the thread may have waited, continued on another CPU, and got other breakpoints.
            if context.thread.work().contains(Work::DEBUG) {
                traced.load_breakpoints();
            }
            context.choose_handlers();
        }
        match machine.run_user(context) {
            // The call is complete; its work flags are handled above.
            Trap::Syscall => settle_after_call(context.thread, context.kernel.host),
            Trap::PageFault {
                address,
                write,
                fetch,
                present,
            } => {
                page_fault(
                    context,
                    address,
                    Access {
                        write,
                        fetch,
                        user: true,
                    },
                    present,
                );
            }
            Trap::KeyFault { address, write } => key_fault(context, address, write),
            Trap::Exception { vector, error } => exception(context, vector, error),
            Trap::Timer | Trap::Reschedule => {
                context.kernel.scheduler.tick(context.thread);
            }
            Trap::Control => context.kernel.serve_control(),
        }
    }
}

/// Resolves a page fault of a thread, in user mode or during a user copy of the kernel.
// All faults go through this function, so it is inlined into its callers.
#[inline(always)]
pub(crate) fn resolve_fault(
    kernel: &Kernel,
    thread: &Arc<Thread>,
    space: &Arc<Space>,
    address: u64,
    access: Access,
    accessor: Accessor,
) -> Resolved {
    match space.fault(VirtAddr::new(address), access) {
        Ok(kind) => {
            count_fault(thread, kind.is_major());
            Resolved::Retry
        }
        Err(FaultError::Watched(fault)) => {
            watched_fault(kernel, thread, space, (address, accessor), access, fault)
        }
        Err(FaultError::OutOfMemory) => starved_fault(kernel, thread, space, address, access),
        Err(error) => refused_fault(kernel, thread, error),
    }
}

#[inline(always)]
fn count_fault(thread: &Thread, major: bool) {
    let usage = &thread.usage;
    let faults = if major {
        &usage.major_faults
    } else {
        &usage.minor_faults
    };
    faults.fetch_add(1, Ordering::Relaxed);
}

/// Waits for the userfaultfd context to resolve a fault, and retries. If the program itself accessed the page, the
/// first retry counts as an ordinary fault. An access by the kernel, and any access after a second wait, counts as a
/// major fault (Linux 7.2 `do_user_addr_fault`, which first tries under the per-VMA lock, and `mm_account_fault`, which
/// counts a retried fault as major).
#[cold]
fn watched_fault(
    kernel: &Kernel,
    thread: &Arc<Thread>,
    space: &Arc<Space>,
    (address, accessor): (u64, Accessor),
    access: Access,
    mut fault: WatchedFault,
) -> Resolved {
    let mut tried = accessor == Accessor::Kernel;
    loop {
        let place = (address, accessor);
        match kernel
            .userfaults
            .wait_for_watcher(thread, space, place, access, fault)
        {
            Waited::Again => {}
            Waited::Interrupted => return Resolved::Retry,
            Waited::Refused(resolved) => return resolved,
        }
        match space.fault(VirtAddr::new(address), access) {
            Ok(kind) => {
                count_fault(thread, tried || kind.is_major());
                return Resolved::Retry;
            }
            Err(FaultError::Watched(next)) => (fault, tried) = (next, true),
            Err(FaultError::OutOfMemory) => {
                return starved_fault(kernel, thread, space, address, access);
            }
            Err(error) => return refused_fault(kernel, thread, error),
        }
    }
}

#[cold]
fn refused_fault(kernel: &Kernel, thread: &Arc<Thread>, error: FaultError) -> Resolved {
    match error {
        FaultError::Key(key) => return Resolved::Key(key),
        FaultError::Poison(size) => return Resolved::Poison(size),
        FaultError::NoArea
        | FaultError::Guard
        | FaultError::StackLimit
        | FaultError::Denied
        | FaultError::BeyondObject
        | FaultError::Io
        | FaultError::NoHugePage
        | FaultError::OutOfMemory
        | FaultError::WouldBlock
        | FaultError::Watched(_) => {}
    }
    match fault_signal(error) {
        Some((signal, code)) => Resolved::Signal(signal, code),
        None => {
            kernel.scheduler.yield_now(thread);
            // The thread that this one waits for may run on another CPU.
            kernel.host.relax();
            Resolved::Retry
        }
    }
}

/// Reclaims memory for a fault that found no free frame, and retries the fault. Runs the OOM killer if no page can be
/// reclaimed and other threads either find no memory as well, or have taken all freed memory [`MOST_WAITS`] times in a
/// row (Linux 7.2 `mm/page_alloc.c`, `should_reclaim_retry`).
#[cold]
fn starved_fault(
    kernel: &Kernel,
    thread: &Arc<Thread>,
    space: &Space,
    address: u64,
    access: Access,
) -> Resolved {
    let frames = kernel.memory.frames();
    if thread.fatal_pending() {
        return Resolved::Signal(Signal::SIGKILL, code::SI_KERNEL);
    }
    let cpus = u64::from(kernel.scheduler.all_cpus().len());
    let Some(reclaiming) = kernel.reclaim.begin(cpus) else {
        // Enough other threads reclaim already, and the pages that they free may suffice.
        kernel.scheduler.yield_now(thread);
        kernel.host.relax();
        return Resolved::Retry;
    };
    for _ in 0..MOST_WAITS {
        if thread.fatal_pending() {
            return Resolved::Signal(Signal::SIGKILL, code::SI_KERNEL);
        }
        let allocations = frames.allocations();
        if kernel.reclaim.relieve(1) {
            return Resolved::Retry;
        }
        kernel.scheduler.yield_now(thread);
        kernel.host.relax();
        match space.fault(VirtAddr::new(address), access) {
            Err(FaultError::OutOfMemory) => {}
            Ok(kind) => {
                count_fault(thread, kind.is_major());
                return Resolved::Retry;
            }
            // Retry the access: its next fault returns this error.
            Err(_) => return Resolved::Retry,
        }
        if frames.allocations() == allocations {
            break;
        }
    }
    kernel.oom.relieve(thread);
    drop(reclaiming);
    if thread.fatal_pending() {
        return Resolved::Signal(Signal::SIGKILL, code::SI_KERNEL);
    }
    kernel.scheduler.yield_now(thread);
    // The process that was killed may run on another CPU.
    kernel.host.relax();
    Resolved::Retry
}

/// Returns the signal for an access that cannot be resolved; `None` for a temporary condition.
fn fault_signal(error: FaultError) -> Option<(Signal, i32)> {
    match error {
        FaultError::NoArea | FaultError::Guard | FaultError::StackLimit => {
            Some((Signal::SIGSEGV, code::SEGV_MAPERR))
        }
        FaultError::Denied => Some((Signal::SIGSEGV, code::SEGV_ACCERR)),
        FaultError::Key(_) => Some((Signal::SIGSEGV, code::SEGV_PKUERR)),
        FaultError::BeyondObject | FaultError::Io | FaultError::NoHugePage => {
            Some((Signal::SIGBUS, code::BUS_ADRERR))
        }
        FaultError::Poison(_) => Some((Signal::SIGBUS, code::BUS_MCEERR_AR)),
        FaultError::OutOfMemory | FaultError::WouldBlock | FaultError::Watched(_) => None,
    }
}

#[inline]
fn page_fault(context: &Context<'_>, address: u64, access: Access, present: bool) {
    let resolved = if address < USER_END {
        context.with_space(|space| {
            let (kernel, thread) = (context.kernel, context.thread);
            resolve_fault(kernel, thread, space, address, access, Accessor::Program)
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
    refuse_access(context, access, present, info, address);
}

/// Handles an access to a present page that its protection key denies. The key of the page may have changed since, but
/// the decision of the processor counts (Linux 7.2 `arch/x86/mm/fault.c`, `bad_area_access_from_pkeys`).
#[cold]
#[inline(never)]
fn key_fault(context: &Context<'_>, address: u64, write: bool) {
    let key = context.with_space(|space| space.key_at(VirtAddr::new(address)));
    let access = if write { Access::WRITE } else { Access::READ };
    refuse_access(
        context,
        access,
        true,
        SignalInfo::key(address, key),
        address,
    );
}

/// Records the fault of an access that was refused, and raises its signal.
#[cold]
fn refuse_access(
    context: &Context<'_>,
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
    *context.thread.last_fault.lock() = LastFault {
        vector: 14,
        error,
        address,
    };
    if info.signal != Signal::SIGKILL {
        force_fault(context.thread, info);
    }
}

#[cold]
#[inline(never)]
fn exception(context: &Context<'_>, vector: u8, error: u64) {
    let probes = &context.kernel.probes;
    let served = match vector {
        1 => {
            if !probes.stepped(&context.current, &context.registers) {
                Traced::new(
                    &context.current,
                    &context.registers,
                    context.tasks(),
                    context.oom(),
                )
                .debug_exception(error);
            }
            true
        }
        3 => probes.met(&context.current, &context.registers),
        _ => false,
    };
    if served {
        return;
    }
    let instruction = context.registers.state().regs.rip;
    let floating_point = if matches!(vector, 16 | 19) {
        pending_exceptions(context)
    } else {
        0
    };
    *context.thread.last_fault.lock() = LastFault {
        vector: vector.into(),
        error,
        address: 0,
    };
    let code = floating_point_code(floating_point);
    force_fault(context.thread, signal_for(vector, instruction, code));
}

/// Returns the unmasked exceptions that the floating-point units report.
fn pending_exceptions(context: &Context<'_>) -> u32 {
    let mut area = FpuArea::INITIAL;
    context.kernel.host.save_fpu(&mut area);
    let half = |at: usize| u32::from(u16::from_le_bytes([area.bytes[at], area.bytes[at + 1]]));
    let (control, status, mxcsr) = (half(0), half(2), half(24));
    (status & !control | mxcsr & !(mxcsr >> 7)) & 0x3f
}

#[cfg(test)]
mod tests {
    use super::{FaultError, Signal, code, fault_signal};

    #[test]
    fn refused_accesses_become_signals() {
        for (error, expected) in [
            (
                FaultError::NoArea,
                Some((Signal::SIGSEGV, code::SEGV_MAPERR)),
            ),
            (
                FaultError::Denied,
                Some((Signal::SIGSEGV, code::SEGV_ACCERR)),
            ),
            (
                FaultError::BeyondObject,
                Some((Signal::SIGBUS, code::BUS_ADRERR)),
            ),
            (FaultError::OutOfMemory, None),
        ] {
            assert_eq!(fault_signal(error), expected);
        }
    }
}
