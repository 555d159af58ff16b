//! `fork`, `vfork`, `clone` and `clone3`.

use crate::{
    context::Arguments,
    lifecycle::{CloneFlags, CloneRequest, create},
    ptrace::Traced,
    syscall::call::{Kind, SystemCall, flags::CLONE, real},
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{abi_struct, errno::Errno, signal::Signal};
use memwright_linux_vfs::user::UserMemory;

/// Returns the handler of a call that creates and starts a thread or a process. `$request` converts the arguments of
/// the call to a `CloneRequest`.
macro_rules! creating {
    ($request:expr) => {
        |context, arguments| {
            let (current, registers) = (&context.current, &context.registers);
            let request = $request(current.user, arguments)?;
            let child = create(current, registers, context.userfaults(), &request)?;
            let traced = Traced::new(current, registers, context.oom());
            Ok(child.start(&traced, context.oom()))
        }
    };
}

/// The entries of this module in the system-call table.
pub const CALLS: &[SystemCall] = &[
    real(
        raw::__NR_clone,
        "clone",
        &[CLONE, Kind::Hex, Kind::Out(4), Kind::Out(4), Kind::Hex],
        creating!(clone),
    ),
    real(raw::__NR_fork, "fork", &[], creating!(fork)),
    real(raw::__NR_vfork, "vfork", &[], creating!(vfork)),
    real(
        raw::__NR_clone3,
        "clone3",
        &[Kind::In(88), Kind::Unsigned],
        creating!(clone3),
    ),
];

/// Returns the request of `fork`.
fn fork(_user: UserMemory<'_>, _arguments: &Arguments) -> Result<CloneRequest, Errno> {
    Ok(plain(CloneFlags::empty()))
}

/// Returns the request of `vfork`: the parent waits until the child calls `execve` or exits.
fn vfork(_user: UserMemory<'_>, _arguments: &Arguments) -> Result<CloneRequest, Errno> {
    Ok(plain(CloneFlags::VM | CloneFlags::VFORK))
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

/// Converts `clone` flags. Returns `EINVAL` for unknown flags and for those of namespaces.
fn clone_flags(flags: u64) -> Result<CloneFlags, Errno> {
    CloneFlags::from_bits(flags).ok_or(Errno::EINVAL)
}

/// Returns the request of `clone`.
fn clone(_user: UserMemory<'_>, arguments: &Arguments) -> Result<CloneRequest, Errno> {
    let [flags, stack, parent_tid, child_tid, thread_pointer, _] = *arguments;
    // The low byte contains the exit signal. `clone` ignores flags above bit 31.
    let exit_signal = flags & u64::from(raw::CSIGNAL);
    let flags = clone_flags(u64::from(flags as u32 & !raw::CSIGNAL))?;
    // `CLONE_PIDFD` and `CLONE_PARENT_SETTID` would both store through `parent_tid`.
    let two = CloneFlags::PIDFD | CloneFlags::PARENT_SETTID;
    if flags.contains(two) || flags.contains(CloneFlags::PIDFD | CloneFlags::DETACHED) {
        return Err(Errno::EINVAL);
    }
    Ok(CloneRequest {
        flags,
        stack,
        parent_tid,
        child_tid,
        descriptor: parent_tid,
        thread_pointer,
        exit_signal,
    })
}

abi_struct! {
    /// `struct clone_args` of `linux/sched.h`, in its first version.
    pub struct CloneArguments {
        /// Flags.
        pub flags: u64,
        /// Address in the parent's memory for the pidfd of the child.
        pub pidfd: u64,
        /// Address in the child's memory for the child's id.
        pub child_tid: u64,
        /// Address in the parent's memory for the child's id.
        pub parent_tid: u64,
        /// The signal that the parent gets when the child exits.
        pub exit_signal: u64,
        /// Lowest address of the stack.
        pub stack: u64,
        /// Size of the stack in bytes.
        pub stack_size: u64,
        /// Thread pointer of the child.
        pub thread_pointer: u64,
    }
}

/// Returns the request of `clone3`.
fn clone3(user: UserMemory<'_>, arguments: &Arguments) -> Result<CloneRequest, Errno> {
    let [address, size, ..] = *arguments;
    if size < 64 {
        return Err(Errno::EINVAL);
    }
    if size > 4096 {
        return Err(Errno::E2BIG);
    }
    let wanted: CloneArguments = user.read_value(address)?;
    // Fields that later versions of the structure add must be zero if the caller passes them.
    for offset in (64..size).step_by(8) {
        let word: u64 = user.read_value(address + offset)?;
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
    Ok(CloneRequest {
        flags,
        stack: wanted.stack.wrapping_add(wanted.stack_size),
        parent_tid: wanted.parent_tid,
        child_tid: wanted.child_tid,
        descriptor: wanted.pidfd,
        thread_pointer: wanted.thread_pointer,
        exit_signal: wanted.exit_signal,
    })
}
