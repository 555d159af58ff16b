//! The architectures: the meaning of the bits of a page-table entry, and how a processor uses them.
//!
//! [`Machine::Arch`](crate::Machine::Arch) names the architecture of the page tables. This need not be the architecture
//! of the processor on which the crate runs: a simulator or an emulator has tables of the machine that it simulates.
//!
//! In this crate, only this folder contains encodings. The loops of `table` over many entries use encoded words through
//! [`word`]; all other code uses the types of [`entry`](crate::entry).

mod aarch64;
mod by_fault;
mod paired;
mod registers;
mod riscv64;
mod slot;
#[cfg(test)]
mod tests;
pub(crate) mod word;
mod x86_64;

pub use aarch64::Aarch64;
pub use aarch64::Registers as Aarch64Registers;
pub use by_fault::ByFault;
pub use registers::{Uses, WrongRegister};
pub use riscv64::{Riscv64, Riscv64Sv39};
pub use slot::TableSlot;
pub use x86_64::{Registers as X86_64Registers, X86_64};

use core::fmt::Debug;

use crate::addr::{Frame, Page, PageRange};

/// An architecture of page tables. Only this crate implements the trait.
pub trait Architecture: Tables {
    /// The control registers of a processor, for [`Machine::registers`](crate::Machine::registers).
    type Registers: Copy + Debug + Send + Sync;

    /// The number of levels of tables, 3 or 4. This is also the level of the root. A last-level table has level 1.
    const LEVELS: u8;

    /// The pages of user memory. They are those of the lower half of the root, without the last page, which stays unused
    /// as on Linux (`TASK_SIZE_MAX`, 7.2).
    const USER: PageRange = {
        let half = 1 << (9 * Self::LEVELS - 1);
        PageRange::new(Page::new(0), Page::new(half - 1))
    };

    /// The number of frames of a page table: 1, or 2 if software needs a second word for each entry.
    const TABLE_FRAMES: u32 = 1 << Self::TABLE_ORDER;

    /// Whether a fork can share page tables. If not, every fork copies the entries.
    const SHARES_TABLES: bool = Self::UPPER_ENTRIES_PERMIT;

    /// Whether a scan can skip a page table because no page of it was accessed.
    const SKIPS_TABLES: bool = Self::UPPER_ENTRIES_ACCESSED;

    /// Whether a page fault drops all that the CPU has cached for its address, including the fact that no page is
    /// mapped there. If not, the handler of the fault invalidates the page on the CPU before the instruction is
    /// restarted.
    const FAULT_DROPS_STALE: bool;

    /// Whether an entry may map another frame, size or memory type only after every CPU has dropped the old translation
    /// (break before make). If not, the entry may also be filled before the CPUs drop the old translation. In both
    /// cases, the old frame is freed only after every CPU has dropped the translation and the entry has changed.
    const BREAK_BEFORE_MAKE: bool;

    /// Whether the processors set the accessed bit of a page on an access, and the dirty bit on a store. If not, the
    /// processors fault, and the handler of the fault sets the bits.
    const SETS_ACCESSED_AND_DIRTY: bool = true;

    /// Checks that a processor with these registers can use the tables.
    ///
    /// # Errors
    /// The first field with a wrong value.
    fn check(registers: &Self::Registers, uses: Uses) -> Result<(), WrongRegister>;
}

/// How a page walk interprets a word of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A lower table.
    Table(Frame),
    /// Any other entry.
    Entry,
}

/// How an architecture stores entries, and how its processors use them.
pub trait Tables: Copy + Debug + Send + Sync + 'static {
    /// A slot of a page table.
    type Slot: TableSlot;

    /// A table has 2^`TABLE_ORDER` frames: one with the words that both software and the processors use, or one for the
    /// processors and one for software, in this order.
    const TABLE_ORDER: u8;

    /// Whether an entry that points to a lower table can forbid stores to all pages of the table. If not, a fork shares
    /// no tables.
    const UPPER_ENTRIES_PERMIT: bool;

    /// Whether a processor sets the accessed bit of each entry of its walk that points to a lower table. If not, no
    /// table is skippable.
    const UPPER_ENTRIES_ACCESSED: bool;
}
