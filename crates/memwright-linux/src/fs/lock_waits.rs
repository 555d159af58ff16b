//! Which processes wait for record locks of which, so that a circle of them is found before it closes.

use crate::sync::{Lock, Rank};
use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};

/// Steps after which the search gives up and finds no circle (Linux 7.3 `fs/locks.c`, `MAX_DEADLK_ITERATIONS`).
const MOST_STEPS: usize = 10;

/// One thread that waits.
#[derive(Clone, Copy, Debug)]
struct Wait {
    process: u64,
    thread: u64,
    /// The process that has the lock.
    blocker: u64,
}

/// Why a thread must not wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitRefused {
    /// The holder of the lock waits, perhaps through others, for a lock of the process.
    Deadlock,
    /// No memory to note the wait.
    OutOfMemory,
}

/// The threads that wait for record locks of processes, on any file.
pub struct LockWaits {
    /// Sorted by process, then by thread.
    waits: Lock<Vec<Wait>>,
}

impl Default for LockWaits {
    fn default() -> Self {
        Self {
            waits: Lock::new(Rank::Leaf, Vec::new()),
        }
    }
}

impl LockWaits {
    /// Notes that a thread waits for a lock that `blocker` has, in place of what was noted of it before.
    ///
    /// # Errors
    /// As [`WaitRefused`] says; what was noted of the thread is gone.
    pub fn begin(&self, process: u64, thread: u64, blocker: u64) -> Result<(), WaitRefused> {
        let mut waits = self.waits.lock();
        remove(&mut waits, process, thread);
        if closes_circle(&waits, process, blocker) {
            return Err(WaitRefused::Deadlock);
        }
        let index = waits.partition_point(|wait| (wait.process, wait.thread) < (process, thread));
        let wait = Wait {
            process,
            thread,
            blocker,
        };
        waits
            .try_insert(index, wait)
            .map_err(|OutOfMemory| WaitRefused::OutOfMemory)
    }

    /// Notes that a thread no longer waits.
    pub fn end(&self, process: u64, thread: u64) {
        remove(&mut self.waits.lock(), process, thread);
    }
}

fn remove(waits: &mut Vec<Wait>, process: u64, thread: u64) {
    let key = |wait: &Wait| (wait.process, wait.thread);
    if let Ok(index) = waits.binary_search_by_key(&(process, thread), key) {
        waits.remove(index);
    }
}

/// Whether `process` would wait for itself if it waited for `blocker`. Of a process with several threads that wait, one
/// counts, as in Linux's `what_owner_is_waiting_for`.
fn closes_circle(waits: &[Wait], process: u64, blocker: u64) -> bool {
    let mut holder = blocker;
    for _ in 0..=MOST_STEPS {
        let index = waits.partition_point(|wait| wait.process < holder);
        match waits.get(index) {
            Some(wait) if wait.process == holder => holder = wait.blocker,
            Some(_) | None => return false,
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
        let waits = LockWaits::default();
        assert_eq!(waits.begin(1, 1, 2), Ok(()));
        assert_eq!(waits.begin(2, 2, 3), Ok(()));
        assert_eq!(waits.begin(3, 3, 4), Ok(()));
        for blocker in [1, 2, 3] {
            assert_eq!(waits.begin(4, 4, blocker), Err(WaitRefused::Deadlock));
        }
        waits.end(2, 2);
        assert_eq!(waits.begin(4, 4, 1), Ok(()));
        // The lock changed hands.
        assert_eq!(waits.begin(4, 4, 3), Err(WaitRefused::Deadlock));
        assert_eq!(waits.begin(3, 3, 4), Ok(()));
    }

    #[test]
    fn the_search_is_bounded() {
        let waits = LockWaits::default();
        for process in 1..100 {
            assert_eq!(waits.begin(process, process, process + 1), Ok(()));
        }
        assert_eq!(waits.begin(100, 100, 100 - 10), Err(WaitRefused::Deadlock));
        assert_eq!(waits.begin(100, 100, 1), Ok(()));
    }
}
