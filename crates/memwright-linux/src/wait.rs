//! Wait queues.

use crate::{
    errno::Errno,
    kernel::Kernel,
    process::Thread,
    sync::{Lock, Rank},
};
use alloc::{sync::Arc, vec::Vec};

/// Why a wait ended without what was waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitError {
    /// A signal arrived.
    Interrupted,
    /// The deadline passed.
    TimedOut,
}

impl WaitError {
    /// The error of a call that is restarted after a signal and has no timeout
    /// (`ERESTARTSYS`; a deadline becomes `EAGAIN`).
    pub fn restart(self) -> Errno {
        match self {
            Self::Interrupted => Errno::ERESTARTSYS,
            Self::TimedOut => Errno::EAGAIN,
        }
    }

    /// The error of a call that is never restarted after a handler ran
    /// (`EINTR`; a deadline becomes `EAGAIN`).
    pub fn interrupt(self) -> Errno {
        match self {
            Self::Interrupted => Errno::EINTR,
            Self::TimedOut => Errno::EAGAIN,
        }
    }
}

/// What ends a wait early.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Interest {
    /// Any signal that the thread does not block.
    Signals,
    /// The end of the process only.
    Fatal,
}

/// Threads that wait for something, first come first.
pub struct WaitQueue {
    /// Empty most of the time; allocated by the first waiter.
    waiters: Lock<Vec<Arc<Thread>>>,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitQueue {
    /// A queue without waiters.
    pub const fn new() -> Self {
        Self {
            waiters: Lock::new(Rank::Wait, Vec::new()),
        }
    }

    /// Adds a waiter at the end.
    pub(crate) fn add(&self, thread: &Arc<Thread>) {
        self.waiters.lock().push(thread.clone());
    }

    /// Removes a waiter wherever it stands.
    pub(crate) fn remove(&self, thread: &Arc<Thread>) {
        let mut waiters = self.waiters.lock();
        if let Some(position) = waiters
            .iter()
            .position(|waiter| Arc::ptr_eq(waiter, thread))
        {
            waiters.remove(position);
        }
    }

    /// Somebody waits.
    pub fn has_waiters(&self) -> bool {
        !self.waiters.lock().is_empty()
    }

    /// Wakes the first waiter.
    pub fn wake_one(&self, kernel: &Kernel) {
        let first = {
            let mut waiters = self.waiters.lock();
            if waiters.is_empty() {
                None
            } else {
                Some(waiters.remove(0))
            }
        };
        if let Some(thread) = first {
            kernel.scheduler.wake(kernel, &thread);
        }
    }

    /// Wakes every waiter, in the order in which they came.
    pub fn wake_all(&self, kernel: &Kernel) {
        let waiters = core::mem::take(&mut *self.waiters.lock());
        for thread in waiters {
            kernel.scheduler.wake(kernel, &thread);
        }
    }
}
