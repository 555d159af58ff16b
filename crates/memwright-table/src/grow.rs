//! Lists that a lock protects and that grow while the lock is not held.
//!
//! The heap may allocate frames when it grows, which acquires locks of the ranks `FrameCache` and `Frames`. So the heap
//! must not grow while the caller holds a lock of one of these ranks or of a later one.

extern crate alloc as rust_alloc;

use rust_alloc::collections::VecDeque;
use rust_alloc::vec::Vec;

use crate::handle::OutOfMemory;
use crate::rising::{Rising, RisingRoom};
use crate::sync::{Lock, LockGuard, Threads};

/// A collection that a lock protects. The memory by which it grows is allocated before the lock is acquired.
pub trait Grows: Sized {
    /// The memory that was allocated in advance.
    type Room;

    /// Returns whether `more` more elements fit without an allocation.
    fn has_room(&self, more: usize) -> bool;

    /// Returns the capacity to pass to [`Self::with_room`] before `more` more elements are added. For a contiguous
    /// list, it is about twice the present number of elements.
    fn wanted(&self, more: usize) -> usize;

    /// Allocates memory for the capacity `wanted`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn with_room(wanted: usize) -> Result<Self::Room, OutOfMemory>;

    /// Takes over the allocated memory if the collection has less capacity. On return, `room` holds the memory that the
    /// caller must free after it releases the lock.
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
        /// The minimum capacity, in elements, of every block except the first.
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

/// Acquires a lock after making room for one element in a list that the lock protects. The list grows while the lock is
/// not held, because the heap must not grow under a lock of a late rank, such as that of a wait queue. User programs
/// determine the length of such lists, so no fixed capacity suffices.
///
/// # Errors
/// [`OutOfMemory`].
pub fn lock_with_room<S, L: Grows, H: Threads>(
    lock: &Lock<S, H>,
    list: impl Fn(&mut S) -> &mut L,
) -> Result<LockGuard<'_, S, H>, OutOfMemory> {
    lock_with_room_for(lock, 1, list)
}

/// Acquires a lock after making room for `more` elements in a list that the lock protects, like [`lock_with_room`].
///
/// # Errors
/// [`OutOfMemory`].
pub fn lock_with_room_for<S, L: Grows, H: Threads>(
    lock: &Lock<S, H>,
    more: usize,
    list: impl Fn(&mut S) -> &mut L,
) -> Result<LockGuard<'_, S, H>, OutOfMemory> {
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
