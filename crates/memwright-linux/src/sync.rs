//! Locks, through the one layer that a scheduler can own in tests.

pub use memwright_table::sync::{Lock, LockGuard, Rank, Wait, assert_none_held, relax};
