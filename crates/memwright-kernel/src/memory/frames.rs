//! The frames that the kernel itself uses: heap chunks, stacks, and page tables for the area of stacks.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicPtr, Ordering};

use memwright_table::Frame;
use memwright_table::frame::{FrameKind, Frames};

use crate::memory::paging::DIRECT_BASE;

pub use memwright_linux_abi::M;

static FRAMES: AtomicPtr<Frames<M>> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the frame allocator, which is never freed from then on.
pub fn set(frames: &Arc<Frames<M>>) {
    FRAMES.store(Arc::into_raw(frames.clone()).cast_mut(), Ordering::Release);
}

fn frames() -> Option<&'static Frames<M>> {
    let frames = FRAMES.load(Ordering::Acquire);
    // SAFETY: a non-null pointer came from `set`, which keeps one reference forever.
    unsafe { frames.as_ref() }
}

/// Returns the total number of frames.
pub fn total() -> u64 {
    frames().map_or(0, Frames::total)
}

/// Allocates 2^`order` frames. Returns the address of the frames in the direct map. Their contents are undefined.
pub fn allocate(order: u8) -> Option<u64> {
    let frame = frames()?
        .allocate(order, FrameKind::Kernel)
        .ok()?
        .into_raw();
    Some(DIRECT_BASE + frame.address().as_u64())
}

/// Frees the frames at `address`, which [`allocate`] returned.
pub fn release(address: u64) {
    if let Some(frames) = frames() {
        let number = (address - DIRECT_BASE) / 4096;
        drop(frames.adopt(Frame::new(number as u32)));
    }
}
