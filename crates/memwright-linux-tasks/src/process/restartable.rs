//! Restartable sequences: the registration of a thread, and its critical sections (Linux 6.18 `kernel/rseq.c`).

use memwright_linux_abi::{abi_struct, errno::Errno};
use memwright_linux_vfs::user::USER_END;

/// Size in bytes of the first version of `struct rseq`, and the alignment of that version.
pub const FIRST_SIZE: u32 = 32;
/// Size in bytes of the fields that the kernel writes (`AT_RSEQ_FEATURE_SIZE`).
pub const FEATURE_SIZE: u32 = 28;
/// `RSEQ_FLAG_UNREGISTER`.
const UNREGISTER: u32 = 1;

/// The registration of a thread (`rseq`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registration {
    /// Address of `struct rseq`; null if there is no registration.
    pub address: u64,
    /// Size of that structure in bytes.
    pub length: u32,
    /// The value that must precede each abort handler in memory (`RSEQ_SIG`).
    pub signature: u32,
}

/// The change that a call of `rseq` makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Registers the thread.
    Register,
    /// Ends the registration.
    Unregister,
}

impl Registration {
    /// Returns the change that a call of `rseq` makes to the registration `self`. `wanted` and `flags` are the
    /// arguments of the call.
    ///
    /// # Errors
    /// `EINVAL` for unknown flags, and for an address or length that is invalid or differs from the present one;
    /// `EPERM` for a different signature, `EBUSY` if the thread is registered already, `EFAULT` for an address outside
    /// user space.
    pub fn change(self, wanted: Self, flags: u32) -> Result<Change, Errno> {
        let is_same = (wanted.address, wanted.length) == (self.address, self.length);
        match flags {
            UNREGISTER if self.address == 0 || !is_same => Err(Errno::EINVAL),
            UNREGISTER if wanted.signature != self.signature => Err(Errno::EPERM),
            UNREGISTER => Ok(Change::Unregister),
            0 if self.address == 0 => wanted.check().map(|()| Change::Register),
            0 if !is_same => Err(Errno::EINVAL),
            0 if wanted.signature != self.signature => Err(Errno::EPERM),
            0 => Err(Errno::EBUSY),
            _ => Err(Errno::EINVAL),
        }
    }

    fn check(self) -> Result<(), Errno> {
        let aligned = self.address.is_multiple_of(FIRST_SIZE.into());
        if self.length < FIRST_SIZE || !aligned {
            return Err(Errno::EINVAL);
        }
        match self.address.checked_add(self.length.into()) {
            Some(end) if end <= USER_END => Ok(()),
            Some(_) | None => Err(Errno::EFAULT),
        }
    }
}

abi_struct! {
    /// `struct rseq_cs`: a critical section.
    pub struct Section {
        /// `version`, which is 0.
        pub version: u32,
        /// `flags`, which is 0.
        pub flags: u32,
        /// Address of the first instruction of the section.
        pub start: u64,
        /// The length of the section in bytes.
        pub length: u64,
        /// Address of the abort handler, which is outside the section.
        pub abort: u64,
    }
}

impl Section {
    /// Checks that the section and the abort handler are valid.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn check(&self) -> Result<(), Errno> {
        let end = self.start.checked_add(self.length);
        let inside = self.start < USER_END
            && end.is_some_and(|end| end < USER_END)
            && self.abort < USER_END
            && self.abort >= 4;
        if !inside || self.version != 0 || self.contains(self.abort) {
            return Err(Errno::EINVAL);
        }
        Ok(())
    }

    /// Returns whether the instruction at the address `instruction` is in the section.
    #[must_use]
    pub const fn contains(&self, instruction: u64) -> bool {
        instruction.wrapping_sub(self.start) < self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_decided_by_the_present_registration() {
        let at = |address, length, signature| Registration {
            address,
            length,
            signature,
        };
        let (none, some) = (Registration::default(), at(0x1000, 32, 7));
        for (present, wanted, flags, expected) in [
            (none, some, 0, Ok(Change::Register)),
            (none, at(0x1000, 64, 7), 0, Ok(Change::Register)),
            (none, at(0x1010, 32, 7), 0, Err(Errno::EINVAL)),
            (none, at(0x1000, 31, 7), 0, Err(Errno::EINVAL)),
            (none, at(USER_END, 32, 7), 0, Err(Errno::EFAULT)),
            (none, some, 2, Err(Errno::EINVAL)),
            (none, some, 1, Err(Errno::EINVAL)),
            (some, some, 0, Err(Errno::EBUSY)),
            (some, at(0x1000, 32, 8), 0, Err(Errno::EPERM)),
            (some, at(0x1000, 33, 7), 0, Err(Errno::EINVAL)),
            (some, at(0x2000, 32, 7), 0, Err(Errno::EINVAL)),
            (some, some, 1, Ok(Change::Unregister)),
            (some, some, 3, Err(Errno::EINVAL)),
            (some, at(0x1000, 32, 8), 1, Err(Errno::EPERM)),
            (some, at(0x2000, 32, 7), 1, Err(Errno::EINVAL)),
        ] {
            let change = present.change(wanted, flags);
            assert_eq!(change, expected, "{present:?} {wanted:?} {flags}");
        }
    }

    #[test]
    fn sections_end_before_their_length() {
        let section = Section {
            start: 100,
            length: 10,
            abort: 200,
            ..Section::default()
        };
        assert_eq!(section.check(), Ok(()));
        for (at, inside) in [(99, false), (100, true), (109, true), (110, false)] {
            assert_eq!(section.contains(at), inside);
            let check = Section {
                abort: at,
                ..section
            }
            .check();
            assert_eq!(check.is_err(), inside);
        }
        for wrong in [
            Section {
                version: 1,
                ..section
            },
            Section {
                start: USER_END,
                ..section
            },
            Section {
                length: u64::MAX,
                ..section
            },
            Section {
                abort: USER_END,
                ..section
            },
            Section {
                abort: 3,
                ..section
            },
        ] {
            assert_eq!(wrong.check(), Err(Errno::EINVAL), "{wrong:?}");
        }
    }
}
