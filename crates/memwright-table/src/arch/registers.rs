//! The state of a processor that the page tables of its architecture need.

use core::fmt;

/// A field of a control register that does not have the value that the page tables need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongRegister {
    /// The register and the field, as the manual of the processor names them.
    pub field: &'static str,
    /// The bits of the field, at their place in the register.
    pub found: u64,
    /// The bits that the field must have, at their place in the register.
    pub wanted: u64,
}

impl fmt::Display for WrongRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            field,
            found,
            wanted,
        } = self;
        write!(f, "{field} is {found:#x}, where {wanted:#x} is needed")
    }
}

/// The features of the processors that a machine uses. The required contents of the control registers depend on them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Uses {
    /// The value of [`Machine::keeps_translations`](crate::Machine::keeps_translations).
    pub tags: bool,
    /// The value of [`Machine::has_write_combining`](crate::Machine::has_write_combining).
    pub write_combining: bool,
    /// The value of [`Architecture::SETS_ACCESSED_AND_DIRTY`](super::Architecture::SETS_ACCESSED_AND_DIRTY).
    pub sets_accessed_and_dirty: bool,
}

/// A field of a register, and the bits that it must have.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) mask: u64,
    pub(super) wanted: u64,
}

impl Field {
    /// A field whose bits must all be set.
    pub(super) const fn set(name: &'static str, mask: u64) -> Self {
        let wanted = mask;
        Self { name, mask, wanted }
    }

    /// A field whose bits must all be clear.
    pub(super) const fn clear(name: &'static str, mask: u64) -> Self {
        let wanted = 0;
        Self { name, mask, wanted }
    }

    /// Checks the field in `register`.
    pub(super) fn check(&self, register: u64) -> Result<(), WrongRegister> {
        let found = register & self.mask;
        if found == self.wanted {
            return Ok(());
        }
        Err(WrongRegister {
            field: self.name,
            found,
            wanted: self.wanted,
        })
    }
}

/// Checks all of `fields` in `register`.
pub(super) fn check_all(register: u64, fields: &[Field]) -> Result<(), WrongRegister> {
    fields.iter().try_for_each(|field| field.check(register))
}
