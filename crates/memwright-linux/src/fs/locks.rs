//! The advisory locks of a node, and waiting for them.

use super::lock_waits::WaitRefused;
use super::record_locks::{AcquireError, RecordLocks};
pub use super::record_locks::{Holder, Record, Strength};
use crate::{
    context::Context,
    errno::Errno,
    kernel::Kernel,
    sync::{Lock, Rank},
    wait::WaitQueue,
};
use core::sync::atomic::{AtomicBool, Ordering};
use memwright_table::OutOfMemory;

/// Which of the two kinds of lock: they do not know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockFamily {
    /// `fcntl`: ranges.
    Record,
    /// `flock`: the whole file.
    Whole,
}

/// The advisory locks of a node.
pub struct FileLocks {
    /// Nothing else is locked under it: an open file gives up its locks wherever it is dropped,
    /// which may be with the last area that maps it.
    state: Lock<State>,
    /// Set by the first lock ever taken: closing a file that was never locked looks no further.
    used: AtomicBool,
    released: WaitQueue,
}

#[derive(Default)]
struct State {
    records: RecordLocks,
    whole: RecordLocks,
}

impl State {
    fn family(&mut self, family: LockFamily) -> &mut RecordLocks {
        match family {
            LockFamily::Record => &mut self.records,
            LockFamily::Whole => &mut self.whole,
        }
    }
}

impl Default for FileLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl FileLocks {
    /// No locks.
    #[must_use]
    pub const fn new() -> Self {
        let state = State {
            records: RecordLocks::new(),
            whole: RecordLocks::new(),
        };
        Self {
            state: Lock::new(Rank::Leaf, state),
            used: AtomicBool::new(false),
            released: WaitQueue::new(),
        }
    }

    /// The lock that stands in the way of `wanted`, if any.
    #[must_use]
    pub fn conflict(&self, wanted: &Record) -> Option<Record> {
        self.state.lock().records.conflict(wanted)
    }

    /// Takes a lock, in place of what its holder had on that range.
    ///
    /// # Errors
    /// `EAGAIN` if another lock stands in the way and `wait` is false, `EDEADLK` if its holder waits for a lock of the
    /// process, `ERESTARTSYS` if a signal ended the wait, `ENOLCK` without memory.
    pub fn acquire(
        &self,
        context: &Context<'_>,
        family: LockFamily,
        wanted: Record,
        wait: bool,
    ) -> Result<(), Errno> {
        context.check_heap()?;
        self.used.store(true, Ordering::Relaxed);
        let attempt = || match self.state.lock().family(family).acquire(wanted) {
            Ok(()) => Ok(None),
            Err(AcquireError::Conflict(conflict)) => Ok(Some(conflict)),
            Err(AcquireError::OutOfMemory) => Err(Errno::ENOLCK),
        };
        if attempt()?.is_none() {
            // A weaker lock in place of a stronger one may let others in.
            self.released.wake_all(context.kernel);
            return Ok(());
        }
        if !wait {
            return Err(Errno::EAGAIN);
        }
        let waited = context.wait_until(&[&self.released], None, || match attempt() {
            Ok(None) => Some(Ok(())),
            Ok(Some(conflict)) => note_wait(context, wanted.holder, conflict.holder)
                .err()
                .map(Err),
            Err(error) => Some(Err(error)),
        });
        if let Holder::Process(process) = wanted.holder {
            let waits = &context.kernel.lock_waits;
            waits.end(process, context.thread.id().into());
        }
        waited.map_err(|error| error.restart())?
    }

    /// Gives up what `holder` has between `first` and `last`.
    ///
    /// # Errors
    /// `ENOLCK` without memory for the two parts of a lock that is cut.
    pub fn release(
        &self,
        kernel: &Kernel,
        family: LockFamily,
        holder: Holder,
        first: u64,
        last: u64,
    ) -> Result<(), Errno> {
        if self.used.load(Ordering::Relaxed) {
            let mut state = self.state.lock();
            let released = state.family(family).release(holder, first, last);
            drop(state);
            released.map_err(|OutOfMemory| Errno::ENOLCK)?;
            self.released.wake_all(kernel);
        }
        Ok(())
    }

    /// Gives up everything that `holder` has: a descriptor of it was closed.
    pub fn forget(&self, kernel: &Kernel, holder: Holder) {
        if !self.used.load(Ordering::Relaxed) {
            return;
        }
        let released = {
            let mut state = self.state.lock();
            state.records.release_all(holder) | state.whole.release_all(holder)
        };
        if released {
            self.released.wake_all(kernel);
        }
    }
}

/// Notes that the calling thread waits for a lock of `blocker`. Only processes can be found to wait for each other: an
/// open file may be used by several (Linux 7.3 `fs/locks.c`, `posix_locks_deadlock`).
fn note_wait(context: &Context<'_>, waiter: Holder, blocker: Holder) -> Result<(), Errno> {
    let waits = &context.kernel.lock_waits;
    let thread = context.thread.id().into();
    match (waiter, blocker) {
        (Holder::Process(process), Holder::Process(blocker)) => waits
            .begin(process, thread, blocker)
            .map_err(|refused| match refused {
                WaitRefused::Deadlock => Errno::EDEADLK,
                WaitRefused::OutOfMemory => Errno::ENOLCK,
            }),
        (Holder::Process(process), Holder::OpenFile(_)) => {
            waits.end(process, thread);
            Ok(())
        }
        (Holder::OpenFile(_), Holder::Process(_) | Holder::OpenFile(_)) => Ok(()),
    }
}
