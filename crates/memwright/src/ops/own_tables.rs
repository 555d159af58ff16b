//! Copies of the page tables that a fork shared, so that each address space has its own.

use memwright_table::{Architecture, Machine, OutOfMemory, PageRange, Table};

use crate::mm::memory::Memory;
use crate::mm::space::AddressSpace;

impl<M: Machine> Memory<M> {
    /// Gives every address space page tables of its own. [`Frames::sharers`](memwright_table::Frames::sharers) then
    /// counts each entry that maps a frame.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no heap memory for a list of the address spaces.
    pub fn own_all_tables(&self) -> Result<(), OutOfMemory> {
        self.with_shared_tables(|table, all| table.own_tables(all))
    }

    /// Gives each address space its own copy of those shared tables that have a swap entry or map a page with other
    /// references. Afterwards, `Usage::survey` reports exactly how many entries map each page.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no heap memory for a list of the address spaces.
    pub fn own_ambiguous_tables(&self) -> Result<(), OutOfMemory> {
        self.with_shared_tables(|table, all| table.own_ambiguous_tables(all))
    }

    /// If any page table is shared, calls `act` for each address space, with its page table and the range of user
    /// memory.
    fn with_shared_tables(&self, act: impl Fn(&Table<M>, PageRange)) -> Result<(), OutOfMemory> {
        if self.frames().earmarked() == 0 {
            // No table is shared.
            return Ok(());
        }
        for space in self.spaces().all()? {
            let _areas = space.areas.read(space.cpu());
            act(&space.table, M::Arch::USER);
        }
        Ok(())
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Gives the address space page tables of its own for the pages of `range`. Afterwards, each entry of this address
    /// space that maps one of these pages holds a reference to its frame.
    pub fn own_tables(&self, range: PageRange) {
        let _areas = self.core.areas.read(self.core.cpu());
        self.core.table.own_tables(range);
    }
}
