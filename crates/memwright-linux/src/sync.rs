//! Locks, through the one layer that a scheduler can own in tests.

pub use memwright_table::sync::{
    Lock, LockGuard, PausePoints, Rank, assert_none_held, pause_point, relax,
};

use alloc::vec::Vec;
use memwright_table::OutOfMemory;

/// Takes a lock when its list has room for one more. The list grows while the lock is free: under a lock of a high rank,
/// such as that of a wait queue, the heap must not grow, and programs decide how long such lists become.
///
/// # Errors
/// [`OutOfMemory`].
pub fn lock_with_room<S, T>(
    lock: &Lock<S>,
    list: impl Fn(&mut S) -> &mut Vec<T>,
) -> Result<LockGuard<'_, S>, OutOfMemory> {
    lock_with_room_for(lock, 1, list)
}

/// Takes a lock when its list has room for `more`, as [`lock_with_room`] does for one.
///
/// # Errors
/// [`OutOfMemory`].
pub fn lock_with_room_for<S, T>(
    lock: &Lock<S>,
    more: usize,
    list: impl Fn(&mut S) -> &mut Vec<T>,
) -> Result<LockGuard<'_, S>, OutOfMemory> {
    loop {
        let wanted = {
            let mut guard = lock.lock();
            let list = list(&mut guard);
            if list.capacity() - list.len() >= more {
                return Ok(guard);
            }
            list.len() + list.len().max(more) + 4
        };
        let mut larger = Vec::new();
        let room = larger.try_reserve_exact(wanted);
        room.map_err(|_| OutOfMemory)?;
        let surplus = {
            let mut guard = lock.lock();
            let list = list(&mut guard);
            if list.capacity() < larger.capacity() {
                #[expect(clippy::disallowed_methods, reason = "it is larger")]
                larger.append(list);
                core::mem::replace(list, larger)
            } else {
                larger
            }
        };
        drop(surplus);
    }
}
