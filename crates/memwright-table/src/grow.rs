//! Lists behind a lock that grow while the lock is not held.
//!
//! The heap may take frames when it grows. It must not do so under a lock of a rank that allocating a frame acquires, or
//! of a later one.

extern crate alloc as rust_alloc;

use rust_alloc::collections::VecDeque;
use rust_alloc::vec::Vec;

use crate::handle::OutOfMemory;
use crate::rising::{Rising, RisingRoom};
use crate::sync::{Lock, LockGuard};

/// A collection behind a lock that grows by memory that is allocated before the lock is taken.
pub trait Grows: Sized {
    /// The allocated memory.
    type Room;

    /// Returns whether `more` further elements fit.
    fn has_room(&self, more: usize) -> bool;

    /// Returns the capacity to allocate so that `more` further elements fit and the capacity about doubles.
    fn wanted(&self, more: usize) -> usize;

    /// Allocates memory for this capacity.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn with_room(wanted: usize) -> Result<Self::Room, OutOfMemory>;

    /// Takes over the allocated memory if the collection has less capacity. Leaves memory that is to be freed in
    /// `room`.
    fn take_room(&mut self, room: &mut Self::Room);
}

/// Implements `Grows` for a contiguous list.
macro_rules! grow_in_one_piece {
    ($list:ident) => {
        impl<T> Grows for $list<T> {
            type Room = Self;

            #[inline]
            fn has_room(&self, more: usize) -> bool {
                self.capacity() - self.len() >= more
            }

            fn wanted(&self, more: usize) -> usize {
                self.len() + self.len().max(more) + 4
            }

            fn with_room(wanted: usize) -> Result<Self, OutOfMemory> {
                let mut list = Self::new();
                list.try_reserve_exact(wanted).map_err(|_| OutOfMemory)?;
                Ok(list)
            }

            fn take_room(&mut self, room: &mut Self) {
                if self.capacity() < room.capacity() {
                    room.append(self);
                    core::mem::swap(self, room);
                }
            }
        }
    };
}

impl<T> Grows for Rising<T> {
    type Room = RisingRoom<T>;

    #[inline]
    fn has_room(&self, _more: usize) -> bool {
        Self::has_room(self)
    }

    fn wanted(&self, _more: usize) -> usize {
        self.len()
    }

    fn with_room(length: usize) -> Result<Self::Room, OutOfMemory> {
        /// Every block but the first has a capacity of at least this many elements.
        const FEWEST: usize = 64;
        let list = 2 * (length / FEWEST) + 4;
        Self::find_room(list, length + 4)
    }

    fn take_room(&mut self, room: &mut Self::Room) {
        Self::take_room(self, room);
    }
}

grow_in_one_piece!(Vec);
grow_in_one_piece!(VecDeque);

/// Takes a lock after making room for one element in a list behind it. The list grows while the lock is not held. The
/// heap must not grow under a lock of a high rank, such as that of a wait queue, and programs determine the length of
/// such lists.
///
/// # Errors
/// [`OutOfMemory`].
pub fn lock_with_room<S, L: Grows>(
    lock: &Lock<S>,
    list: impl Fn(&mut S) -> &mut L,
) -> Result<LockGuard<'_, S>, OutOfMemory> {
    lock_with_room_for(lock, 1, list)
}

/// Takes a lock after making room for `more` elements in a list behind it, like [`lock_with_room`].
///
/// # Errors
/// [`OutOfMemory`].
pub fn lock_with_room_for<S, L: Grows>(
    lock: &Lock<S>,
    more: usize,
    list: impl Fn(&mut S) -> &mut L,
) -> Result<LockGuard<'_, S>, OutOfMemory> {
    loop {
        let wanted = {
            let mut guard = lock.lock();
            let list = list(&mut guard);
            if list.has_room(more) {
                return Ok(guard);
            }
            list.wanted(more)
        };
        let mut larger = L::with_room(wanted)?;
        let surplus = {
            let mut guard = lock.lock();
            list(&mut guard).take_room(&mut larger);
            larger
        };
        drop(surplus);
    }
}
