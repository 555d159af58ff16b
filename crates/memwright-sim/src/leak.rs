//! A failed test takes nothing apart.
//!
//! Dropping an address space whose state is broken may fail another assertion. During unwinding that aborts the process, and the
//! test has no result.

use std::sync::Arc;
use std::thread;

/// Leaks the value when it is dropped by a thread that panics.
#[derive(Debug)]
pub struct LeakOnPanic<T>(pub Arc<T>);

impl<T> Drop for LeakOnPanic<T> {
    fn drop(&mut self) {
        if thread::panicking() {
            std::mem::forget(self.0.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_panic_leaks() {
        let value = Arc::new(7);
        drop(LeakOnPanic(value.clone()));
        assert_eq!(Arc::strong_count(&value), 1);
        let copy = value.clone();
        let outcome = std::panic::catch_unwind(move || {
            let _kept = LeakOnPanic(copy);
            // Without the hook: nothing is to be printed.
            std::panic::resume_unwind(Box::new("failed"));
        });
        assert!(outcome.is_err());
        assert_eq!(Arc::strong_count(&value), 2);
    }
}
