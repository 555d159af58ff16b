//! RISC-V: Sv48 and Sv39 with the extension Svadu, so that the processors set the accessed and the dirty bit.

use core::convert::Infallible;

use super::paired::{HardwareFormat, PairedSlot};
use super::registers::{Uses, WrongRegister};
use super::word::{ACCESSED, ADDRESS, DIRTY, NO_EXECUTE, READ, TABLE, WRITE};
use super::{Architecture, Tables};
use crate::entry::{Bits, CacheMode};

/// The page tables of RISC-V with four levels (Sv48). The processors have the extension Svadu, and it is enabled
/// (`menvcfg.ADUE`): they set the accessed and the dirty bit. With Svade instead, the tables are
/// [`ByFault<Riscv64>`](super::ByFault).
///
/// Each table has two frames, because an entry leaves software only two bits: the marks of a page are in the second
/// frame. Entries that point to lower tables have no permissions, so a fork copies the entries. A mapping of device
/// memory that is not write-back needs the extension Svpbmt.
#[derive(Clone, Copy, Debug)]
pub struct Riscv64;

/// The page tables of RISC-V with three levels (Sv39), which every processor with page tables has. Programs have 256 GiB
/// of addresses. Everything else is as in [`Riscv64`]; with Svade, the tables are
/// [`ByFault<Riscv64Sv39>`](super::ByFault).
#[derive(Clone, Copy, Debug)]
pub struct Riscv64Sv39;

// The bits of the processors' format (RISC-V Privileged Architecture, "Sv39: Page-Based 39-bit Virtual-Memory System",
// whose entries are those of Sv48).
const VALID: u64 = 1 << 0;
const READABLE: u64 = 1 << 1;
const EXECUTABLE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const WRITE_BACK: u64 = Bits::of_cache(CacheMode::WriteBack).bits();
const WRITE_COMBINING: u64 = Bits::of_cache(CacheMode::WriteCombining).bits();
/// The memory types of Svpbmt: no caches, and stores may be combined; and I/O.
const NC: u64 = 1 << 61;
const IO: u64 = 2 << 61;
/// The right to write, the accessed bit and the dirty bit are this number of bits above their places in a word.
const SHIFT: u32 = 1;

const _: () = {
    assert!(ACCESSED << SHIFT == 1 << 6 && DIRTY << SHIFT == 1 << 7);
    assert!(WRITE << SHIFT == 1 << 2);
    // The frame number is 40 bits from bit 12 on in a word, and 44 bits from bit 10 on in the processors' format.
    assert!(ADDRESS >> 2 < 1 << 54);
};

impl Architecture for Riscv64 {
    // `menvcfg` cannot be read in supervisor mode, and `load_root` writes `satp`.
    type Registers = Infallible;

    const LEVELS: u8 = 4;

    // A processor may keep a translation after a fault. Without the extension Svvptc, it may also keep the fact that an
    // entry is invalid for any length of time.
    const FAULT_DROPS_STALE: bool = false;

    const BREAK_BEFORE_MAKE: bool = false;

    fn check(registers: &Infallible, _uses: Uses) -> Result<(), WrongRegister> {
        match *registers {}
    }
}

impl Architecture for Riscv64Sv39 {
    // `menvcfg` cannot be read in supervisor mode, and `load_root` writes `satp`.
    type Registers = Infallible;

    const LEVELS: u8 = 3;

    const FAULT_DROPS_STALE: bool = Riscv64::FAULT_DROPS_STALE;

    const BREAK_BEFORE_MAKE: bool = Riscv64::BREAK_BEFORE_MAKE;

    fn check(registers: &Infallible, _uses: Uses) -> Result<(), WrongRegister> {
        match *registers {}
    }
}

impl Tables for Riscv64Sv39 {
    type Slot = PairedSlot<Riscv64>;

    const TABLE_ORDER: u8 = Riscv64::TABLE_ORDER;

    const UPPER_ENTRIES_PERMIT: bool = Riscv64::UPPER_ENTRIES_PERMIT;

    const UPPER_ENTRIES_ACCESSED: bool = Riscv64::UPPER_ENTRIES_ACCESSED;
}

impl Tables for Riscv64 {
    type Slot = PairedSlot<Self>;

    const TABLE_ORDER: u8 = 1;

    // In an entry that points to a lower table, the bits R, W and X are 0.
    const UPPER_ENTRIES_PERMIT: bool = false;

    // In an entry that points to a lower table, the bits A, D and U are reserved.
    const UPPER_ENTRIES_ACCESSED: bool = false;
}

impl HardwareFormat for Riscv64 {
    #[inline]
    fn encode(word: u64) -> u64 {
        if word & READ == 0 {
            return 0;
        }
        let frame = (word & ADDRESS) >> 2;
        if word & TABLE != 0 {
            return frame | VALID;
        }
        let execute = if word & NO_EXECUTE == 0 {
            EXECUTABLE
        } else {
            0
        };
        let shifted = (word & (ACCESSED | DIRTY | WRITE)) << SHIFT;
        let memory_type = match word & Bits::CACHE.bits() {
            WRITE_BACK => 0,
            WRITE_COMBINING => NC,
            _ => IO,
        };
        frame | memory_type | shifted | USER | execute | READABLE | VALID
    }

    #[inline]
    fn recorded(hardware: u64) -> u64 {
        (hardware >> SHIFT) & (ACCESSED | DIRTY)
    }
}
