//! The times at which the CPU time of a process is compared with its limit and its timers.
//!
//! Linux compares the CPU time with the limit and the timers at each tick. Here a deadline is set for the earliest time
//! at which the process can reach the limit or a timer, assuming that it runs on all CPUs. If the process has used less
//! CPU time when the deadline expires, the next deadline is set in the same way. A process of which no thread runs sets
//! no new deadline; the first thread that is switched to sets one. So a sleeping process costs no time, whatever timers
//! it has.

use super::{Process, Thread, cpu_clock::wait_for};
use crate::process::send_to_process;
use alloc::sync::Arc;
use memwright_linux_abi::signal::{Signal, SignalInfo};
use memwright_linux_sched::scheduler::{EXPIRING, Expiry, Timers, UsageSnapshot};
use memwright_linux_vfs::identity::{INFINITY, Resource};
use memwright_table::OutOfMemory;

impl Process {
    /// Starts enforcing `RLIMIT_CPU` after it was set.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the limit is then enforced only after the next switch to one of the threads.
    pub fn watch_cpu_limit(self: &Arc<Self>) -> Result<(), OutOfMemory> {
        self.measure_cpu_time();
        self.plan_cpu_look()
    }

    /// Sets the deadline for the present limit and timers.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the next switch to one of the threads tries again.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub(super) fn plan_cpu_look(self: &Arc<Self>) -> Result<(), OutOfMemory> {
        let used = self.cpu_usage();
        self.set_cpu_deadline(|| self.next_cpu_look(&used))
    }

    /// Starts enforcing the `RLIMIT_CPU` that a new process has inherited, if it has a soft limit. None of the threads
    /// of the process has run yet.
    pub fn inherit_cpu_limit(&self) {
        if self.identity.soft_limit(Resource::Cpu) != INFINITY {
            self.measure_cpu_time();
        }
    }

    /// Removes the deadline of a process that has exited, if it has one.
    pub fn forget_cpu_deadline(self: &Arc<Self>) {
        if self.cpu_deadline.is_set() {
            // Removing the deadline needs no memory.
            let _ = self.set_cpu_deadline(|| None);
        }
    }

    /// Sets the deadline of the next check. `wait` is called under the deadline's lock. It returns the nanoseconds
    /// until the check; `None` for no deadline.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn set_cpu_deadline(
        self: &Arc<Self>,
        wait: impl FnOnce() -> Option<u64>,
    ) -> Result<(), OutOfMemory> {
        let this: Arc<dyn Expiry> = self.clone();
        self.cpu_deadline
            .set(self.tasks.scheduler, &Arc::downgrade(&this), wait)
    }

    /// Returns the nanoseconds after which the limit and the timers must be checked; `None` if there is neither a limit
    /// nor a timer.
    pub(super) fn next_cpu_look(&self, used: &UsageSnapshot) -> Option<u64> {
        let limit = self.cpu_limit_left(used);
        let alarms = self.cpu_alarms.lock().left(used);
        let timers = self.cpu_timers.left(used);
        let cpus = self.tasks.scheduler.all_cpus().len().into();
        let left = [limit, alarms, timers].into_iter().flatten().min()?;
        Some(wait_for(left, cpus))
    }

    /// Sets the deadlines that the process lost while none of its threads ran. `thread` is the calling thread, to which
    /// a CPU has just switched.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub fn resume_cpu_timers(self: &Arc<Self>, thread: &Thread) {
        // Clear the flag before the timers are read: a thread that sets a timer at the same time sets the flag again
        // afterwards.
        thread.set_measured(false);
        let mut needed = self.cpu_deadline.is_set();
        if !needed {
            let used = self.cpu_usage();
            let set = self.set_cpu_deadline(|| {
                let wait = self.next_cpu_look(&used);
                needed = wait.is_some();
                wait
            });
            // If there is no memory, the next switch to a thread tries again.
            needed |= set.is_err();
        }
        if self.resume_posix_timers() || needed {
            thread.set_measured(true);
        }
    }

    /// Handles the expiration of the deadline: sends the signals of the CPU limit and of the timers that have expired,
    /// and sets the next deadline.
    pub(super) fn check_cpu_time(self: &Arc<Self>) {
        let used = self.cpu_usage();
        let timers: &dyn Timers = self.tasks.scheduler;
        let end = timers.now() + EXPIRING;
        while timers.now() < end
            && let Some((at, id)) = self.cpu_timers.pop_due(&used)
        {
            // Another thread may have deleted the timer.
            if let Ok(timer) = self.posix_timer(id) {
                timer.reach(self, at);
            }
        }
        let mut signals = [None; 3];
        // This cannot fail: the new deadline takes the memory that the expired one has freed.
        let _ = self.set_cpu_deadline(|| {
            // This runs under the deadline's lock, so a thread that sets the limit or a timer at the same time, or that
            // is switched to, sets the deadline again afterwards.
            let [user, all] = self.cpu_alarms.lock().pass(&used);
            signals = [user, all, self.enforce_cpu_limit(&used)];
            let ends = signals.contains(&Some(Signal::SIGKILL));
            if ends || !self.runs() {
                return None;
            }
            self.next_cpu_look(&used)
        });
        for signal in signals.into_iter().flatten() {
            send_to_process(self, SignalInfo::kernel(signal));
        }
    }
}
