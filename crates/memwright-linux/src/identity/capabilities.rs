//! Capabilities: the privileges of root, individually.

use crate::errno::Errno;

flags! {
    /// The capabilities that the kernel checks have names. All other bits are stored and returned without a name. The
    /// numbers are those of `linux/capability.h`.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Capabilities: u64 {
        /// Bypass file permissions (`CAP_DAC_OVERRIDE`).
        const PERMISSIONS = 1 << 1;
        /// Signal any process (`CAP_KILL`).
        const SIGNAL = 1 << 5;
        /// Change group ids arbitrarily (`CAP_SETGID`).
        const SET_GROUP = 1 << 6;
        /// Change user ids arbitrarily (`CAP_SETUID`).
        const SET_USER = 1 << 7;
        /// Pass on capabilities that the process itself does not have (`CAP_SETPCAP`).
        const SET_PERMITTED = 1 << 8;
        /// Lock any amount of memory (`CAP_IPC_LOCK`).
        const LOCK_MEMORY = 1 << 14;
        /// Access low addresses and raw devices (`CAP_SYS_RAWIO`).
        const RAW_ACCESS = 1 << 17;
        /// Inspect any process (`CAP_SYS_PTRACE`).
        const TRACE = 1 << 19;
        /// Administer the system (`CAP_SYS_ADMIN`).
        const ADMINISTER = 1 << 21;
        /// Change the priority and the memory placement of any process (`CAP_SYS_NICE`).
        const NICE = 1 << 23;
        /// Raise hard limits (`CAP_SYS_RESOURCE`).
        const RESOURCES = 1 << 24;
        // Keep the bits that have no name here.
        const _ = !0;
    }
}

impl Capabilities {
    /// Number of the last capability that Linux 7.2 knows (`CAP_LAST_CAP`).
    pub const LAST: u32 = 40;
    /// All capabilities.
    pub const FULL: Self = Self::from_bits_retain((1 << (Self::LAST + 1)) - 1);
}

/// The capability sets of a process. Sets that matter only for `execve` of files with capabilities are omitted, because
/// no file has capabilities.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CapabilitySets {
    /// Capabilities that the process is allowed to make effective.
    pub permitted: Capabilities,
    /// Capabilities that permission checks use.
    pub effective: Capabilities,
    /// Capabilities that the process requests to pass on over `execve`.
    pub inheritable: Capabilities,
}

impl Default for CapabilitySets {
    /// Returns the sets of root.
    fn default() -> Self {
        Self {
            permitted: Capabilities::FULL,
            effective: Capabilities::FULL,
            inheritable: Capabilities::empty(),
        }
    }
}

impl CapabilitySets {
    /// Replaces the sets for `capset` (`cap_capset` in `security/commoncap.c` of Linux 7.2). Bits beyond the last
    /// capability are dropped.
    ///
    /// # Errors
    /// `EPERM` if the new permitted set is not a subset of the old one, the effective set not a subset of the permitted
    /// one, or the inheritable set contains bits that were neither inheritable nor permitted.
    pub fn set(&mut self, wanted: Self) -> Result<(), Errno> {
        let known = |set: Capabilities| set & Capabilities::FULL;
        let (permitted, effective) = (known(wanted.permitted), known(wanted.effective));
        let inheritable = known(wanted.inheritable);
        // The bounding set is full, so it does not restrict anything.
        let may_inherit = if self.effective.contains(Capabilities::SET_PERMITTED) {
            Capabilities::FULL
        } else {
            self.inheritable | self.permitted
        };
        if !may_inherit.contains(inheritable)
            || !self.permitted.contains(permitted)
            || !permitted.contains(effective)
        {
            return Err(Errno::EPERM);
        }
        *self = Self {
            permitted,
            effective,
            inheritable,
        };
        Ok(())
    }

    /// Adjusts the sets after a change of user ids (`cap_emulate_setxuid`). If one of the three ids was 0 and none is
    /// now, the permitted and the effective set are cleared. If the effective id changes from 0, the effective set is
    /// cleared; if it changes to 0, all permitted capabilities become effective.
    pub fn change_user(&mut self, before: [u32; 3], after: [u32; 3]) {
        let is_root = |ids: [u32; 3]| ids.contains(&0);
        if is_root(before) && !is_root(after) {
            self.permitted = Capabilities::empty();
            self.effective = Capabilities::empty();
        }
        let [_, effective_before, _] = before;
        let [_, effective_after, _] = after;
        if effective_before == 0 && effective_after != 0 {
            self.effective = Capabilities::empty();
        }
        if effective_before != 0 && effective_after == 0 {
            self.effective = self.permitted;
        }
    }

    /// Updates the sets for `execve` (`cap_bprm_creds_from_file`): root gets all capabilities, other users get none.
    pub fn execute(&mut self, real: u32, effective: u32) {
        self.permitted = if real == 0 || effective == 0 {
            Capabilities::FULL
        } else {
            Capabilities::empty()
        };
        self.effective = if effective == 0 {
            self.permitted
        } else {
            Capabilities::empty()
        };
    }
}

#[cfg(test)]
mod tests {
    use crate::identity::capabilities::*;

    const NONE: Capabilities = Capabilities::empty();

    #[test]
    fn what_was_given_up_stays_given_up() {
        let mut sets = CapabilitySets::default();
        let without = CapabilitySets {
            permitted: Capabilities::FULL - Capabilities::LOCK_MEMORY,
            effective: Capabilities::FULL - Capabilities::LOCK_MEMORY,
            inheritable: NONE,
        };
        assert_eq!(sets.set(without), Ok(()));
        assert_eq!(sets.set(CapabilitySets::default()), Err(Errno::EPERM));
        let effective = CapabilitySets {
            permitted: NONE,
            effective: Capabilities::SIGNAL,
            inheritable: NONE,
        };
        assert_eq!(sets.set(effective), Err(Errno::EPERM));
        assert_eq!(sets, without);
    }

    #[test]
    fn ids_decide_on_exec_and_on_their_change() {
        for (before, after, permitted, effective) in [
            ([0, 0, 0], [1, 1, 1], NONE, NONE),
            ([0, 0, 0], [0, 1, 0], Capabilities::FULL, NONE),
            ([0, 1, 0], [0, 0, 0], Capabilities::FULL, Capabilities::FULL),
        ] {
            let mut sets = CapabilitySets::default();
            sets.change_user(before, after);
            assert_eq!((sets.permitted, sets.effective), (permitted, effective));
        }
        for (real, effective, has) in [
            (0, 0, (Capabilities::FULL, Capabilities::FULL)),
            (0, 1, (Capabilities::FULL, NONE)),
            (1, 0, (Capabilities::FULL, Capabilities::FULL)),
            (1, 1, (NONE, NONE)),
        ] {
            let mut sets = CapabilitySets::default();
            sets.execute(real, effective);
            assert_eq!((sets.permitted, sets.effective), has);
        }
    }
}
