//! The `prctl` operations on privileges: the bounding set, ambient capabilities, secure bits and `no_new_privs`
//! (`cap_task_prctl` of Linux 7.2, `security/commoncap.c`).

use crate::identity::{Capabilities, CapabilitySets, SecureBits};
use linux_raw_sys::prctl;
use memwright_linux_abi::errno::Errno;

/// Returns the capability with this number.
///
/// # Errors
/// `EINVAL` if there is no capability with this number.
fn capability(number: u64) -> Result<Capabilities, Errno> {
    if number > Capabilities::LAST.into() {
        return Err(Errno::EINVAL);
    }
    Ok(Capabilities::from_bits_retain(1 << number))
}

impl CapabilitySets {
    /// Executes an operation of `prctl` on privileges. Returns `None` for any other operation.
    pub fn control(&mut self, operation: u32, arguments: [u64; 4]) -> Option<Result<u64, Errno>> {
        let [value, rest @ ..] = arguments;
        Some(match operation {
            prctl::PR_SET_NO_NEW_PRIVS if value != 1 || rest != [0; 3] => Err(Errno::EINVAL),
            prctl::PR_SET_NO_NEW_PRIVS => {
                self.gains_none = true;
                Ok(0)
            }
            prctl::PR_GET_NO_NEW_PRIVS if arguments != [0; 4] => Err(Errno::EINVAL),
            prctl::PR_GET_NO_NEW_PRIVS => Ok(self.gains_none.into()),
            prctl::PR_GET_KEEPCAPS => Ok(self.secure.contains(SecureBits::KEEP).into()),
            prctl::PR_SET_KEEPCAPS => self.set_keeping(value),
            prctl::PR_GET_SECUREBITS => Ok(self.secure.bits().into()),
            prctl::PR_SET_SECUREBITS => self.set_secure(value),
            prctl::PR_CAPBSET_READ => {
                capability(value).map(|one| self.bounding.contains(one).into())
            }
            prctl::PR_CAPBSET_DROP => self.drop_bounding(value),
            prctl::PR_CAP_AMBIENT => self.control_ambient(value, rest),
            _ => return None,
        })
    }

    fn set_keeping(&mut self, value: u64) -> Result<u64, Errno> {
        if value > 1 {
            return Err(Errno::EINVAL);
        }
        if self.secure.contains(SecureBits::KEEP_LOCKED) {
            return Err(Errno::EPERM);
        }
        self.secure.set(SecureBits::KEEP, value == 1);
        Ok(0)
    }

    fn set_secure(&mut self, value: u64) -> Result<u64, Errno> {
        let wanted = u32::try_from(value).ok().and_then(SecureBits::from_bits);
        let wanted = wanted.ok_or(Errno::EPERM)?;
        let locked = self.secure & SecureBits::LOCKS;
        let fixed = SecureBits::from_bits_truncate(locked.bits() >> 1);
        let changed = self.secure.symmetric_difference(wanted);
        let privileged = self.effective.contains(Capabilities::SET_PERMITTED);
        if fixed.intersects(changed) || !wanted.contains(locked) || !privileged {
            return Err(Errno::EPERM);
        }
        self.secure = wanted;
        Ok(0)
    }

    fn drop_bounding(&mut self, number: u64) -> Result<u64, Errno> {
        if !self.effective.contains(Capabilities::SET_PERMITTED) {
            return Err(Errno::EPERM);
        }
        self.bounding -= capability(number)?;
        Ok(0)
    }

    fn control_ambient(
        &mut self,
        operation: u64,
        [number, rest @ ..]: [u64; 3],
    ) -> Result<u64, Errno> {
        let operation = u32::try_from(operation).unwrap_or(0);
        if operation == prctl::PR_CAP_AMBIENT_CLEAR_ALL {
            if number != 0 || rest != [0; 2] {
                return Err(Errno::EINVAL);
            }
            self.ambient = Capabilities::empty();
            return Ok(0);
        }
        let one = capability(number)?;
        if rest != [0; 2] {
            return Err(Errno::EINVAL);
        }
        match operation {
            prctl::PR_CAP_AMBIENT_IS_SET => Ok(self.ambient.contains(one).into()),
            prctl::PR_CAP_AMBIENT_LOWER => {
                self.ambient -= one;
                Ok(0)
            }
            prctl::PR_CAP_AMBIENT_RAISE => {
                let has = self.permitted.contains(one) && self.inheritable.contains(one);
                if !has || self.secure.contains(SecureBits::NO_AMBIENT) {
                    return Err(Errno::EPERM);
                }
                self.ambient |= one;
                Ok(0)
            }
            _ => Err(Errno::EINVAL),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_change_the_sets() {
        let mut sets = CapabilitySets::default();
        for (operation, arguments, expected) in [
            (prctl::PR_GET_NO_NEW_PRIVS, [0; 4], Ok(0)),
            (prctl::PR_SET_NO_NEW_PRIVS, [2, 0, 0, 0], Err(Errno::EINVAL)),
            (prctl::PR_SET_NO_NEW_PRIVS, [1, 0, 0, 1], Err(Errno::EINVAL)),
            (prctl::PR_SET_NO_NEW_PRIVS, [1, 0, 0, 0], Ok(0)),
            (prctl::PR_GET_NO_NEW_PRIVS, [0; 4], Ok(1)),
            (prctl::PR_SET_KEEPCAPS, [2, 0, 0, 0], Err(Errno::EINVAL)),
            (prctl::PR_SET_KEEPCAPS, [1, 0, 0, 0], Ok(0)),
            (prctl::PR_GET_SECUREBITS, [0; 4], Ok(0x10)),
            (
                prctl::PR_SET_SECUREBITS,
                [0x1_0000, 0, 0, 0],
                Err(Errno::EPERM),
            ),
            (prctl::PR_SET_SECUREBITS, [0x20, 0, 0, 0], Ok(0)),
            (prctl::PR_SET_KEEPCAPS, [1, 0, 0, 0], Err(Errno::EPERM)),
            (prctl::PR_SET_SECUREBITS, [0, 0, 0, 0], Err(Errno::EPERM)),
            (prctl::PR_CAP_AMBIENT, [2, 5, 0, 0], Err(Errno::EPERM)),
            (prctl::PR_CAP_AMBIENT, [1, 41, 0, 0], Err(Errno::EINVAL)),
            (prctl::PR_CAP_AMBIENT, [9, 5, 0, 0], Err(Errno::EINVAL)),
            (prctl::PR_CAPBSET_READ, [5, 0, 0, 0], Ok(1)),
            (prctl::PR_CAPBSET_DROP, [5, 0, 0, 0], Ok(0)),
            (prctl::PR_CAPBSET_READ, [5, 0, 0, 0], Ok(0)),
            (prctl::PR_CAPBSET_READ, [41, 0, 0, 0], Err(Errno::EINVAL)),
        ] {
            let result = sets.control(operation, arguments);
            assert_eq!(result, Some(expected), "{operation} {arguments:?}");
        }
        sets.inheritable = Capabilities::SIGNAL;
        let ambient = |sets: &mut CapabilitySets, what, number| {
            sets.control(prctl::PR_CAP_AMBIENT, [what, number, 0, 0])
        };
        assert_eq!(ambient(&mut sets, 2, 5), Some(Ok(0)));
        assert_eq!(ambient(&mut sets, 1, 5), Some(Ok(1)));
        assert_eq!(ambient(&mut sets, 3, 5), Some(Ok(0)));
        assert_eq!(ambient(&mut sets, 1, 5), Some(Ok(0)));
        assert_eq!(sets.control(prctl::PR_SET_NAME, [0; 4]), None);
    }
}
