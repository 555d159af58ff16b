//! A machine with one CPU, whose memory is a static.

use core::ptr::NonNull;

use memwright_table::{
    CpuSet, Frame, FrameRange, Invalidation, Machine, OneCpu, PAGE_SIZE, X86_64,
};

use crate::bytes::Bytes;

/// The number of frames.
const FRAMES: u32 = 1024;

/// All frames.
pub const ALL: FrameRange = FrameRange {
    start: Frame::new(0),
    count: FRAMES,
};

static MEMORY: Bytes<{ FRAMES as usize * PAGE_SIZE }> = Bytes::zeroed();

/// The machine. It has no TLB, because no program runs on it.
pub struct Bare;

// SAFETY: the static is page-aligned, has the bytes of all frames, and lives as long as the program. Nothing caches
// translations.
unsafe impl Machine for Bare {
    type Arch = X86_64;
    type Threads = OneCpu;

    fn memory_base(&self) -> NonNull<u8> {
        MEMORY.start()
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        range.end_number() <= ALL.end_number()
    }

    fn cpu_count(&self) -> usize {
        1
    }

    fn load_root(&self, _root: Frame) {}

    fn invalidate_local(&self, _what: &Invalidation) {}

    fn invalidate_remote(&self, _targets: CpuSet, _root: Frame, _what: &[Invalidation]) {}
}
