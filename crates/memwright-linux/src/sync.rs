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
    loop {
        let wanted = {
            let mut guard = lock.lock();
            let list = list(&mut guard);
            if list.len() < list.capacity() {
                return Ok(guard);
            }
            2 * list.len() + 4
        };
        let mut larger = Vec::new();
        let room = larger.try_reserve_exact(wanted);
        room.map_err(|_| OutOfMemory)?;
        let surplus = {
            let mut guard = lock.lock();
            let list = list(&mut guard);
            if list.capacity() < larger.capacity() {
                larger.append(list);
                core::mem::replace(list, larger)
            } else {
                larger
            }
        };
        drop(surplus);
    }
}
