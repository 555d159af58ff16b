//! When work in the background goes on.

use super::Expiry;
use crate::{
    kernel::Kernel,
    scheduler::{TimerAction, TimerKey},
    sync::{Lock, Rank},
};
use alloc::sync::Weak;
use memwright_table::OutOfMemory;

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
    /// Whoever is told that it rang has to call this, and finds room.
    ///
    /// # Errors
    /// [`OutOfMemory`]; there is none then.
    pub(crate) fn set<E: Expiry + 'static>(
        &self,
        kernel: &Kernel,
        whose: &Weak<E>,
        wait: impl FnOnce() -> Option<u64>,
    ) -> Result<(), OutOfMemory> {
        // Under the lock there need not be room: then who asks for a deadline finds it here.
        let room = kernel.scheduler.make_room_for_timer(kernel);
        let mut timer = self.0.lock();
        if let Some(old) = timer.take() {
            kernel.scheduler.remove_timer(kernel, old);
        }
        if let Some(wait) = wait() {
            room?;
            let at = kernel.host.now().saturating_add(wait);
            let action = TimerAction::Expire(whose.clone());
            *timer = Some(kernel.scheduler.add_timer(kernel, at, action)?);
        }
        Ok(())
    }
}
