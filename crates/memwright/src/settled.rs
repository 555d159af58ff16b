//! Values derived from words that several CPUs change concurrently.

use core::sync::atomic::{Ordering, fence};

/// Stores what `follows` derives from words, after the caller has changed one of them. Repeats until the stored value
/// matches the words. If two CPUs change one word each at the same time, the last one to store has seen both changes.
pub(crate) fn settle<T: PartialEq>(follows: impl Fn() -> T, store: impl Fn(&T)) {
    loop {
        fence(Ordering::SeqCst);
        let stored = follows();
        store(&stored);
        fence(Ordering::SeqCst);
        if follows() == stored {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use super::settle;

    #[test]
    fn what_changes_before_it_is_stored_is_stored_too() {
        let (word, stored, changes) = (Cell::new(1), Cell::new(0), Cell::new(2));
        settle(
            || word.get(),
            |value| {
                // Another CPU changes the word, and has already stored the value derived from it.
                if changes.get() > 0 {
                    changes.set(changes.get() - 1);
                    word.set(word.get() + 1);
                    stored.set(word.get());
                }
                stored.set(*value);
            },
        );
        assert_eq!((word.get(), stored.get()), (3, 3));
    }
}
