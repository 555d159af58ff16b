//! The list of entries that are to be looked at.

use super::queue::Queue;
use crate::sync::{Lock, PausePoints, Rank};
use alloc::sync::{Arc, Weak};
use memwright_table::OutOfMemory;

struct State<T> {
    /// The longest waiting first. Those that are gone are passed over.
    list: Queue<Weak<T>>,
    /// Looks under way: what they have taken off they may put back.
    looks: usize,
}

/// Entries to be looked at.
pub(super) struct ReadyList<T>(Lock<State<T>>);

impl<T> ReadyList<T> {
    /// No entry.
    pub(super) const fn new() -> Self {
        let state = State {
            list: Queue::new(),
            looks: 0,
        };
        Self(Lock::new(Rank::Leaf, state))
    }

    /// Makes room for `entries` entries. Each stands on the list once at most.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn make_room(&self, entries: usize) -> Result<(), OutOfMemory> {
        // As much again for those that are gone: they are looked for once in so many pushes.
        let wanted = entries * 2;
        loop {
            let size = {
                let state = self.0.lock();
                if state.list.room() >= wanted {
                    return Ok(());
                }
                state.list.size()
            };
            // The heap must not grow under the lock of the list.
            let mut room = Queue::find_room(size, wanted)?;
            self.0.lock().list.take_room(&mut room);
            drop(room);
        }
    }

    /// Puts an entry at the end. Room was made for it; only entries that are gone can have taken it.
    pub(super) fn push(&self, item: &Arc<T>) {
        let list = &mut self.0.lock().list;
        if let Err(item) = list.push(Arc::downgrade(item)) {
            list.retain(|item| item.strong_count() > 0);
            let pushed = list.push(item);
            debug_assert!(pushed.is_ok(), "room was made for every entry");
        }
    }

    /// Begins a look at entries. Who looks neither waits nor sleeps until it is over.
    pub(super) fn look(&self) -> Look<'_, T> {
        self.0.lock().looks += 1;
        Look(self)
    }

    /// Whether some entry is to be looked at, or is being looked at and may be again.
    pub(super) fn has_candidates(&self) -> bool {
        let mut state = self.0.lock();
        while state
            .list
            .front()
            .is_some_and(|item| item.strong_count() == 0)
        {
            let _ = state.list.pop_front();
        }
        state.looks > 0 || !state.list.is_empty()
    }

    /// Drops the entries one by one, and lets other threads run in between.
    pub(super) fn clear(&self) {
        let mut points = PausePoints::every(super::ENTRIES);
        loop {
            let first = self.0.lock().list.pop_front();
            if first.is_none() {
                return;
            }
            points.round();
        }
    }

    /// Whether somebody looks at entries.
    pub(super) fn is_looked_at(&self) -> bool {
        self.0.lock().looks > 0
    }
}

/// A look under way. What stays ready is put back before it ends.
pub(super) struct Look<'a, T>(&'a ReadyList<T>);

impl<T> Look<'_, T> {
    /// Takes the first entry off.
    pub(super) fn take_first(&self) -> Option<Arc<T>> {
        let mut state = self.0.0.lock();
        loop {
            let first = state.list.pop_front()?;
            if let Some(item) = first.upgrade() {
                return Some(item);
            }
        }
    }

    /// How many entries stand on the list, those that are gone among them.
    pub(super) fn len(&self) -> usize {
        self.0.0.lock().list.len()
    }

    /// Takes the first entry off, whether it is gone or not.
    pub(super) fn take_next(&self) -> Option<Weak<T>> {
        self.0.0.lock().list.pop_front()
    }
}

impl<T> Drop for Look<'_, T> {
    fn drop(&mut self) {
        self.0.0.lock().looks -= 1;
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

        let look = list.look();
        assert_eq!(look.take_first().as_deref(), Some(&1));
        assert_eq!(look.len(), 1);
        let second = look.take_next();
        // A thread that looks for candidates now must not find none, and sleep: nothing would wake it.
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
