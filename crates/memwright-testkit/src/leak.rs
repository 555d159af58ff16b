//! Prevents a failed test from dropping state that the failure left inconsistent.
//!
//! Dropping an inconsistent address space can fail another assertion. A panic during unwinding aborts the process, and
//! the test then has no result.

use alloc::sync::Arc;

/// Returns whether the calling thread unwinds after a panic. Without the feature `std`, no thread does.
#[must_use]
pub fn is_panicking() -> bool {
    #[cfg(feature = "std")]
    return std::thread::panicking();
    #[cfg(not(feature = "std"))]
    false
}

/// Leaks the value if a panicking thread drops it.
#[derive(Debug)]
pub struct LeakOnPanic<T>(pub Arc<T>);

impl<T> Drop for LeakOnPanic<T> {
    fn drop(&mut self) {
        if is_panicking() {
            core::mem::forget(self.0.clone());
        }
    }
}

#[cfg(all(test, feature = "std"))]
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
            // Unwinds without the panic hook, so nothing is printed.
            std::panic::resume_unwind(std::boxed::Box::new("failed"));
        });
        assert!(outcome.is_err());
        assert_eq!(Arc::strong_count(&value), 2);
    }
}
