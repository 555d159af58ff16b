//! The kernel heap: grows in chunks of frames, keeps a reserve, fails by returning null.
//!
//! Chunks come from the direct map and are never given back. When no more frames are to be had, a block that is kept back is
//! freed, and [`is_low`] says so until a block of that size can be kept back again: the personality refuses calls that
//! allocate meanwhile, so that what must not fail still succeeds.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use memwright_table::sync::{self, Lock, Rank};
use talc::DefaultBinning;
use talc::base::Talc;
use talc::source::Manual;

use crate::frames;
use crate::percpu;

/// Order of an ordinary chunk: 256 KiB.
const CHUNK_ORDER: u8 = 6;
/// Order of the largest chunk, for an allocation of at most half of it: 4 MiB.
const LARGEST_ORDER: u8 = 10;
/// Bytes of room below which the heap grows ahead of need.
const LOW_WATER: usize = 64 * 1024;
/// Bytes from which the heap starts, before there are frames.
const FIRST: usize = 256 * 1024;
/// The heap takes at most one part in so many of memory: its chunks never go back, and programs must find room beside them.
const SHARE: u64 = 2;
/// Bytes kept back.
const RESERVE: usize = 256 * 1024;
/// The block that is kept back, in one piece.
const RESERVED: Layout = match Layout::from_size_align(RESERVE - 4096, 16) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

struct Inner(Talc<Manual, DefaultBinning>);

// SAFETY: the allocator's pointers lead into memory that it owns; it may move between CPUs.
unsafe impl Send for Inner {}

/// The global allocator.
pub struct Heap {
    inner: Lock<Inner>,
    /// Bytes handed out.
    used: AtomicUsize,
    /// Bytes claimed.
    size: AtomicUsize,
    /// The block that is kept back; none while the heap lives on it.
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

/// Gives the heap its first memory.
pub fn start() {
    HEAP.claim(FIRST_REGION.0.get().cast(), FIRST);
    HEAP.claim(RESERVE_REGION.0.get().cast(), RESERVE);
    HEAP.close_reserve();
}

/// Whether the heap lives on its reserve. Tries to make up for it first: as long as no block of its size is free in one
/// piece, what is free may be of no use.
pub fn is_low() -> bool {
    if !HEAP.is_low() {
        return false;
    }
    !(HEAP.close_reserve() || HEAP.grow_by_a_chunk(CHUNK_ORDER, 0) && HEAP.close_reserve())
}

/// Bytes handed out.
pub fn used() -> usize {
    HEAP.used.load(Ordering::Relaxed)
}

/// Grows ahead of need, if the heap is low. Called where no lock is held.
pub fn top_up() {
    if HEAP.room() < LOW_WATER {
        HEAP.grow(CHUNK_ORDER);
    }
}

impl Heap {
    /// Claimed bytes that are not handed out; a little of it is the allocator's own.
    fn room(&self) -> usize {
        // Another CPU may use memory that it has not yet counted as claimed.
        let (size, used) = (&self.size, &self.used);
        size.load(Ordering::Relaxed)
            .saturating_sub(used.load(Ordering::Relaxed))
    }

    fn claim(&self, base: *mut u8, size: usize) {
        // SAFETY: each caller passes memory that nothing else uses, once.
        if unsafe { self.inner.lock().0.claim(base, size) }.is_some() {
            self.size.fetch_add(size, Ordering::Relaxed);
        }
    }

    /// Adds a chunk of frames. Returns whether there was one.
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

    /// Adds a chunk of this order, or of the largest that there is below, down to `least`.
    fn grow_by_a_chunk(&self, order: u8, least: u8) -> bool {
        (least..=order).rev().any(|order| self.grow(order))
    }

    #[cold]
    fn grow_for(&self, layout: Layout) -> bool {
        // Twice the size leaves room for the alignment and the allocator's own words.
        let pages = (layout.size() + layout.align()).div_ceil(4096) * 2;
        let least = pages.next_power_of_two().trailing_zeros() as u8;
        let order = least.max(CHUNK_ORDER);
        order <= LARGEST_ORDER && self.grow_by_a_chunk(order, least) || self.open_reserve()
    }

    fn is_low(&self) -> bool {
        self.reserve.load(Ordering::Relaxed).is_null()
    }

    /// Lets what is kept back be used. Returns whether it was still there.
    fn open_reserve(&self) -> bool {
        let block = self.reserve.swap(core::ptr::null_mut(), Ordering::Relaxed);
        if block.is_null() {
            return false;
        }
        // SAFETY: the block came from here with this layout, and the swap gave it to this CPU alone.
        unsafe { self.dealloc(block, RESERVED) };
        true
    }

    /// Keeps a block back. Returns whether there was one.
    fn close_reserve(&self) -> bool {
        // SAFETY: the size is not zero.
        let Some(block) = (unsafe { self.inner.lock().0.try_allocate(RESERVED) }) else {
            return false;
        };
        self.used.fetch_add(RESERVED.size(), Ordering::Relaxed);
        let before = self.reserve.swap(block.as_ptr(), Ordering::Relaxed);
        if !before.is_null() {
            // Another CPU was quicker.
            // SAFETY: the block came from here with this layout, and the swap gave it to this CPU alone.
            unsafe { self.dealloc(before, RESERVED) };
        }
        true
    }
}

// SAFETY: allocation and release go to one allocator under its lock; growth happens outside of it.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        sync::assert_may_allocate();
        loop {
            let size = self.size.load(Ordering::Relaxed);
            // SAFETY: the caller vouches that the size is not zero.
            let memory = unsafe { self.inner.lock().0.try_allocate(layout) };
            if let Some(memory) = memory {
                self.used.fetch_add(layout.size(), Ordering::Relaxed);
                if self.room() < LOW_WATER {
                    // Who needed the heap grows it, on the way out: a CPU that does not allocate
                    // is not slowed down by one that does.
                    percpu::current().ask_to_look();
                }
                return memory.as_ptr();
            }
            // Another CPU may have claimed more, the reserve even, since this one looked.
            if !self.grow_for(layout) && self.size.load(Ordering::Relaxed) == size {
                return core::ptr::null_mut();
            }
        }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.used.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller vouches that `memory` came from here with this layout.
        unsafe { self.inner.lock().0.deallocate(memory, layout) };
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller vouches for `memory`, `layout` and a size that is not zero.
        if unsafe {
            self.inner
                .lock()
                .0
                .try_realloc_in_place(memory, layout, size)
        } {
            self.used.fetch_add(size, Ordering::Relaxed);
            self.used.fetch_sub(layout.size(), Ordering::Relaxed);
            return memory;
        }
        // SAFETY: the alignment is that of a valid layout, and the caller vouches for the size.
        let new_layout = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the size is not zero.
        let new = unsafe { self.alloc(new_layout) };
        if !new.is_null() {
            // SAFETY: both blocks are at least as long as what is copied and do not overlap; the
            // old one goes back with its own layout.
            unsafe {
                new.copy_from_nonoverlapping(memory, layout.size().min(size));
                self.dealloc(memory, layout);
            }
        }
        new
    }
}
