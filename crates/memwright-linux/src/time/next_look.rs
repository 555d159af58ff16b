//! When work in the background goes on.

use super::Expiry;
use crate::{
    kernel::Kernel,
    scheduler::{TimerAction, TimerKey},
    sync::{Lock, Rank},
};
use alloc::sync::Weak;

/// The next deadline of a scan that goes on in the background as long as there is something to do: one at most, however
/// often and on however many CPUs it is set while one rings.
pub(crate) struct NextLook(Lock<Option<TimerKey>>);

impl NextLook {
    /// None.
    pub(crate) fn none() -> Self {
        Self(Lock::new(Rank::Process, None))
    }

    /// Whether there is one, or one rings at this moment.
    pub(crate) fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Sets it anew, in place of the one before: so many nanoseconds away, or none, as `wait` says once nobody else decides.
    /// Whoever is told that it rang has to call this.
    pub(crate) fn set<E: Expiry + 'static>(
        &self,
        kernel: &Kernel,
        whose: &Weak<E>,
        wait: impl FnOnce() -> Option<u64>,
    ) {
        let mut timer = self.0.lock();
        if let Some(old) = timer.take() {
            kernel.scheduler.remove_timer(kernel, old);
        }
        *timer = wait().map(|wait| {
            let at = kernel.host.now().saturating_add(wait);
            let action = TimerAction::Expire(whose.clone());
            kernel.scheduler.add_timer(kernel, at, action)
        });
    }
}
