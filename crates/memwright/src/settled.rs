//! What follows from words that several change at a time.

use core::sync::atomic::{Ordering, fence};

/// Stores what follows from words of which the caller has changed one, until it follows from them as they are. Of two who
/// change one each at a time, who is last to store has seen both.
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
                // Somebody else changes the word, and has stored what followed from it before.
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
