//! How counting differs between the two kinds of kernels.

use memwright_table::Bits;

use crate::model::image::System;

/// Returns which component marks the run of the program on this kind of kernel.
pub const fn marker(system: System) -> Marker {
    match system {
        System::Linux => Marker::FirstProcess,
        System::Memwright => Marker::Kernel,
    }
}

/// Returns the meaning of the software bits in the page-table entries of this kind of kernel.
pub const fn software_bits(system: System) -> SoftwareBits {
    match system {
        System::Linux => LINUX_BITS,
        System::Memwright => MEMWRIGHT_BITS,
    }
}

/// Returns whether this kind of kernel can return to user mode from within a function call, and continue in that
/// function at its next entry.
pub const fn resumes_calls(system: System) -> bool {
    match system {
        System::Linux => false,
        System::Memwright => true,
    }
}

/// The component that marks [`THE_RUN`](memwright_linux_abi::channel::THE_RUN), the run of the program from its exec to its
/// exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// The guest's first process. The child that becomes the program marks the beginning just before its exec; the
    /// parent marks the end when its wait has returned. With one CPU the run ends before the end mark, at the last load
    /// of CR3 that changed its value: the kernel's switch from the exited program to the parent.
    FirstProcess,
    /// The kernel, exactly at the beginning and the end of the run.
    Kernel,
}

impl Marker {
    /// Returns how many user instructions are counted between the run's begin mark and the program's first instruction:
    /// the mark itself and the SYSCALL of the child's exec.
    pub const fn before_exec(self) -> u64 {
        match self {
            Self::FirstProcess => 2,
            Self::Kernel => 0,
        }
    }
}

/// The meaning of page-table bits that hardware leaves to software.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftwareBits {
    /// The page is dirty although the hardware's dirty bit is clear.
    pub saved_dirty: u64,
    /// The page has no reference counts: vDSO data, and the zero page.
    pub special: u64,
}

/// The software bits of Linux (arch/x86/include/asm/pgtable_types.h). `_PAGE_BIT_SAVED_DIRTY` has held the dirty bit of
/// a write-protected entry since 6.6; earlier kernels mark direct mappings of device pages with the same bit, and this
/// machine has no such pages. `_PAGE_BIT_SPECIAL` marks the pages without reference counts.
pub const LINUX_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: 1 << 58,
    special: 1 << 9,
};

/// The bits of Memwright's kernel.
pub const MEMWRIGHT_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: Bits::FOLDED_DIRTY.bits(),
    special: Bits::BORROWED.bits(),
};
