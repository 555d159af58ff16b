//! Locks of the simulator itself, as opposed to those of the memory manager.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Acquires a lock of the simulator itself, and ignores poisoning: a test that panicked under the lock has failed
/// already, and other threads must be able to continue.
pub fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
