//! `RLIMIT_CPU`: SIGXCPU at the soft limit and every second from then on, SIGKILL at the hard limit
//! (`check_process_timers` of Linux 6.18, `kernel/time/posix-cpu-timers.c`).

use super::{Process, counted::Counted};
use memwright_linux_abi::{abi::SECOND, signal::Signal};
use memwright_linux_sched::scheduler::UsageSnapshot;
use memwright_linux_vfs::identity::{INFINITY, Limit, Resource};

/// The action that `RLIMIT_CPU` requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// There is no limit.
    Unlimited,
    /// No action yet. The process can use this many more nanoseconds of CPU time.
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

impl Process {
    /// Returns the nanoseconds that the process can use before the limit requires an action; `None` without a limit.
    pub(super) fn cpu_limit_left(&self, used: &UsageSnapshot) -> Option<u64> {
        let limit = self.identity.limits.lock().get(Resource::Cpu);
        match judge(limit, Counted::All.of(used)) {
            Verdict::Unlimited => None,
            Verdict::Within(left) => Some(left),
            Verdict::Warn(_) | Verdict::Kill => Some(0),
        }
    }

    /// Returns the signal that the limit requires for a process that has used the CPU time `used`. Raises the soft
    /// limit if the process has reached it.
    pub(super) fn enforce_cpu_limit(&self, used: &UsageSnapshot) -> Option<Signal> {
        let mut limits = self.identity.limits.lock();
        match judge(limits.get(Resource::Cpu), Counted::All.of(used)) {
            Verdict::Unlimited | Verdict::Within(_) => None,
            Verdict::Warn(raised) => {
                limits.set_current(Resource::Cpu, raised);
                Some(Signal::SIGXCPU)
            }
            Verdict::Kill => Some(Signal::SIGKILL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{INFINITY, Limit, SECOND, Verdict, judge};

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
}
