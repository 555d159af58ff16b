//! A sleeping mutex. Unlike a spin lock, it can be held during copies from and to user space.

use core::sync::atomic::{AtomicBool, Ordering};
use memwright_linux_abi::errno::Errno;
use memwright_linux_sched::wait::{CanWait, WaitError, WaitQueue};

/// A mutex whose waiters sleep.
#[derive(Default)]
pub struct Turn {
    taken: AtomicBool,
    queue: WaitQueue,
}

impl Turn {
    /// Creates an unlocked mutex.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            queue: WaitQueue::new(),
        }
    }

    /// Acquires the mutex.
    ///
    /// # Errors
    /// `ERESTARTSYS` if a signal arrives first.
    pub fn take<W: CanWait + ?Sized>(&self, waiter: &W) -> Result<TurnGuard<'_>, Errno> {
        if self.taken.swap(true, Ordering::Acquire) {
            let mut took = false;
            let waited = waiter.wait(&[&self.queue], None, &mut || {
                took = !self.taken.swap(true, Ordering::Acquire);
                took
            });
            if !took {
                // The last release may have woken this thread, which now gives up. Wake another thread instead.
                if !self.taken.load(Ordering::Acquire) {
                    self.queue.wake_one();
                }
                return Err(waited.err().unwrap_or(WaitError::Interrupted).restart());
            }
        }
        Ok(TurnGuard { turn: self })
    }
}

/// The guard of an acquired mutex. The drop of the guard releases the mutex.
#[must_use = "the turn passes on when the guard is dropped"]
pub struct TurnGuard<'a> {
    turn: &'a Turn,
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.turn.taken.store(false, Ordering::Release);
        if self.turn.queue.has_waiters() {
            self.turn.queue.wake_one();
        }
    }
}
