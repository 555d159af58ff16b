//! The entry points through which the machine calls the kernel.

use crate::{
    account,
    host::{Channel, KernelEvents},
    kernel::Kernel,
    run::{self, Execution},
    scheduler::Work,
    user::USER_END,
    userfault::{Accessor, Resolved},
};
use core::fmt::Write;
use memwright_table::sync::GaveWay;

/// Receives the machine's events for one kernel.
pub struct Events {
    kernel: &'static Kernel,
    machine: &'static dyn Execution,
}

impl Events {
    /// Creates the receiver for this kernel.
    pub fn new(kernel: &'static Kernel, machine: &'static dyn Execution) -> Self {
        Self { kernel, machine }
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
        let (kernel, by) = (self.kernel, Accessor::Kernel);
        let resolved = run::resolve_fault(kernel, &thread, &space, address, access, by);
        if thread.work().contains(Work::CGROUP) {
            // Check the group's limit here: the user copy that faulted can be long.
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
        run::thread_main(self.kernel, self.machine, argument as u32)
    }

    fn cpu_start(&self) -> ! {
        self.kernel.scheduler.cpu_start(self.kernel)
    }

    fn fatal_report(&self, out: &mut dyn Write) {
        let kernel = self.kernel;
        // The failing code may hold locks: data under a lock is reported only if the lock is free.
        let report = kernel
            .scheduler
            .report(out)
            .and_then(|()| kernel.tasks.report(kernel.host.now(), out))
            .and_then(|()| account::report(kernel, out));
        if report.is_err() {
            kernel
                .host
                .output(Channel::Panic, b"the report could not be written\n");
        }
    }
}
