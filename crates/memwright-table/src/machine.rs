//! What an embedder must provide: the machine underneath.

use core::ptr::NonNull;

use crate::addr::{CpuId, CpuSet, Frame, FrameRange, PAGE_SIZE, Page, PageSize};

/// What CPUs must forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// `count` translations, `stride` apart, from `first` on.
    Pages {
        /// The first page.
        first: Page,
        /// How many translations.
        count: u32,
        /// The size of each.
        stride: PageSize,
    },
    /// Every translation of user memory. Cached upper-level entries may stay.
    All,
    /// Every translation of user memory and every cached upper-level entry: a table was freed.
    AllAndTables,
}

/// The machine: its memory, its CPUs, their translation caches.
///
/// The kernel implements it on hardware and the simulated machine on a host; an embedder writes
/// one. The trait is dyn-compatible, and `&'static T` implements it wherever `T` does.
///
/// # Safety
/// - `memory_base` always returns the same pointer. For every range that `has_memory` accepts, the
///   bytes `memory_base() + 4096 * number` are valid for reads and writes, with that pointer's
///   provenance, for as long as the machine lives, and no Rust reference to them exists.
/// - When `invalidate_local` returns, this CPU uses no translation that `what` names from before
///   the call; when `invalidate_remote` returns, none of `targets` does that has `root` loaded, or
///   that kept translations of it.
/// - After `load_root` a CPU uses no translation of user memory from before, whatever it kept.
/// - `cpu` is below `cpu_count`, which never changes and is from 1 to
///   [`MAX_CPUS`](crate::addr::MAX_CPUS).
/// - `clear_frame`, `clear_frames` and `copy_frame`, if overridden, write exactly the frames named.
/// - The frame that `template` names is a live root table, and its bytes are where `memory_base` says.
pub unsafe trait Machine: Send + Sync + 'static {
    /// Where frame 0 is, or would be: frame `f` is at 4096 * `f` bytes from here.
    fn memory_base(&self) -> NonNull<u8>;

    /// Whether all of `range` is memory that the machine gives to this crate to manage.
    fn has_memory(&self, range: FrameRange) -> bool;

    /// The embedder's own root table, outside of what `has_memory` accepts; its kernel half may be copied.
    fn template(&self) -> Option<Frame> {
        None
    }

    /// The CPU that calls.
    fn cpu(&self) -> CpuId;

    /// How many CPUs exist.
    fn cpu_count(&self) -> usize;

    /// One step of a spin wait: pauses, and serves invalidations that other CPUs ask of this one.
    fn relax(&self);

    /// Makes `root` the table of this CPU. Forgets every non-global translation of the old one, or
    /// keeps it apart for [`load_kept_root`](Machine::load_kept_root), and forgets what was kept of
    /// a root in the same frame.
    fn load_root(&self, root: Frame);

    /// Whether a CPU may keep translations of a root that it no longer has loaded: address-space
    /// tags, such as the PCIDs of x86-64. Always the same.
    fn keeps_translations(&self) -> bool {
        false
    }

    /// Makes `root`, which this CPU had loaded before, its table again. What was kept of it is as
    /// the tables say and may be used.
    fn load_kept_root(&self, root: Frame) {
        self.load_root(root);
    }

    /// Makes this CPU forget.
    fn invalidate_local(&self, what: &Invalidation);

    /// Makes `targets` forget all of `what`, by one interrupt each, and returns when all have. A
    /// target that no longer has `root` loaded forgets all that it kept of it, which may be nothing.
    fn invalidate_remote(&self, targets: CpuSet, root: Frame, what: &[Invalidation]);

    /// What this CPU refuses of pages with a protection key, as x86-64's PKRU: of key `k`, bit `2k` all data
    /// accesses, bit `2k + 1` stores. Nothing where there are no protection keys.
    fn key_rights(&self) -> u32 {
        0
    }

    /// Fills `frame`, which has been accepted by `has_memory`, with zeroes.
    fn clear_frame(&self, frame: Frame) {
        let target = frame_pointer(self.memory_base(), frame);
        // SAFETY: the trait's contract makes the frame's bytes valid for writes. A frame shared
        // with user programs may be written at the same time by them; no Rust reference exists.
        unsafe { target.write_bytes(0, PAGE_SIZE) };
    }

    /// Fills all frames of `range`, which has been accepted by `has_memory`, with zeroes.
    fn clear_frames(&self, range: FrameRange) {
        for number in 0..range.count {
            self.clear_frame(Frame::new(range.start.number() + number));
        }
    }

    /// Copies all of `from` to `to`, both accepted by `has_memory`. They must differ.
    fn copy_frame(&self, from: Frame, to: Frame) {
        let (source, target) = (
            frame_pointer(self.memory_base(), from),
            frame_pointer(self.memory_base(), to),
        );
        // SAFETY: the trait's contract makes both frames valid; distinct frames do not overlap.
        unsafe { target.copy_from_nonoverlapping(source, PAGE_SIZE) };
    }
}

/// The first byte of `frame`. `wrapping_add`: forming the pointer is no claim that it is valid.
#[inline]
pub(crate) fn frame_pointer(base: NonNull<u8>, frame: Frame) -> *mut u8 {
    base.as_ptr()
        .wrapping_add(frame.number() as usize * PAGE_SIZE)
}

// SAFETY: every method forwards to `T`, which keeps the contract.
unsafe impl<T: Machine + ?Sized> Machine for &'static T {
    #[inline]
    fn memory_base(&self) -> NonNull<u8> {
        (**self).memory_base()
    }

    #[inline]
    fn has_memory(&self, range: FrameRange) -> bool {
        (**self).has_memory(range)
    }

    #[inline]
    fn template(&self) -> Option<Frame> {
        (**self).template()
    }

    #[inline]
    fn cpu(&self) -> CpuId {
        (**self).cpu()
    }

    #[inline]
    fn cpu_count(&self) -> usize {
        (**self).cpu_count()
    }

    #[inline]
    fn relax(&self) {
        (**self).relax();
    }

    #[inline]
    fn load_root(&self, root: Frame) {
        (**self).load_root(root);
    }

    #[inline]
    fn keeps_translations(&self) -> bool {
        (**self).keeps_translations()
    }

    #[inline]
    fn load_kept_root(&self, root: Frame) {
        (**self).load_kept_root(root);
    }

    #[inline]
    fn invalidate_local(&self, what: &Invalidation) {
        (**self).invalidate_local(what);
    }

    #[inline]
    fn invalidate_remote(&self, targets: CpuSet, root: Frame, what: &[Invalidation]) {
        (**self).invalidate_remote(targets, root, what);
    }

    #[inline]
    fn key_rights(&self) -> u32 {
        (**self).key_rights()
    }

    #[inline]
    fn clear_frame(&self, frame: Frame) {
        (**self).clear_frame(frame);
    }

    #[inline]
    fn clear_frames(&self, range: FrameRange) {
        (**self).clear_frames(range);
    }

    #[inline]
    fn copy_frame(&self, from: Frame, to: Frame) {
        (**self).copy_frame(from, to);
    }
}
