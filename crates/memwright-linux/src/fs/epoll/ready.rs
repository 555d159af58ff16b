//! The list of entries that are to be looked at.

use crate::sync::{Lock, Rank};
use alloc::{
    collections::VecDeque,
    sync::{Arc, Weak},
};

struct State<T> {
    /// The longest waiting first. Those that are gone are passed over.
    list: VecDeque<Weak<T>>,
    /// Looks under way: what they have taken off they may put back.
    looks: usize,
}

/// Entries to be looked at.
pub(super) struct ReadyList<T>(Lock<State<T>>);

impl<T> ReadyList<T> {
    /// No entry.
    pub(super) const fn new() -> Self {
        let state = State {
            list: VecDeque::new(),
            looks: 0,
        };
        Self(Lock::new(Rank::Leaf, state))
    }

    /// Puts an entry at the end.
    pub(super) fn push(&self, item: &Arc<T>) {
        self.0.lock().list.push_back(Arc::downgrade(item));
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

    /// Takes the whole list; its entries still count as standing on it.
    pub(super) fn take_all(&self) -> VecDeque<Weak<T>> {
        core::mem::take(&mut self.0.0.lock().list)
    }

    /// Puts back what of a list was not used, before all that came meanwhile.
    pub(super) fn put_back(&self, mut unused: VecDeque<Weak<T>>) {
        let mut state = self.0.0.lock();
        unused.append(&mut state.list);
        state.list = unused;
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
    fn what_is_being_looked_at_is_to_be_looked_at_still() {
        let list = ReadyList::new();
        let items = [1, 2].map(Arc::new);
        assert!(!list.has_candidates());
        items.iter().for_each(|item| list.push(item));

        let look = list.look();
        assert_eq!(look.take_first().as_deref(), Some(&1));
        let rest = look.take_all();
        // Who looks whether there is anything must not find nothing, and sleep: nobody would wake him.
        assert!(list.has_candidates() && list.is_looked_at());
        list.push(&items[0]);
        look.put_back(rest);
        drop(look);
        assert!(list.has_candidates() && !list.is_looked_at());

        let look = list.look();
        assert_eq!(look.take_first().as_deref(), Some(&2));
        drop(items);
        assert_eq!(look.take_first(), None);
        drop(look);
        assert!(!list.has_candidates());
    }
}
