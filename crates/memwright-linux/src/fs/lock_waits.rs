//! Which processes wait for record locks of which, so that a circle of them is found before it closes.

use super::{
    inode::Inode,
    record_locks::{Holder, Record},
};
use crate::sync::{Lock, Rank};
use alloc::{sync::Arc, vec::Vec};
use memwright_table::{OutOfMemory, TryPush};

/// Steps after which the search gives up and finds no circle (Linux 7.3 `fs/locks.c`, `MAX_DEADLK_ITERATIONS`).
const MOST_STEPS: usize = 10;

/// One thread that waits.
struct Wait {
    process: u64,
    thread: u64,
    /// The file, and what it wants of it.
    inode: Arc<Inode>,
    wanted: Record,
}

impl Wait {
    /// The process that has what it wants now: a lock changes hands without its waiting threads running.
    fn blocker(&self) -> Option<u64> {
        match self.inode.locks.conflict(&self.wanted)?.holder {
            Holder::Process(process) => Some(process),
            Holder::OpenFile(_) => None,
        }
    }
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
    /// Sorted by process, then by thread. The locks of files are looked at under it.
    waits: Lock<Vec<Wait>>,
}

impl Default for LockWaits {
    fn default() -> Self {
        Self {
            waits: Lock::new(Rank::File, Vec::new()),
        }
    }
}

impl LockWaits {
    /// Notes that a thread of a process waits for what it wants of a file and `blocker` has, in place of what was noted of
    /// it before.
    ///
    /// # Errors
    /// As [`WaitRefused`] says; what was noted of the thread is gone.
    pub fn begin(
        &self,
        (process, thread): (u64, u64),
        (inode, wanted): (&Arc<Inode>, &Record),
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

    /// Notes that a thread no longer waits.
    pub fn end(&self, process: u64, thread: u64) {
        let before = remove(&mut self.waits.lock(), process, thread);
        drop(before);
    }
}

fn remove(waits: &mut Vec<Wait>, process: u64, thread: u64) -> Option<Wait> {
    let key = |wait: &Wait| (wait.process, wait.thread);
    let index = waits.binary_search_by_key(&(process, thread), key);
    index.ok().map(|index| waits.remove(index))
}

/// The process that `process` waits for. Of one with several threads that wait, the first counts, as in Linux's
/// `what_owner_is_waiting_for`.
fn blocker_of(waits: &[Wait], process: u64) -> Option<u64> {
    let index = waits.partition_point(|wait| wait.process < process);
    let wait = waits.get(index).filter(|wait| wait.process == process);
    wait?.blocker()
}

/// Whether `process` would wait for itself if it waited for `blocker`.
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
        // Each waits for the next.
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
