//! What calls for segments and for semaphores have in common (Linux 7.2 `ipc/util.c`).

use super::CallResult;
use crate::{
    abi_struct,
    errno::Errno,
    fs::permission::{Permission, Subject},
};

/// A key that never finds anything.
pub const IPC_PRIVATE: u32 = 0;
/// What the key finds nothing of is made.
pub const IPC_CREAT: u32 = 0o1000;
/// It is an error if the key finds something.
pub const IPC_EXCL: u32 = 0o2000;
/// Command: remove.
pub const IPC_RMID: u32 = 0;
/// Command: change owner and permissions.
pub const IPC_SET: u32 = 1;
/// Command: tell its status.
pub const IPC_STAT: u32 = 2;
/// Command: tell the limits.
pub const IPC_INFO: u32 = 3;
/// Structures of 64 bits, which are the only ones here.
pub const IPC_64: u32 = 0x100;

abi_struct! {
    /// `struct ipc64_perm` of `asm-generic/ipcbuf.h`: whose it is, and what others may do.
    pub struct Ownership {
        /// The key.
        pub key: u32,
        /// Owner.
        pub user: u32,
        /// Its group.
        pub group: u32,
        /// Who made it.
        pub maker_user: u32,
        /// Its group.
        pub maker_group: u32,
        /// Permissions.
        pub mode: u32,
        /// Unused.
        pub sequence: u64,
        /// Unused.
        pub unused: [u64; 2],
    }
}

impl Ownership {
    /// That of what has this key, owner and maker, and these permissions.
    #[must_use]
    pub const fn new(key: u32, owner: Subject, maker: Subject, mode: u32) -> Self {
        Self {
            key,
            user: owner.user,
            group: owner.group,
            maker_user: maker.user,
            maker_group: maker.group,
            mode,
            sequence: 0,
            unused: [0; 2],
        }
    }

    /// The owner and the permissions that it asks for ([`IPC_SET`]).
    #[must_use]
    pub const fn wanted(&self) -> (Subject, u32) {
        let owner = Subject {
            user: self.user,
            group: self.group,
            overrides: false,
        };
        (owner, self.mode & 0o777)
    }
}

/// Whether a call with these flags may have what its key found, which is as large as it asks for if it `fits`
/// (`ipc_check_perms` and its callers).
///
/// # Errors
/// `EEXIST`, `EINVAL`, `EACCES`, in this order.
pub fn check_found(
    flags: u32,
    fits: bool,
    permits: impl FnOnce(Permission) -> bool,
) -> Result<(), Errno> {
    let only_new = IPC_CREAT | IPC_EXCL;
    if flags & only_new == only_new {
        return Err(Errno::EEXIST);
    }
    if !fits {
        return Err(Errno::EINVAL);
    }
    check(permits(Permission::from_bits_truncate(
        (flags >> 6 | flags >> 3 | flags) & 7,
    )))
}

/// What came of looking for a key.
pub enum Got {
    /// The number of what has it, or was made for it.
    Id(u32),
    /// Nothing had it, and then something did that another process made.
    Again,
}

impl Got {
    /// What an attempt to make something comes to.
    ///
    /// # Errors
    /// Those of the attempt, but that there is something with the key.
    pub fn of(made: Result<u32, Errno>) -> Result<Self, Errno> {
        match made {
            Ok(id) => Ok(Self::Id(id)),
            Err(Errno::EEXIST) => Ok(Self::Again),
            Err(error) => Err(error),
        }
    }
}

/// Looks for a key until it is found, or something was made for it (Linux 7.2 `ipc/util.c`, `ipcget_public`, which keeps
/// others from making anything meanwhile).
///
/// # Errors
/// Those of an attempt.
pub fn find_or_make(mut attempt: impl FnMut() -> Result<Got, Errno>) -> CallResult {
    loop {
        if let Got::Id(id) = attempt()? {
            return Ok(id.into());
        }
    }
}

/// # Errors
/// `EACCES` for what is not permitted.
pub fn check(permitted: bool) -> Result<(), Errno> {
    if permitted {
        Ok(())
    } else {
        Err(Errno::EACCES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_key_found_is_for_whom_it_permits() {
        let (read, both) = (0o400, 0o600);
        #[rustfmt::skip]
        let rows = [
            (IPC_CREAT,                   true,  Permission::empty(), Ok(())),
            (IPC_CREAT | IPC_EXCL,        false, Permission::empty(), Err(Errno::EEXIST)),
            (IPC_EXCL | read,             true,  Permission::READ,    Ok(())),
            (both,                        false, Permission::empty(), Err(Errno::EINVAL)),
            (both,                        true,  Permission::READ,    Err(Errno::EACCES)),
            (0o042,                       true,  Permission::READ,    Err(Errno::EACCES)),
        ];
        for (number, (flags, fits, permitted, outcome)) in rows.into_iter().enumerate() {
            let found = check_found(flags, fits, |wanted| permitted.contains(wanted));
            assert_eq!(found, outcome, "row {number}");
        }
    }

    #[test]
    fn who_was_not_first_to_make_something_looks_for_it_again() {
        let mut attempts = [
            Got::of(Err(Errno::EEXIST)),
            Got::of(Err(Errno::EEXIST)),
            Ok(Got::Id(5)),
            Err(Errno::ENOSPC),
        ]
        .into_iter();
        let mut next = || find_or_make(|| attempts.next().expect("asked once too often"));
        assert_eq!(next(), Ok(5));
        assert_eq!(next(), Err(Errno::ENOSPC));
    }
}
