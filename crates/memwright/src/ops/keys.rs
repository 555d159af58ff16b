//! Protection keys (Linux 7.2 `arch/x86/mm/pkeys.c`, `arch/x86/include/asm/pkeys.h`): each page has a key, and each CPU
//! can deny data accesses by key without changing any entry.

use memwright_table::{Machine, VirtAddr};

use crate::mm::theme::ProtectionKeys;

impl<M: Machine> ProtectionKeys<'_, M> {
    /// Allocates the lowest free protection key, or returns `None` if all are in use.
    pub fn allocate(&self) -> Option<u8> {
        self.space.core.areas.write().keys.allocate()
    }

    /// Frees a protection key and returns whether the program had allocated it. Areas that have this key keep it.
    pub fn free(&self, key: u8) -> bool {
        self.space.core.areas.write().keys.free(key)
    }

    /// Returns the protection key of the area at `address`, or 0 if there is no area.
    pub fn at(&self, address: VirtAddr) -> u8 {
        let areas = self.space.core.areas.read(self.space.core.cpu());
        let area = areas.map.find(address.page());
        area.map_or(0, |area| area.rights.key())
    }

    /// Returns the protection key for execute-only memory, or `None` if all keys are in use. The caller must deny data
    /// accesses by this key on every CPU that runs the program.
    pub fn execute_only(&self) -> Option<u8> {
        self.space.core.areas.write().keys.execute_only()
    }
}
