//! The protection keys of an address space: which keys are allocated, and which accesses a key register denies (Linux
//! 7.2 `arch/x86/mm/pkeys.c`).

use crate::types::access::Access;
use crate::types::rights::Rights;

/// The number of keys.
const KEYS: u8 = 16;

/// The protection keys of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Keys {
    /// A bit for each key, set if the key is in use. The bit of key 0 is always set.
    allocated: u16,
    /// The key of execute-only memory, or `None` if it has not been allocated yet.
    execute_only: Option<u8>,
}

impl Keys {
    /// The keys of a new address space.
    pub(crate) const NEW: Self = Self {
        allocated: 1,
        execute_only: None,
    };

    /// Allocates the lowest free key.
    pub(crate) fn allocate(&mut self) -> Option<u8> {
        let key = self.allocated.trailing_ones() as u8;
        (key < KEYS).then(|| {
            self.allocated |= 1 << key;
            key
        })
    }

    /// Returns whether a program is allowed to pass the key to a call. The key must be in use, and must not be the key
    /// of execute-only memory.
    pub(crate) fn is_allocated(&self, key: u8) -> bool {
        key < KEYS && self.execute_only != Some(key) && self.allocated & 1 << key != 0
    }

    /// Frees a key and returns whether it was in use. Areas with this key keep it.
    pub(crate) fn free(&mut self, key: u8) -> bool {
        let known = self.is_allocated(key);
        if known {
            self.allocated &= !(1 << key);
        }
        known
    }

    /// Returns the key of execute-only memory, which is allocated on the first call.
    pub(crate) fn execute_only(&mut self) -> Option<u8> {
        if self.execute_only.is_none() {
            self.execute_only = self.allocate();
        }
        self.execute_only
    }

    /// Returns the rights that an area with rights `old` has after a change to `new` by a call without a key argument.
    /// The area keeps its key, unless it is execute-only and has the key of execute-only memory.
    pub(crate) fn kept(&self, old: Rights, new: Rights) -> Rights {
        let was_execute_only = old.without_key() == Rights::EXECUTE;
        if was_execute_only && self.execute_only == Some(old.key()) {
            new
        } else {
            new.with_key_of(old)
        }
    }
}

/// Returns whether a CPU with the key rights `key_rights` denies the access to an area with `rights`. `key_rights` has
/// the format of [`Machine::key_rights`](memwright_table::Machine::key_rights).
pub(crate) const fn refuses(key_rights: u32, rights: Rights, access: Access) -> bool {
    let refused = key_rights >> (2 * rights.key()) & 3;
    // Keys do not apply to instruction fetches.
    !access.fetch && (refused & 1 != 0 || access.write && refused & 2 != 0)
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
            // The area is no longer execute-only, because an earlier change with a key argument has added rights. It
            // therefore keeps its key.
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
