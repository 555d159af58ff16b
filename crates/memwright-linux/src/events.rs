//! The entry points through which the machine calls the kernel.

use crate::{
    account,
    kernel::Kernel,
    lifecycle::exit_thread,
    run::{Execution, UserThread},
    syscall::handlers,
};
use alloc::sync::Arc;
use core::{fmt::Write, sync::atomic::Ordering};
use memwright_linux_abi::host::{Channel, KernelEvents};
use memwright_linux_memory::userfault::{Accessor, Resolved};
use memwright_linux_sched::scheduler::Work;
use memwright_linux_tasks::process::{ExitStatus, Start, Thread};
use memwright_linux_vfs::user::USER_END;
use memwright_table::sync::GaveWay;

/// Receives the machine's events for one kernel.
pub struct Events {
    /// The kernel.
    pub(crate) kernel: &'static Kernel,
    /// The machine.
    pub(crate) machine: &'static dyn Execution,
}

impl Events {
    /// Runs a new thread, on its own kernel stack, until the thread exits.
    fn thread_main(&self, id: u32) -> ! {
        let kernel = self.kernel;
        kernel.scheduler.finish_switch();
        let thread = kernel
            .tasks
            .thread(id)
            .expect("a thread that was just made");
        let status = match thread.take_start() {
            Some(Start::User(state)) => {
                kernel.host.load_bases(&state);
                let tables = handlers(kernel.manifest.system_calls);
                let context = kernel.context(&thread, state, tables);
                UserThread::new(context).run(self.machine)
            }
            Some(Start::Program) => self.run_program(&thread),
            None => unreachable!("a thread starts once"),
        };
        self.end_thread(&thread, status);
        kernel.scheduler.leave(thread)
    }

    /// Ends a thread. The process ends with its last thread.
    fn end_thread(&self, thread: &Arc<Thread>, status: ExitStatus) {
        let kernel = self.kernel;
        let Some(end) = exit_thread(kernel.futexes, thread, status) else {
            return;
        };
        end.release(kernel.vfs, &kernel.sockets, &kernel.semaphores);
        if let Some(status) = end.publish(&kernel.cgroups) {
            kernel.host.mark_run_ends();
            kernel.program_ended(status);
        }
    }

    /// Executes the program of the manifest.
    fn run_program(&self, thread: &Arc<Thread>) -> ExitStatus {
        let kernel = self.kernel;
        let tables = handlers(kernel.manifest.system_calls);
        let context = kernel.context(thread, Default::default(), tables);
        kernel.host.mark_run_begins();
        match kernel.programs.execute_manifest(
            &context.current,
            &context.registers,
            &kernel.manifest,
        ) {
            Ok(()) => UserThread::new(context).run(self.machine),
            Err((error, text)) => {
                kernel.not_started(error, &text);
                ExitStatus::Exited(127)
            }
        }
    }
}

impl KernelEvents for Events {
    fn user_fault(&self, address: u64, write: bool) -> bool {
        if address >= USER_END {
            return false;
        }
        let Some(thread) = self.kernel.scheduler.current() else {
            return false;
        };
        let Some(space) = thread.process.space() else {
            return false;
        };
        let access = memwright::Access {
            write,
            fetch: false,
            user: true,
        };
        let (faults, by) = (&self.kernel.faults, Accessor::Kernel);
        let resolved = faults.resolve(&thread, &space, address, access, by);
        if thread.work().contains(Work::CGROUP) {
            // Check the cgroup's limit here, not only on return to user mode: one user copy can fault in many pages.
            self.kernel.cgroups.look(&thread);
        }
        matches!(resolved, Resolved::Retry)
    }

    fn give_way(&self, waits: bool) -> GaveWay {
        self.kernel.scheduler.give_way(waits)
    }

    fn pause_due(&self) -> bool {
        self.kernel.scheduler.pause_due()
    }

    fn context_start(&self, argument: usize) -> ! {
        self.thread_main(argument as u32)
    }

    fn cpu_start(&self) -> ! {
        self.kernel.scheduler.cpu_start(self.kernel)
    }

    fn fatal_report(&self, out: &mut dyn Write) {
        let kernel = self.kernel;
        // The failing code may hold locks: data that a lock protects is reported only if that lock is free.
        let report = kernel
            .scheduler
            .report(out)
            .and_then(|()| kernel.tasks.report(kernel.host.now(), out))
            .and_then(|()| {
                let boot = kernel.boot_instructions.load(Ordering::Relaxed);
                account::report(&kernel.memory, kernel.host, boot, out)
            });
        if report.is_err() {
            kernel
                .host
                .output(Channel::Panic, b"the report could not be written\n");
        }
    }
}
