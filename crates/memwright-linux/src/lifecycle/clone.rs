//! The requests of `clone`, `clone3`, `fork` and `vfork`, and their validation.

use crate::{
    current::Current,
    lifecycle::{Child, fork::create_process, thread_start::create_thread},
    ptrace::Event,
    thread_registers::ThreadRegisters,
};
use linux_raw_sys::general as raw;
use memwright_linux_abi::{arch::x86_64::regs::UserState, errno::Errno, signal::Signal};
use memwright_linux_base::flags;
use memwright_linux_memory::userfault::Userfaults;
use memwright_linux_tasks::process::Process;
use memwright_linux_vfs::{
    identity::{Capabilities, Resource},
    user::USER_END,
};

flags! {
    /// `CLONE_` flags of `linux/sched.h`, without the exit signal.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct CloneFlags: u64 {
        /// Share the address space.
        const VM = raw::CLONE_VM as u64;
        /// Share the root, the working directory and the file-creation mask.
        const FS = raw::CLONE_FS as u64;
        /// Share the descriptor table.
        const FILES = raw::CLONE_FILES as u64;
        /// Share the signal actions.
        const SIGHAND = raw::CLONE_SIGHAND as u64;
        /// Store a pidfd of the child in the parent's memory.
        const PIDFD = raw::CLONE_PIDFD as u64;
        /// Trace the child if the caller is traced.
        const PTRACE = raw::CLONE_PTRACE as u64;
        /// The parent waits until the child releases the address space.
        const VFORK = raw::CLONE_VFORK as u64;
        /// Make the caller's parent the parent of the child.
        const PARENT = raw::CLONE_PARENT as u64;
        /// Create a thread in the caller's process.
        const THREAD = raw::CLONE_THREAD as u64;
        /// Share the semaphore undo list. Ignored: the threads of a process always share it, and two processes never
        /// share it.
        const SYSVSEM = raw::CLONE_SYSVSEM as u64;
        /// Set the child's thread pointer.
        const SETTLS = raw::CLONE_SETTLS as u64;
        /// Store the child's id in the parent's memory.
        const PARENT_SETTID = raw::CLONE_PARENT_SETTID as u64;
        /// When the child exits, clear the word at `child_tid` and wake a thread that waits on it with `futex`.
        const CHILD_CLEARTID = raw::CLONE_CHILD_CLEARTID as u64;
        /// Ignored by Linux.
        const DETACHED = raw::CLONE_DETACHED as u64;
        /// Prevent a tracer of the caller from tracing the child automatically.
        const UNTRACED = raw::CLONE_UNTRACED as u64;
        /// Store the child's id in the child's memory.
        const CHILD_SETTID = raw::CLONE_CHILD_SETTID as u64;
        /// Share the I/O context. Ignored: Memwright has no I/O contexts.
        const IO = raw::CLONE_IO as u64;
        /// Reset the child's signal handlers to the default.
        const CLEAR_SIGHAND = 0x1_0000_0000;
    }
}

/// The arguments of `fork`, `vfork`, `clone` and `clone3`.
#[derive(Clone, Copy, Debug)]
pub struct CloneRequest {
    /// The `CLONE_` flags.
    pub flags: CloneFlags,
    /// The child's stack pointer; 0 for the parent's.
    pub stack: u64,
    /// Address in the parent's memory for the child's id.
    pub parent_tid: u64,
    /// Address in the child's memory for its id.
    pub child_tid: u64,
    /// Address in the parent's memory for the pidfd of the child.
    pub descriptor: u64,
    /// The child's thread pointer.
    pub thread_pointer: u64,
    /// The signal that the parent gets when the child exits; 0 for none.
    pub exit_signal: u64,
}

/// Creates a thread or a process. The new thread does not run before [`Child::start`].
///
/// # Errors
/// `EINVAL` for invalid flags; `EPERM` for a thread pointer outside user memory; `EAGAIN` if a limit is reached or no
/// id is free; `ENOMEM`; `ERESTARTNOINTR` if a signal is pending. The signal is delivered before the call is restarted.
pub(crate) fn create<'a>(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    userfaults: &'static Userfaults,
    request: &'a CloneRequest,
) -> Result<Child<'a>, Errno> {
    check(request.flags, request.exit_signal)?;
    if request.flags.contains(CloneFlags::SETTLS) && request.thread_pointer >= USER_END {
        return Err(Errno::EPERM);
    }
    if current.caller().interrupted() {
        return Err(Errno::ERESTARTNOINTR);
    }
    current.check_heap()?;
    check_thread_limit(current.process())?;
    if request.flags.contains(CloneFlags::THREAD) {
        create_thread(current, registers, request)
    } else {
        create_process(current, registers, userfaults, request)
    }
}

impl CloneRequest {
    /// Returns the event by which the caller's tracer is notified of the call. Returns `None` if the tracer is not
    /// notified (`kernel_clone` of Linux 7.2, `kernel/fork.c`).
    pub(super) fn event(&self) -> Option<Event> {
        if self.flags.contains(CloneFlags::UNTRACED) {
            None
        } else if self.flags.contains(CloneFlags::VFORK) {
            Some(Event::Vfork)
        } else if self.exit_signal == u64::from(Signal::SIGCHLD.number()) {
            Some(Event::Fork)
        } else {
            Some(Event::Clone)
        }
    }
}

/// Checks the flags. Rejects the combinations that Linux rejects (`copy_process` of Linux 7.2, `kernel/fork.c`), and
/// pidfds of threads other than leaders, which are not supported.
fn check(flags: CloneFlags, exit_signal: u64) -> Result<(), Errno> {
    let has = |flag| flags.contains(flag);
    let impossible = has(CloneFlags::THREAD) && !has(CloneFlags::SIGHAND)
        || has(CloneFlags::SIGHAND) && !has(CloneFlags::VM)
        || has(CloneFlags::SIGHAND) && has(CloneFlags::CLEAR_SIGHAND)
        || has(CloneFlags::THREAD) && has(CloneFlags::PIDFD);
    // Any value is valid for a thread, whose exit signal is ignored.
    let signal = has(CloneFlags::THREAD) || exit_signal == 0 || Signal::new(exit_signal).is_some();
    if impossible || !signal {
        Err(Errno::EINVAL)
    } else {
        Ok(())
    }
}

/// Returns how many threads the user of the process may have (`RLIMIT_NPROC`). A zombie counts as one thread. Root and
/// a process with `CAP_SYS_RESOURCE` are not limited.
fn thread_limit(process: &Process) -> u64 {
    {
        let credentials = process.identity.credentials.lock();
        if credentials.has(Capabilities::RESOURCES) || credentials.user.real == 0 {
            return u64::MAX;
        }
    }
    process.identity.soft_limit(Resource::Processes)
}

/// Returns `EAGAIN` if the user of the process has as many threads as it may have. A thread that starts at the same
/// time may take the last place, so [`count_thread`] checks again.
fn check_thread_limit(process: &Process) -> Result<(), Errno> {
    if process.identity.user().threads.get() >= thread_limit(process) {
        Err(Errno::EAGAIN)
    } else {
        Ok(())
    }
}

/// Counts a new thread for the user of the process. Returns `EAGAIN` if the user has as many threads as it may have.
pub(super) fn count_thread(process: &Process) -> Result<(), Errno> {
    let limit = thread_limit(process);
    if process.identity.user().threads.add_below(limit) {
        Ok(())
    } else {
        Err(Errno::EAGAIN)
    }
}

/// Returns the registers with which the child starts.
pub(super) fn child_state(parent: &UserState, request: &CloneRequest) -> UserState {
    let mut state = *parent;
    state.regs.rax = 0;
    state.regs.orig_rax = u64::MAX;
    if request.stack != 0 {
        state.regs.rsp = request.stack;
    }
    if request.flags.contains(CloneFlags::SETTLS) {
        state.fs_base = request.thread_pointer;
    }
    state
}

#[cfg(test)]
mod tests {
    use super::{CloneFlags as F, CloneRequest, Errno, Event, check, child_state};
    use memwright_linux_abi::arch::x86_64::regs::UserState;

    #[test]
    fn impossible_combinations_are_refused() {
        let thread = F::VM | F::SIGHAND | F::THREAD;
        for (flags, exit_signal, result) in [
            (F::empty(), 17, Ok(())),
            (F::empty(), 0, Ok(())),
            (F::empty(), 65, Err(Errno::EINVAL)),
            (F::VM | F::VFORK, 17, Ok(())),
            (thread, 0, Ok(())),
            (thread, 255, Ok(())),
            (F::THREAD | F::VM, 0, Err(Errno::EINVAL)),
            (F::SIGHAND | F::THREAD, 0, Err(Errno::EINVAL)),
            (F::SIGHAND | F::VM, 17, Ok(())),
            (F::SIGHAND, 17, Err(Errno::EINVAL)),
            (
                F::SIGHAND | F::VM | F::CLEAR_SIGHAND,
                17,
                Err(Errno::EINVAL),
            ),
            (thread | F::CLEAR_SIGHAND, 0, Err(Errno::EINVAL)),
            (F::CLEAR_SIGHAND, 17, Ok(())),
            (F::PIDFD, 17, Ok(())),
            (thread | F::PIDFD, 0, Err(Errno::EINVAL)),
        ] {
            assert_eq!(check(flags, exit_signal), result, "{flags:?}");
        }
    }

    #[test]
    fn events_of_the_forms_of_clone() {
        for (flags, exit_signal, event) in [
            (F::empty(), 17, Some(Event::Fork)),
            (F::empty(), 0, Some(Event::Clone)),
            (F::VM | F::VFORK, 17, Some(Event::Vfork)),
            (F::VM | F::VFORK | F::UNTRACED, 17, None),
        ] {
            let request = CloneRequest {
                flags,
                stack: 0,
                parent_tid: 0,
                child_tid: 0,
                descriptor: 0,
                thread_pointer: 0,
                exit_signal,
            };
            assert_eq!(request.event(), event);
        }
    }

    #[test]
    fn the_child_returns_zero_on_its_own_stack() {
        let mut parent = UserState::start(0x1000, 0x8000);
        parent.regs.rax = 57;
        parent.regs.orig_rax = 57;
        parent.fs_base = 5;
        let mut request = CloneRequest {
            flags: F::empty(),
            stack: 0,
            parent_tid: 0,
            child_tid: 0,
            descriptor: 0,
            thread_pointer: 9,
            exit_signal: 17,
        };
        let child = child_state(&parent, &request);
        assert_eq!(
            (child.regs.rax, child.regs.rsp, child.fs_base),
            (0, 0x8000, 5)
        );
        assert_eq!(child.regs.orig_rax, u64::MAX);
        request.stack = 0x9000;
        request.flags = F::SETTLS;
        let child = child_state(&parent, &request);
        assert_eq!((child.regs.rsp, child.fs_base), (0x9000, 9));
    }
}
