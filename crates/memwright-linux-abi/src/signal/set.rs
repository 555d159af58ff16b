//! Sets of signals.

use super::Signal;

/// A set of signals in the format of `sigset_t`: bit n stands for signal n + 1.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SignalSet(pub u64);

impl SignalSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);
    /// The signals that cannot be blocked, caught or ignored.
    pub const UNBLOCKABLE: Self = Self::EMPTY.with(Signal::SIGKILL).with(Signal::SIGSTOP);
    /// Signals raised by the thread's own instructions. They are delivered before all other signals (`SYNCHRONOUS_MASK`
    /// of Linux 7.2, `kernel/signal.c`).
    pub const SYNCHRONOUS: Self = Self::EMPTY
        .with(Signal::SIGSEGV)
        .with(Signal::SIGBUS)
        .with(Signal::SIGILL)
        .with(Signal::SIGTRAP)
        .with(Signal::SIGFPE)
        .with(Signal::SIGSYS);
    /// Signals that stop a process by default.
    pub const STOPPING: Self = Self::EMPTY
        .with(Signal::SIGSTOP)
        .with(Signal::SIGTSTP)
        .with(Signal::SIGTTIN)
        .with(Signal::SIGTTOU);

    const fn bit(signal: Signal) -> u64 {
        1 << (signal.number() - 1)
    }

    /// Returns this set with `signal` added.
    #[must_use]
    pub const fn with(self, signal: Signal) -> Self {
        Self(self.0 | Self::bit(signal))
    }

    /// Returns this set without `signal`.
    #[must_use]
    pub const fn without(self, signal: Signal) -> Self {
        Self(self.0 & !Self::bit(signal))
    }

    /// Returns the signals of this set that are not in `other`.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Returns the signals that are in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the signals that are in both sets.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Returns whether the signal is in the set.
    pub const fn contains(self, signal: Signal) -> bool {
        self.0 & Self::bit(signal) != 0
    }

    /// Returns whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the signal that is delivered first. Synchronous signals precede all others. Among the signals of each of
    /// these two groups, the lowest number is first. Returns `None` for the empty set.
    pub const fn first(self) -> Option<Signal> {
        let synchronous = self.intersection(Self::SYNCHRONOUS).0;
        let candidates = if synchronous != 0 {
            synchronous
        } else {
            self.0
        };
        Signal::new(candidates.trailing_zeros() as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{Signal, SignalSet};

    #[test]
    fn synchronous_signals_come_first() {
        let set = SignalSet::EMPTY
            .with(Signal::SIGHUP)
            .with(Signal::SIGSEGV)
            .with(Signal::SIGBUS);
        assert_eq!(set.first(), Some(Signal::SIGBUS));
        assert_eq!(set.without(Signal::SIGBUS).first(), Some(Signal::SIGSEGV));
        assert_eq!(
            SignalSet::EMPTY.with(Signal::SIGHUP).first(),
            Some(Signal::SIGHUP)
        );
        assert_eq!(SignalSet::EMPTY.first(), None);
        assert_eq!(SignalSet(1 << 63).first().map(Signal::number), Some(64));
    }
}
