//! How counting differs between the two kinds of kernels.

use memwright_table::Bits;

use crate::model::image::System;

/// Returns which component marks the run of the program.
pub const fn marker(system: System) -> Marker {
    match system {
        System::Linux => Marker::FirstProcess,
        System::Memwright => Marker::Kernel,
    }
}

/// Returns the meaning of the software bits in its page-table entries.
pub const fn software_bits(system: System) -> SoftwareBits {
    match system {
        System::Linux => LINUX_BITS,
        System::Memwright => MEMWRIGHT_BITS,
    }
}

/// Returns whether it returns to user mode from within calls, and continues in them at the next entry.
pub const fn resumes_calls(system: System) -> bool {
    match system {
        System::Linux => false,
        System::Memwright => true,
    }
}

/// The component that marks [`THE_RUN`](memwright_linux::channel::THE_RUN), the run of the program from its exec to its
/// exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// The guest's first process. The child that becomes the program marks the beginning just before its exec; the
    /// parent marks the end when its wait has returned. With one CPU the run ends earlier, at the last load of CR3
    /// before that mark that changed CR3: the kernel's switch from the exited program to the parent.
    FirstProcess,
    /// The kernel, exactly at the beginning and the end of the run.
    Kernel,
}

impl Marker {
    /// Returns the number of user instructions between the mark at the beginning of the run and the program: the mark
    /// and the SYSCALL of the child's exec.
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

/// Linux's bits (arch/x86/include/asm/pgtable_types.h): `_PAGE_BIT_SAVED_DIRTY`, which since 6.6 holds the dirty bit of
/// a write-protected entry, and before marked direct mappings of device pages, which this machine does not have;
/// `_PAGE_BIT_SPECIAL`.
pub const LINUX_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: 1 << 58,
    special: 1 << 9,
};

/// The bits of Memwright's kernel.
pub const MEMWRIGHT_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: Bits::FOLDED_DIRTY.bits(),
    special: Bits::BORROWED.bits(),
};
