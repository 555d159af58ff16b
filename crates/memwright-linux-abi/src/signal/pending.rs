//! Pending signals, which were sent and not yet delivered.

use super::{Signal, SignalInfo, SignalSet};
use alloc::vec::Vec;
use memwright_table::TryPush;

/// The set of pending signals, and the queue of their causes in the order of arrival. A signal can be pending without a
/// cause in the queue.
#[derive(Debug, Default)]
pub struct Pending {
    set: SignalSet,
    queue: Vec<SignalInfo>,
}

impl Pending {
    /// Returns the set of pending signals.
    pub fn set(&self) -> SignalSet {
        self.set
    }

    /// Returns the number of signals that are queued together with their causes.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns whether no signal is pending.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Adds a signal. Returns false if it is a standard signal that is pending already; such a signal is not queued
    /// again. If there is no memory for the cause, the signal becomes pending without its cause.
    pub fn add(&mut self, info: SignalInfo) -> bool {
        self.add_queued(info, true)
    }

    /// Adds a signal like `add`, but queues its cause only if `is_queued` is set. The signal of a POSIX timer is added
    /// only if it can be queued.
    pub fn add_queued(&mut self, info: SignalInfo, is_queued: bool) -> bool {
        if info.is_of_timer() {
            // Queue the signal even if a signal of another timer with the same number is pending. The timer of `info`
            // sends no further signal until this signal is delivered.
            let queued = is_queued && self.queue.try_push(info).is_ok();
            if queued {
                self.set = self.set.with(info.signal);
            }
            return queued;
        }
        if self.set.contains(info.signal) && !info.signal.is_real_time() {
            return false;
        }
        self.set = self.set.with(info.signal);
        if is_queued {
            let _ = self.queue.try_push(info);
        }
        true
    }

    /// Removes and returns the signal that is delivered first among the signals that are not in `blocked`: see
    /// [`SignalSet::first`].
    pub fn take(&mut self, blocked: SignalSet) -> Option<SignalInfo> {
        let signal = self.set.minus(blocked).first()?;
        let position = self.queue.iter().position(|info| info.signal == signal);
        let info = position.map(|position| self.queue.remove(position));
        if !self.queue.iter().any(|info| info.signal == signal) {
            self.set = self.set.without(signal);
        }
        Some(info.unwrap_or(SignalInfo {
            signal,
            code: super::code::SI_USER,
            errno: 0,
            detail: super::Detail::None,
        }))
    }

    /// Returns the queued signal at the index `position` in the order of arrival.
    pub fn queued_at(&self, position: u64) -> Option<SignalInfo> {
        let position = usize::try_from(position).ok()?;
        self.queue.get(position).copied()
    }

    /// Discards the pending signals that are in `signals`.
    pub fn discard(&mut self, signals: SignalSet) {
        self.set = self.set.minus(signals);
        self.queue.retain(|info| !signals.contains(info.signal));
    }

    /// Discards one signal.
    pub fn discard_one(&mut self, signal: Signal) {
        self.discard(SignalSet::EMPTY.with(signal));
    }
}

#[cfg(test)]
mod tests {
    use super::{Pending, Signal, SignalInfo, SignalSet};

    #[test]
    fn standard_signals_are_pending_once_and_real_time_ones_queue() {
        let real_time = Signal::new(34).expect("a signal");
        let mut pending = Pending::default();
        for signal in [Signal::SIGUSR1, Signal::SIGUSR1, real_time, real_time] {
            pending.add(SignalInfo::kernel(signal));
        }
        assert_eq!(pending.len(), 3);
        let blocked = SignalSet::EMPTY.with(Signal::SIGUSR1);
        assert_eq!(
            pending.take(blocked).map(|info| info.signal),
            Some(real_time)
        );
        assert_eq!(
            pending.take(blocked).map(|info| info.signal),
            Some(real_time)
        );
        assert_eq!(pending.take(blocked), None);
        assert_eq!(
            pending.take(SignalSet::EMPTY).map(|i| i.signal),
            Some(Signal::SIGUSR1)
        );
        assert!(pending.is_empty());
    }

    #[test]
    fn discarded_signals_are_gone() {
        let mut pending = Pending::default();
        pending.add(SignalInfo::kernel(Signal::SIGTSTP));
        pending.add(SignalInfo::kernel(Signal::SIGCONT));
        pending.discard(SignalSet::STOPPING);
        assert_eq!(pending.set(), SignalSet::EMPTY.with(Signal::SIGCONT));
        assert_eq!(pending.len(), 1);
    }
}
