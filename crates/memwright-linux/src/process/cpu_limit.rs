//! `RLIMIT_CPU`: SIGXCPU at the soft limit and every second from then on, SIGKILL at the hard limit
//! (`check_process_timers` of Linux 6.18, `kernel/time/posix-cpu-timers.c`).
//!
//! Linux compares the CPU time of a process with the limit at each tick. Here a deadline is set for the earliest time
//! at which the process can reach the limit, assuming that it runs on all CPUs. If the process has used less CPU time
//! when the deadline expires, the next deadline is set in the same way.

use super::Process;
use crate::{
    abi::{MILLISECOND, SECOND},
    identity::{INFINITY, Limit, Resource},
    process::send_to_process,
    scheduler::Expiry,
    signal::{Signal, SignalInfo},
};
use alloc::sync::Arc;
use memwright_table::OutOfMemory;

/// Shortest time between two checks, in nanoseconds: a tick of Linux with `CONFIG_HZ=250`.
const TICK: u64 = 4 * MILLISECOND;

/// The action that the limit requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// There is no limit.
    Unlimited,
    /// Nothing: the process can use this many more nanoseconds.
    Within(u64),
    /// Send SIGXCPU and raise the soft limit to this many seconds.
    Warn(u64),
    /// Kill the process.
    Kill,
}

/// Returns the action for a process that has used `used` nanoseconds. Without a soft limit the hard limit has no
/// effect.
fn judge(limit: Limit, used: u64) -> Verdict {
    let reached = |seconds: u64| used >= seconds.saturating_mul(SECOND);
    if limit.current == INFINITY {
        Verdict::Unlimited
    } else if limit.maximum != INFINITY && reached(limit.maximum) {
        Verdict::Kill
    } else if reached(limit.current) {
        Verdict::Warn(limit.current + 1)
    } else {
        Verdict::Within(limit.current.saturating_mul(SECOND) - used)
    }
}

/// Returns the shortest time in which a process can use `left` nanoseconds of CPU time on `cpus` CPUs.
fn wait(left: u64, cpus: u64) -> u64 {
    (left / cpus).max(TICK)
}

impl Process {
    /// Starts enforcing the limit after it was set or inherited by a new process.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the limit is then not enforced.
    pub(crate) fn watch_cpu_limit(self: &Arc<Self>) -> Result<(), OutOfMemory> {
        self.set_cpu_deadline(|| {
            let limit = self.identity.soft_limit(Resource::Cpu);
            (limit != INFINITY).then_some(TICK)
        })
    }

    /// Starts enforcing the limit of a new process, if it inherited one.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(crate) fn inherit_cpu_limit(self: &Arc<Self>) -> Result<(), OutOfMemory> {
        if self.identity.soft_limit(Resource::Cpu) == INFINITY {
            return Ok(());
        }
        self.watch_cpu_limit()
    }

    /// Stops enforcing the limit of a process that has exited.
    pub(crate) fn forget_cpu_limit(self: &Arc<Self>) {
        if self.cpu_limit.is_set() {
            // Removing the deadline needs no memory.
            let _ = self.set_cpu_deadline(|| None);
        }
    }

    fn set_cpu_deadline(
        self: &Arc<Self>,
        wait: impl FnOnce() -> Option<u64>,
    ) -> Result<(), OutOfMemory> {
        let this: Arc<dyn Expiry> = self.clone();
        self.cpu_limit
            .set(self.tasks.scheduler, &Arc::downgrade(&this), wait)
    }

    /// Returns the CPU time in user mode and in the kernel, in nanoseconds.
    fn cpu_time(&self) -> u64 {
        let ended = self.usage.snapshot();
        let mut time = ended.user + ended.system;
        self.each_thread(|thread| {
            let usage = self.tasks.scheduler.usage_of(thread);
            time += usage.user + usage.system;
        });
        time
    }

    /// Handles the expiration of the deadline: checks whether the process has reached its limit, and acts accordingly.
    pub(super) fn check_cpu_limit(self: &Arc<Self>) {
        let used = self.cpu_time();
        let lives = !self.signals.lock().threads.is_empty();
        let cpus = self.tasks.scheduler.all_cpus().len().into();
        let mut verdict = Verdict::Unlimited;
        // There is memory for the new deadline: the expired one has freed it.
        let _ = self.set_cpu_deadline(|| {
            // This runs under the deadline's lock, so a thread that sets the limit at the same time sets the deadline
            // again afterwards.
            let mut limits = self.identity.limits.lock();
            verdict = judge(limits.get(Resource::Cpu), used);
            let left = match verdict {
                Verdict::Within(left) if lives => left,
                Verdict::Warn(raised) if lives => {
                    limits.set_current(Resource::Cpu, raised);
                    raised.saturating_mul(SECOND).saturating_sub(used)
                }
                Verdict::Unlimited | Verdict::Within(_) | Verdict::Warn(_) | Verdict::Kill => {
                    return None;
                }
            };
            Some(wait(left, cpus))
        });
        let signal = match verdict {
            Verdict::Unlimited | Verdict::Within(_) => return,
            Verdict::Warn(_) => Signal::SIGXCPU,
            Verdict::Kill => Signal::SIGKILL,
        };
        send_to_process(self, SignalInfo::kernel(signal));
    }
}

#[cfg(test)]
mod tests {
    use super::{INFINITY, Limit, SECOND, TICK, Verdict, judge, wait};

    #[test]
    fn limits_ask_for_signals() {
        for (current, maximum, used, verdict) in [
            (INFINITY, INFINITY, 9 * SECOND, Verdict::Unlimited),
            (INFINITY, 1, 9 * SECOND, Verdict::Unlimited),
            (0, INFINITY, 0, Verdict::Warn(1)),
            (2, INFINITY, SECOND, Verdict::Within(SECOND)),
            (2, INFINITY, 2 * SECOND - 1, Verdict::Within(1)),
            (2, INFINITY, 2 * SECOND, Verdict::Warn(3)),
            (2, 3, 2 * SECOND, Verdict::Warn(3)),
            (3, 3, 3 * SECOND - 1, Verdict::Within(1)),
            (3, 3, 3 * SECOND, Verdict::Kill),
            (0, 0, 0, Verdict::Kill),
            (1, INFINITY - 1, 5 * SECOND, Verdict::Warn(2)),
        ] {
            let limit = Limit { current, maximum };
            assert_eq!(judge(limit, used), verdict, "{limit:?}, {used}");
        }
    }

    #[test]
    fn a_process_on_every_cpu_does_not_pass_its_limit_unseen() {
        assert_eq!(wait(SECOND, 1), SECOND);
        assert_eq!(wait(SECOND, 4), SECOND / 4);
        assert_eq!(wait(1, 4), TICK);
    }
}
