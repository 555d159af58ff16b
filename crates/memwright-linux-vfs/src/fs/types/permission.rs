//! Permission checks on inodes.

use crate::identity::Groups;
use memwright_linux_base::flags;

flags! {
    /// Permissions on an inode. The values are those of the mode bits of one class (owner, group or others).
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Permission: u32 {
        /// Permission to read a file, or to list a directory.
        const READ = 4;
        /// Permission to write a file, or to change a directory's entries.
        const WRITE = 2;
        /// Permission to execute a file, or to search a directory.
        const EXECUTE = 1;
    }
}

const SET_USER_ID: u32 = 0o4000;
/// The set-group-id bit. An executable with this bit runs with the rights of the file's group. A new entry in a
/// directory with this bit gets the directory's group.
pub const SET_GROUP_ID: u32 = 0o2000;
const RUNS_WITH_GROUP: u32 = SET_GROUP_ID | 0o010;

/// The owner of an inode or of a System V IPC object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

impl Owner {
    /// The user and group 0.
    pub const ROOT: Self = Self { user: 0, group: 0 };
}

/// The subject of a permission check: the file system ids and the supplementary groups of a thread, and whether it
/// overrides permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
    /// Supplementary groups.
    pub groups: Groups,
    /// Whether the thread has `CAP_DAC_OVERRIDE`, which overrides permission bits.
    pub overrides: bool,
}

impl Subject {
    /// The user and group 0 with `CAP_DAC_OVERRIDE`.
    pub const ROOT: Self = Self {
        user: 0,
        group: 0,
        groups: Groups::NONE,
        overrides: true,
    };

    /// Returns the owner of an object that the subject creates.
    #[must_use]
    pub const fn owner(&self) -> Owner {
        Owner {
            user: self.user,
            group: self.group,
        }
    }

    /// Returns whether `group` is the subject's group or one of its supplementary groups (`in_group_p` in
    /// `kernel/groups.c` of Linux 7.3).
    #[must_use]
    pub fn is_in(&self, group: u32) -> bool {
        self.group == group || self.groups.contains(group)
    }
}

/// Returns whether `subject` has all permissions in `wanted` on an inode with this mode and owner.
///
/// `CAP_DAC_OVERRIDE` grants everything except execution of a file without any execute bit (Linux 7.2,
/// `generic_permission` in `fs/namei.c`). Without this capability, only the first class that matches the subject counts
/// (owner, group, others), even if a later class allows more.
#[must_use]
pub fn permitted(
    subject: &Subject,
    mode: u32,
    owner: Owner,
    directory: bool,
    wanted: Permission,
) -> bool {
    if subject.overrides {
        return directory || !wanted.contains(Permission::EXECUTE) || mode & 0o111 != 0;
    }
    let class = if subject.user == owner.user {
        mode >> 6
    } else if subject.is_in(owner.group) {
        mode >> 3
    } else {
        mode
    };
    wanted.bits() & !class & 7 == 0
}

/// Returns whether `subject` has all permissions in `wanted` on a System V IPC object with this mode. The object's
/// creator has the same rights as its owner: the mode bits of the user and of the group also apply to the creator's
/// user and group (`ipcperms` in `ipc/util.c` of Linux 7.3).
#[must_use]
pub fn permitted_object(
    subject: &Subject,
    mode: u32,
    (creator, owner): (Owner, Owner),
    wanted: Permission,
) -> bool {
    let user = if subject.user == creator.user {
        creator.user
    } else {
        owner.user
    };
    let group = if subject.is_in(creator.group) {
        creator.group
    } else {
        owner.group
    };
    permitted(subject, mode, Owner { user, group }, false, wanted)
}

/// Returns whether `subject` has all permissions in `wanted` on a file of `/proc/sys` with this mode. Root owns such a
/// file, and the mode restricts root too (Linux 7.3 `fs/proc/proc_sysctl.c`, `test_perm`).
#[must_use]
pub fn permitted_setting(subject: &Subject, mode: u32, wanted: Permission) -> bool {
    let class = if subject.user == 0 {
        mode >> 6
    } else if subject.is_in(0) {
        mode >> 3
    } else {
        mode
    };
    wanted.bits() & !class & 7 == 0
}

/// Returns whether `subject` is allowed to set the set-group-id bit on an inode of the group `group`
/// (`in_group_or_capable` in `fs/inode.c` of Linux 7.3). Instead of `CAP_FSETID`, this function checks whether the
/// subject overrides permissions.
#[must_use]
pub fn may_set_group_id(subject: &Subject, group: u32) -> bool {
    subject.overrides || subject.is_in(group)
}

/// Returns the permissions and group of a new inode. `folder` is the mode and group of the directory in which the inode
/// is created. `own` is the permissions and group that the inode would have without inheritance (`inode_init_owner` and
/// `mode_strip_sgid` in `fs/inode.c` of Linux 7.3).
///
/// In a directory with the set-group-id bit a new inode gets the directory's group, and a new directory also gets the
/// bit. The set-group-id bit of a new file is cleared if the file would run with the rights of a group to which its
/// creator does not belong.
#[must_use]
pub fn inherited(
    subject: &Subject,
    folder: (u32, u32),
    own: (u32, u32),
    directory: bool,
) -> (u32, u32) {
    let ((folder_mode, folder_group), (mode, group)) = (folder, own);
    if folder_mode & SET_GROUP_ID == 0 {
        return (mode, group);
    }
    let runs = mode & RUNS_WITH_GROUP == RUNS_WITH_GROUP;
    let mode = if directory {
        mode | SET_GROUP_ID
    } else if runs && !may_set_group_id(subject, folder_group) {
        mode & !SET_GROUP_ID
    } else {
        mode
    };
    (mode, folder_group)
}

/// Returns the permissions that a file with this mode has after a change of its owner or group. The set-user-id bit is
/// cleared. The set-group-id bit is cleared in two cases: if the mode has group execution, because the file would then
/// run with the group's rights, and if `subject` is not in the group (`setattr_should_drop_sgid` in `fs/attr.c` of
/// Linux 7.3).
#[must_use]
pub fn after_new_owner(subject: &Subject, mode: u32, group: u32) -> u32 {
    let mode = mode & !SET_USER_ID;
    if mode & 0o010 != 0 || !may_set_group_id(subject, group) {
        mode & !SET_GROUP_ID
    } else {
        mode
    }
}

/// Returns whether an executable with this mode can run with ids other than those of the process that executes it,
/// because it has a set-id bit.
#[must_use]
pub const fn sets_ids(mode: u32) -> bool {
    mode & (SET_USER_ID | SET_GROUP_ID) != 0
}

/// Returns the permissions that a file with this mode has after `subject` changes its contents. The permissions are
/// unchanged if the subject overrides permissions, which is checked instead of `CAP_FSETID`. Otherwise, they are those
/// that [`after_new_owner`] returns (`setattr_should_drop_suidgid` in `fs/attr.c` of Linux 7.3).
#[must_use]
pub fn before_write(subject: &Subject, mode: u32, group: u32) -> u32 {
    if subject.overrides {
        mode
    } else {
        after_new_owner(subject, mode, group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ordinary(user: u32, group: u32) -> Subject {
        Subject {
            user,
            group,
            groups: Groups::NONE,
            overrides: false,
        }
    }

    #[test]
    fn who_writes_takes_the_rights_of_others_from_a_file() {
        let writer = ordinary(7, 70);
        for (mode, group, left) in [
            (0o4755, 5, 0o755),
            (0o6777, 5, 0o777),
            (0o6777, 70, 0o777),
            // Without group execution, the set-group-id bit stands for mandatory locking. A write by a member of the
            // group keeps the bit.
            (0o2666, 70, 0o2666),
            (0o2666, 5, 0o666),
            (0o1777, 5, 0o1777),
        ] {
            assert_eq!(before_write(&writer, mode, group), left, "{mode:o}");
            assert_eq!(before_write(&Subject::ROOT, mode, group), mode);
        }
    }

    #[test]
    fn what_a_folder_hands_on() {
        let (member, other) = (ordinary(1, 7), ordinary(1, 9));
        let cases = [
            (other.clone(), (0o755, 7), (0o2755, 9), false, (0o2755, 9)),
            (other.clone(), (0o2755, 7), (0o644, 9), false, (0o644, 7)),
            (other.clone(), (0o2755, 7), (0o2755, 9), false, (0o755, 7)),
            (other.clone(), (0o2755, 7), (0o2745, 9), false, (0o2745, 7)),
            (member.clone(), (0o2755, 7), (0o2755, 7), false, (0o2755, 7)),
            (
                Subject::ROOT.clone(),
                (0o2755, 7),
                (0o2755, 0),
                false,
                (0o2755, 7),
            ),
            (other.clone(), (0o2755, 7), (0o755, 9), true, (0o2755, 7)),
            (other.clone(), (0o755, 7), (0o755, 9), true, (0o755, 9)),
        ];
        for (subject, folder, own, directory, expected) in cases {
            let answer = inherited(&subject, folder, own, directory);
            assert_eq!(answer, expected, "{subject:?} {folder:?} {own:?}");
        }
    }

    #[test]
    fn what_a_new_owner_takes_away() {
        let (member, other) = (ordinary(1, 7), ordinary(1, 9));
        for (subject, mode, expected) in [
            (&member, 0o6755, 0o755),
            (&member, 0o6745, 0o2745),
            (&other, 0o2745, 0o745),
            (&Subject::ROOT, 0o6644, 0o2644),
            (&Subject::ROOT, 0o6654, 0o654),
        ] {
            let answer = after_new_owner(subject, mode, 7);
            assert_eq!(answer, expected, "{subject:?} {mode:o}");
        }
    }

    #[test]
    fn one_class_decides() {
        let owner = ordinary(1, 2);
        let group = ordinary(9, 2);
        let other = ordinary(9, 9);
        let (read, write, execute) = (Permission::READ, Permission::WRITE, Permission::EXECUTE);
        let cases = [
            (&Subject::ROOT, 0o000, false, read | write, true),
            (&Subject::ROOT, 0o000, false, execute, false),
            (&Subject::ROOT, 0o001, false, execute, true),
            (&Subject::ROOT, 0o000, true, execute, true),
            (&owner, 0o077, false, read, false),
            (&owner, 0o400, false, read, true),
            (&owner, 0o400, false, read | write, false),
            (&group, 0o707, false, read, false),
            (&group, 0o070, false, read | write | execute, true),
            (&other, 0o770, false, execute, false),
            (&other, 0o001, true, execute, true),
            (&other, 0o000, false, Permission::empty(), true),
        ];
        for (subject, mode, directory, wanted, result) in cases {
            let answer = permitted(subject, mode, owner.owner(), directory, wanted);
            assert_eq!(answer, result, "{subject:?} {mode:o} {wanted:?}");
        }
    }
}
