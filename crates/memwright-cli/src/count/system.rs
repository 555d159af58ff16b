//! The properties of Linux kernels and of Memwright's kernel that counting depends on.

use memwright_table::Bits;

use crate::model::image::System;

/// Returns which component marks the run of the program on a kernel of this kind.
pub const fn marker(system: System) -> Marker {
    match system {
        System::Linux => Marker::FirstProcess,
        System::Memwright | System::Alone => Marker::Kernel,
    }
}

/// Returns which software bits of page-table entries a kernel of this kind uses.
pub const fn software_bits(system: System) -> SoftwareBits {
    match system {
        System::Linux => LINUX_BITS,
        System::Memwright => MEMWRIGHT_BITS,
        System::Alone => NO_BITS,
    }
}

/// Returns whether a kernel of this kind can return to user mode inside a function call, and continue that call when
/// the kernel is next entered.
pub const fn resumes_calls(system: System) -> bool {
    match system {
        System::Linux | System::Alone => false,
        System::Memwright => true,
    }
}

/// The component of the guest that executes the marks of [`THE_RUN`](memwright_linux_abi::channel::THE_RUN), the run of
/// the program from its exec to its exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// The guest's init process. Its child marks the beginning of the run just before the child's exec of the program;
    /// init marks the end when its wait has returned. With one CPU, the run ends before the end mark, at the last load
    /// of CR3 that changed its value. This load is the kernel's switch from the exited program to init.
    FirstProcess,
    /// The kernel, exactly at the beginning and the end of the run. For a kernel that runs alone, it is the plugin,
    /// when the kernel is entered and when the machine ends.
    Kernel,
}

impl Marker {
    /// Returns how many user instructions are counted between the begin mark of the run and the program's first
    /// instruction: the mark itself and the SYSCALL of the child's exec.
    pub const fn before_exec(self) -> u64 {
        match self {
            Self::FirstProcess => 2,
            Self::Kernel => 0,
        }
    }
}

/// The software bits of a page-table entry with which a kernel marks these states. The hardware ignores these bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftwareBits {
    /// The page is dirty even if the hardware's dirty bit is clear.
    pub saved_dirty: u64,
    /// The page has no reference count: vDSO data, or the zero page.
    pub special: u64,
}

/// The software bits of Linux (arch/x86/include/asm/pgtable_types.h). `_PAGE_BIT_SAVED_DIRTY` contains the dirty bit of
/// a write-protected entry since 6.6. Earlier kernels use the same bit for direct mappings of device pages, which this
/// machine does not have. `_PAGE_BIT_SPECIAL` marks pages without a reference count.
pub const LINUX_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: 1 << 58,
    special: 1 << 9,
};

/// No bits, for a kernel whose software bits are not known.
const NO_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: 0,
    special: 0,
};

/// The software bits of Memwright's kernel.
pub const MEMWRIGHT_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: Bits::FOLDED_DIRTY.bits(),
    special: Bits::BORROWED.bits(),
};
