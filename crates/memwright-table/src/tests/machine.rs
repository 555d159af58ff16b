//! A machine for tests. Its memory is from the heap, and it records the invalidations that were sent to its CPUs.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::Mutex;
use std::vec::Vec;

use crate::sync::Threads;
use crate::{
    CpuId, CpuSet, Frame, FrameRange, Frames, Invalidation, Machine, PAGE_SIZE, Region, X86_64,
};

/// The target CPUs of an invalidation, and the invalidation.
pub(crate) type Sent = (CpuSet, Invalidation);

#[derive(Clone)]
pub(crate) struct TestMachine(Arc<Inner>);

struct Inner {
    memory: NonNull<u8>,
    frames: u32,
    cpus: usize,
    sent: Mutex<Vec<Sent>>,
}

// SAFETY: the memory is accessed by raw copies and atomics only, as the trait requires.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

std::thread_local! {
    /// The CPU that this host thread acts as.
    static CURRENT: Cell<u16> = const { Cell::new(0) };
}

impl TestMachine {
    /// Creates a machine, and makes the calling thread act as its CPU 0.
    pub(crate) fn new(frames: u32, cpus: usize) -> Self {
        CURRENT.set(0);
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc_zeroed(Inner::layout(frames)) };
        Self(Arc::new(Inner {
            memory: NonNull::new(memory).expect("host memory"),
            frames,
            cpus,
            sent: Mutex::new(Vec::new()),
        }))
    }

    /// Makes the calling thread act as the CPU `cpu`.
    pub(crate) fn run_on(&self, cpu: u16) {
        assert!(usize::from(cpu) < self.0.cpus, "no CPU {cpu}");
        CURRENT.set(cpu);
    }

    /// Returns the invalidations that were sent since the last call.
    pub(crate) fn take_sent(&self) -> Vec<Sent> {
        core::mem::take(&mut *self.0.sent.lock().unwrap())
    }

    /// Inverts a byte of `frame` without a check of its kind, like a write through a stray pointer.
    pub(crate) fn scribble(&self, frame: Frame, offset: usize) {
        let byte = crate::machine::frame_pointer(self.0.memory, frame).wrapping_add(offset);
        // SAFETY: tests name frames of the machine.
        unsafe { byte.write(!byte.read()) };
    }
}

impl Inner {
    fn layout(frames: u32) -> Layout {
        Layout::from_size_align(frames as usize * PAGE_SIZE, PAGE_SIZE).expect("a valid layout")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.memory.as_ptr(), Self::layout(self.frames)) };
    }
}

// SAFETY: the memory is valid for `frames` frames, zeroed, and lives as long as the machine; the machine has no TLB.
unsafe impl Machine for TestMachine {
    type Arch = X86_64;
    type Threads = Self;

    fn memory_base(&self) -> NonNull<u8> {
        self.0.memory
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        range.end_number() <= u64::from(self.0.frames)
    }

    fn cpu_count(&self) -> usize {
        self.0.cpus
    }

    fn load_root(&self, _root: Frame) {}

    fn invalidate_local(&self, what: &Invalidation) {
        self.0
            .sent
            .lock()
            .unwrap()
            .push((CpuSet::single(Self::cpu()), *what));
    }

    fn invalidate_remote(&self, targets: CpuSet, _root: Frame, what: &[Invalidation]) {
        let mut sent = self.0.sent.lock().unwrap();
        sent.extend(what.iter().map(|what| (targets, *what)));
    }
}

impl Threads for TestMachine {
    fn cpu() -> CpuId {
        CpuId::new(CURRENT.get())
    }

    fn relax() {
        std::thread::yield_now();
    }
}

/// Creates one region of `count` frames from number 0 on, on one node.
pub(crate) fn frames(count: u32) -> Arc<Frames<TestMachine>> {
    frames_with(count, 1)
}

/// Like `frames`, with `cpus` CPUs.
pub(crate) fn frames_with(count: u32, cpus: usize) -> Arc<Frames<TestMachine>> {
    let range = FrameRange {
        start: Frame::new(0),
        count,
    };
    let machine = TestMachine::new(count, cpus);
    Arc::new(Frames::new(machine, &[Region { range, node: 0 }]).unwrap())
}
