//! The format in which the processors read page-table entries, and the properties of their translation caches.
//!
//! Written from the processors' manuals, and deliberately not from `memwright_table::arch`. This module and `arch` have
//! only the bits in memory in common, so the tests detect an encoding that hardware would read differently.
//!
//! The architecture is chosen for the whole build, by `RUSTFLAGS='--cfg simulated="aarch64"'` or
//! `RUSTFLAGS='--cfg simulated="riscv64"'`. The default is x86-64. With `--cfg simulated_by_fault` too, the processors
//! fault in place of setting accessed and dirty bits. With `--cfg simulated_sv39` too, those of RISC-V have tables of
//! three levels.

#[cfg(not(any(simulated = "aarch64", simulated = "riscv64")))]
mod x86_64;
#[cfg(not(any(simulated = "aarch64", simulated = "riscv64")))]
pub(crate) use x86_64::*;

#[cfg(simulated = "aarch64")]
mod aarch64;
#[cfg(simulated = "aarch64")]
pub(crate) use aarch64::*;

#[cfg(simulated = "riscv64")]
mod riscv64;
#[cfg(simulated = "riscv64")]
pub(crate) use riscv64::*;

/// The architecture of the simulated machine.
#[cfg(not(simulated_by_fault))]
pub type Arch = Processor;
/// The architecture of the simulated machine.
#[cfg(simulated_by_fault)]
pub type Arch = memwright_table::ByFault<Processor>;

/// The number of levels of the page tables.
pub(crate) const LEVELS: u8 = if cfg!(simulated_sv39) { 3 } else { 4 };

/// Whether a walk records accesses and stores in the entry. If not, an access or a store faults unless the entry
/// already records it.
pub(crate) const RECORDS: bool = cfg!(not(simulated_by_fault));

/// A leaf, decoded from its entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Leaf {
    /// The address of its first byte.
    pub(crate) address: u64,
    /// The index in the page attribute table, which selects the memory type. 0 is write-back.
    pub(crate) pat: u8,
}
