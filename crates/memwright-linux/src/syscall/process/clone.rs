//! `fork`, `vfork`, `clone` and `clone3`.

use crate::{
    abi_struct,
    context::{Arguments, CallResult, Context},
    errno::Errno,
    lifecycle::{CloneFlags, CloneRequest, clone as process_clone},
    signal::Signal,
};
use linux_raw_sys::general as raw;

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
