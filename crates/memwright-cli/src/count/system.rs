//! How counting differs between the two kinds of kernels that a guest can have.

use memwright_table::Bits;

use crate::model::image::System;

/// Who marks the run of the program.
pub const fn marker(system: System) -> Marker {
    match system {
        System::Linux => Marker::FirstProcess,
        System::Memwright => Marker::Kernel,
    }
}

/// What it keeps in entries of page tables.
pub const fn software_bits(system: System) -> SoftwareBits {
    match system {
        System::Linux => LINUX_BITS,
        System::Memwright => MEMWRIGHT_BITS,
    }
}

/// Whether it returns to user mode from within calls, and goes on in them at the next entry.
pub const fn resumes_calls(system: System) -> bool {
    match system {
        System::Linux => false,
        System::Memwright => true,
    }
}

/// Who marks [`THE_RUN`](memwright_linux::channel::THE_RUN), the run of the program from its exec to its exit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Marker {
    /// The guest's first process. The child that becomes the program marks the beginning, just before it executes it; the
    /// parent marks the end when it has waited for it. With one CPU the run ends earlier, with the last load of CR3 before
    /// that mark which changed CR3: the kernel's switch from the program, which has exited, to the parent.
    FirstProcess,
    /// The kernel, exactly where the run begins and ends.
    Kernel,
}

impl Marker {
    /// Instructions in user mode between the mark where the run begins and the program: the mark and the SYSCALL of the
    /// child's exec.
    pub const fn before_exec(self) -> u64 {
        match self {
            Self::FirstProcess => 2,
            Self::Kernel => 0,
        }
    }
}

/// What a kernel keeps in bits of an entry that hardware leaves to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SoftwareBits {
    /// The page is dirty, though the bit of hardware is clear.
    pub saved_dirty: u64,
    /// The page is without reference counts: data of the vDSO, and the zero page.
    pub special: u64,
}

/// Those of Linux (arch/x86/include/asm/pgtable_types.h): `_PAGE_BIT_SAVED_DIRTY`, which since 6.6 holds the dirty bit of an
/// entry that may not be written, and before told pages of devices that are mapped directly, which this machine does not
/// have; `_PAGE_BIT_SPECIAL`.
pub const LINUX_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: 1 << 58,
    special: 1 << 9,
};

/// Those of Memwright's kernel.
pub const MEMWRIGHT_BITS: SoftwareBits = SoftwareBits {
    saved_dirty: Bits::FOLDED_DIRTY.bits(),
    special: Bits::BORROWED.bits(),
};
