//! Protection keys (Linux 7.2 `arch/x86/mm/pkeys.c`, `arch/x86/include/asm/pkeys.h`): numbers of pages, by which each
//! CPU refuses accesses to data without a change of any entry.

use memwright_table::{Machine, VirtAddr};

use super::{AddressSpace, Core};
use crate::error::FaultError;
use crate::fault::Access;
use crate::vma::Rights;

/// How many there are.
const KEYS: u8 = 16;

/// The keys of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// A bit for each that is in use. 0 is, from the start.
    allocated: u16,
    /// The one of memory that may only be executed, once there is such memory.
    execute_only: Option<u8>,
}

impl Keys {
    /// Those of a new address space.
    pub(crate) const NEW: Self = Self {
        allocated: 1,
        execute_only: None,
    };

    /// Takes the lowest that is free.
    fn allocate(&mut self) -> Option<u8> {
        let key = self.allocated.trailing_ones() as u8;
        (key < KEYS).then(|| {
            self.allocated |= 1 << key;
            key
        })
    }

    /// Whether a program may name the key. That of execute-only memory is not its own.
    pub(crate) fn is_allocated(&self, key: u8) -> bool {
        key < KEYS && self.execute_only != Some(key) && self.allocated & 1 << key != 0
    }

    /// Gives a key back; whether it was in use. What still has it keeps it.
    fn free(&mut self, key: u8) -> bool {
        let known = self.is_allocated(key);
        if known {
            self.allocated &= !(1 << key);
        }
        known
    }

    /// The key of memory that may only be executed, taken when it is wanted for the first time.
    fn execute_only(&mut self) -> Option<u8> {
        if self.execute_only.is_none() {
            self.execute_only = self.allocate();
        }
        self.execute_only
    }

    /// The rights after a change to `new` that names no key, of an area that has `old`: its key stays, but for
    /// that of execute-only memory, which goes with being that.
    pub(crate) fn kept(&self, old: Rights, new: Rights) -> Rights {
        let was_execute_only = old.without_key() == Rights::EXECUTE;
        if was_execute_only && self.execute_only == Some(old.key()) {
            new
        } else {
            new.with_key_of(old)
        }
    }
}

/// Whether a CPU with these rights of keys (as of [`Machine::key_rights`]) refuses the access to such an area.
const fn refuses(key_rights: u32, rights: Rights, access: Access) -> bool {
    let refused = key_rights >> (2 * rights.key()) & 3;
    // Keys are not asked about instruction fetches.
    !access.fetch && (refused & 1 != 0 || access.write && refused & 2 != 0)
}

impl<M: Machine> Core<M> {
    /// Whether this CPU may access an area with such rights, as far as protection keys go. Where a page is mapped the
    /// processor finds out; this is for what is not, and for what the kernel does in a program's stead.
    #[cold]
    #[inline(never)]
    pub(crate) fn check_key(&self, rights: Rights, access: Access) -> Result<(), FaultError> {
        let key_rights = self.memory.frames().machine().key_rights();
        if access.user && refuses(key_rights, rights, access) {
            return Err(FaultError::Key(rights.key()));
        }
        Ok(())
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Takes the lowest protection key that is free, if there is one.
    pub fn allocate_key(&self) -> Option<u8> {
        self.core.areas.write().keys.allocate()
    }

    /// Gives a protection key back; whether it was one of the program's. Areas that have it keep it.
    pub fn free_key(&self, key: u8) -> bool {
        self.core.areas.write().keys.free(key)
    }

    /// The protection key of the area at `address`; 0 if there is none.
    pub fn key_at(&self, address: VirtAddr) -> u8 {
        let areas = self.core.areas.read(self.core.cpu());
        let area = areas.map.find(address.page());
        area.map_or(0, |area| area.rights.key())
    }

    /// The protection key for memory that may only be executed: every CPU of the program should refuse accesses to
    /// its data. `None` if all keys are in use.
    pub fn execute_only_key(&self) -> Option<u8> {
        self.core.areas.write().keys.execute_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_given_out_from_the_lowest_on() {
        let mut keys = Keys::NEW;
        assert_eq!(keys.allocate(), Some(1));
        assert_eq!(keys.execute_only(), Some(2));
        assert_eq!(keys.execute_only(), Some(2));
        assert!(!keys.is_allocated(2) && !keys.free(2) && !keys.free(3) && !keys.free(200));
        assert!(keys.free(1) && !keys.is_allocated(1));
        let rest: alloc::vec::Vec<u8> = core::iter::from_fn(|| keys.allocate()).collect();
        assert_eq!(rest, [1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    }

    #[test]
    fn a_change_that_names_no_key_keeps_the_old_one() {
        let mut keys = Keys::NEW;
        let (own, code) = (keys.allocate().unwrap(), keys.execute_only().unwrap());
        let (r, x) = (Rights::READ, Rights::EXECUTE);
        for (old, expected) in [
            (r, 0),
            (r.with_key(own), own),
            (x.with_key(own), own),
            (x.with_key(code), 0),
            // Not execute-only any more, by a change that named the key.
            (r.with_key(code), code),
        ] {
            assert_eq!(keys.kept(old, r), r.with_key(expected), "{old:?}");
        }
    }

    #[test]
    fn what_is_refused() {
        let area = Rights::all().with_key(3);
        for (bits, expected) in [
            (0, [false, false, false]),
            (1 << 6, [true, true, false]),
            (1 << 7, [false, true, false]),
            (3 << 4 | 3 << 8, [false, false, false]),
        ] {
            let refused = [Access::READ, Access::WRITE, Access::FETCH]
                .map(|access| refuses(bits, area, access));
            assert_eq!(refused, expected, "{bits:#x}");
        }
    }
}
