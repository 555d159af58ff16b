//! `wait4` and `waitid`.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    lifecycle::{WaitOptions, WaitTarget, Waited, wait_for_child},
    syscall::call::int,
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    errno::Errno,
    signal::{Detail, Signal, SignalInfo},
};
use memwright_linux_tasks::{
    pidfd::ProcessFile,
    process::{ResourceUsage, Tasks},
};
use memwright_linux_vfs::user::UserMemory;

/// Implements `wait4`.
pub fn wait4(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let [process, status, options, usage, ..] = *arguments;
    let options = options as u32;
    let allowed = WaitOptions::NOHANG
        | WaitOptions::STOPPED
        | WaitOptions::CONTINUED
        | WaitOptions::NOTHREAD
        | WaitOptions::ALL
        | WaitOptions::CLONE;
    if options & !allowed.bits() != 0 {
        return Err(Errno::EINVAL);
    }
    let target = match int(process) {
        -1 => WaitTarget::Any,
        0 => WaitTarget::Group(current.process().group()),
        i32::MIN => return Err(Errno::ESRCH),
        id if id > 0 => WaitTarget::Process(id as u32),
        group => WaitTarget::Group(group.unsigned_abs()),
    };
    let options = WaitOptions::from_bits_truncate(options) | WaitOptions::EXITED;
    let Some(waited) = wait_for_child(current, tasks, target, options)? else {
        return Ok(0);
    };
    current
        .user
        .write_optional(status, &waited.change.wait_status())?;
    current
        .user
        .write_optional(usage, &ResourceUsage::from(waited.usage))?;
    Ok(waited.process.into())
}

/// Implements `waitid`.
pub fn waitid(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let [which, id, info, options, usage, _] = *arguments;
    let options = options as u32;
    let allowed = WaitOptions::all();
    let states = WaitOptions::EXITED | WaitOptions::STOPPED | WaitOptions::CONTINUED;
    if options & !allowed.bits() != 0 || options & states.bits() == 0 {
        return Err(Errno::EINVAL);
    }
    let id = int(id);
    let mut options = WaitOptions::from_bits_truncate(options);
    let mut impatient = false;
    let target = match which as u32 {
        raw::P_ALL => WaitTarget::Any,
        raw::P_PID if id > 0 => WaitTarget::Process(id as u32),
        raw::P_PGID if id == 0 => WaitTarget::Group(current.process().group()),
        raw::P_PGID if id > 0 => WaitTarget::Group(id as u32),
        raw::P_PIDFD if id >= 0 => {
            let open = current.files().get_usable(id)?;
            let file = open.as_kind::<ProcessFile>().ok_or(Errno::EBADF)?;
            file.life().ok_or(Errno::ECHILD)?;
            impatient = open.is_nonblocking() && !options.contains(WaitOptions::NOHANG);
            options.set(
                WaitOptions::NOHANG,
                impatient || options.contains(WaitOptions::NOHANG),
            );
            WaitTarget::Process(file.process.id)
        }
        _ => return Err(Errno::EINVAL),
    };
    let waited = wait_for_child(current, tasks, target, options)?;
    if impatient && waited.is_none() {
        return Err(Errno::EAGAIN);
    }
    if info != 0 {
        write_wait_info(current.user, info, waited.as_ref())?;
    }
    if let Some(waited) = waited {
        current
            .user
            .write_optional(usage, &ResourceUsage::from(waited.usage))?;
    }
    Ok(0)
}

/// Writes the fields of `siginfo_t` that `waitid` sets. Writes zeros if no child has changed state.
fn write_wait_info(
    user: UserMemory<'_>,
    address: u64,
    waited: Option<&Waited>,
) -> Result<(), Errno> {
    let Some(waited) = waited else {
        return user.clear_bytes(address, 28);
    };
    let (code, status) = waited.change.signal_fields();
    let detail = Detail::Child {
        process: waited.process,
        user: 0,
        status,
        user_ticks: 0,
        system_ticks: 0,
    };
    let info = SignalInfo {
        signal: Signal::SIGCHLD,
        code,
        errno: 0,
        detail,
    };
    user.write_bytes(address, &info.to_bytes()[..28])
}
