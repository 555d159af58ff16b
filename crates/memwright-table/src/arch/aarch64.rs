//! AArch64: the 4 KiB granule, 48-bit addresses, and FEAT_HAFDBS, so that the processors record accesses and stores.

use super::paired::{HardwareFormat, PairedSlot};
use super::registers::{Field, Uses, WrongRegister, check_all};
use super::word::{ACCESSED, ADDRESS, DIRTY, LARGE, NO_EXECUTE, READ, TABLE, WRITE};
use super::{Architecture, Tables};
use crate::entry::{Bits, CacheMode};

/// The page tables of AArch64 with four levels (stage 1 of EL1 and EL0, 4 KiB granule), which `TTBR0_EL1` points to.
/// The processors have FEAT_HAFDBS with dirty state (`ID_AA64MMFR1_EL1.HAFDBS` is 2), and `TCR_EL1.HA` and
/// `TCR_EL1.HD` are set: they set the access flag, and record stores. Otherwise, the tables are
/// [`ByFault<Aarch64>`](super::ByFault).
///
/// `MAIR_EL1` has write-back memory at index 0, non-cacheable memory at index 1, and a device memory type at index 2.
///
/// Each table has two frames, because an entry leaves software only four bits: the marks of a page are in the second
/// frame. A fork copies the entries.
#[derive(Clone, Copy, Debug)]
pub struct Aarch64;

// The bits of the processors' format (Arm Architecture Reference Manual for A-profile, "VMSAv8-64 descriptor formats").
const VALID: u64 = 1 << 0;
/// Set if the entry points to a table or, in a last-level table, maps a page. A valid entry without this bit is a
/// block.
const TABLE_OR_PAGE: u64 = 1 << 1;
/// Index 1 in `MAIR_EL1`.
const NON_CACHEABLE: u64 = 1 << 2;
const DEVICE: u64 = 2 << 2;
/// AP[1]: EL0 may use the entry.
const USER: u64 = 1 << 6;
/// AP[2]. With `DIRTY_MODIFIER`, it means that the page was not written.
const READ_ONLY: u64 = 1 << 7;
const INNER_SHAREABLE: u64 = 0b11 << 8;
/// AF.
const ACCESS_FLAG: u64 = 1 << 10;
/// nG: the translation belongs to one address space.
const NOT_GLOBAL: u64 = 1 << 11;
/// DBM: a store clears `READ_ONLY`.
const DIRTY_MODIFIER: u64 = 1 << 51;
/// PXN: EL1 may not execute.
const KERNEL_NO_EXECUTE: u64 = 1 << 53;
/// UXN: EL0 may not execute.
const USER_NO_EXECUTE: u64 = 1 << 54;

const WRITE_BACK: u64 = Bits::of_cache(CacheMode::WriteBack).bits();
const WRITE_COMBINING: u64 = Bits::of_cache(CacheMode::WriteCombining).bits();

/// The control registers of a processor of AArch64.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registers {
    /// The register `TCR_EL1`.
    pub tcr: u64,
    /// The register `MAIR_EL1`.
    pub mair: u64,
    /// The register `SCTLR_EL1`.
    pub sctlr: u64,
}

/// The fields of `TCR_EL1` that apply to `TTBR0_EL1`, and DS.
const TRANSLATION: [Field; 6] = [
    Field {
        name: "TCR_EL1.T0SZ",
        mask: 0x3f,
        wanted: 16,
    },
    Field {
        name: "TCR_EL1.IRGN0",
        mask: 3 << 8,
        wanted: 1 << 8,
    },
    Field {
        name: "TCR_EL1.ORGN0",
        mask: 3 << 10,
        wanted: 1 << 10,
    },
    Field::set("TCR_EL1.SH0", 3 << 12),
    Field::clear("TCR_EL1.TG0", 3 << 14),
    Field::clear("TCR_EL1.DS", 1 << 59),
];
/// The fields of `TCR_EL1` with which a processor records accesses and stores.
const RECORDING: [Field; 2] = [
    Field::set("TCR_EL1.HA", 1 << 39),
    Field::set("TCR_EL1.HD", 1 << 40),
];
const MEMORY_TYPES: [Field; 3] = [
    Field::set("MAIR_EL1.Attr0", 0xff),
    Field {
        name: "MAIR_EL1.Attr1",
        mask: 0xff << 8,
        wanted: 0x44 << 8,
    },
    // The device types are 0x00, 0x04, 0x08 and 0x0c.
    Field::clear("MAIR_EL1.Attr2", 0xf3 << 16),
];
const CONTROL: [Field; 3] = [
    Field::set("SCTLR_EL1.C", 1 << 2),
    Field::set("SCTLR_EL1.I", 1 << 12),
    Field::clear("SCTLR_EL1.WXN", 1 << 19),
];

impl Architecture for Aarch64 {
    type Registers = Registers;

    const LEVELS: u8 = 4;

    // A processor may keep a translation whose rights caused a fault.
    const FAULT_DROPS_STALE: bool = false;

    // Arm Architecture Reference Manual for A-profile, "Using break-before-make when updating translation table entries".
    const BREAK_BEFORE_MAKE: bool = true;

    fn check(registers: &Registers, uses: Uses) -> Result<(), WrongRegister> {
        check_all(registers.tcr, &TRANSLATION)?;
        if uses.sets_accessed_and_dirty {
            check_all(registers.tcr, &RECORDING)?;
        }
        check_all(registers.mair, &MEMORY_TYPES)?;
        check_all(registers.sctlr, &CONTROL)
    }
}

impl Tables for Aarch64 {
    type Slot = PairedSlot<Self>;

    const TABLE_ORDER: u8 = 1;

    // APTable could forbid stores, but a table with two frames cannot be shared.
    const UPPER_ENTRIES_PERMIT: bool = false;

    // Without FEAT_HAFT, an entry that points to a lower table has no access flag.
    const UPPER_ENTRIES_ACCESSED: bool = false;
}

impl HardwareFormat for Aarch64 {
    #[inline]
    fn encode(word: u64) -> u64 {
        if word & READ == 0 {
            return 0;
        }
        let frame = word & ADDRESS;
        if word & TABLE != 0 {
            return frame | TABLE_OR_PAGE | VALID;
        }
        let kind = if word & LARGE != 0 { 0 } else { TABLE_OR_PAGE };
        let memory_type = match word & Bits::CACHE.bits() {
            WRITE_BACK => 0,
            WRITE_COMBINING => NON_CACHEABLE,
            _ => DEVICE,
        };
        let write = match (word & WRITE != 0, word & DIRTY != 0) {
            (true, true) => DIRTY_MODIFIER,
            (true, false) => DIRTY_MODIFIER | READ_ONLY,
            (false, _) => READ_ONLY,
        };
        let access = if word & ACCESSED != 0 { ACCESS_FLAG } else { 0 };
        let execute = if word & NO_EXECUTE != 0 {
            USER_NO_EXECUTE
        } else {
            0
        };
        let always = KERNEL_NO_EXECUTE | NOT_GLOBAL | INNER_SHAREABLE | USER | VALID;
        frame | execute | write | access | memory_type | kind | always
    }

    #[inline]
    fn recorded(hardware: u64) -> u64 {
        let accessed = if hardware & ACCESS_FLAG != 0 {
            ACCESSED
        } else {
            0
        };
        let dirty = if hardware & (DIRTY_MODIFIER | READ_ONLY) == DIRTY_MODIFIER {
            DIRTY
        } else {
            0
        };
        accessed | dirty
    }
}
