//! The part of the CPU time that a clock or a timer counts.

use memwright_linux_sched::scheduler::UsageSnapshot;

/// The kind of CPU time that a clock counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Time in user mode.
    User,
    /// Time in user mode and in the kernel.
    All,
}

impl Counted {
    /// Returns the nanoseconds of this kind of CPU time in `usage`.
    #[must_use]
    pub fn of(self, usage: &UsageSnapshot) -> u64 {
        match self {
            Self::User => usage.user,
            Self::All => usage.user + usage.system,
        }
    }
}
