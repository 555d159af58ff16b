//! The lock that serialises changes of the directory tree.

use memwright_linux_base::sync::{Lock, LockGuard, Rank};

/// The lock that serialises changes of the directory tree.
pub struct Namespace(pub(in crate::fs) Lock<()>);

impl Default for Namespace {
    fn default() -> Self {
        Self::new()
    }
}

impl Namespace {
    /// Creates the lock.
    #[must_use]
    pub const fn new() -> Self {
        Self(Lock::new(Rank::FileSystem, ()))
    }

    /// Acquires the lock. The tree does not change until the guard is dropped.
    pub fn keep(&self) -> LockGuard<'_, ()> {
        self.0.lock()
    }
}
