//! Waits of a thread in wait queues.

use super::{Schedulable, Scheduler, Sleep};
use crate::wait::{Interest, WaitError, WaitQueue};
use alloc::sync::Arc;
use memwright_linux_base::sync::{PausePoints, assert_none_held};
use memwright_table::OutOfMemory;

/// Number of queues that a thread enters or leaves between two scheduling points.
const QUEUES: u32 = 256;

impl<T: Schedulable> Scheduler<T> {
    /// Makes the calling thread wait in each of `queues` until `ready` returns `Some`. `ready` is called first, and
    /// again after each wakeup. No queue may occur in `queues` twice.
    ///
    /// The inner result is the value that `ready` returned, or the reason why the wait ended before that.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no memory for the timer or for the thread's entry in a queue. The thread is then in
    /// no queue, and the condition does not hold.
    ///
    /// # Locks
    /// The caller holds no lock.
    #[inline]
    pub fn wait_in<'a, V>(
        &self,
        thread: &Arc<T>,
        queues: &(impl Iterator<Item = &'a WaitQueue> + Clone),
        deadline: Option<u64>,
        interest: Interest,
        ready: &mut impl FnMut() -> Option<V>,
    ) -> Result<Result<V, WaitError>, OutOfMemory> {
        assert_none_held();
        loop {
            // Announce before entering the queues and before checking any condition: see the documentation of the
            // module `scheduler`.
            thread.run.announce();
            let mut points = PausePoints::every(QUEUES);
            let entered = queues.clone().try_for_each(|queue| {
                points.round();
                queue.add(thread.clone())
            });
            let mut without_memory = entered.is_err();
            let interrupted = match interest {
                Interest::Signals => thread.signal_pending(),
                Interest::Fatal | Interest::Continuation | Interest::Tracer => {
                    thread.fatal_pending()
                }
            };
            let outcome = if let Some(value) = ready() {
                Some(Ok(value))
            } else if interrupted {
                Some(Err(WaitError::Interrupted))
            } else if deadline.is_some_and(|deadline| self.host.now() >= deadline) {
                Some(Err(WaitError::TimedOut))
            } else if without_memory {
                None
            } else {
                thread.note_sleep(Sleep {
                    what: queues.clone().next().map_or("a wake", WaitQueue::name),
                    interest,
                    since: self.host.now(),
                    deadline,
                });
                without_memory = self.block(thread, deadline).is_err();
                None
            };
            thread.run.stay();
            let gives_up = match outcome {
                Some(Err(_)) => true,
                Some(Ok(_)) => false,
                None => without_memory,
            };
            for queue in queues.clone() {
                points.round();
                let taken = !queue.remove(thread);
                // A wakeup of a single waiter chose this thread, but its wait ends for another reason: wake the next
                // waiter instead.
                if taken && gives_up {
                    queue.wake_one();
                }
            }
            if let Some(outcome) = outcome {
                return Ok(outcome);
            }
            if without_memory {
                return Err(OutOfMemory);
            }
        }
    }
}
