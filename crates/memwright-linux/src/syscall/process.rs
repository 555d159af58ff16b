//! System calls that create, replace, terminate and wait for processes.

use super::{Arguments, CallResult, int};
use crate::{
    abi_struct,
    arch::x86_64::uapi::{ARCH_GET_FS, ARCH_GET_GS, ARCH_SET_FS, ARCH_SET_GS},
    context::Context,
    errno::Errno,
    exec::{self, Request, STRING_MAX, Strings, strings_limit, strings_room},
    identity::{Capabilities, Resource},
    lifecycle::{
        CloneFlags, CloneRequest, WaitOptions, WaitTarget, Waited, clone as process_clone,
        end_group, set_group, set_session, wait_for_child,
    },
    pidfd::ProcessFile,
    process::{ExitStatus, Process, ResourceUsage},
    signal::{Detail, Signal, SignalInfo},
    user::USER_END,
};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use linux_raw_sys::{general as raw, prctl};

/// Implements `fork`.
pub fn fork(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    process_clone(context, &plain(CloneFlags::empty()))
}

/// Implements `vfork`: the parent waits until the child calls `execve` or exits.
pub fn vfork(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    process_clone(context, &plain(CloneFlags::VM | CloneFlags::VFORK))
}

fn plain(flags: CloneFlags) -> CloneRequest {
    CloneRequest {
        flags,
        stack: 0,
        parent_tid: 0,
        child_tid: 0,
        descriptor: 0,
        thread_pointer: 0,
        exit_signal: Signal::SIGCHLD.number().into(),
    }
}

/// Converts `clone` flags. Unknown flags and those for namespaces are `EINVAL`.
fn clone_flags(flags: u64) -> Result<CloneFlags, Errno> {
    CloneFlags::from_bits(flags).ok_or(Errno::EINVAL)
}

/// Implements `clone`.
pub fn clone(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [flags, stack, parent_tid, child_tid, thread_pointer, _] = *arguments;
    // The exit signal is in the low byte. `clone` ignores flags beyond 32 bits.
    let exit_signal = flags & u64::from(raw::CSIGNAL);
    let flags = clone_flags(u64::from(flags as u32 & !raw::CSIGNAL))?;
    // `CLONE_PIDFD` and `CLONE_PARENT_SETTID` would both store through `parent_tid`.
    let two = CloneFlags::PIDFD | CloneFlags::PARENT_SETTID;
    if flags.contains(two) || flags.contains(CloneFlags::PIDFD | CloneFlags::DETACHED) {
        return Err(Errno::EINVAL);
    }
    let request = CloneRequest {
        flags,
        stack,
        parent_tid,
        child_tid,
        descriptor: parent_tid,
        thread_pointer,
        exit_signal,
    };
    process_clone(context, &request)
}

abi_struct! {
    /// `struct clone_args` of `linux/sched.h`, first version.
    pub struct CloneArguments {
        /// Flags.
        pub flags: u64,
        /// Address for a pidfd.
        pub pidfd: u64,
        /// Address for the id in the child's memory.
        pub child_tid: u64,
        /// Address for the id in the parent's memory.
        pub parent_tid: u64,
        /// The signal that the parent gets when the child exits.
        pub exit_signal: u64,
        /// Lowest address of the stack.
        pub stack: u64,
        /// Size of the stack in bytes.
        pub stack_size: u64,
        /// Thread pointer.
        pub thread_pointer: u64,
    }
}

/// Implements `clone3`.
pub fn clone3(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [address, size, ..] = *arguments;
    if size < 64 {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let wanted: CloneArguments = context.user.read_value(address)?;
    // Fields of later versions of the structure must be zero.
    for offset in (64..size).step_by(8) {
        let word: u64 = context.user.read_value(address + offset)?;
        if word != 0 {
            return Err(if offset < 88 {
                Errno::EINVAL
            } else {
                Errno::E2BIG
            });
        }
    }
    let flags = clone_flags(wanted.flags)?;
    if (wanted.stack == 0) != (wanted.stack_size == 0) || flags.contains(CloneFlags::DETACHED) {
        return Err(Errno::EINVAL);
    }
    let without_signal = CloneFlags::THREAD | CloneFlags::PARENT;
    if flags.intersects(without_signal) && wanted.exit_signal != 0 {
        return Err(Errno::EINVAL);
    }
    let request = CloneRequest {
        flags,
        stack: wanted.stack.wrapping_add(wanted.stack_size),
        parent_tid: wanted.parent_tid,
        child_tid: wanted.child_tid,
        descriptor: wanted.pidfd,
        thread_pointer: wanted.thread_pointer,
        exit_signal: wanted.exit_signal,
    };
    process_clone(context, &request)
}

/// Returns the number of strings in a NULL-terminated array of pointers, at most `most`. As on Linux, a null array is
/// empty.
fn count_strings(context: &Context<'_>, address: u64, most: u64) -> Result<u64, Errno> {
    let mut count = 0;
    while address != 0 && string_at(context, address, count)? != 0 {
        count += 1;
        if count > most {
            return Err(Errno::E2BIG);
        }
    }
    Ok(count)
}

/// Reads the pointer number `index` of an array of string pointers.
fn string_at(context: &Context<'_>, array: u64, index: u64) -> Result<u64, Errno> {
    let at = array.checked_add(index * 8).ok_or(Errno::EFAULT)?;
    context.user.read_value(at)
}

/// Reads `count` strings of an array. `room` is the number of bytes that strings can still occupy, and is reduced by
/// their size.
fn read_strings(
    context: &Context<'_>,
    array: u64,
    count: u64,
    room: &mut u64,
) -> Result<Strings, Errno> {
    let mut strings = Strings::new();
    for index in 0..count {
        // Another thread may have shortened the array since it was counted; the pointer is then null.
        let pointer = string_at(context, array, index)?;
        let length = read_string(context, pointer, *room, &mut strings)?;
        *room -= length as u64 + 1;
    }
    Ok(strings)
}

/// Appends the string at `from` to `strings`, if it fits in `room` bytes together with its NUL. Returns its length.
fn read_string(
    context: &Context<'_>,
    from: u64,
    room: u64,
    strings: &mut Strings,
) -> Result<usize, Errno> {
    let limit = STRING_MAX.min(usize::try_from(room).unwrap_or(STRING_MAX));
    let length = context
        .user
        .each_string_part(from, limit, Errno::E2BIG, |part| {
            strings.push_part(part).map_err(|_| Errno::ENOMEM)
        })?;
    strings.end(length).map_err(|_| Errno::ENOMEM)?;
    Ok(length)
}

/// Implements `execve`.
pub fn execve(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let path = context.user.read_path(arguments[0])?;
    let start = context.fs().directory();
    execute(context, path, start, arguments[1], arguments[2])
}

fn execute(
    context: &Context<'_>,
    path: Vec<u8>,
    start: Arc<crate::fs::dentry::Dentry>,
    argument_array: u64,
    environment_array: u64,
) -> CallResult {
    let stack = context.process().identity.soft_limit(Resource::Stack);
    let most = strings_limit(stack) / 8;
    let argument_count = count_strings(context, argument_array, most)?;
    let environment_count = count_strings(context, environment_array, most)?;
    let room = strings_room(stack, [argument_count, environment_count])?;
    let mut room = room
        .checked_sub(path.len() as u64 + 1)
        .ok_or(Errno::E2BIG)?;
    // Read the environment before the arguments, as Linux does: the order determines the error.
    let environment = read_strings(context, environment_array, environment_count, &mut room)?;
    let arguments = read_strings(context, argument_array, argument_count, &mut room)?;
    let request = Request {
        path,
        start,
        arguments,
        environment,
    };
    exec::execute(context, request).map_err(|error| error.errno)?;
    Ok(0)
}

/// Implements `exit`: terminates the calling thread, and the process if it is the last thread.
pub fn exit(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    context.thread.end_alone(int(arguments[0]));
    Ok(0)
}

/// Implements `exit_group`.
pub fn exit_group(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let status = ExitStatus::Exited(int(arguments[0]));
    end_group(context.process(), status);
    Ok(0)
}

/// Implements `wait4`.
pub fn wait4(context: &Context<'_>, arguments: &Arguments) -> CallResult {
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
        0 => WaitTarget::Group(context.process().group()),
        i32::MIN => return Err(Errno::ESRCH),
        id if id > 0 => WaitTarget::Process(id as u32),
        group => WaitTarget::Group(group.unsigned_abs()),
    };
    let options = WaitOptions::from_bits_truncate(options) | WaitOptions::EXITED;
    let Some(waited) = wait_for_child(context, target, options)? else {
        return Ok(0);
    };
    context
        .user
        .write_optional(status, &waited.change.wait_status())?;
    context
        .user
        .write_optional(usage, &ResourceUsage::from(waited.usage))?;
    Ok(waited.process.into())
}

/// Implements `waitid`.
pub fn waitid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
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
        raw::P_PGID if id == 0 => WaitTarget::Group(context.process().group()),
        raw::P_PGID if id > 0 => WaitTarget::Group(id as u32),
        raw::P_PIDFD if id >= 0 => {
            let open = context.files().get_usable(id)?;
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
    let waited = wait_for_child(context, target, options)?;
    if impatient && waited.is_none() {
        return Err(Errno::EAGAIN);
    }
    if info != 0 {
        write_wait_info(context, info, waited.as_ref())?;
    }
    if let Some(waited) = waited {
        context
            .user
            .write_optional(usage, &ResourceUsage::from(waited.usage))?;
    }
    Ok(0)
}

/// Writes the fields of `siginfo_t` that `waitid` sets, or zeroes if no child has changed state.
fn write_wait_info(
    context: &Context<'_>,
    address: u64,
    waited: Option<&Waited>,
) -> Result<(), Errno> {
    let Some(waited) = waited else {
        return context.user.clear_bytes(address, 28);
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
    context.user.write_bytes(address, &info.to_bytes()[..28])
}

/// Implements `getpid`.
pub fn getpid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(context.process().id.into())
}

/// Implements `gettid`.
pub fn gettid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(context.thread.id().into())
}

/// Implements `getppid`.
pub fn getppid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(context.process().parent().into())
}

fn find(context: &Context<'_>, id: u64) -> Result<Arc<Process>, Errno> {
    match int(id) {
        0 => Ok(context.process().clone()),
        id if id < 0 => Err(Errno::ESRCH),
        id => context.kernel.tasks.process(id as u32).ok_or(Errno::ESRCH),
    }
}

/// Implements `getpgid`.
pub fn getpgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    Ok(find(context, arguments[0])?.group().into())
}

/// Implements `getpgrp`.
pub fn getpgrp(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(context.process().group().into())
}

/// Implements `setpgid`.
pub fn setpgid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    set_group(
        context.kernel,
        context.process(),
        int(arguments[0]),
        int(arguments[1]),
    )?;
    Ok(0)
}

/// Implements `getsid`.
pub fn getsid(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    Ok(find(context, arguments[0])?.session().into())
}

/// Implements `setsid`.
pub fn setsid(context: &Context<'_>, _arguments: &Arguments) -> CallResult {
    Ok(set_session(context.kernel, context.process())?.into())
}

/// Implements `set_tid_address`.
pub fn set_tid_address(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    context
        .thread
        .clear_child_tid
        .store(arguments[0], Ordering::Relaxed);
    Ok(context.thread.id().into())
}

/// Implements `arch_prctl`.
pub fn arch_prctl(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [operation, address, ..] = *arguments;
    context.store_bases();
    match operation {
        ARCH_SET_FS | ARCH_SET_GS if address >= USER_END => Err(Errno::EPERM),
        ARCH_SET_FS | ARCH_SET_GS => {
            let mut state = *context.state();
            if operation == ARCH_SET_FS {
                state.fs_base = address;
            } else {
                state.gs_base = address;
            }
            context.replace_state(state);
            Ok(0)
        }
        ARCH_GET_FS => {
            let base = context.state().fs_base;
            context.user.write_value(address, &base).map(|()| 0)
        }
        ARCH_GET_GS => {
            let base = context.state().gs_base;
            context.user.write_value(address, &base).map(|()| 0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// Implements `prctl`: thread names, dumpability, the parent-death signal, memory settings, and settings with a fixed
/// value.
pub fn prctl(context: &Context<'_>, arguments: &Arguments) -> CallResult {
    let [operation, value, ..] = *arguments;
    let process = context.process();
    match operation as u32 {
        prctl::PR_SET_NAME => {
            let mut name = [0; 16];
            let text = context.user.read_string(value, 16, Errno::E2BIG);
            match text {
                Ok(text) => name[..text.len()].copy_from_slice(&text),
                // Longer names are truncated.
                Err(Errno::E2BIG) => context.user.read_bytes(value, &mut name)?,
                Err(error) => return Err(error),
            }
            context.thread.set_name(&name[..15]);
            Ok(0)
        }
        prctl::PR_GET_NAME => context
            .user
            .write_bytes(value, &context.thread.name())
            .map(|()| 0),
        prctl::PR_SET_PDEATHSIG => {
            if value != 0 && Signal::new(value).is_none() {
                return Err(Errno::EINVAL);
            }
            process
                .parent_death_signal
                .store(value as u8, Ordering::SeqCst);
            Ok(0)
        }
        prctl::PR_GET_PDEATHSIG => {
            let signal = i32::from(process.parent_death_signal.load(Ordering::SeqCst));
            context.user.write_value(value, &signal).map(|()| 0)
        }
        prctl::PR_GET_DUMPABLE => Ok(process.dumpable.load(Ordering::SeqCst).into()),
        prctl::PR_SET_DUMPABLE if value <= 1 => {
            process.dumpable.store(value as u8, Ordering::SeqCst);
            Ok(0)
        }
        prctl::PR_GET_KEEPCAPS | prctl::PR_GET_NO_NEW_PRIVS | prctl::PR_GET_SECCOMP => Ok(0),
        // Every capability is in the bounding set.
        prctl::PR_CAPBSET_READ if value <= Capabilities::LAST.into() => Ok(1),
        prctl::PR_SET_MDWE => super::memory::set_exec_gain(context, arguments),
        prctl::PR_GET_MDWE => super::memory::get_exec_gain(context, arguments),
        prctl::PR_SET_THP_DISABLE => super::memory::set_huge_refusal(context, arguments),
        prctl::PR_GET_THP_DISABLE => super::memory::get_huge_refusal(context, arguments),
        prctl::PR_SET_MEMORY_MERGE => super::memory::set_merging(context, arguments),
        prctl::PR_GET_MEMORY_MERGE => super::memory::get_merging(context, arguments),
        prctl::PR_GET_TIMERSLACK => Ok(50_000),
        _ => Err(Errno::EINVAL),
    }
}
