//! The kernel heap. It grows in chunks of frames, keeps a reserve, and returns null on failure.
//!
//! Chunks are in the direct map and are never freed. The heap cannot grow if no frames are available or if it has
//! reached its share of memory. It then frees its reserved block, and [`is_low`] returns true until a block of that
//! size can be reserved again. Until then, the personality fails system calls that allocate, so that the memory remains
//! for the allocations that must not fail.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use memwright_linux_base::sync::{self, Lock, Rank};
use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

use crate::memory::frames;
use crate::percpu;

/// The order of an ordinary chunk, which has 256 KiB.
const CHUNK_ORDER: u8 = 6;
/// The maximum order of a chunk, which then has 4 MiB. Such a chunk serves an allocation of at most half its size.
const LARGEST_ORDER: u8 = 10;
/// The number of free bytes below which the heap grows in advance, before any allocation fails.
const LOW_WATER: usize = 64 * 1024;
/// The size in bytes of the initial heap, which is used before the frame allocator exists.
const FIRST: usize = 256 * 1024;
/// The heap uses at most 1/`SHARE` of memory, because its chunks are never freed and programs need the remaining
/// memory.
const SHARE: u64 = 2;
/// Size of the reserve in bytes.
const RESERVE: usize = 256 * 1024;
/// The layout of the reserved block.
const RESERVED: Layout = match Layout::from_size_align(RESERVE - 4096, 16) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

struct Inner(Talc<Manual, DefaultBinning>);

// SAFETY: the allocator's pointers refer to memory that it owns; it may move between CPUs.
unsafe impl Send for Inner {}

/// The global allocator.
pub struct Heap {
    inner: Lock<Inner>,
    /// Number of allocated bytes.
    used: AtomicUsize,
    /// Number of bytes that the allocator manages.
    size: AtomicUsize,
    /// The reserved block; null while the reserve is in use.
    reserve: AtomicPtr<u8>,
}

/// Memory that the allocator owns from the start.
#[repr(C, align(4096))]
struct Region<const SIZE: usize>(UnsafeCell<MaybeUninit<[u8; SIZE]>>);

// SAFETY: only the allocator, under its lock, uses the bytes.
unsafe impl<const SIZE: usize> Sync for Region<SIZE> {}

static FIRST_REGION: Region<FIRST> = Region(UnsafeCell::new(MaybeUninit::uninit()));
static RESERVE_REGION: Region<RESERVE> = Region(UnsafeCell::new(MaybeUninit::uninit()));

#[global_allocator]
static HEAP: Heap = Heap {
    inner: Lock::new(Rank::Heap, Inner(Talc::new(Manual))),
    used: AtomicUsize::new(0),
    size: AtomicUsize::new(0),
    reserve: AtomicPtr::new(core::ptr::null_mut()),
};

/// Passes the initial memory to the heap.
pub fn start() {
    HEAP.claim(FIRST_REGION.0.get().cast(), FIRST);
    HEAP.claim(RESERVE_REGION.0.get().cast(), RESERVE);
    HEAP.close_reserve();
}

/// Returns whether the reserve is in use, after trying to restore it. The reserve cannot be restored while no
/// contiguous block of its size is free: the free memory may then be too fragmented to be useful.
pub fn is_low() -> bool {
    if !HEAP.is_low() {
        return false;
    }
    !(HEAP.close_reserve() || HEAP.grow_by_a_chunk(CHUNK_ORDER, 0) && HEAP.close_reserve())
}

/// Returns the number of allocated bytes.
pub fn used() -> usize {
    HEAP.used.load(Ordering::Relaxed)
}

/// Returns the number of bytes that the heap manages, free or allocated.
pub fn size() -> usize {
    HEAP.size.load(Ordering::Relaxed)
}

/// Adds a chunk if fewer than `LOW_WATER` bytes are free, before an allocation fails.
///
/// # Locks
/// Called without locks.
pub fn top_up() {
    if HEAP.room() < LOW_WATER {
        HEAP.grow(CHUNK_ORDER);
    }
}

impl Heap {
    /// Returns the number of managed bytes that are not allocated. The allocator itself uses a small part of them.
    fn room(&self) -> usize {
        // `used` can be larger than `size`: another CPU may have allocated memory that is not yet counted in `size`.
        let (size, used) = (&self.size, &self.used);
        size.load(Ordering::Relaxed)
            .saturating_sub(used.load(Ordering::Relaxed))
    }

    /// Counts `size` allocated bytes. If few bytes are free afterwards, the calling CPU grows the heap on its return to
    /// user mode.
    #[inline]
    fn add_used(&self, size: usize) {
        self.used.fetch_add(size, Ordering::Relaxed);
        if self.room() < LOW_WATER {
            let cpu = percpu::current();
            cpu.heap_is_low.store(true, Ordering::Relaxed);
            cpu.ask_to_look();
        }
    }

    fn claim(&self, base: *mut u8, size: usize) {
        // SAFETY: each caller passes memory that has no other use, and passes it once.
        if unsafe { self.inner.lock().0.claim(base, size) }.is_some() {
            self.size.fetch_add(size, Ordering::Relaxed);
        }
    }

    /// Adds a chunk of 2^`order` frames. Returns false if no chunk of this order is available, or if the heap has
    /// reached its share of memory.
    fn grow(&self, order: u8) -> bool {
        let size = (self.size.load(Ordering::Relaxed) + (4096 << order)) as u64;
        if size > frames::total() * 4096 / SHARE {
            return false;
        }
        let Some(address) = frames::allocate(order) else {
            return false;
        };
        self.claim(address as *mut u8, 4096 << order);
        true
    }

    /// Adds the largest chunk that is available, of an order from `order` down to `least`. Returns false if none is
    /// available.
    fn grow_by_a_chunk(&self, order: u8, least: u8) -> bool {
        (least..=order).rev().any(|order| self.grow(order))
    }

    #[cold]
    fn grow_for(&self, layout: Layout) -> bool {
        // Twice the size leaves room for the alignment and for the allocator's metadata.
        let pages = (layout.size() + layout.align()).div_ceil(4096) * 2;
        let least = pages.next_power_of_two().trailing_zeros() as u8;
        let order = least.max(CHUNK_ORDER);
        order <= LARGEST_ORDER && self.grow_by_a_chunk(order, least) || self.open_reserve()
    }

    fn is_low(&self) -> bool {
        self.reserve.load(Ordering::Relaxed).is_null()
    }

    /// Frees the reserved block. Returns whether there was one.
    fn open_reserve(&self) -> bool {
        let block = self.reserve.swap(core::ptr::null_mut(), Ordering::Relaxed);
        if block.is_null() {
            return false;
        }
        // SAFETY: the block was allocated here with this layout, and after the swap only this CPU has its address.
        unsafe { self.dealloc(block, RESERVED) };
        true
    }

    /// Allocates the reserved block. Returns whether that succeeded.
    fn close_reserve(&self) -> bool {
        // SAFETY: the size of the block is not zero.
        let Some(block) = (unsafe { self.inner.lock().0.try_allocate(RESERVED) }) else {
            return false;
        };
        self.used.fetch_add(RESERVED.size(), Ordering::Relaxed);
        let before = self.reserve.swap(block.as_ptr(), Ordering::Relaxed);
        if !before.is_null() {
            // Another CPU has restored the reserve at the same time.
            // SAFETY: the block was allocated here with this layout, and after the swap only this CPU has its address.
            unsafe { self.dealloc(before, RESERVED) };
        }
        true
    }
}

// SAFETY: all allocations and frees use one allocator under its lock; the heap grows outside of the lock.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        sync::assert_may_allocate();
        loop {
            let size = self.size.load(Ordering::Relaxed);
            // SAFETY: the caller guarantees that the size is not zero.
            let memory = unsafe { self.inner.lock().0.try_allocate(layout) };
            if let Some(memory) = memory {
                self.add_used(layout.size());
                return memory.as_ptr();
            }
            // Retry if another CPU has added memory or freed the reserve since the attempt of this CPU.
            if !self.grow_for(layout) && self.size.load(Ordering::Relaxed) == size {
                return core::ptr::null_mut();
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees that `memory` was allocated here with this layout.
        unsafe { self.inner.lock().0.deallocate(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees `memory`, `layout` and a size that is not zero.
        if unsafe {
            self.inner
                .lock()
                .0
                .try_realloc_in_place(memory, layout, size)
        } {
            self.used.fetch_sub(layout.size(), Ordering::Relaxed);
            self.add_used(size);
            return memory;
        }
        // SAFETY: the alignment is that of a valid layout, and the caller guarantees the size.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not zero.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both blocks are at least as long as the copied part and do not overlap; the old one is freed with
            // the layout with which it was allocated.
            unsafe {
                new.copy_from_nonoverlapping(memory, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        new
    }
}
