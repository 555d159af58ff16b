//! The `pidfd_open`, `pidfd_send_signal` and `pidfd_getfd` system calls.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::{
        call::{Kind, SystemCall, handler, int, real},
        process::signal::{may_signal, sent_by},
    },
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    errno::Errno,
    signal::{Signal, SignalInfo, code},
};
use memwright_linux_procfs::procfs::{ProcEntry, ProcNode};
use memwright_linux_tasks::{
    pidfd::{self, ProcessFile},
    process::{Life, Process, Tasks, queue, send_to_group},
};

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_pidfd_open,
        "pidfd_open",
        &[Kind::Int, Kind::Hex],
        handler!(pidfd_open, tasks),
    ),
    real(
        raw::__NR_pidfd_send_signal,
        "pidfd_send_signal",
        &[Kind::Fd, Kind::Signal, Kind::In(128), Kind::Hex],
        handler!(pidfd_send_signal, tasks),
    ),
    real(
        raw::__NR_pidfd_getfd,
        "pidfd_getfd",
        &[Kind::Fd, Kind::Fd, Kind::Hex],
        handler!(pidfd_getfd, tasks),
    ),
];

/// `PIDFD_SELF_THREAD` and `PIDFD_SELF_THREAD_GROUP` of `linux/pidfd.h`.
const SELF: [i32; 2] = [-10_000, -10_001];
/// `PIDFD_SIGNAL_THREAD` of `linux/pidfd.h`.
const TO_THREAD: u32 = 1;
/// `PIDFD_SIGNAL_THREAD_GROUP` of `linux/pidfd.h`.
const TO_PROCESS: u32 = 2;
/// `PIDFD_SIGNAL_PROCESS_GROUP` of `linux/pidfd.h`.
const TO_GROUP: u32 = 4;

/// Returns the process to which a pidfd refers. The process may have exited.
///
/// # Errors
/// `EBADF` for a descriptor that is not a pidfd, `ESRCH` for a process that was reaped.
pub fn named_process(current: &Current<'_>, number: i32) -> Result<Arc<Process>, Errno> {
    if SELF.contains(&number) {
        return Ok(current.process().clone());
    }
    let open = current.files().get_usable(number)?;
    let file = open.as_kind::<ProcessFile>().ok_or(Errno::EBADF)?;
    file.life().ok_or(Errno::ESRCH)?;
    Ok(file.process.clone())
}

fn pidfd_open(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let (id, flags) = (arguments[0] as i32, arguments[1] as u32);
    // Pidfds of threads other than leaders are not supported.
    if flags & !raw::O_NONBLOCK != 0 || id <= 0 {
        return Err(Errno::EINVAL);
    }
    current.check_heap()?;
    current.caller().check_open_files()?;
    let Some(process) = tasks.process(id as u32) else {
        let member = tasks.thread(id as u32).is_some();
        return Err(if member { Errno::ENOENT } else { Errno::ESRCH });
    };
    let open = pidfd::open(current.vfs(), &process, flags);
    current.caller().add_descriptor(open, raw::O_CLOEXEC)
}

/// Returns the process to which a pidfd or a directory in `/proc` refers.
fn target(current: &Current<'_>, tasks: &Tasks, number: i32) -> Result<Arc<Process>, Errno> {
    if SELF.contains(&number) {
        return Ok(current.process().clone());
    }
    let open = current.files().get(number)?;
    match ProcEntry::node_of(open.inode()) {
        Some(ProcNode::Process(id)) => tasks.process(*id).ok_or(Errno::ESRCH),
        _ => named_process(current, number),
    }
}

fn pidfd_send_signal(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let &[number, signal, info, flags, ..] = arguments;
    let flags = flags as u32;
    if flags & !(TO_THREAD | TO_PROCESS | TO_GROUP) != 0 || flags.count_ones() > 1 {
        return Err(Errno::EINVAL);
    }
    let process = target(current, tasks, int(number))?;
    let number = u64::from(signal as u32);
    if number > Signal::MAX.into() {
        return Err(Errno::EINVAL);
    }
    let signal = Signal::new(number);
    let own = process.id == current.process().id;
    let given = if info == 0 {
        None
    } else {
        let mut bytes = [0; SignalInfo::SIZE];
        current.user.read_bytes(info, &mut bytes)?;
        let named = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if u64::from(named) != number {
            return Err(Errno::EINVAL);
        }
        let given = signal.map(|signal| SignalInfo::from_user(signal, &bytes));
        // These codes identify a signal as sent by the kernel, `kill` or `tgkill`: from another sender, they are
        // forged.
        let forged = |info: &SignalInfo| info.code >= 0 || info.code == code::SI_TKILL;
        if !own && given.as_ref().is_some_and(forged) {
            return Err(Errno::EPERM);
        }
        given
    };
    if !may_signal(current, &process, signal) {
        return Err(Errno::EPERM);
    }
    let Some(signal) = signal else {
        return Ok(0);
    };
    let info = given.unwrap_or_else(|| sent_by(current, signal, code::SI_USER));
    match flags {
        TO_GROUP => {
            send_to_group(tasks, process.group(), info);
        }
        TO_THREAD => {
            let thread = tasks.thread(process.id).ok_or(Errno::ESRCH)?;
            queue(&process, Some(&thread), info)?;
        }
        _ => queue(&process, None, info)?,
    }
    Ok(0)
}

fn pidfd_getfd(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let &[number, wanted, flags, ..] = arguments;
    if flags as u32 != 0 {
        return Err(Errno::EINVAL);
    }
    let process = named_process(current, int(number))?;
    let ids = process.identity.credentials.lock().user;
    let allowed = process.id == current.process().id
        || current
            .process()
            .identity
            .credentials
            .lock()
            .may_signal(&ids);
    if !allowed {
        return Err(Errno::EPERM);
    }
    if !matches!(tasks.life(process.id), Some(Life::Alive(_))) {
        return Err(Errno::ESRCH);
    }
    let files = process.files().ok_or(Errno::ESRCH)?;
    let open = files.get(int(wanted))?;
    current.caller().add_descriptor(open, raw::O_CLOEXEC)
}
