//! Locks, through the one layer that a scheduler can own in tests.

// Placeholder of the same shape until the table crate's layer lands.

/// The written lock order.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd)]
pub enum Rank {
    /// Process table and family relations.
    Process,
    /// Descriptor tables.
    FileTable,
    /// File systems.
    FileSystem,
    /// Scheduler state.
    Scheduler,
    /// Wait queues.
    Wait,
    /// Locks under which no other is taken.
    Leaf,
}

/// A lock with its place in the order.
pub struct Lock<T>(spin::Mutex<T>);

impl<T> Lock<T> {
    /// A lock.
    pub const fn new(rank: Rank, value: T) -> Self {
        let _ = rank;
        Self(spin::Mutex::new(value))
    }
    /// Takes the lock.
    pub fn lock(&self) -> spin::MutexGuard<'_, T> {
        self.0.lock()
    }
}

/// Checks that this CPU holds no lock.
pub fn assert_none_held() {}
