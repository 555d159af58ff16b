//! Locks. They are those of `memwright_table`, so that a test scheduler can control the order of all lock operations.

pub use memwright_table::grow::{Grows, lock_with_room, lock_with_room_for};
pub use memwright_table::sync::{
    Lock, LockGuard, PausePoints, Rank, assert_may_sleep, assert_none_held, pause_point, relax,
};
