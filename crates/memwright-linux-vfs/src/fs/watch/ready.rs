//! The ready list of an epoll: entries whose files are to be polled.

use crate::fs::watch::queue::Queue;
use alloc::sync::{Arc, Weak};
use memwright_linux_base::sync::{Lock, PausePoints, Rank};
use memwright_table::OutOfMemory;

/// The number of entries that a loop handles between two scheduling points.
pub const ENTRIES: u32 = 128;

struct State<T> {
    /// The entries in the order in which they were added. An entry may have been freed since then.
    list: Queue<Weak<T>>,
    /// Number of scans in progress. Each scan can put back entries that it has taken off the list.
    looks: usize,
}

impl<T> State<T> {
    fn has_candidates(&mut self) -> bool {
        while let Some(first) = self.list.front() {
            if first.strong_count() > 0 {
                return true;
            }
            let _ = self.list.pop_front();
        }
        self.looks > 0
    }
}

/// The ready list: entries whose files may have become ready and are to be polled.
pub(in crate::fs) struct ReadyList<T>(Lock<State<T>>);

impl<T> ReadyList<T> {
    /// Creates an empty list.
    pub(in crate::fs) const fn new() -> Self {
        let state = State {
            list: Queue::new(),
            looks: 0,
        };
        Self(Lock::new(Rank::Leaf, state))
    }

    /// Reserves room for `entries` entries. Each entry is on the list at most once.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(in crate::fs) fn make_room(&self, entries: usize) -> Result<(), OutOfMemory> {
        // Reserve the same amount of room for freed entries. Of `entries` successive pushes, at most one must then
        // remove freed entries.
        let wanted = entries * 2;
        loop {
            let size = {
                let state = self.0.lock();
                if state.list.room() >= wanted {
                    return Ok(());
                }
                state.list.size()
            };
            // No memory may be allocated under the lock of the list.
            let mut room = Queue::find_room(size, wanted)?;
            self.0.lock().list.take_room(&mut room);
            drop(room);
        }
    }

    /// Appends an entry, for which [`Self::make_room`] has reserved room. If freed entries take up that room, removes
    /// them first.
    pub(in crate::fs) fn push(&self, item: &Arc<T>) {
        let list = &mut self.0.lock().list;
        if let Err(item) = list.push(Arc::downgrade(item)) {
            list.retain(|item| item.strong_count() > 0);
            let pushed = list.push(item);
            debug_assert!(pushed.is_ok(), "room was made for every entry");
        }
    }

    /// Begins a scan of the list. The calling thread must not wait until it has dropped the scan.
    pub(in crate::fs) fn look(&self) -> Look<'_, T> {
        let mut state = self.0.lock();
        state.looks += 1;
        Look {
            list: self,
            left: state.list.len(),
        }
    }

    /// Returns whether there are candidates: a live entry is on the list, or a scan in progress can put one back.
    pub(in crate::fs) fn has_candidates(&self) -> bool {
        self.0.lock().has_candidates()
    }

    /// Removes all entries from the list one by one, with scheduling points in between.
    pub(in crate::fs) fn clear(&self) {
        let mut points = PausePoints::every(ENTRIES);
        loop {
            let first = self.0.lock().list.pop_front();
            if first.is_none() {
                return;
            }
            points.round();
        }
    }

    /// Returns whether a scan is in progress.
    pub(in crate::fs) fn is_looked_at(&self) -> bool {
        self.0.lock().looks > 0
    }
}

/// A scan in progress. Before the scan ends, its thread puts the entries that are still ready back on the list.
pub(in crate::fs) struct Look<'a, T> {
    list: &'a ReadyList<T>,
    /// The number of entries that [`take_next`](Self::take_next) can still take. At first, this is the length of the
    /// list, including freed entries.
    left: usize,
}

impl<T> Look<'_, T> {
    /// Removes the first entry that has not been freed, and returns it.
    pub(in crate::fs) fn take_first(&self) -> Option<Arc<T>> {
        let mut state = self.list.0.lock();
        loop {
            let first = state.list.pop_front()?;
            if let Some(item) = first.upgrade() {
                return Some(item);
            }
        }
    }

    /// Removes and returns the first entry, which may have been freed. Entries that were added after the scan began are
    /// left for the next scan.
    pub(in crate::fs) fn take_next(&mut self) -> Option<Weak<T>> {
        self.left = self.left.checked_sub(1)?;
        self.list.0.lock().list.pop_front()
    }
}

impl<T> Look<'_, T> {
    /// Ends the scan. Returns whether the list has candidates now, as [`ReadyList::has_candidates`] does.
    pub(in crate::fs) fn finish(self) -> bool {
        let mut state = self.list.0.lock();
        state.looks -= 1;
        let has_candidates = state.has_candidates();
        drop(state);
        // Do not drop the scan, which would end it a second time.
        core::mem::forget(self);
        has_candidates
    }
}

impl<T> Drop for Look<'_, T> {
    fn drop(&mut self) {
        self.list.0.lock().looks -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_that_are_gone_leave_their_room() {
        let list = ReadyList::new();
        let kept = Arc::new(0);
        list.make_room(2).unwrap();
        list.push(&kept);
        let room = list.0.lock().list.size();
        for number in 1..1000 {
            list.push(&Arc::new(number));
        }
        assert_eq!(list.0.lock().list.size(), room);
        assert_eq!(list.look().take_first(), Some(kept));
    }

    #[test]
    fn what_is_being_looked_at_is_to_be_looked_at_still() {
        let list = ReadyList::new();
        let items = [1, 2].map(Arc::new);
        assert!(!list.has_candidates());
        list.make_room(2).unwrap();
        items.iter().for_each(|item| list.push(item));

        let mut look = list.look();
        assert_eq!(look.take_first().as_deref(), Some(&1));
        let second = look.take_next();
        // A thread that checks for candidates during the scan must find one and not sleep, because no wake-up would
        // follow.
        assert!(list.has_candidates() && list.is_looked_at());
        drop(look);
        second
            .iter()
            .filter_map(Weak::upgrade)
            .for_each(|item| list.push(&item));
        list.push(&items[0]);
        assert!(list.has_candidates() && !list.is_looked_at());

        let look = list.look();
        assert_eq!(look.take_first().as_deref(), Some(&2));
        drop(items);
        assert_eq!(look.take_first(), None);
        drop(look);
        assert!(!list.has_candidates());
    }
}
