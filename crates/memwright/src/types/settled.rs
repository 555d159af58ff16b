//! Values derived from words that several CPUs change concurrently.

use core::sync::atomic::{Ordering, fence};

/// Calls `store` with the value that `follows` derives from shared words. The caller has just changed one of these
/// words. Repeats this until the stored value matches the words. If two CPUs each change a word at the same time, the
/// CPU that stores last has seen both changes.
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

    use crate::types::settled::settle;

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
