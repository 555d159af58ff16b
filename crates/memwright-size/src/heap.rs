//! The heap of a program without an operating system: a static. It never reuses memory.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::bytes::Bytes;

const SIZE: usize = 1 << 20;

static HEAP: Bytes<SIZE> = Bytes::zeroed();

/// The number of bytes that have been allocated.
struct Heap(AtomicUsize);

#[global_allocator]
static ALLOCATOR: Heap = Heap(AtomicUsize::new(0));

// SAFETY: each allocation gets bytes of the static that no other allocation has.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // The padding for the alignment is taken even if the bytes are aligned.
        let taken = self
            .0
            .fetch_add(layout.size() + layout.align(), Ordering::Relaxed);
        if taken + layout.size() + layout.align() > SIZE {
            return null_mut();
        }
        let start = HEAP.start().as_ptr().wrapping_add(taken);
        start.wrapping_add(start.align_offset(layout.align()))
    }

    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
}
