//! Common code for System V shared memory and semaphores (Linux 7.2 `ipc/util.c`).

pub(super) mod semaphores;
pub(super) mod shared_memory;

use crate::context::CallResult;
use memwright_linux_abi::{abi_struct, errno::Errno};
use memwright_linux_vfs::fs::permission::{Owner, Permission};

/// The key of private objects, which are never found by key.
pub const IPC_PRIVATE: u32 = 0;
/// Flag: create an object if no object has the key.
pub const IPC_CREAT: u32 = 0o1000;
/// Flag: fail if an object has the key.
pub const IPC_EXCL: u32 = 0o2000;
/// Command: remove the object.
pub const IPC_RMID: u32 = 0;
/// Command: change the owner and the permissions.
pub const IPC_SET: u32 = 1;
/// Command: return the status of the object.
pub const IPC_STAT: u32 = 2;
/// Command: return the limits.
pub const IPC_INFO: u32 = 3;
/// Command bit: use the 64-bit structures. They are always used.
pub const IPC_64: u32 = 0x100;

abi_struct! {
    /// `struct ipc64_perm` of `asm-generic/ipcbuf.h`: the owner and the permissions.
    pub struct Ownership {
        /// The key of the object.
        pub key: u32,
        /// User id of the owner.
        pub user: u32,
        /// Group id of the owner.
        pub group: u32,
        /// User id of the creator.
        pub maker_user: u32,
        /// Group id of the creator.
        pub maker_group: u32,
        /// Permission bits.
        pub mode: u32,
        /// Unused.
        pub sequence: u64,
        /// Unused.
        pub unused: [u64; 2],
    }
}

impl Ownership {
    /// Creates the structure for an object with this key, owner, creator and permissions.
    #[must_use]
    pub const fn new(key: u32, owner: Owner, maker: Owner, mode: u32) -> Self {
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

    /// Returns the owner and the permissions that [`IPC_SET`] sets.
    #[must_use]
    pub const fn wanted(&self) -> (Owner, u32) {
        let owner = Owner {
            user: self.user,
            group: self.group,
        };
        (owner, self.mode & 0o777)
    }
}

/// Checks whether a call with these flags is allowed to use an object that was found by its key. `fits` is true if the
/// object is at least as large as requested. `permits` checks the caller's permissions (`ipc_check_perms` and its
/// callers).
///
/// # Errors
/// In this order: `EEXIST` if the flags permit only a new object, `EINVAL` unless `fits`, `EACCES` unless `permits`
/// returns true.
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

/// The result of a search for a key.
pub enum Got {
    /// The id of the object that was found or created.
    Id(u32),
    /// No object had the key during the search, but another thread has created one since.
    Again,
}

impl Got {
    /// Converts the result of an attempt to create an object. `EEXIST` becomes `Got::Again`.
    ///
    /// # Errors
    /// The error in `made`, except `EEXIST`.
    pub fn of(made: Result<u32, Errno>) -> Result<Self, Errno> {
        match made {
            Ok(id) => Ok(Self::Id(id)),
            Err(Errno::EEXIST) => Ok(Self::Again),
            Err(error) => Err(error),
        }
    }
}

/// Repeats `attempt` until an object with the key was found or created. Linux does not repeat the search: it excludes
/// concurrent creation by a lock (Linux 7.2 `ipc/util.c`, `ipcget_public`).
///
/// # Errors
/// The errors of `attempt`.
pub fn find_or_make(mut attempt: impl FnMut() -> Result<Got, Errno>) -> CallResult {
    loop {
        if let Got::Id(id) = attempt()? {
            return Ok(id.into());
        }
    }
}

/// Converts the result of a permission check.
///
/// # Errors
/// `EACCES` if `permitted` is false.
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
