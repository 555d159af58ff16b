//! The wait-for graph of processes that wait for record locks, for deadlock detection.

use crate::fs::locks::{
    file_locks::FileLocks,
    record::{Holder, Record},
};
use alloc::{sync::Arc, vec::Vec};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::{OutOfMemory, TryPush};

/// Maximum number of steps in the search for a cycle after the first step. If the search has not found a cycle by then,
/// it reports that there is none (Linux 7.3 `fs/locks.c`, `MAX_DEADLK_ITERATIONS`).
const MOST_STEPS: usize = 10;

/// A file that can be locked, that is, an inode.
pub trait Locked {
    /// Returns the locks of the file.
    fn locks(&self) -> &FileLocks;
}

/// A thread that waits for a record lock.
struct Wait<I> {
    process: u64,
    thread: u64,
    /// The file and the lock for which the thread waits.
    inode: Arc<I>,
    wanted: Record,
}

impl<I: Locked> Wait<I> {
    /// Returns the process that holds a conflicting lock now. The holder can have changed since the thread began to
    /// wait. Returns `None` if there is no conflict or the holder is an open file.
    fn blocker(&self) -> Option<u64> {
        match self.inode.locks().conflict(&self.wanted)?.holder {
            Holder::Process(process) => Some(process),
            Holder::OpenFile(_) => None,
        }
    }
}

/// The reason why a thread must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRefused {
    /// The holder of the lock waits, directly or indirectly, for a lock that the thread's process holds.
    Deadlock,
    /// There is no memory to record the wait.
    OutOfMemory,
}

/// The threads that wait for record locks of processes, on all files. `I` is the type of inodes.
pub struct LockWaits<I> {
    /// The waits, sorted by process and then by thread. The search for a cycle acquires the locks of [`FileLocks`]
    /// while it holds this lock.
    waits: Lock<Vec<Wait<I>>>,
}

impl<I> Default for LockWaits<I> {
    fn default() -> Self {
        Self {
            waits: Lock::new(Rank::File, Vec::new()),
        }
    }
}

impl<I: Locked> LockWaits<I> {
    /// Records that a thread waits for the lock `wanted` on `inode`. A lock of the process `blocker` conflicts with
    /// `wanted`. Replaces the previous record of the thread.
    ///
    /// # Errors
    /// [`WaitRefused`] if the thread must not wait. The thread's previous record is removed then.
    pub fn begin(
        &self,
        (process, thread): (u64, u64),
        (inode, wanted): (&Arc<I>, &Record),
        blocker: u64,
    ) -> Result<(), WaitRefused> {
        let mut waits = self.waits.lock();
        let before = remove(&mut waits, process, thread);
        let noted = if closes_circle(process, blocker, |holder| blocker_of(&waits, holder)) {
            Err(WaitRefused::Deadlock)
        } else {
            let index =
                waits.partition_point(|wait| (wait.process, wait.thread) < (process, thread));
            let wait = Wait {
                process,
                thread,
                inode: inode.clone(),
                wanted: *wanted,
            };
            waits
                .try_insert(index, wait)
                .map_err(|OutOfMemory| WaitRefused::OutOfMemory)
        };
        drop(waits);
        drop(before);
        noted
    }

    /// Removes the record of a thread that no longer waits.
    pub fn end(&self, process: u64, thread: u64) {
        let before = remove(&mut self.waits.lock(), process, thread);
        drop(before);
    }
}

fn remove<I>(waits: &mut Vec<Wait<I>>, process: u64, thread: u64) -> Option<Wait<I>> {
    let key = |wait: &Wait<I>| (wait.process, wait.thread);
    let index = waits.binary_search_by_key(&(process, thread), key);
    index.ok().map(|index| waits.remove(index))
}

/// Returns the process that holds a lock for which `process` waits, or `None`. If several threads of `process` wait,
/// considers only the first, as Linux's `what_owner_is_waiting_for` does.
fn blocker_of<I: Locked>(waits: &[Wait<I>], process: u64) -> Option<u64> {
    let index = waits.partition_point(|wait| wait.process < process);
    let wait = waits.get(index).filter(|wait| wait.process == process);
    wait?.blocker()
}

/// Returns whether a wait of `process` for `blocker` would complete a cycle. `blocker_of` returns the process for which
/// a process waits.
fn closes_circle(process: u64, blocker: u64, blocker_of: impl Fn(u64) -> Option<u64>) -> bool {
    let mut holder = blocker;
    for _ in 0..=MOST_STEPS {
        match blocker_of(holder) {
            Some(next) => holder = next,
            None => return false,
        }
        if holder == process {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn circles_are_refused() {
        // Process 1 waits for process 2, 2 for 3, and 3 for 4.
        let blocker_of = |process: u64| (process < 4).then_some(process + 1);
        for (blocker, closes) in [(1, true), (2, true), (3, true), (4, false), (5, false)] {
            assert_eq!(closes_circle(4, blocker, blocker_of), closes, "{blocker}");
        }
    }

    #[test]
    fn the_search_is_bounded() {
        let blocker_of = |process: u64| Some(process + 1);
        assert!(closes_circle(100, 90, blocker_of));
        assert!(!closes_circle(100, 1, blocker_of));
    }
}
