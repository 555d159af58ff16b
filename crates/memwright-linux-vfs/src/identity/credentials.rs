//! The user ids, group ids and capabilities of a process.

use crate::identity::{Capabilities, CapabilitySets, Groups};
use memwright_linux_abi::errno::Errno;

/// The four user ids of a process, or its four group ids.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Ids {
    /// The real id.
    pub real: u32,
    /// The effective id, which most permission checks use.
    pub effective: u32,
    /// The saved id, to which an unprivileged process can set its effective id.
    pub saved: u32,
    /// The file system id, which checks of file access use.
    pub file: u32,
}

/// The argument that leaves an id unchanged in calls that set several ids.
pub const UNCHANGED: u32 = u32::MAX;

impl Ids {
    /// Returns whether `id` is the real, the effective or the saved id. An unprivileged process is allowed to change an
    /// id to one of these.
    fn has(&self, id: u32) -> bool {
        id == self.real || id == self.effective || id == self.saved
    }

    /// Implements `setuid` and `setgid` (`__sys_setuid` of Linux 7.2, `kernel/sys.c`).
    ///
    /// # Errors
    /// `EINVAL` for an invalid id, `EPERM` if the process is not privileged and the id is neither the real nor the
    /// saved one.
    pub fn set(&mut self, id: u32, privileged: bool) -> Result<(), Errno> {
        if id == UNCHANGED {
            return Err(Errno::EINVAL);
        }
        if privileged {
            *self = Self {
                real: id,
                effective: id,
                saved: id,
                file: id,
            };
        } else if id == self.real || id == self.saved {
            self.effective = id;
            self.file = id;
        } else {
            return Err(Errno::EPERM);
        }
        Ok(())
    }

    /// Implements `setreuid` and `setregid`.
    ///
    /// # Errors
    /// `EPERM` if the process is not privileged and `real` is neither its real nor its effective id, or `effective` is
    /// none of its real, effective and saved ids.
    pub fn set_two(&mut self, real: u32, effective: u32, privileged: bool) -> Result<(), Errno> {
        let real_allowed = real == self.real || real == self.effective;
        if !privileged
            && ((real != UNCHANGED && !real_allowed)
                || (effective != UNCHANGED && !self.has(effective)))
        {
            return Err(Errno::EPERM);
        }
        let before = *self;
        if real != UNCHANGED {
            self.real = real;
        }
        if effective != UNCHANGED {
            self.effective = effective;
        }
        if real != UNCHANGED || (effective != UNCHANGED && effective != before.real) {
            self.saved = self.effective;
        }
        self.file = self.effective;
        Ok(())
    }

    /// Implements `setresuid` and `setresgid`.
    ///
    /// # Errors
    /// `EPERM` if the process is not privileged and an id is none of its real, effective and saved ids.
    pub fn set_three(&mut self, ids: [u32; 3], privileged: bool) -> Result<(), Errno> {
        if !privileged && ids.iter().any(|id| *id != UNCHANGED && !self.has(*id)) {
            return Err(Errno::EPERM);
        }
        let fields = [&mut self.real, &mut self.effective, &mut self.saved];
        for (field, id) in fields.into_iter().zip(ids) {
            if id != UNCHANGED {
                *field = id;
            }
        }
        self.file = self.effective;
        Ok(())
    }

    /// Implements `setfsuid` and `setfsgid`. Returns the previous id, whether or not the change is permitted.
    pub fn set_file(&mut self, id: u32, privileged: bool) -> u32 {
        let before = self.file;
        if id != UNCHANGED && (privileged || self.has(id) || id == before) {
            self.file = id;
        }
        before
    }
}

/// The ids and the capabilities of a process.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Credentials {
    /// User ids.
    pub user: Ids,
    /// Group ids.
    pub group: Ids,
    /// Supplementary groups.
    pub groups: Groups,
    /// The capability sets.
    pub capabilities: CapabilitySets,
}

impl Credentials {
    /// Returns whether the process has all of these capabilities.
    pub fn has(&self, capabilities: Capabilities) -> bool {
        self.capabilities.effective.contains(capabilities)
    }

    /// Changes the user ids by calling `change`, and adjusts the capabilities to the new ids.
    ///
    /// # Errors
    /// The errors of `change`.
    pub fn change_user<R>(
        &mut self,
        change: impl FnOnce(&mut Ids, bool) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let three = |ids: &Ids| [ids.real, ids.effective, ids.saved];
        let before = three(&self.user);
        let privileged = self.has(Capabilities::SET_USER);
        let result = change(&mut self.user, privileged)?;
        self.capabilities.change_user(before, three(&self.user));
        Ok(result)
    }

    /// Returns whether the process is allowed to send signals to a process with the user ids `other` (`kill_ok_by_cred`
    /// of Linux 7.2).
    pub fn may_signal(&self, other: &Ids) -> bool {
        self.has(Capabilities::SIGNAL)
            || [self.user.effective, self.user.real]
                .iter()
                .any(|id| *id == other.saved || *id == other.real)
    }

    /// Returns whether the process is allowed to inspect a process with the credentials `other`, for example to read
    /// its memory (`ptrace_may_access` of Linux 7.2 with `PTRACE_MODE_READ_FSCREDS`, `kernel/ptrace.c`). One of two
    /// conditions must hold: either this process has `CAP_SYS_PTRACE`, or all ids of the other process equal the file
    /// system ids of this process, and this process has all capabilities of the other one.
    pub fn may_look_into(&self, other: &Self) -> bool {
        let same = |mine: &Ids, theirs: &Ids| {
            [theirs.real, theirs.effective, theirs.saved] == [mine.file; 3]
        };
        let covered = (self.capabilities.effective).contains(other.capabilities.permitted);
        let own = same(&self.user, &other.user) && same(&self.group, &other.group);
        (own && covered) || self.has(Capabilities::TRACE)
    }

    /// Updates the ids and the capabilities for `execve`.
    pub fn after_exec(&mut self) {
        for ids in [&mut self.user, &mut self.group] {
            ids.saved = ids.effective;
            ids.file = ids.effective;
        }
        self.capabilities
            .execute(self.user.real, self.user.effective);
    }
}

#[cfg(test)]
mod tests {
    use crate::identity::credentials::{Capabilities, Credentials, Errno, Ids, UNCHANGED};

    const fn all(id: u32) -> Ids {
        Ids {
            real: id,
            effective: id,
            saved: id,
            file: id,
        }
    }

    #[test]
    fn root_becomes_anybody_and_nobody_becomes_root() {
        let mut ids = all(0);
        assert_eq!(ids.set_three([1000, 1000, 1000], true), Ok(()));
        assert_eq!(ids, all(1000));
        assert_eq!(ids.set(0, false), Err(Errno::EPERM));
        assert_eq!(
            ids.set_three([UNCHANGED, 0, UNCHANGED], false),
            Err(Errno::EPERM)
        );
        assert_eq!(ids.set_two(UNCHANGED, 5, false), Err(Errno::EPERM));
        assert_eq!(ids, all(1000));
    }

    #[test]
    fn a_saved_id_can_be_taken_back() {
        let mut ids = all(0);
        assert_eq!(ids.set_three([UNCHANGED, 1000, UNCHANGED], true), Ok(()));
        assert_eq!(
            (ids.real, ids.effective, ids.saved, ids.file),
            (0, 1000, 0, 1000)
        );
        assert_eq!(ids.set(0, false), Ok(()));
        assert_eq!(ids, all(0));
    }

    #[test]
    fn two_ids_swap() {
        let mut ids = Ids {
            real: 1,
            effective: 2,
            saved: 2,
            file: 2,
        };
        assert_eq!(ids.set_two(2, 1, false), Ok(()));
        assert_eq!((ids.real, ids.effective, ids.saved), (2, 1, 1));
        assert_eq!(ids.set_file(9, false), 1);
        assert_eq!(ids.set_file(2, false), 1);
        assert_eq!(ids.file, 2);
    }

    #[test]
    fn one_looks_into_ones_own_processes() {
        let user = |id: u32| {
            let mut user = Credentials {
                group: all(id),
                ..Credentials::default()
            };
            let taken = user.change_user(|ids, privileged| ids.set(id, privileged));
            assert_eq!(taken, Ok(()));
            user
        };
        let (root, seven, eight) = (Credentials::default(), user(7), user(8));
        let mut other_group = seven.clone();
        other_group.group.saved = 8;
        let mut keeps_rights = seven.clone();
        keeps_rights.capabilities.permitted = Capabilities::SIGNAL;
        for (mine, other, allowed) in [
            (&root, &seven, true),
            (&seven, &seven, true),
            (&seven, &eight, false),
            (&seven, &root, false),
            (&seven, &other_group, false),
            (&seven, &keeps_rights, false),
            (&root, &keeps_rights, true),
        ] {
            assert_eq!(mine.may_look_into(other), allowed, "{mine:?} {other:?}");
        }
    }

    #[test]
    fn signals_go_to_ones_own() {
        let mut mine = Credentials::default();
        let become_seven = |ids: &mut Ids, privileged| ids.set(7, privileged);
        assert_eq!(mine.change_user(become_seven), Ok(()));
        assert!(mine.may_signal(&all(7)));
        assert!(!mine.may_signal(&all(8)));
        assert!(Credentials::default().may_signal(&all(8)));
    }
}
