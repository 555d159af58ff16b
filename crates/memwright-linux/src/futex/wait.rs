//! `FUTEX_WAIT` and `FUTEX_WAIT_BITSET`.

use super::{Scope, Waiter, key};
use crate::{
    context::Context,
    errno::Errno,
    kernel::Kernel,
    process::{RestartBlock, Thread},
    wait::{Interest, WaitError},
};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU32, Ordering};

/// Where a thread waits: the number of its bucket, or nothing.
///
/// Changed under the lock of the bucket it names; whoever wakes the thread clears it first.
#[derive(Debug, Default)]
pub struct FutexPlace(AtomicU32);

impl FutexPlace {
    pub(super) fn enter(&self, bucket: u32) {
        self.0.store(bucket + 1, Ordering::SeqCst);
    }

    pub(super) fn leave(&self) {
        self.0.store(0, Ordering::SeqCst);
    }

    /// A thread waits for a word.
    pub(crate) fn is_waiting(&self) -> bool {
        self.bucket().is_some()
    }

    fn bucket(&self) -> Option<u32> {
        self.0.load(Ordering::SeqCst).checked_sub(1)
    }
}

/// What a thread waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitRequest {
    /// The word.
    pub(crate) address: u64,
    /// It waits only if the word has this value.
    pub(crate) value: u32,
    /// Wakes reach it whose bits meet these.
    pub(crate) bits: u32,
    /// Who may wake it.
    pub(crate) scope: Scope,
    /// Time of the host's clock.
    pub(crate) deadline: Option<u64>,
}

/// Waits until woken (`futex_wait` of Linux 7.2, `kernel/futex/waitwake.c`).
///
/// # Errors
/// `EAGAIN` when the word has another value, `ETIMEDOUT`, `EINVAL`, `EFAULT`, or what makes an
/// interrupted call start again: through `restart_syscall` if it has a deadline; `ENOMEM`.
pub(crate) fn wait(context: &Context<'_>, request: WaitRequest) -> Result<u64, Errno> {
    if request.bits == 0 {
        return Err(Errno::EINVAL);
    }
    let (kernel, thread) = (context.kernel, context.thread);
    enter(context, &request)?;
    let woken = || thread.futex.bucket().is_none().then_some(());
    let outcome = kernel.wait(thread, &[], request.deadline, Interest::Signals, woken);
    let Err(error) = outcome else {
        return Ok(0);
    };
    if !withdraw(kernel, thread) {
        // Woken after all, since.
        return Ok(0);
    }
    let Some(deadline) = request.deadline else {
        return Err(Errno::ERESTARTSYS);
    };
    if error == WaitError::TimedOut || kernel.host.now() >= deadline {
        return Err(Errno::ETIMEDOUT);
    }
    *thread.restart.lock() = Some(RestartBlock::Futex(request));
    Err(Errno::ERESTART_RESTARTBLOCK)
}

/// Enters the bucket if the word has the value, both under the bucket's lock.
fn enter(context: &Context<'_>, request: &WaitRequest) -> Result<(), Errno> {
    let (host, futexes) = (context.kernel.host, &context.kernel.futexes);
    loop {
        let found =
            context.with_space(|space| key::find(space, request.address, request.scope, false))?;
        let bucket = found.key.bucket();
        {
            let mut queue = futexes.lock_with_room(bucket, 1)?;
            match host.user_peek32(request.address) {
                Some(value) if value == request.value => {
                    context.thread.futex.enter(bucket);
                    let waiter = Waiter {
                        key: found.key,
                        bits: request.bits,
                        thread: context.thread.clone(),
                        object: found.object,
                    };
                    #[expect(clippy::disallowed_methods, reason = "there is room")]
                    queue.push(waiter);
                    return Ok(());
                }
                Some(_) => return Err(Errno::EAGAIN),
                None => {}
            }
        }
        host.user_load32(request.address)
            .map_err(|_| Errno::EFAULT)?;
    }
}

/// Leaves the bucket; `false` if somebody has woken the thread meanwhile.
fn withdraw(kernel: &Kernel, thread: &Arc<Thread>) -> bool {
    while let Some(bucket) = thread.futex.bucket() {
        let waiter = {
            let mut queue = kernel.futexes.lock(bucket);
            // Before the lock was held, it may have been moved to another bucket, or woken.
            if thread.futex.bucket() != Some(bucket) {
                continue;
            }
            thread.futex.leave();
            let at = |waiter: &Waiter| Arc::ptr_eq(&waiter.thread, thread);
            let position = queue.iter().position(at);
            position.map(|position| queue.remove(position))
        };
        // Its object is let go without the lock.
        drop(waiter);
        return true;
    }
    false
}
