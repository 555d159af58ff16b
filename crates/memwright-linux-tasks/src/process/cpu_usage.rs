//! The CPU time and other resources that processes have used.

use super::{CpuClock, Process, Thread, cpu_clock::Owner, peak_resident_kib};
use memwright_linux_sched::scheduler::{RunState, UsageSnapshot};

impl Process {
    /// Makes each thread of the process set the deadlines of CPU timers again whenever a CPU switches to that thread.
    /// New threads inherit this.
    pub(super) fn measure_cpu_time(&self) {
        self.each_thread(|thread| thread.set_measured(true));
    }

    /// Returns the CPU time and other resources that the exited and the living threads have used.
    pub(super) fn cpu_usage(&self) -> UsageSnapshot {
        let mut total = self.usage.snapshot();
        self.each_thread(|thread| {
            total = total.plus(&self.tasks.scheduler.usage_of(thread));
        });
        total
    }

    /// Returns the resources that the exited and the living threads of the process have used, without those of its
    /// children. Includes the peak resident size of the present address space.
    pub fn total_usage(&self) -> UsageSnapshot {
        let mut total = self.cpu_usage();
        if let Some(space) = self.space() {
            total.resident_peak = total.resident_peak.max(peak_resident_kib(&space));
        }
        total
    }

    /// Returns whether a CPU executes a thread of the process: see [`is_running`].
    pub(super) fn runs(&self) -> bool {
        let mut runs = false;
        self.each_thread(|thread| runs |= is_running(thread));
        runs
    }
}

/// Returns whether a CPU executes the thread. Also returns true for a thread that is about to run or about to block.
pub(super) fn is_running(thread: &Thread) -> bool {
    match thread.run_state() {
        RunState::Running | RunState::Waiting => true,
        RunState::Blocked | RunState::Ready | RunState::Ended => false,
    }
}

impl CpuClock {
    /// Returns the CPU time in nanoseconds; `None` if the process or thread has ended.
    ///
    /// # Locks
    /// Takes the lock of the process's signals.
    #[must_use]
    pub fn time(&self) -> Option<u64> {
        let usage = match &self.owner {
            Owner::Process(process) => process.upgrade()?.cpu_usage(),
            Owner::Thread(thread) => {
                let thread = thread.upgrade()?;
                thread.process.tasks.scheduler.usage_of(&thread)
            }
        };
        Some(self.counted.of(&usage))
    }

    /// Returns whether the clock measures a thread that is running on a CPU.
    pub(super) fn is_of_running_thread(&self) -> bool {
        match &self.owner {
            Owner::Process(_) => false,
            Owner::Thread(thread) => thread.upgrade().is_some_and(|thread| is_running(&thread)),
        }
    }
}
