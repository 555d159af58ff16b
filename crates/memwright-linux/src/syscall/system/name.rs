//! `uname`, `sethostname` and `setdomainname` (Linux 7.3 `kernel/sys.c`).

use crate::{
    context::CallResult,
    syscall::call::{Kind, SystemCall, int, real},
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::errno::Errno;
use memwright_linux_tasks::{
    process::Process,
    uname::{BUILD, LONGEST, MACHINE, Name, Names, RELEASE, SYSTEM, Which},
};
use memwright_linux_vfs::{identity::Capabilities, user::UserMemory};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_uname,
        "uname",
        &[Kind::Out(390)],
        |context, &[to, ..]| uname(context.current.user, context.names(), to),
    ),
    real(
        raw::__NR_sethostname,
        "sethostname",
        &[Kind::InBuffer(1), Kind::Int],
        |context, &[from, length, ..]| {
            let name = new_name(
                context.current.user,
                context.current.process(),
                from,
                length,
            )?;
            context.names().set(Which::Host, name);
            Ok(0)
        },
    ),
    real(
        raw::__NR_setdomainname,
        "setdomainname",
        &[Kind::InBuffer(1), Kind::Int],
        |context, &[from, length, ..]| {
            let name = new_name(
                context.current.user,
                context.current.process(),
                from,
                length,
            )?;
            context.names().set(Which::Domain, name);
            Ok(0)
        },
    ),
];

/// Size of a field of `struct new_utsname` in bytes.
const FIELD: usize = LONGEST + 1;

/// Implements `uname`. The release is the Linux version whose semantics are matched.
fn uname(user: UserMemory<'_>, names: &Names, to: u64) -> CallResult {
    let (host, domain) = (names.get(Which::Host), names.get(Which::Domain));
    let fields = [
        SYSTEM.as_bytes(),
        host.bytes(),
        RELEASE.as_bytes(),
        BUILD.as_bytes(),
        MACHINE.as_bytes(),
        domain.bytes(),
    ];
    let mut names = [0; FIELD * 6];
    for (name, bytes) in fields.iter().zip(names.chunks_exact_mut(FIELD)) {
        bytes[..name.len()].copy_from_slice(name);
    }
    user.write_bytes(to, &names).map(|()| 0)
}

/// Reads a new host name or domain name from user memory.
///
/// # Errors
/// `EPERM` without `CAP_SYS_ADMIN`, `EINVAL` for a length that is negative or too large, `EFAULT`.
fn new_name(
    user: UserMemory<'_>,
    process: &Process,
    from: u64,
    length: u64,
) -> Result<Name, Errno> {
    let credentials = process.identity.credentials.lock().clone();
    if !credentials.has(Capabilities::ADMINISTER) {
        return Err(Errno::EPERM);
    }
    let mut bytes = [0; LONGEST];
    let length = usize::try_from(int(length)).map_err(|_| Errno::EINVAL)?;
    let bytes = bytes.get_mut(..length).ok_or(Errno::EINVAL)?;
    user.read_bytes(from, bytes)?;
    Ok(Name::new(bytes))
}
