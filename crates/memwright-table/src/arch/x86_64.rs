//! x86-64: the processors read the words that software writes.

use core::sync::atomic::AtomicU64;

use super::registers::{Field, Uses, WrongRegister, check_all};
use super::{Architecture, Tables};

/// The page tables of x86-64 with four levels.
#[derive(Clone, Copy, Debug)]
pub struct X86_64;

/// The control registers of a processor of x86-64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The model-specific register `IA32_EFER`.
    pub efer: u64,
    /// The register `CR0`.
    pub cr0: u64,
    /// The register `CR4`.
    pub cr4: u64,
    /// The model-specific register `IA32_PAT`.
    pub pat: u64,
}

const PCIDE: Field = Field::clear("CR4.PCIDE", 1 << 17);
const WRITE_COMBINING: Field = Field {
    name: "IA32_PAT.PA1",
    mask: 7 << 8,
    wanted: 1 << 8,
};

impl Architecture for X86_64 {
    type Registers = Registers;

    const LEVELS: u8 = 4;

    // Intel SDM volume 3A, "Operations that Invalidate TLBs and Paging-Structure Caches": a page fault invalidates the
    // entries for its address. Entries that are not present are not cached.
    const FAULT_DROPS_STALE: bool = true;

    const BREAK_BEFORE_MAKE: bool = false;

    fn check(registers: &Registers, uses: Uses) -> Result<(), WrongRegister> {
        Field::set("IA32_EFER.NXE", 1 << 11).check(registers.efer)?;
        Field::set("CR0.WP", 1 << 16).check(registers.cr0)?;
        Field::clear("CR4.LA57", 1 << 12).check(registers.cr4)?;
        if !uses.tags {
            PCIDE.check(registers.cr4)?;
        }
        let write_back = Field {
            name: "IA32_PAT.PA0",
            mask: 7,
            wanted: 6,
        };
        let uncached = Field::clear("IA32_PAT.PA3", 7 << 24);
        check_all(registers.pat, &[write_back, uncached])?;
        if uses.write_combining {
            WRITE_COMBINING.check(registers.pat)?;
        }
        Ok(())
    }
}

impl Tables for X86_64 {
    type Slot = AtomicU64;

    const TABLE_ORDER: u8 = 0;

    // Intel SDM volume 3A, "Determination of Access Rights": a right applies if every entry of the walk has it.
    const UPPER_ENTRIES_PERMIT: bool = true;

    // Intel SDM volume 3A, "Accessed and Dirty Flags".
    const UPPER_ENTRIES_ACCESSED: bool = true;
}
