//! A machine that is linked into the image. Its methods are known at link time, so a build that optimizes the whole
//! image can inline them. Calls through a trait object cannot be inlined.
//!
//! [`link_machine!`](crate::link_machine) names the one machine of an image, and [`Linked`] forwards to it. An image
//! that uses `Linked` but names no machine fails to link.

use core::ptr::NonNull;

use crate::addr::{CpuId, CpuSet, Frame, FrameRange};
use crate::arch::{X86_64, X86_64Registers};
use crate::machine::{Invalidation, Machine};
use crate::sync::{Functions, GaveWay, Step, Threads};

// SAFETY: `link_machine!` defines all of these functions, once per image, with these signatures. Each calls the
// `Machine` method of the same name.
unsafe extern "Rust" {
    safe fn memwright_linked_memory_base() -> NonNull<u8>;
    safe fn memwright_linked_has_memory(range: FrameRange) -> bool;
    safe fn memwright_linked_template() -> Option<Frame>;
    safe fn memwright_linked_cpu_count() -> usize;
    safe fn memwright_linked_registers() -> Option<X86_64Registers>;
    safe fn memwright_linked_load_root(root: Frame);
    safe fn memwright_linked_keeps_translations() -> bool;
    safe fn memwright_linked_load_kept_root(root: Frame);
    safe fn memwright_linked_invalidate_local(what: &Invalidation);
    safe fn memwright_linked_invalidate_remote(targets: CpuSet, root: Frame, what: &[Invalidation]);
    safe fn memwright_linked_key_rights() -> u32;
    safe fn memwright_linked_clear_frame(frame: Frame);
    safe fn memwright_linked_clear_frames(range: FrameRange);
    safe fn memwright_linked_copy_frame(from: Frame, to: Frame);

    safe fn memwright_linked_cpu() -> CpuId;
    safe fn memwright_linked_relax();
    safe fn memwright_linked_halt(limit: Option<u32>);
    safe fn memwright_linked_wake(cpu: CpuId);
    safe fn memwright_linked_give_way(waits: bool) -> GaveWay;
    safe fn memwright_linked_pause_due() -> bool;
    safe fn memwright_linked_resume();
    safe fn memwright_linked_step(step: Step);
}

/// The machine that [`link_machine!`](crate::link_machine) named, as a zero-sized handle. Its page tables are those of
/// x86-64.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linked;

// SAFETY: every method forwards to one `Machine`, which keeps the contract.
unsafe impl Machine for Linked {
    type Arch = X86_64;
    type Threads = Self;

    #[inline(always)]
    fn memory_base(&self) -> NonNull<u8> {
        memwright_linked_memory_base()
    }

    #[inline(always)]
    fn has_memory(&self, range: FrameRange) -> bool {
        memwright_linked_has_memory(range)
    }

    #[inline(always)]
    fn template(&self) -> Option<Frame> {
        memwright_linked_template()
    }

    #[inline(always)]
    fn cpu_count(&self) -> usize {
        memwright_linked_cpu_count()
    }

    #[inline(always)]
    fn registers(&self) -> Option<X86_64Registers> {
        memwright_linked_registers()
    }

    #[inline(always)]
    fn load_root(&self, root: Frame) {
        memwright_linked_load_root(root);
    }

    #[inline(always)]
    fn keeps_translations(&self) -> bool {
        memwright_linked_keeps_translations()
    }

    #[inline(always)]
    fn load_kept_root(&self, root: Frame) {
        memwright_linked_load_kept_root(root);
    }

    #[inline(always)]
    fn invalidate_local(&self, what: &Invalidation) {
        memwright_linked_invalidate_local(what);
    }

    #[inline(always)]
    fn invalidate_remote(&self, targets: CpuSet, root: Frame, what: &[Invalidation]) {
        memwright_linked_invalidate_remote(targets, root, what);
    }

    #[inline(always)]
    fn key_rights(&self) -> u32 {
        memwright_linked_key_rights()
    }

    #[inline(always)]
    fn clear_frame(&self, frame: Frame) {
        memwright_linked_clear_frame(frame);
    }

    #[inline(always)]
    fn clear_frames(&self, range: FrameRange) {
        memwright_linked_clear_frames(range);
    }

    #[inline(always)]
    fn copy_frame(&self, from: Frame, to: Frame) {
        memwright_linked_copy_frame(from, to);
    }
}

impl Threads for Linked {
    // The machine of an image halts its CPUs.
    const HALTS: bool = true;

    #[inline(always)]
    fn cpu() -> CpuId {
        memwright_linked_cpu()
    }

    #[inline(always)]
    fn relax() {
        memwright_linked_relax();
    }

    #[inline(always)]
    fn halt(limit: Option<u32>) {
        memwright_linked_halt(limit);
    }

    #[inline(always)]
    fn wake(cpu: CpuId) {
        memwright_linked_wake(cpu);
    }

    #[inline(always)]
    fn give_way(waits: bool) -> GaveWay {
        memwright_linked_give_way(waits)
    }

    #[inline(always)]
    fn pause_due() -> bool {
        memwright_linked_pause_due()
    }

    #[inline(always)]
    fn resume() {
        memwright_linked_resume();
    }

    #[inline(always)]
    fn step(step: Step) {
        memwright_linked_step(step);
    }

    #[inline(always)]
    fn functions() -> &'static Functions {
        &FUNCTIONS
    }
}

/// The functions of the linked machine. A static exists once; a constant would be copied into each crate that uses it.
static FUNCTIONS: Functions = Functions::of::<Linked>();

/// Names the machine of the image by a static and the type of that static. The type implements [`Machine`] with the
/// architecture [`X86_64`], and [`Threads`]. Use it once, in the crate that creates the image.
#[macro_export]
macro_rules! link_machine {
    ($machine:path, $type:ty) => {
        const _: () = {
            use ::core::ptr::NonNull;
            use $crate::sync::{GaveWay, Step, Threads};
            use $crate::{
                CpuId, CpuSet, Frame, FrameRange, Invalidation, Machine, X86_64, X86_64Registers,
            };

            const fn has_the_tables_of_linked<M: Machine<Arch = X86_64>>() {}
            const _: () = has_the_tables_of_linked::<$type>();

            $crate::link_machine!(@machine $machine,
                memwright_linked_memory_base, memory_base() -> NonNull<u8>;
                memwright_linked_has_memory, has_memory(range: FrameRange) -> bool;
                memwright_linked_template, template() -> Option<Frame>;
                memwright_linked_cpu_count, cpu_count() -> usize;
                memwright_linked_registers, registers() -> Option<X86_64Registers>;
                memwright_linked_load_root, load_root(root: Frame) -> ();
                memwright_linked_keeps_translations, keeps_translations() -> bool;
                memwright_linked_load_kept_root, load_kept_root(root: Frame) -> ();
                memwright_linked_invalidate_local, invalidate_local(what: &Invalidation) -> ();
                memwright_linked_invalidate_remote, invalidate_remote(
                    targets: CpuSet, root: Frame, what: &[Invalidation]
                ) -> ();
                memwright_linked_key_rights, key_rights() -> u32;
                memwright_linked_clear_frame, clear_frame(frame: Frame) -> ();
                memwright_linked_clear_frames, clear_frames(range: FrameRange) -> ();
                memwright_linked_copy_frame, copy_frame(from: Frame, to: Frame) -> ();
            );
            $crate::link_machine!(@threads $type,
                memwright_linked_cpu, cpu() -> CpuId;
                memwright_linked_relax, relax() -> ();
                memwright_linked_halt, halt(limit: Option<u32>) -> ();
                memwright_linked_wake, wake(cpu: CpuId) -> ();
                memwright_linked_give_way, give_way(waits: bool) -> GaveWay;
                memwright_linked_pause_due, pause_due() -> bool;
                memwright_linked_resume, resume() -> ();
                memwright_linked_step, step(step: Step) -> ();
            );
        };
    };
    (@machine $machine:path, $(
        $name:ident, $method:ident($($argument:ident: $type:ty),*) -> $result:ty;
    )*) => {
        $(
            // SAFETY: no other symbol has this prefix, and `link_machine!` is used once per image.
            #[unsafe(no_mangle)]
            #[inline(always)]
            fn $name($($argument: $type),*) -> $result {
                Machine::$method(&$machine, $($argument),*)
            }
        )*
    };
    (@threads $threads:ty, $(
        $name:ident, $method:ident($($argument:ident: $type:ty),*) -> $result:ty;
    )*) => {
        $(
            // SAFETY: no other symbol has this prefix, and `link_machine!` is used once per image.
            #[unsafe(no_mangle)]
            #[inline(always)]
            fn $name($($argument: $type),*) -> $result {
                <$threads as Threads>::$method($($argument),*)
            }
        )*
    };
}
