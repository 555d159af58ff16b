//! Keeping a stored value consistent with the words from which it is derived, which several CPUs change concurrently.

use core::sync::atomic::{Ordering, fence};

/// Calls `store` with the value that `follows` derives from shared words, one of which the caller has just changed.
/// Repeats this until the stored value matches the words. If two CPUs change words at the same time, the CPU that
/// stores last has therefore seen both changes.
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
                // Simulates another CPU that changes the word and stores the derived value before this CPU does.
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
