//! Capabilities: the privileges of root, each of which a process can have separately.

use memwright_linux_abi::errno::Errno;
use memwright_linux_base::flags;

flags! {
    /// A set of capabilities, with the numbers of `linux/capability.h`. Only the capabilities that the kernel checks
    /// have names. The other bits are stored and returned.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct Capabilities: u64 {
        /// Bypass file permissions (`CAP_DAC_OVERRIDE`).
        const PERMISSIONS = 1 << 1;
        /// Signal any process (`CAP_KILL`).
        const SIGNAL = 1 << 5;
        /// Set all group ids to any value (`CAP_SETGID`).
        const SET_GROUP = 1 << 6;
        /// Set all user ids to any value (`CAP_SETUID`).
        const SET_USER = 1 << 7;
        /// Add to the inheritable set capabilities that are neither permitted nor inheritable (`CAP_SETPCAP`).
        const SET_PERMITTED = 1 << 8;
        /// Bind ports below 1024 (`CAP_NET_BIND_SERVICE`).
        const BIND_PORTS = 1 << 10;
        /// Administer the network (`CAP_NET_ADMIN`).
        const NETWORK = 1 << 12;
        /// Use raw sockets (`CAP_NET_RAW`).
        const RAW_SOCKETS = 1 << 13;
        /// Lock any amount of memory (`CAP_IPC_LOCK`).
        const LOCK_MEMORY = 1 << 14;
        /// Map low addresses and access raw devices (`CAP_SYS_RAWIO`).
        const RAW_ACCESS = 1 << 17;
        /// Inspect any process (`CAP_SYS_PTRACE`).
        const TRACE = 1 << 19;
        /// Administer the system (`CAP_SYS_ADMIN`).
        const ADMINISTER = 1 << 21;
        /// Change the priority and the memory placement of any process (`CAP_SYS_NICE`).
        const NICE = 1 << 23;
        /// Raise hard limits (`CAP_SYS_RESOURCE`).
        const RESOURCES = 1 << 24;
        /// Set the capabilities of files (`CAP_SETFCAP`).
        const SET_FILE = 1 << 31;
        // All other bits, which have no name here but are valid too.
        const _ = !0;
    }
}

impl Capabilities {
    /// Number of the last capability of Linux 7.2 (`CAP_LAST_CAP`).
    pub const LAST: u32 = 40;
    /// All capabilities.
    pub const FULL: Self = Self::from_bits_retain((1 << (Self::LAST + 1)) - 1);
}

flags! {
    /// Rules for the capabilities of root and of user id changes (`linux/securebits.h`). The bit that follows the bit
    /// of a rule locks the rule.
    #[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
    pub struct SecureBits: u32 {
        /// `execve` gives root no capabilities (`SECBIT_NOROOT`).
        const NO_ROOT = 1 << 0;
        /// A change of user ids does not change capabilities (`SECBIT_NO_SETUID_FIXUP`).
        const NO_FIXUP = 1 << 2;
        /// A change of user ids after which no id is 0 keeps the permitted capabilities (`SECBIT_KEEP_CAPS`).
        const KEEP = 1 << 4;
        /// `KEEP` is locked.
        const KEEP_LOCKED = 1 << 5;
        /// No capability can be added to the ambient set (`SECBIT_NO_CAP_AMBIENT_RAISE`).
        const NO_AMBIENT = 1 << 6;
        /// Interpreters execute only files that the kernel allows to be executed (`SECBIT_EXEC_RESTRICT_FILE`). The
        /// kernel only stores the bit.
        const RESTRICT_FILE = 1 << 8;
        /// Interpreters execute no commands that are entered interactively (`SECBIT_EXEC_DENY_INTERACTIVE`). The kernel
        /// only stores the bit.
        const DENY_INTERACTIVE = 1 << 10;
        /// The bits that lock the rules.
        const LOCKS = 0xaaa;
    }
}

/// The capability sets of a process, and the rules for their changes. Executable files have no capabilities.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CapabilitySets {
    /// Capabilities that the process is allowed to add to the effective set.
    pub permitted: Capabilities,
    /// Capabilities that permission checks use.
    pub effective: Capabilities,
    /// Capabilities that `execve` grants to root in addition to those in the bounding set.
    pub inheritable: Capabilities,
    /// Capabilities that `execve` grants to root.
    pub bounding: Capabilities,
    /// Capabilities that `execve` keeps for a user other than root.
    pub ambient: Capabilities,
    /// Rules for changes of the sets.
    pub secure: SecureBits,
    /// Whether `execve` ignores set-id bits (`PR_SET_NO_NEW_PRIVS`). This kernel always ignores them.
    pub gains_none: bool,
}

impl Default for CapabilitySets {
    /// Returns the sets of root.
    fn default() -> Self {
        Self {
            permitted: Capabilities::FULL,
            effective: Capabilities::FULL,
            inheritable: Capabilities::empty(),
            bounding: Capabilities::FULL,
            ambient: Capabilities::empty(),
            secure: SecureBits::empty(),
            gains_none: false,
        }
    }
}

impl CapabilitySets {
    /// Replaces the sets for `capset` (`cap_capset` in `security/commoncap.c` of Linux 7.2). Bits beyond the last
    /// capability are dropped.
    ///
    /// # Errors
    /// `EPERM` if the new permitted set is not a subset of the old one, if the new effective set is not a subset of the
    /// new permitted one, or if the new inheritable set contains capabilities that were neither inheritable nor
    /// permitted.
    pub fn set(&mut self, wanted: Self) -> Result<(), Errno> {
        let known = |set: Capabilities| set & Capabilities::FULL;
        let (permitted, effective) = (known(wanted.permitted), known(wanted.effective));
        let inheritable = known(wanted.inheritable);
        let bounded = self.inheritable | self.bounding;
        let may_inherit = if self.effective.contains(Capabilities::SET_PERMITTED) {
            Capabilities::FULL
        } else {
            self.inheritable | self.permitted
        };
        if !may_inherit.contains(inheritable)
            || !bounded.contains(inheritable)
            || !self.permitted.contains(permitted)
            || !permitted.contains(effective)
        {
            return Err(Errno::EPERM);
        }
        *self = Self {
            permitted,
            effective,
            inheritable,
            ambient: self.ambient & permitted & inheritable,
            ..*self
        };
        Ok(())
    }

    /// Adjusts the sets after a change of user ids (`cap_emulate_setxuid`). `before` and `after` are the real,
    /// effective and saved id. If an id was 0 before and none is 0 now, the ambient set is cleared. The permitted and
    /// the effective set are then cleared too, unless `SECBIT_KEEP_CAPS` is set. If the effective id changes from 0,
    /// the effective set is cleared. If the effective id changes to 0, all permitted capabilities become effective.
    pub fn change_user(&mut self, before: [u32; 3], after: [u32; 3]) {
        if self.secure.contains(SecureBits::NO_FIXUP) {
            return;
        }
        let is_root = |ids: [u32; 3]| ids.contains(&0);
        if is_root(before) && !is_root(after) {
            if !self.secure.contains(SecureBits::KEEP) {
                self.permitted = Capabilities::empty();
                self.effective = Capabilities::empty();
            }
            self.ambient = Capabilities::empty();
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

    /// Updates the sets for `execve` (`cap_bprm_creds_from_file`). Root gets the bounding and the inheritable
    /// capabilities. Other users keep the ambient capabilities.
    pub fn execute(&mut self, real: u32, effective: u32) {
        let rules = !self.secure.contains(SecureBits::NO_ROOT);
        let given = if rules && (real == 0 || effective == 0) {
            self.bounding | self.inheritable
        } else {
            Capabilities::empty()
        };
        self.permitted = given | self.ambient;
        self.effective = if rules && effective == 0 {
            self.permitted
        } else {
            self.ambient
        };
        self.secure.set(SecureBits::KEEP, false);
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
            ..sets
        };
        assert_eq!(sets.set(without), Ok(()));
        assert_eq!(sets.set(CapabilitySets::default()), Err(Errno::EPERM));
        let effective = CapabilitySets {
            permitted: NONE,
            effective: Capabilities::SIGNAL,
            ..sets
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

    #[test]
    fn rules_keep_capabilities_over_changes_of_ids_and_exec() {
        let kept = CapabilitySets {
            secure: SecureBits::KEEP,
            ..CapabilitySets::default()
        };
        let mut sets = kept;
        sets.change_user([0; 3], [1; 3]);
        assert_eq!((sets.permitted, sets.effective), (Capabilities::FULL, NONE));
        sets.ambient = Capabilities::SIGNAL;
        sets.execute(1, 1);
        let one = Capabilities::SIGNAL;
        assert_eq!((sets.permitted, sets.effective), (one, one));
        assert_eq!(sets.secure, SecureBits::empty());
        let mut bounded = CapabilitySets {
            bounding: one,
            ..kept
        };
        bounded.execute(0, 0);
        assert_eq!((bounded.permitted, bounded.effective), (one, one));
        let mut rootless = CapabilitySets {
            secure: SecureBits::NO_ROOT,
            ..kept
        };
        rootless.execute(0, 0);
        assert_eq!((rootless.permitted, rootless.effective), (NONE, NONE));
    }
}
