//! The commands of `fcntl` and `ioctl` that read and set the owner of an open file, to which the kernel sends SIGIO
//! (Linux 7.2 `fs/fcntl.c`).

use crate::{context::CallResult, syscall::call::int};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi_struct, errno::Errno, signal::Signal};
use memwright_linux_tasks::{file_signal::set_owner, process::Tasks};
use memwright_linux_vfs::fs::{OpenFile, caller::Caller, file_owner::Who};

abi_struct! {
    /// `struct f_owner_ex`.
    pub struct Owner {
        /// `F_OWNER_TID`, `F_OWNER_PID` or `F_OWNER_PGRP`.
        pub kind: u32,
        /// The id of the thread, process or group.
        pub id: i32,
    }
}

impl Owner {
    const fn of(who: Who) -> Self {
        let (kind, id) = match who {
            Who::Nobody => (raw::F_OWNER_PID, 0),
            Who::Thread(id) => (raw::F_OWNER_TID, id),
            Who::Process(id) => (raw::F_OWNER_PID, id),
            Who::Group(id) => (raw::F_OWNER_PGRP, id),
        };
        Self {
            kind,
            id: id as i32,
        }
    }

    /// Decodes the owner.
    ///
    /// # Errors
    /// `EINVAL` for an unknown kind, `ESRCH` for a negative id.
    fn who(self) -> Result<Who, Errno> {
        let id = u32::try_from(self.id).map_err(|_| Errno::ESRCH);
        match self.kind {
            raw::F_OWNER_TID | raw::F_OWNER_PID | raw::F_OWNER_PGRP if self.id == 0 => {
                Ok(Who::Nobody)
            }
            raw::F_OWNER_TID => Ok(Who::Thread(id?)),
            raw::F_OWNER_PID => Ok(Who::Process(id?)),
            raw::F_OWNER_PGRP => Ok(Who::Group(id?)),
            _ => Err(Errno::EINVAL),
        }
    }
}

/// Decodes the argument of `F_SETOWN`: a process id, or a negative group id.
fn owner_of(argument: i32) -> Result<Who, Errno> {
    match argument {
        0 => Ok(Who::Nobody),
        1.. => Ok(Who::Process(argument as u32)),
        i32::MIN => Err(Errno::EINVAL),
        _ => Ok(Who::Group(-argument as u32)),
    }
}

/// Executes a command that reads or sets the owner of `open`. Returns `None` for other commands.
pub(crate) fn owner_command(
    caller: &dyn Caller,
    tasks: &'static Tasks,
    open: &OpenFile,
    command: u32,
    argument: u64,
) -> Option<CallResult> {
    let user = caller.memory();
    Some(match command {
        raw::F_SETOWN => owner_of(int(argument))
            .and_then(|who| set_owner(caller, tasks, open, who))
            .map(|()| 0),
        raw::F_SETOWN_EX => user
            .read_value::<Owner>(argument)
            .and_then(Owner::who)
            .and_then(|who| set_owner(caller, tasks, open, who))
            .map(|()| 0),
        raw::F_GETOWN => Ok(match open.owner.ownership().who {
            Who::Nobody => 0,
            Who::Thread(id) | Who::Process(id) => id.into(),
            Who::Group(id) => -i64::from(id) as u64,
        }),
        raw::F_GETOWN_EX => {
            let owner = Owner::of(open.owner.ownership().who);
            user.write_value(argument, &owner).map(|()| 0)
        }
        raw::F_GETSIG => Ok(open.owner.ownership().signal.into()),
        raw::F_SETSIG => {
            if argument != 0 && Signal::new(argument).is_none() {
                return Some(Err(Errno::EINVAL));
            }
            caller.check_heap().map(|()| {
                let owner = open.owner.get_or_make();
                owner.ownership.lock().signal = argument as u8;
                0
            })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_have_two_forms() {
        for (argument, who) in [
            (0, Ok(Who::Nobody)),
            (5, Ok(Who::Process(5))),
            (-5, Ok(Who::Group(5))),
            (i32::MIN, Err(Errno::EINVAL)),
        ] {
            assert_eq!(owner_of(argument), who);
        }
        for who in [Who::Thread(5), Who::Process(5), Who::Group(5), Who::Nobody] {
            assert_eq!(Owner::of(who).who(), Ok(who));
        }
        assert_eq!(Owner { kind: 9, id: 1 }.who(), Err(Errno::EINVAL));
    }
}
