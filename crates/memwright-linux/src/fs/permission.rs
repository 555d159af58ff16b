//! Who may do what with a node.

use bitflags::bitflags;

bitflags! {
    /// Rights over a node, as in the mode bits.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Permission: u32 {
        /// Read a file, list a directory.
        const READ = 4;
        /// Write a file, change a directory's entries.
        const WRITE = 2;
        /// Execute a file, pass through a directory.
        const EXECUTE = 1;
    }
}

/// Who asks: the file system ids of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
    /// Permissions do not count (`CAP_DAC_OVERRIDE`).
    pub overrides: bool,
}

impl Subject {
    /// The user who may do nearly everything.
    pub const ROOT: Self = Self {
        user: 0,
        group: 0,
        overrides: true,
    };
}

/// Whether `subject` has all of `wanted` over a node with this mode and owner.
///
/// Who has the capability has every right except that of executing a file that nobody may execute (Linux 7.2,
/// `generic_permission` in `fs/namei.c`, with `CAP_DAC_OVERRIDE`). Otherwise exactly one of
/// the three classes counts, even if a later one would allow more.
#[must_use]
pub fn permitted(
    subject: Subject,
    mode: u32,
    owner: Subject,
    directory: bool,
    wanted: Permission,
) -> bool {
    if subject.overrides {
        return directory || !wanted.contains(Permission::EXECUTE) || mode & 0o111 != 0;
    }
    let class = if subject.user == owner.user {
        mode >> 6
    } else if subject.group == owner.group {
        mode >> 3
    } else {
        mode
    };
    wanted.bits() & !class & 7 == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ordinary(user: u32, group: u32) -> Subject {
        Subject {
            user,
            group,
            overrides: false,
        }
    }

    #[test]
    fn one_class_decides() {
        let owner = ordinary(1, 2);
        let group = ordinary(9, 2);
        let other = ordinary(9, 9);
        let (read, write, execute) = (Permission::READ, Permission::WRITE, Permission::EXECUTE);
        let cases = [
            (Subject::ROOT, 0o000, false, read | write, true),
            (Subject::ROOT, 0o000, false, execute, false),
            (Subject::ROOT, 0o001, false, execute, true),
            (Subject::ROOT, 0o000, true, execute, true),
            (owner, 0o077, false, read, false),
            (owner, 0o400, false, read, true),
            (owner, 0o400, false, read | write, false),
            (group, 0o707, false, read, false),
            (group, 0o070, false, read | write | execute, true),
            (other, 0o770, false, execute, false),
            (other, 0o001, true, execute, true),
            (other, 0o000, false, Permission::empty(), true),
        ];
        for (subject, mode, directory, wanted, result) in cases {
            let answer = permitted(subject, mode, owner, directory, wanted);
            assert_eq!(answer, result, "{subject:?} {mode:o} {wanted:?}");
        }
    }
}
