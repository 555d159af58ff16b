//! `FUTEX_WAIT` and `FUTEX_WAIT_BITSET`.

use super::{Futexes, Waiter, key};
use alloc::sync::Arc;
use memwright_linux_abi::{Space, errno::Errno};
use memwright_linux_sched::wait::{Interest, WaitError};
use memwright_linux_tasks::process::{RestartBlock, Thread, WaitRequest};

impl Futexes {
    /// Waits until another thread wakes the waiters of the word at `address` (`futex_wait` of Linux 7.2,
    /// `kernel/futex/waitwake.c`).
    ///
    /// # Errors
    /// `EAGAIN` if the word does not have the expected value, `ETIMEDOUT`, `EINVAL`, `EFAULT`, `ENOMEM`. A call that a
    /// signal interrupts returns `ERESTARTSYS`, or `ERESTART_RESTARTBLOCK` if it has a deadline.
    pub fn wait(
        &self,
        thread: &Arc<Thread>,
        space: &Arc<Space>,
        request: WaitRequest,
    ) -> Result<u64, Errno> {
        if request.bits == 0 {
            return Err(Errno::EINVAL);
        }
        self.enter(thread, space, &request)?;
        let woken = || thread.futex.bucket().is_none().then_some(());
        let outcome = self
            .oom
            .wait(thread, &[], request.deadline, Interest::Signals, woken);
        let Err(error) = outcome else {
            return Ok(0);
        };
        if !self.withdraw(thread) {
            // A signal or the deadline ended the wait, but a waker had already removed the thread from the bucket.
            return Ok(0);
        }
        let Some(deadline) = request.deadline else {
            return Err(Errno::ERESTARTSYS);
        };
        if error == WaitError::TimedOut || self.clock.now() >= deadline {
            return Err(Errno::ETIMEDOUT);
        }
        *thread.restart.lock() = Some(RestartBlock::Futex(request));
        Err(Errno::ERESTART_RESTARTBLOCK)
    }

    /// Checks that the word has the expected value, and adds the thread to the bucket. Both steps are under the
    /// bucket's lock.
    fn enter(
        &self,
        thread: &Arc<Thread>,
        space: &Arc<Space>,
        request: &WaitRequest,
    ) -> Result<(), Errno> {
        loop {
            let found = key::find(space, request.address, request.scope, false)?;
            let bucket = key::bucket_of(found.key);
            {
                let mut queue = self.lock_with_room(bucket)?;
                match self.user.user_peek32(request.address) {
                    Some(value) if value == request.value => {
                        let waiter = Waiter {
                            thread: thread.clone(),
                            object: found.object,
                        };
                        let position = queue.push(found.key, request.bits, waiter)?;
                        thread.futex.enter(bucket, position);
                        return Ok(());
                    }
                    Some(_) => return Err(Errno::EAGAIN),
                    None => {}
                }
            }
            self.user
                .user_load32(request.address)
                .map_err(|_| Errno::EFAULT)?;
        }
    }

    /// Removes the thread from its bucket. Returns false if the thread has been woken in the meantime.
    fn withdraw(&self, thread: &Arc<Thread>) -> bool {
        while let Some(bucket) = thread.futex.bucket() {
            let waiter = {
                let mut queue = self.lock(bucket);
                // The thread may have been requeued or woken before this code took the lock.
                if thread.futex.bucket() != Some(bucket) {
                    continue;
                }
                let position = thread.futex.position();
                thread.futex.leave();
                position.and_then(|position| queue.remove(position))
            };
            // Release the object without holding the lock.
            drop(waiter);
            return true;
        }
        false
    }
}
