//! The machine for the memory manager: physical memory and TLBs.

use core::arch::asm;
use core::ptr::NonNull;
use core::sync::atomic::Ordering;

use memwright_linux_abi::host::KernelEvents;
use memwright_linux_base::sync;
use memwright_table::addr::{CpuId, CpuSet, FrameRange};
use memwright_table::machine::{Invalidation, Machine};
use memwright_table::sync::{GaveWay, Threads};
use memwright_table::{Frame, X86_64, X86_64Registers};

use crate::arch::{self, fpu};
use crate::clock::stretch;
use crate::memory::paging::{self, DIRECT_BASE};
use crate::memory::ranges;
use crate::{ipi, percpu, tlb, usercopy};

/// The hardware, as the memory manager and the personality use it. It has no fields, because all state is per CPU or in
/// statics of the modules.
pub struct Hardware;

/// The only instance.
pub static HARDWARE: Hardware = Hardware;

memwright_table::link_machine!(HARDWARE, Hardware);

/// Returns the machine as a value of type `M`, with which the memory manager is instantiated.
#[cfg(target_os = "none")]
pub fn handle() -> memwright_linux_abi::M {
    memwright_table::Linked
}

/// Returns the machine as a value of type `M`. This version is for host builds, which are checked but not linked.
#[cfg(not(target_os = "none"))]
pub fn handle() -> memwright_linux_abi::M {
    &HARDWARE
}

fn frame_address(frame: Frame) -> u64 {
    DIRECT_BASE + frame.address().as_u64()
}

// SAFETY: the direct map never changes and covers all memory that `start` provides. When a method returns,
// invalidations on this CPU are complete. For invalidations on other CPUs, see the argument in `ipi`.
unsafe impl Machine for Hardware {
    type Arch = X86_64;
    type Threads = sync::Threads;

    #[inline(always)]
    fn memory_base(&self) -> NonNull<u8> {
        const BASE: NonNull<u8> = NonNull::new(DIRECT_BASE as *mut u8).unwrap();
        BASE
    }

    fn has_memory(&self, range: FrameRange) -> bool {
        let start = range.start.address().as_u64();
        ranges::contain(start, start + u64::from(range.count) * 4096)
    }

    fn template(&self) -> Option<Frame> {
        Some(Frame::new((paging::template() / 4096) as u32))
    }

    fn key_rights(&self) -> u32 {
        fpu::key_rights()
    }

    fn cpu_count(&self) -> usize {
        percpu::count()
    }

    #[inline]
    fn registers(&self) -> Option<X86_64Registers> {
        Some(arch::paging_registers())
    }

    fn load_root(&self, root: Frame) {
        // SAFETY: the memory manager creates every root from the template, whose upper half it copies.
        unsafe { tlb::load(root, false) };
    }

    #[inline(always)]
    fn keeps_translations(&self) -> bool {
        tlb::has_tags()
    }

    #[inline]
    fn load_kept_root(&self, root: Frame) {
        // SAFETY: the memory manager creates every root from the template, whose upper half it copies. The translations
        // that are kept agree with the tables.
        unsafe { tlb::load(root, true) };
    }

    #[inline]
    fn invalidate_local(&self, what: &Invalidation) {
        tlb::invalidate(what);
    }

    fn invalidate_remote(&self, targets: CpuSet, root: Frame, what: &[Invalidation]) {
        ipi::invalidate(targets.bits(), root.address().as_u64(), what);
    }

    #[inline]
    fn clear_frame(&self, frame: Frame) {
        // SAFETY: the frame is in the direct map; exactly its 512 words are written.
        unsafe {
            asm!("rep stosq", inout("rdi") frame_address(frame) => _, inout("rcx") 512 => _, in("rax") 0, options(nostack, preserves_flags));
        }
    }

    fn clear_frames(&self, range: FrameRange) {
        let words = u64::from(range.count) * 512;
        // SAFETY: the frames are in the direct map; only their words are written.
        unsafe {
            asm!("rep stosq", inout("rdi") frame_address(range.start) => _, inout("rcx") words => _, in("rax") 0, options(nostack, preserves_flags));
        }
    }

    #[inline]
    fn copy_frame(&self, from: Frame, to: Frame) {
        // SAFETY: both frames are in the direct map; only the 512 words of the second frame are written.
        unsafe {
            asm!("rep movsq", inout("rsi") frame_address(from) => _, inout("rdi") frame_address(to) => _, inout("rcx") 512 => _, options(nostack, preserves_flags));
        }
    }
}

impl Threads for Hardware {
    const HALTS: bool = true;

    #[inline(always)]
    fn cpu() -> CpuId {
        CpuId::known(percpu::current().index.load(Ordering::Relaxed))
    }

    #[inline(never)]
    fn relax() {
        ipi::relax();
    }

    fn halt(limit: Option<u32>) {
        ipi::halt(limit);
    }

    fn wake(cpu: CpuId) {
        ipi::wake(cpu.index());
    }

    fn give_way(waits: bool) -> GaveWay {
        usercopy::events().map_or(GaveWay::ToNobody, |events| events.give_way(waits))
    }

    // Not inlined, because the kernel has hundreds of scheduling points.
    #[inline(never)]
    fn pause_due() -> bool {
        stretch::end(percpu::current());
        ipi::answer_here();
        usercopy::events().is_some_and(KernelEvents::pause_due)
    }

    fn resume() {
        ipi::resume();
    }
}
