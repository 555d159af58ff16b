//! Processors that fault in place of setting accessed and dirty bits.

use core::marker::PhantomData;

use super::registers::{Uses, WrongRegister};
use super::{Architecture, Tables};

/// The page tables of `A`, for processors that set neither the accessed nor the dirty bit: an access to a page whose
/// accessed bit is clear faults, and so does a store to a page whose dirty bit is clear. The handler of the fault sets
/// the bits.
///
/// Such processors are the RISC-V processors with Svade in place of Svadu, and the AArch64 processors without
/// FEAT_HAFDBS. `A` is therefore [`Riscv64`](super::Riscv64) or [`Aarch64`](super::Aarch64).
#[derive(Clone, Copy, Debug)]
pub struct ByFault<A>(PhantomData<A>);

impl<A: Architecture> Architecture for ByFault<A> {
    type Registers = A::Registers;

    const LEVELS: u8 = A::LEVELS;

    const FAULT_DROPS_STALE: bool = A::FAULT_DROPS_STALE;

    const BREAK_BEFORE_MAKE: bool = A::BREAK_BEFORE_MAKE;

    const SETS_ACCESSED_AND_DIRTY: bool = false;

    fn check(registers: &A::Registers, uses: Uses) -> Result<(), WrongRegister> {
        A::check(registers, uses)
    }
}

impl<A: Architecture> Tables for ByFault<A> {
    type Slot = A::Slot;

    const TABLE_ORDER: u8 = A::TABLE_ORDER;

    const UPPER_ENTRIES_PERMIT: bool = A::UPPER_ENTRIES_PERMIT;

    const UPPER_ENTRIES_ACCESSED: bool = false;
}
