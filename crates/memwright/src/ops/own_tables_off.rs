//! Page tables without the feature `share`: none is shared.

use memwright_table::{Machine, OutOfMemory, PageRange};

use crate::mm::memory::Memory;
use crate::mm::space::AddressSpace;

impl<M: Machine> Memory<M> {
    /// Does nothing: no table is shared.
    ///
    /// # Errors
    /// None.
    pub fn own_all_tables(&self) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Does nothing: no table is shared.
    ///
    /// # Errors
    /// None.
    pub fn own_ambiguous_tables(&self) -> Result<(), OutOfMemory> {
        Ok(())
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Does nothing: no table is shared.
    pub fn own_tables(&self, _range: PageRange) {}
}
