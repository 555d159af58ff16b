//! The release of futexes when a thread leaves its address space.

use super::{ANY, Futexes};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use memwright_linux_abi::Space;
use memwright_linux_tasks::process::{Scope, Thread};
use memwright_linux_vfs::user::check_range;

/// The maximum number of entries of a robust list that the kernel visits (`ROBUST_LIST_LIMIT`).
const ROBUST_MAX: u32 = raw::ROBUST_LIST_LIMIT;

impl Futexes {
    /// Marks the robust locks that the thread holds with `FUTEX_OWNER_DIED` and wakes one waiter of each lock. If the
    /// address space has other users, also stores 0 in the word set by `set_tid_address` or `CLONE_CHILD_CLEARTID`, and
    /// wakes one waiter of that word (`mm_release` of Linux 7.2, `kernel/fork.c`).
    ///
    /// Called by the thread itself on exit and in `execve`, while it still runs in the address space and is still one
    /// of the threads of its process.
    ///
    /// # Locks
    /// The caller holds no lock.
    pub fn release(&self, thread: &Arc<Thread>) {
        let head = thread.robust_list.swap(0, Ordering::Relaxed);
        let word = thread.clear_child_tid.swap(0, Ordering::Relaxed);
        let clears = word != 0 && thread.process.shares_space();
        if head == 0 && !clears {
            return;
        }
        memwright_linux_base::sync::assert_none_held();
        let Some(space) = thread.process.space() else {
            return;
        };
        if head != 0 {
            let end = RobustEnd {
                futexes: self,
                thread,
                space: &space,
            };
            // If an entry cannot be read, the walk stops.
            let _ = end.walk(head);
        }
        if clears && check_range(word, 4).is_ok() {
            // As on Linux, a waiter is woken even if the word cannot be written.
            let _ = self.user.copy_to_user(word, &[0; 4]);
            let _ = self.wake(&space, word, Scope::Shared, 1, ANY);
        }
    }
}

/// A decoded pointer of the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    address: u64,
    /// Whether the entry belongs to a lock with priority inheritance. `Futexes` does not queue the waiters of such
    /// locks.
    inherits: bool,
}

/// Decodes a pointer of the list. Its lowest bit marks a lock with priority inheritance.
fn entry(pointer: u64) -> Entry {
    Entry {
        address: pointer & !1,
        inherits: pointer & 1 != 0,
    }
}

/// The error for a robust list that cannot be read or that contains an invalid address. The walk over the list stops.
struct Broken;

/// The change to a lock's word when the thread exits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// The word stays unchanged, because the thread does not own the lock.
    Nothing,
    /// A waiter is woken, and the word stays unchanged. The thread was releasing the lock, and may not have woken a
    /// waiter yet.
    Wake,
    /// The word is set to this value.
    Mark(u32),
}

/// Returns the change to the word `word` of a lock (`handle_futex_death` of Linux 7.2, `kernel/futex/core.c`).
fn death(word: u32, owner: u32, pending: bool, inherits: bool) -> Death {
    if pending && !inherits && word == 0 {
        Death::Wake
    } else if word & raw::FUTEX_TID_MASK != owner {
        Death::Nothing
    } else {
        Death::Mark(word & raw::FUTEX_WAITERS | raw::FUTEX_OWNER_DIED)
    }
}

struct RobustEnd<'a> {
    futexes: &'a Futexes,
    thread: &'a Thread,
    space: &'a Arc<Space>,
}

impl RobustEnd<'_> {
    fn read(&self, address: u64) -> Result<u64, Broken> {
        let mut bytes = [0; 8];
        check_range(address, 8).map_err(|_| Broken)?;
        self.futexes
            .user
            .copy_from_user(&mut bytes, address)
            .map_err(|_| Broken)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Walks the robust list. `struct robust_list_head` at `head` consists of the first entry, the distance from an
    /// entry to its lock's word, and the entry that is being added or removed (`exit_robust_list` of Linux 7.2).
    fn walk(&self, head: u64) -> Result<(), Broken> {
        let mut next = entry(self.read(head)?);
        let distance = self.read(head.wrapping_add(8))?;
        let pending = entry(self.read(head.wrapping_add(16))?);
        for _ in 0..ROBUST_MAX {
            if next.address == head {
                break;
            }
            // Read the next entry before releasing the lock, because the lock's next owner may free this entry.
            let after = self.read(next.address);
            if next.address != pending.address {
                self.end(next, distance, false)?;
            }
            next = entry(after?);
        }
        if pending.address != 0 {
            self.end(pending, distance, true)?;
        }
        Ok(())
    }

    fn end(&self, entry: Entry, distance: u64, pending: bool) -> Result<(), Broken> {
        let address = entry.address.wrapping_add(distance);
        if !address.is_multiple_of(4) || check_range(address, 4).is_err() {
            return Err(Broken);
        }
        let user = self.futexes.user;
        let mut word = user.user_load32(address).map_err(|_| Broken)?;
        loop {
            match death(word, self.thread.id(), pending, entry.inherits) {
                Death::Nothing => return Ok(()),
                Death::Wake => {
                    self.wake(address);
                    return Ok(());
                }
                Death::Mark(dead) => {
                    let seen = user
                        .user_compare_exchange32(address, word, dead)
                        .map_err(|_| Broken)?;
                    if seen == word {
                        if !entry.inherits && word & raw::FUTEX_WAITERS != 0 {
                            self.wake(address);
                        }
                        return Ok(());
                    }
                    word = seen;
                }
            }
        }
    }

    fn wake(&self, address: u64) {
        // If the word has no key, it has no waiters that could be woken.
        let _ = self
            .futexes
            .wake(self.space, address, Scope::Shared, 1, ANY);
    }
}

#[cfg(test)]
mod tests {
    use super::{Death, Entry, death, entry, raw};

    #[test]
    fn the_lowest_bit_marks_inheritance() {
        for (pointer, address, inherits) in [(0x1000, 0x1000, false), (0x1001, 0x1000, true)] {
            assert_eq!(entry(pointer), Entry { address, inherits });
        }
    }

    #[test]
    fn only_the_owner_s_locks_die() {
        const WAITERS: u32 = raw::FUTEX_WAITERS;
        const DIED: u32 = raw::FUTEX_OWNER_DIED;
        for (word, pending, inherits, expected) in [
            (0, false, false, Death::Nothing),
            (0, true, false, Death::Wake),
            (0, true, true, Death::Nothing),
            (7, false, false, Death::Mark(DIED)),
            (7 | WAITERS, false, false, Death::Mark(WAITERS | DIED)),
            (7, true, false, Death::Mark(DIED)),
            (8, false, false, Death::Nothing),
            (8 | WAITERS, true, false, Death::Nothing),
        ] {
            assert_eq!(death(word, 7, pending, inherits), expected, "{word:#x}");
        }
    }
}
