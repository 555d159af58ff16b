//! Futexes and robust lists.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::int,
};
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    abi::{SECOND, Timespec},
    errno::Errno,
};
use memwright_linux_memory::futex::{ANY, Futexes, RequeueRequest};
use memwright_linux_tasks::process::{Scope, Tasks, WaitRequest};
use memwright_linux_vfs::identity::Capabilities;

/// Size of `struct robust_list_head` in bytes.
const ROBUST_HEAD: u64 = 24;

/// The meaning of a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timeout {
    /// Relative to the present time.
    Relative,
    /// A time since boot.
    Monotonic,
    /// A time since 1970.
    Real,
}

/// The command of a `futex` call, decoded from its second argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Command {
    Wait { timeout: Timeout, any: bool },
    Wake { any: bool },
    Requeue { compare: bool },
    Operate,
}

/// Decodes the operation of `futex` into its command and scope (`do_futex` and `futex_init_timeout` of Linux 7.2,
/// `kernel/futex/syscalls.c`). Returns `None` for unknown operations and for priority inheritance, which is not
/// supported.
fn decode(operation: u32) -> Option<(Command, Scope)> {
    let scope = if operation & raw::FUTEX_PRIVATE_FLAG != 0 {
        Scope::Private
    } else {
        Scope::Shared
    };
    let real = operation & raw::FUTEX_CLOCK_REALTIME != 0;
    let command = match operation & raw::FUTEX_CMD_MASK as u32 {
        raw::FUTEX_WAIT_BITSET => Command::Wait {
            timeout: if real {
                Timeout::Real
            } else {
                Timeout::Monotonic
            },
            any: false,
        },
        _ if real => return None,
        raw::FUTEX_WAIT => Command::Wait {
            timeout: Timeout::Relative,
            any: true,
        },
        raw::FUTEX_WAKE => Command::Wake { any: true },
        raw::FUTEX_WAKE_BITSET => Command::Wake { any: false },
        raw::FUTEX_REQUEUE => Command::Requeue { compare: false },
        raw::FUTEX_CMP_REQUEUE => Command::Requeue { compare: true },
        raw::FUTEX_WAKE_OP => Command::Operate,
        _ => return None,
    };
    Some((command, scope))
}

/// Implements `futex`.
pub fn futex(current: &Current<'_>, futexes: &Futexes, arguments: &Arguments) -> CallResult {
    let [address, operation, value, fourth, second, third_value] = *arguments;
    let (value, third_value) = (value as u32, third_value as u32);
    let (command, scope) = decode(operation as u32).ok_or(Errno::ENOSYS)?;
    match command {
        Command::Wait { timeout, any } => {
            let deadline = deadline(current, fourth, timeout)?;
            let request = WaitRequest {
                address,
                value,
                bits: if any { ANY } else { third_value },
                scope,
                deadline,
            };
            current.with_space(|space| futexes.wait(current.thread, space, request))
        }
        Command::Wake { any } => {
            let bits = if any { ANY } else { third_value };
            let woken =
                current.with_space(|space| futexes.wake(space, address, scope, value, bits))?;
            Ok(woken.into())
        }
        Command::Requeue { compare } => {
            let request = RequeueRequest {
                from: address,
                to: second,
                scope,
                wake: value,
                requeue: fourth as u32,
                value: compare.then_some(third_value),
            };
            current.with_space(|space| futexes.requeue(space, &request))
        }
        Command::Operate => {
            let most = [value, fourth as u32];
            let words = [address, second];
            current.with_space(|space| {
                futexes.wake_and_operate(space, words, scope, most, third_value)
            })
        }
    }
}

/// Reads a timeout from user memory and converts it to a time of the host's clock. Returns `None` for a null pointer.
fn deadline(current: &Current<'_>, address: u64, timeout: Timeout) -> Result<Option<u64>, Errno> {
    let Some(time): Option<Timespec> = current.user.read_optional(address)? else {
        return Ok(None);
    };
    let time = time.to_nanoseconds().ok_or(Errno::EINVAL)?;
    Ok(Some(match timeout {
        Timeout::Relative => current.now().saturating_add(time),
        Timeout::Monotonic => time,
        Timeout::Real => time.saturating_sub(current.vfs().epoch * SECOND),
    }))
}

/// Implements `set_robust_list`.
pub fn set_robust_list(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    if arguments[1] != ROBUST_HEAD {
        return Err(Errno::EINVAL);
    }
    let list = &current.thread.robust_list;
    list.store(arguments[0], Ordering::Relaxed);
    Ok(0)
}

/// Implements `get_robust_list`. For a thread of another process, the caller must be root or the same user.
pub fn get_robust_list(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let [id, head, length, ..] = *arguments;
    let thread = match int(id) {
        0 => current.thread.clone(),
        id => {
            let thread = tasks.thread(id as u32);
            thread.ok_or(Errno::ESRCH)?
        }
    };
    if thread.process.id != current.process().id {
        let own = current.process().identity.credentials.lock().clone();
        let other = thread.process.identity.credentials.lock().user;
        let same = [other.real, other.effective, other.saved] == [own.user.real; 3];
        if !own.has(Capabilities::TRACE) && !same {
            return Err(Errno::EPERM);
        }
    }
    current.user.write_value(length, &ROBUST_HEAD)?;
    let list = thread.robust_list.load(Ordering::Relaxed);
    current.user.write_value(head, &list).map(|()| 0)
}

#[cfg(test)]
mod tests {
    use super::{Command, Scope, Timeout, decode};

    #[test]
    fn commands_are_decoded() {
        let wait = |timeout, any| Command::Wait { timeout, any };
        for (operation, expected) in [
            (0, Some((wait(Timeout::Relative, true), Scope::Shared))),
            (128, Some((wait(Timeout::Relative, true), Scope::Private))),
            // `FUTEX_WAIT` does not accept `FUTEX_CLOCK_REALTIME`.
            (256, None),
            (9, Some((wait(Timeout::Monotonic, false), Scope::Shared))),
            (9 + 256, Some((wait(Timeout::Real, false), Scope::Shared))),
            (9 + 384, Some((wait(Timeout::Real, false), Scope::Private))),
            (1, Some((Command::Wake { any: true }, Scope::Shared))),
            (10, Some((Command::Wake { any: false }, Scope::Shared))),
            (1 + 256, None),
            (
                3,
                Some((Command::Requeue { compare: false }, Scope::Shared)),
            ),
            (
                4 + 128,
                Some((Command::Requeue { compare: true }, Scope::Private)),
            ),
            (5, Some((Command::Operate, Scope::Shared))),
            // `FUTEX_FD`, the operations with priority inheritance, and unknown operations are rejected.
            (2, None),
            (6, None),
            (7, None),
            (8, None),
            (11, None),
            (12, None),
            (13, None),
            (14, None),
            (512, None),
        ] {
            assert_eq!(decode(operation), expected, "{operation}");
        }
    }
}
