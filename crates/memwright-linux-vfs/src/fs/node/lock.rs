//! Acquires an advisory lock, and waits for it.

use crate::fs::{
    caller::Caller,
    inode::Inode,
    locks::{FileLocks, Held, Holder, LockFamily, Record, queue::Request, waits::WaitRefused},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_table::OutOfMemory;

impl FileLocks {
    /// Takes the lock `wanted` on the file `inode`. It replaces the locks that its holder has in the same range. Waits
    /// for conflicting locks if `wait` is set.
    ///
    /// # Errors
    /// `EAGAIN` if another lock conflicts and `wait` is false, `EDEADLK` if the holder of that lock waits, directly or
    /// indirectly, for a lock of the calling process, `ERESTARTSYS` if a signal interrupts the wait, `ENOLCK` if memory
    /// is exhausted.
    pub fn acquire(
        caller: &dyn Caller,
        inode: &Arc<Inode>,
        (family, wanted): (LockFamily, Record),
        wait: bool,
        held: &Held,
    ) -> Result<(), Errno> {
        caller.check_heap()?;
        let (locks, vfs) = (&inode.locks, caller.vfs());
        locks.used.store(true, Ordering::Relaxed);
        if locks.attempt(family, wanted, held)?.is_none() {
            // The lock may have replaced a stronger one, so that other requests can be granted.
            locks.wake(family);
            return Ok(());
        }
        if !wait {
            return Err(Errno::EAGAIN);
        }
        let request = locks.state.lock().family(family).requests.add(wanted);
        let request = request.map_err(|OutOfMemory| Errno::ENOLCK)?;
        let acquired = locks.wait(caller, inode, (family, &request), || {
            locks.attempt(family, wanted, held)
        });
        locks.state.lock().family(family).requests.remove(&request);
        if let Holder::Process(process) = wanted.holder {
            vfs.lock_waits.end(process, caller.ids().thread.into());
        }
        // Wake the requests that earlier wake-ups skipped because they conflict with this request.
        locks.wake(family);
        acquired
    }

    /// Calls `attempt` until it takes the lock, and sleeps in between. `attempt` returns the conflicting lock if there
    /// is one.
    fn wait(
        &self,
        caller: &dyn Caller,
        inode: &Arc<Inode>,
        (family, request): (LockFamily, &Request),
        attempt: impl Fn() -> Result<Option<Record>, Errno>,
    ) -> Result<(), Errno> {
        let mut again = false;
        loop {
            // Reset the request before the attempt, so that a release after the attempt wakes it again.
            request.wait_again();
            let Some(conflict) = attempt()? else {
                return Ok(());
            };
            note_wait(caller, inode, &request.wanted, conflict.holder)?;
            if again {
                // The wake-up of this request made earlier scans skip the requests that conflict with it. This request
                // is blocked again, and the lock that blocks it does not necessarily block those requests. So wake
                // them.
                self.wake(family);
            }
            let woken = || request.is_woken().then_some(());
            let waited = caller.wait_until(&[&request.queue], None, woken);
            waited.map_err(|error| error.restart())?;
            again = true;
        }
    }
}

/// Records that the calling thread waits for a lock of `blocker`. Fails if this wait would complete a cycle of waiting
/// processes. Deadlocks are detected only between processes, because several processes can use the same open file
/// (Linux 7.3 `fs/locks.c`, `posix_locks_deadlock`).
fn note_wait(
    caller: &dyn Caller,
    inode: &Arc<Inode>,
    wanted: &Record,
    blocker: Holder,
) -> Result<(), Errno> {
    let waits = &caller.vfs().lock_waits;
    let thread = caller.ids().thread.into();
    match (wanted.holder, blocker) {
        (Holder::Process(process), Holder::Process(blocker)) => waits
            .begin((process, thread), (inode, wanted), blocker)
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
