//! The timer of work that is done in steps.

use crate::scheduler::{Expiry, TimerKey, Timers};
use alloc::sync::Weak;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::OutOfMemory;

/// The timer for the next step of work that is done in steps. At most one timer is set at a time, even if several CPUs
/// set it at once, or one of them sets it while it expires.
pub struct NextLook(Lock<Option<TimerKey>>);

impl NextLook {
    /// Creates the state in which no timer is set.
    pub fn none() -> Self {
        Self(Lock::new(Rank::Process, None))
    }

    /// Returns whether a timer is set. Its deadline may have just passed.
    pub fn is_set(&self) -> bool {
        self.0.lock().is_some()
    }

    /// Replaces the timer. `wait` is called under the lock and returns the delay in nanoseconds, or `None` for no
    /// timer. Code that handles an expiration must call this function, which then always has memory for the timer.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory for a timer; there is then no timer.
    pub fn set(
        &self,
        timers: &dyn Timers,
        whose: &Weak<dyn Expiry>,
        wait: impl FnOnce() -> Option<u64>,
    ) -> Result<(), OutOfMemory> {
        // Do not return an error yet: `wait` decides under the lock whether a timer is needed.
        let room = timers.make_room_for_timer();
        let mut timer = self.0.lock();
        if let Some(old) = timer.take() {
            timers.remove_timer(old);
        }
        if let Some(wait) = wait() {
            room?;
            let at = timers.now().saturating_add(wait);
            *timer = Some(timers.add_timer(at, whose.clone())?);
        }
        Ok(())
    }
}
