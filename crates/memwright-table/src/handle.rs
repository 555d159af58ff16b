//! Fallible heap allocation: reference-counted pointers, and vectors whose growth can fail (rule: fail-whole).

extern crate alloc as rust_alloc;

use core::alloc::Layout;
use core::fmt;
use core::ops::Deref;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};

use rust_alloc::vec::Vec;

/// The error of an allocation for which the heap has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of kernel heap")
    }
}

impl core::error::Error for OutOfMemory {}

/// The number of allocations before the injected failure; `u64::MAX` if none is injected. On a host each thread has its
/// own count, so that a test does not fail allocations of another test.
mod left {
    use core::sync::atomic::AtomicU64;

    #[cfg(any(test, feature = "std"))]
    pub(super) fn with<R>(act: impl FnOnce(&AtomicU64) -> R) -> R {
        extern crate std;
        std::thread_local! {
            static LEFT: AtomicU64 = const { AtomicU64::new(u64::MAX) };
        }
        LEFT.with(act)
    }

    #[cfg(not(any(test, feature = "std")))]
    #[inline]
    pub(super) fn with<R>(act: impl FnOnce(&AtomicU64) -> R) -> R {
        static LEFT: AtomicU64 = AtomicU64::new(u64::MAX);
        act(&LEFT)
    }
}

/// Makes one allocation through this module fail: the one after the next `count` allocations. `None` cancels a failure
/// that has not happened yet. For tests. With the feature `std`, the call affects the calling thread only.
pub fn fail_heap_after(count: Option<u64>) {
    left::with(|left| left.store(count.unwrap_or(u64::MAX), Ordering::Relaxed));
}

/// Whether [`fail_heap_after`] has requested a failure that has not happened yet.
pub fn heap_failure_pending() -> bool {
    left::with(|left| left.load(Ordering::Relaxed) != u64::MAX)
}

/// Counts an allocation that is about to be made, and returns whether it must fail.
#[inline]
fn injected_failure() -> bool {
    left::with(|left| left.load(Ordering::Relaxed) != u64::MAX && count_down(left))
}

#[cold]
fn count_down(left: &AtomicU64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| match left {
        u64::MAX => None,
        0 => Some(u64::MAX),
        left => Some(left - 1),
    })
    .is_ok_and(|left| left == 0)
}

struct Counted<T: ?Sized> {
    references: AtomicUsize,
    value: T,
}

/// A reference-counted pointer, like `Arc`, whose creation can fail. There are no weak references.
pub struct Shared<T: ?Sized> {
    inner: NonNull<Counted<T>>,
}

// SAFETY: a `Shared` is a counted `&T` that may be the last one and then drops the `T`.
unsafe impl<T: ?Sized + Send + Sync> Send for Shared<T> {}
// SAFETY: as above; `&Shared` gives `&T` and clones.
unsafe impl<T: ?Sized + Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    /// Moves `value` to the heap.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the heap has no room; the value is dropped.
    pub fn try_new(value: T) -> Result<Self, OutOfMemory> {
        if injected_failure() {
            return Err(OutOfMemory);
        }
        let layout = Layout::new::<Counted<T>>();
        // SAFETY: the layout is not empty: it holds the count.
        let memory = unsafe { rust_alloc::alloc::alloc(layout) }.cast::<Counted<T>>();
        let inner = NonNull::new(memory).ok_or(OutOfMemory)?;
        // SAFETY: the memory is fresh, has this layout, and is not shared.
        unsafe {
            inner.write(Counted {
                references: AtomicUsize::new(1),
                value,
            });
        };
        Ok(Self { inner })
    }
}

impl<T: ?Sized> Shared<T> {
    /// Whether both handles point to the same value.
    pub fn ptr_eq(a: &Self, b: &Self) -> bool {
        core::ptr::addr_eq(a.inner.as_ptr(), b.inner.as_ptr())
    }

    /// The number of handles to the value. Other threads may change the number at any time.
    pub fn references(this: &Self) -> usize {
        this.counted().references.load(Ordering::Relaxed)
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: a handle keeps its allocation alive, and no code takes `&mut` to it.
        unsafe { self.inner.as_ref() }
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        let before = self.counted().references.fetch_add(1, Ordering::Relaxed);
        assert!(before < usize::MAX / 2, "reference count overflow");
        Self { inner: self.inner }
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    fn drop(&mut self) {
        if self.counted().references.fetch_sub(1, Ordering::Release) != 1 {
            return;
        }
        fence(Ordering::Acquire);
        // SAFETY: this was the last handle, so the value is dropped once and its memory, of the
        // layout it was allocated with, freed once.
        unsafe {
            let layout = Layout::for_value(self.inner.as_ref());
            core::ptr::drop_in_place(self.inner.as_ptr());
            rust_alloc::alloc::dealloc(self.inner.as_ptr().cast(), layout);
        }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Fallible growth of a vector.
pub trait TryPush<T> {
    /// Appends `value`.
    ///
    /// # Errors
    /// [`OutOfMemory`] if the vector is full and cannot grow; it is unchanged then.
    fn try_push(&mut self, value: T) -> Result<(), OutOfMemory>;

    /// Inserts `value` before the element `index`.
    ///
    /// # Errors
    /// [`OutOfMemory`] as for `try_push`.
    ///
    /// # Panics
    /// If `index` is beyond the end.
    fn try_insert(&mut self, index: usize, value: T) -> Result<(), OutOfMemory>;

    /// Reserves room for `additional` more elements.
    ///
    /// # Errors
    /// [`OutOfMemory`] as for `try_push`.
    fn try_make_room(&mut self, additional: usize) -> Result<(), OutOfMemory>;

    /// Appends a copy of each of `values`.
    ///
    /// # Errors
    /// [`OutOfMemory`] as for `try_push`.
    fn try_push_all(&mut self, values: &[T]) -> Result<(), OutOfMemory>
    where
        T: Copy;

    /// Appends copies of `value` until there are `length` elements.
    ///
    /// # Errors
    /// [`OutOfMemory`] as for `try_push`.
    fn try_fill(&mut self, length: usize, value: T) -> Result<(), OutOfMemory>
    where
        T: Copy;
}

impl<T> TryPush<T> for Vec<T> {
    #[inline]
    fn try_push(&mut self, value: T) -> Result<(), OutOfMemory> {
        self.try_make_room(1)?;
        self.push(value);
        Ok(())
    }

    fn try_insert(&mut self, index: usize, value: T) -> Result<(), OutOfMemory> {
        self.try_make_room(1)?;
        self.insert(index, value);
        Ok(())
    }

    #[inline]
    fn try_make_room(&mut self, additional: usize) -> Result<(), OutOfMemory> {
        let fits = additional <= self.capacity() - self.len();
        let grown = fits || !injected_failure() && self.try_reserve(additional).is_ok();
        if grown { Ok(()) } else { Err(OutOfMemory) }
    }

    #[inline]
    fn try_push_all(&mut self, values: &[T]) -> Result<(), OutOfMemory>
    where
        T: Copy,
    {
        self.try_make_room(values.len())?;
        self.extend_from_slice(values);
        Ok(())
    }

    fn try_fill(&mut self, length: usize, value: T) -> Result<(), OutOfMemory>
    where
        T: Copy,
    {
        if let Some(missing) = length.checked_sub(self.len()) {
            if missing > self.capacity() - self.len() && injected_failure() {
                return Err(OutOfMemory);
            }
            // The final length is known, so no spare capacity is reserved.
            self.try_reserve_exact(missing).map_err(|_| OutOfMemory)?;
            self.resize(length, value);
        }
        Ok(())
    }
}
