//! Taking turns across user copies, which no spin lock may span.

use crate::{context::Context, errno::Errno, kernel::Kernel, wait::WaitQueue};
use core::sync::atomic::{AtomicBool, Ordering};

/// Lets one thread at a time through; the others sleep.
#[derive(Default)]
pub struct Turn {
    taken: AtomicBool,
    queue: WaitQueue,
}

impl Turn {
    /// A turn that nobody has.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            taken: AtomicBool::new(false),
            queue: WaitQueue::new(),
        }
    }

    /// Waits for the turn.
    ///
    /// # Errors
    /// `ERESTARTSYS` when a signal came first.
    pub fn take<'a>(&'a self, context: &Context<'_>) -> Result<TurnGuard<'a>, Errno> {
        if self.taken.swap(true, Ordering::Acquire) {
            let free = || (!self.taken.swap(true, Ordering::Acquire)).then_some(());
            if let Err(error) = context.wait_until(&[&self.queue], None, free) {
                // The wake that passed the turn on may have been for this thread.
                if !self.taken.load(Ordering::Acquire) {
                    self.queue.wake_one(context.kernel);
                }
                return Err(error.restart());
            }
        }
        Ok(TurnGuard {
            turn: self,
            kernel: context.kernel,
        })
    }
}

/// The turn; it passes on when dropped.
#[must_use = "the turn passes on when the guard is dropped"]
pub struct TurnGuard<'a> {
    turn: &'a Turn,
    kernel: &'static Kernel,
}

impl Drop for TurnGuard<'_> {
    fn drop(&mut self) {
        self.turn.taken.store(false, Ordering::Release);
        if self.turn.queue.has_waiters() {
            self.turn.queue.wake_one(self.kernel);
        }
    }
}
