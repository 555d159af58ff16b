//! The data of the POSIX timers of a process.

use super::{Counted, CpuClock, Process, Thread};
use alloc::sync::{Arc, Weak};
use memwright_linux_abi::signal::Signal;
use memwright_linux_base::{
    ordered::Ordered,
    sync::{Lock, PausePoints, Rank},
};
use memwright_linux_sched::{scheduler::TimerKey, time::Schedule};

/// Number of timers that are visited between two scheduling points.
pub(super) const TOGETHER: u32 = 64;

/// The notification that an expiration causes (`sigev_notify`).
pub enum Notice {
    /// No effect (`SIGEV_NONE`).
    None,
    /// A signal to the process.
    Process(Signal),
    /// A signal to a thread.
    Thread(Signal, Weak<Thread>),
}

impl Notice {
    pub(super) fn signal(&self) -> Option<Signal> {
        match self {
            Self::None => None,
            Self::Process(signal) | Self::Thread(signal, _) => Some(*signal),
        }
    }
}

/// The clock of a timer.
#[derive(Debug)]
pub enum TimerClock {
    /// The host's clock. Times that the program uses are ahead of it by this number of nanoseconds.
    Host(u64),
    /// A clock that measures CPU time.
    Cpu(CpuClock),
}

impl TimerClock {
    /// Returns the number of nanoseconds by which times that the program uses are ahead of the clock.
    #[must_use]
    pub fn ahead(&self) -> u64 {
        match self {
            Self::Host(ahead) => *ahead,
            Self::Cpu(_) => 0,
        }
    }

    pub(super) fn measures(&self) -> bool {
        match self {
            Self::Host(_) => false,
            Self::Cpu(_) => true,
        }
    }

    pub(super) fn measures_thread(&self) -> bool {
        self.measures() && self.of_process().is_none()
    }

    /// Returns the kind of CPU time that the clock counts; `None` if the clock does not measure the CPU time of the
    /// process.
    pub(super) fn of_process(&self) -> Option<Counted> {
        match self {
            Self::Host(_) => None,
            Self::Cpu(clock) => clock.of_process(),
        }
    }
}

/// The state of a timer's signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// No signal is pending.
    #[default]
    Nowhere,
    /// The signal is pending. When it is delivered, it reports an expiration.
    Pending,
    /// The signal is pending, but the timer has been set again since the signal was sent. The signal is discarded when
    /// a thread dequeues it.
    Stale,
    /// The signal was sent while the process ignored it, and is sent again when the process no longer ignores it.
    Ignored,
}

/// The mechanism that detects the next expiration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deadline {
    /// A timer of the host's clock.
    Host(TimerKey),
    /// A check of the process's CPU time, when it reaches this number of nanoseconds.
    Cpu(u64),
}

/// The work that remains after the deadline of a timer was set. The caller does it after it has released the lock of
/// the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Armed {
    /// No work remains.
    Complete,
    /// The expiration is now the earliest one of the process for its kind of CPU time. The caller moves the next check
    /// of that time forward.
    First,
}

/// The mutable state of a timer.
#[derive(Default)]
pub(super) struct State {
    pub(super) schedule: Schedule,
    pub(super) deadline: Option<Deadline>,
    pub(super) place: Place,
    /// `si_overrun` of the last signal that was delivered: the number of expirations that it reported, less one.
    pub(super) overrun: i32,
}

/// A POSIX timer.
pub struct PosixTimer {
    pub(super) id: i32,
    pub(super) process: Weak<Process>,
    pub(super) notice: Notice,
    /// The value that the signal carries.
    pub(super) value: u64,
    /// The clock that the timer follows.
    pub clock: TimerClock,
    pub(super) state: Lock<State>,
}

/// The POSIX timers of a process.
pub struct PosixTimers(pub(super) Lock<Table>);

pub(super) struct Table {
    pub(super) timers: Ordered<i32, Arc<PosixTimer>>,
    pub(super) count: u64,
    /// The number of timers that measure the CPU time of threads.
    pub(super) measuring: u64,
    pub(super) next: i32,
}

impl Default for PosixTimers {
    fn default() -> Self {
        let table = Table {
            timers: Ordered::new(),
            count: 0,
            measuring: 0,
            next: 0,
        };
        Self(Lock::new(Rank::Process, table))
    }
}

impl PosixTimers {
    pub(super) fn from(&self, first: i32) -> Option<Arc<PosixTimer>> {
        let table = self.0.lock();
        let found = table.timers.first_from(&first);
        found.map(|(_, timer)| timer.clone())
    }

    /// Calls `act` for each timer, in the order of their ids.
    pub(super) fn each(&self, mut act: impl FnMut(&Arc<PosixTimer>)) {
        let mut points = PausePoints::every(TOGETHER);
        let mut next = self.from(0);
        while let Some(timer) = next {
            act(&timer);
            points.round();
            next = timer.id.checked_add(1).and_then(|id| self.from(id));
        }
    }
}
