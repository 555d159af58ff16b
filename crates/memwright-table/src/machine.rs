//! The machine on which the memory manager runs: what an embedder must provide.

use core::ptr::NonNull;

use crate::addr::{CpuSet, Frame, FrameRange, PAGE_SIZE, Page, PageSize};
use crate::arch::{Architecture, Tables, Uses, WrongRegister};
use crate::sync::Threads;

/// A set of translations that CPUs must invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// The translations of `count` consecutive pages of the size `stride`, from the page `first` on.
    Pages {
        /// The first page.
        first: Page,
        /// The number of translations.
        count: u32,
        /// The size of the page that each translation maps.
        stride: PageSize,
    },
    /// Every translation of user memory. CPUs may keep cached upper-level entries.
    All,
    /// Every translation of user memory and every cached upper-level entry. Used after a table was freed or unlinked.
    AllAndTables,
}

impl Invalidation {
    /// Returns the invalidation of one page, whatever the size of its entry.
    pub const fn page(page: Page) -> Self {
        Self::Pages {
            first: page,
            count: 1,
            stride: PageSize::Size4K,
        }
    }
}

/// The machine: its memory, its CPUs, and their TLBs.
///
/// The kernel implements this trait on hardware, and the simulated machine implements it on a host. The trait is
/// dyn-compatible, and `&'static T` implements it wherever `T` does.
///
/// # State of the processor
/// With the architecture [`X86_64`](crate::X86_64), each CPU has `EFER.NXE` set, `CR0.WP` set, `CR4.LA57` clear, and
/// user shadow stacks disabled before it loads a root. `CR4.PCIDE` may be set only if
/// [`keeps_translations`](Machine::keeps_translations) returns true. `docs/embedding.md` has the reasons,
/// and the state for the other architectures.
///
/// # Interrupts
/// The methods can be called with interrupts enabled or disabled, and under locks of this crate. `invalidate_remote` is
/// not called under locks later than [`TableChild`](crate::sync::Rank::TableChild). An interrupt handler calls nothing
/// of this crate. It serves invalidations, for which it acquires no lock. See [`Threads`] for what else holds during a
/// call.
///
/// # Safety
/// - `memory_base` always returns the same pointer. For every range that `has_memory` accepts, the
///   bytes `memory_base() + 4096 * number` are valid for reads and writes, with that pointer's
///   provenance, for as long as the machine lives, and no Rust reference to them exists.
/// - When `invalidate_local` returns, this CPU uses no translation in `what` that was cached before the call. When
///   `invalidate_remote` returns, the same holds for each of `targets` that has `root` loaded or that kept translations
///   of it.
/// - After `load_root`, a CPU uses no translation of user memory that was cached before the call, including those that
///   it had kept.
/// - The number of the CPU that [`Threads::cpu`] returns is below `cpu_count`, which never changes and is from 1 to
///   [`MAX_CPUS`](crate::addr::MAX_CPUS).
/// - If an embedder overrides `clear_frame`, `clear_frames` or `copy_frame`, the method writes all of the target frames
///   and no other memory. This matters because a new page table is a frame that `clear_frame` has filled with zeroes.
/// - The frame that `template` returns is a live root table, whose bytes are at `memory_base() + 4096 * number`.
/// - `has_device_memory` accepts no frame that `has_memory` accepts. User programs may access the frames that
///   `has_device_memory` accepts, with every cache mode: no Rust reference to them exists, and no memory safety depends
///   on their contents.
pub unsafe trait Machine: Send + Sync + 'static {
    /// The architecture of the page tables. There is no default: the crate writes the entries of the architecture that
    /// the machine names, whatever the processor.
    type Arch: Architecture;

    /// The functions that apply to the calling thread and its CPU. The locks and waits of this crate are generic over
    /// this type. For a machine with one CPU and no threads of its own, it can be [`OneCpu`](crate::OneCpu).
    type Threads: Threads;

    /// Returns the address of frame 0, even if there is no such frame: frame `f` begins 4096 * `f` bytes after this
    /// address.
    fn memory_base(&self) -> NonNull<u8>;

    /// Whether all of `range` is memory that this crate may manage.
    fn has_memory(&self, range: FrameRange) -> bool;

    /// Whether all of `range` is device memory, which this crate may map but never manages: it reads and writes no
    /// frame of it, and keeps no metadata for it. A machine without this method has no device memory.
    fn has_device_memory(&self, range: FrameRange) -> bool {
        let _ = range;
        false
    }

    /// Whether entry 1 of the page attribute table (PAT) of every CPU is write-combining. The result never changes.
    /// After a reset of the processor, this entry is write-through; an embedder that returns `true` has written
    /// `IA32_PAT` on each CPU before the CPU loads a table. Whatever the result, entries 0 (write-back) and 3
    /// (uncached) must have their values after a reset; other entries are not used. Linux uses the same layout. If the
    /// result is `false`, a mapping for [`CacheMode::WriteCombining`](crate::CacheMode::WriteCombining) is uncached.
    fn has_write_combining(&self) -> bool {
        false
    }

    /// The root table of the embedder, if it has one. Each new table copies its kernel half. Its frame is one that
    /// `has_memory` rejects, or one that the embedder allocated with the kind
    /// [`FrameKind::Kernel`](crate::FrameKind::Kernel).
    fn template(&self) -> Option<Frame> {
        None
    }

    /// The number of CPUs of the machine.
    fn cpu_count(&self) -> usize;

    /// Returns the control registers of the calling CPU, if the machine reads them. [`Frames::new`](crate::Frames::new)
    /// then checks those of the CPU that calls it, and debug builds check those of each CPU that loads a table.
    fn registers(&self) -> Option<<Self::Arch as Architecture>::Registers> {
        None
    }

    /// Makes `root` the root table of this CPU. Drops every non-global translation of the old root, or keeps these
    /// translations under the tag of the old root for [`load_kept_root`](Machine::load_kept_root). Also drops the
    /// translations that the CPU kept of an earlier root table in the frame `root`.
    fn load_root(&self, root: Frame);

    /// Whether a CPU can keep translations of a root that it no longer has loaded, by address-space tags such as the
    /// PCIDs of x86-64. The result never changes.
    fn keeps_translations(&self) -> bool {
        false
    }

    /// Loads `root`, which this CPU had loaded before. The translations that the CPU kept of `root` match the tables,
    /// so the CPU may use them.
    fn load_kept_root(&self, root: Frame) {
        self.load_root(root);
    }

    /// Invalidates translations on this CPU.
    fn invalidate_local(&self, what: &Invalidation);

    /// Invalidates all of `what` on `targets`, with one interrupt for each target. Returns when every target has
    /// invalidated. A target that no longer has `root` loaded drops all translations that it kept of `root`, if any.
    fn invalidate_remote(&self, targets: CpuSet, root: Frame, what: &[Invalidation]);

    /// Returns the accesses that this CPU denies to pages with a protection key, in the format of x86-64's PKRU: for
    /// key `k`, bit `2k` denies all data accesses and bit `2k + 1` denies stores. 0 if the machine has no protection
    /// keys.
    fn key_rights(&self) -> u32 {
        0
    }

    /// Fills `frame`, which `has_memory` has accepted, with zeroes.
    fn clear_frame(&self, frame: Frame) {
        let target = frame_pointer(self.memory_base(), frame);
        // SAFETY: the trait's contract makes the frame's bytes valid for writes. User programs that share the frame may
        // write it at the same time; no Rust reference to it exists.
        unsafe { target.write_bytes(0, PAGE_SIZE) };
    }

    /// Fills all frames of `range`, which `has_memory` has accepted, with zeroes.
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

/// Checks the registers of the calling CPU, if the machine reads them.
///
/// # Errors
/// The first field with a wrong value.
pub(crate) fn check_registers<M: Machine>(machine: &M) -> Result<(), WrongRegister> {
    let uses = Uses {
        tags: machine.keeps_translations(),
        write_combining: machine.has_write_combining(),
        sets_accessed_and_dirty: M::Arch::SETS_ACCESSED_AND_DIRTY,
    };
    match machine.registers() {
        Some(registers) => M::Arch::check(&registers, uses),
        None => Ok(()),
    }
}

/// A slot of the page tables of a machine.
pub(crate) type SlotOf<M> = <<M as Machine>::Arch as Tables>::Slot;

/// Returns a pointer to the first byte of `frame`. The pointer may be invalid: the function computes it with
/// `wrapping_add`, which permits that.
#[inline]
pub(crate) fn frame_pointer(base: NonNull<u8>, frame: Frame) -> *mut u8 {
    base.as_ptr()
        .wrapping_add(frame.number() as usize * PAGE_SIZE)
}

// SAFETY: every method forwards to `T`, which keeps the contract.
unsafe impl<T: Machine + ?Sized> Machine for &'static T {
    type Arch = T::Arch;
    type Threads = T::Threads;

    #[inline]
    fn memory_base(&self) -> NonNull<u8> {
        (**self).memory_base()
    }

    #[inline]
    fn has_memory(&self, range: FrameRange) -> bool {
        (**self).has_memory(range)
    }

    #[inline]
    fn has_device_memory(&self, range: FrameRange) -> bool {
        (**self).has_device_memory(range)
    }

    #[inline]
    fn has_write_combining(&self) -> bool {
        (**self).has_write_combining()
    }

    #[inline]
    fn template(&self) -> Option<Frame> {
        (**self).template()
    }

    #[inline]
    fn cpu_count(&self) -> usize {
        (**self).cpu_count()
    }

    #[inline]
    fn registers(&self) -> Option<<T::Arch as Architecture>::Registers> {
        (**self).registers()
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
