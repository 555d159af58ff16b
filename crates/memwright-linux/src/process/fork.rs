//! New processes.

use super::{Parts, Process, Resource, Start};
use crate::{
    arch::x86_64::regs::UserState,
    context::Context,
    errno::Errno,
    memory::fork_errno,
    signal::{Action, AlternateStack, Handler, Signal},
    wait::Interest,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use memwright_table::VirtAddr;

bitflags::bitflags! {
    /// `CLONE_` flags of `linux/sched.h`, without the exit signal.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct CloneFlags: u64 {
        /// Share the address space.
        const VM = raw::CLONE_VM as u64;
        /// Share root, working directory and mask.
        const FS = raw::CLONE_FS as u64;
        /// Share the descriptor table.
        const FILES = raw::CLONE_FILES as u64;
        /// The parent waits until the child gives the address space back.
        const VFORK = raw::CLONE_VFORK as u64;
        /// The caller's parent becomes the child's.
        const PARENT = raw::CLONE_PARENT as u64;
        /// Set the thread pointer.
        const SETTLS = raw::CLONE_SETTLS as u64;
        /// Store the child's id in the parent.
        const PARENT_SETTID = raw::CLONE_PARENT_SETTID as u64;
        /// Clear and wake a word when the child ends.
        const CHILD_CLEARTID = raw::CLONE_CHILD_CLEARTID as u64;
        /// Store the child's id in the child.
        const CHILD_SETTID = raw::CLONE_CHILD_SETTID as u64;
        /// Undo semaphores together: without effect, as there are none.
        const SYSVSEM = raw::CLONE_SYSVSEM as u64;
        /// Ignored by Linux.
        const DETACHED = raw::CLONE_DETACHED as u64;
        /// Handlers become the default.
        const CLEAR_SIGHAND = 0x1_0000_0000;
    }
}

/// What `fork`, `vfork`, `clone` and `clone3` ask for.
#[derive(Clone, Copy, Debug)]
pub struct CloneRequest {
    /// What is shared, and more.
    pub flags: CloneFlags,
    /// The child's stack pointer; 0 for the parent's.
    pub stack: u64,
    /// Where the child's id is stored in the parent.
    pub parent_tid: u64,
    /// Where the child's id is stored in the child.
    pub child_tid: u64,
    /// The child's thread pointer.
    pub thread_pointer: u64,
    /// What the parent gets when the child ends; 0 for nothing.
    pub exit_signal: u64,
}

/// Makes a process; returns its id in the parent.
///
/// # Errors
/// `EINVAL` for an impossible exit signal, `EAGAIN` without a free id, `ENOMEM`.
pub fn clone_process(context: &Context<'_>, request: &CloneRequest) -> Result<u64, Errno> {
    let kernel = context.kernel;
    let flags = request.flags;
    if request.exit_signal != 0 && Signal::new(request.exit_signal).is_none() {
        return Err(Errno::EINVAL);
    }
    context.check_heap()?;
    let parent = context.process();
    check_process_limit(context)?;
    let parts = child_parts(context, flags)?;
    let child_space = parts.space.clone();
    let limits = parts.limits.clone();
    let id = kernel.tasks.lock().allocate_id().ok_or(Errno::EAGAIN)?;
    let child = Arc::new(Process::new(id, kernel.host.now(), Some(parts), limits));
    let credentials = parent.credentials.lock().clone();
    *child.credentials.lock() = credentials;
    child
        .exit_signal
        .store(request.exit_signal as u8, Ordering::SeqCst);
    child
        .kill_score
        .store(parent.kill_score.load(Ordering::Relaxed), Ordering::Relaxed);
    child
        .dumpable
        .store(parent.dumpable.load(Ordering::Relaxed), Ordering::Relaxed);
    child
        .barriers
        .store(parent.barriers.load(Ordering::Relaxed), Ordering::Relaxed);
    let state = child_state(&context.state(), request);
    let thread = match kernel.start_thread(&child, id, Start::User(state)) {
        Ok(thread) => thread,
        Err(error) => {
            discard(context, &child);
            return Err(error);
        }
    };
    kernel.host.save_fpu(&mut thread.fpu.lock());
    inherit_signals(context, &child, flags);
    if flags.contains(CloneFlags::CHILD_CLEARTID) {
        thread
            .clear_child_tid
            .store(request.child_tid, Ordering::Relaxed);
    }
    if flags.contains(CloneFlags::CHILD_SETTID) {
        // As on Linux, a bad address is the child's problem.
        let _ = child_space.write(VirtAddr::new(request.child_tid), &id.to_le_bytes());
    }
    if flags.contains(CloneFlags::PARENT_SETTID) {
        let _ = context.write_value(request.parent_tid, &id);
    }
    drop(child_space);
    {
        let mut tasks = kernel.tasks.lock();
        let to = if flags.contains(CloneFlags::PARENT) {
            parent.parent()
        } else {
            parent.id
        };
        tasks.enter(&child, to);
        // With CLONE_PARENT too the child is in the caller's group and session.
        tasks.join(&child, parent.group(), parent.session());
    }
    if flags.contains(CloneFlags::VFORK) {
        child.borrow_space();
    }
    kernel.scheduler.wake(kernel, &thread);
    drop(thread);
    if flags.contains(CloneFlags::VFORK) {
        let returned = || (!child.borrows_space()).then_some(());
        // Ends early only when the parent is killed.
        let queues = [&child.space_returned];
        let _ = kernel.wait(context.thread, &queues, None, Interest::Fatal, returned);
    }
    Ok(id.into())
}

/// `RLIMIT_NPROC`: how many processes a user other than root may have.
fn check_process_limit(context: &Context<'_>) -> Result<(), Errno> {
    let process = context.process();
    let user = {
        let credentials = process.credentials.lock();
        if credentials.privileged() || credentials.user.real == 0 {
            return Ok(());
        }
        credentials.user.real
    };
    let limit = process.limits.lock().get(Resource::Processes).current;
    let mut processes = context.kernel.tasks.processes();
    processes.retain(|other| other.credentials.lock().user.real == user);
    if processes.len() as u64 >= limit {
        Err(Errno::EAGAIN)
    } else {
        Ok(())
    }
}

fn child_parts(context: &Context<'_>, flags: CloneFlags) -> Result<Parts, Errno> {
    let parent = context.process();
    let (space, image) = if flags.contains(CloneFlags::VM) {
        (context.space(), parent.image())
    } else {
        let space = context
            .with_space(|space| space.fork())
            .map_err(fork_errno)?;
        (
            Arc::new(space),
            parent.image().map(|image| Arc::new(image.fork())),
        )
    };
    let files = context.files();
    let files = if flags.contains(CloneFlags::FILES) {
        files
    } else {
        Arc::new(files.duplicate(context.kernel)?)
    };
    let fs = context.fs();
    let fs = if flags.contains(CloneFlags::FS) {
        fs
    } else {
        Arc::new(fs.duplicate())
    };
    let limits = parent.limits.lock().clone();
    Ok(Parts {
        space,
        image,
        files,
        fs,
        limits,
        name: parent.name(),
    })
}

fn child_state(parent: &UserState, request: &CloneRequest) -> UserState {
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

/// The child has its parent's actions and mask, and nothing pending.
fn inherit_signals(context: &Context<'_>, child: &Arc<Process>, flags: CloneFlags) {
    let (mut actions, blocked, stack) = {
        let mut signals = context.process().signals.lock();
        let actions = signals.actions;
        let state = signals.thread(context.thread);
        (actions, state.blocked, state.alternate_stack)
    };
    if flags.contains(CloneFlags::CLEAR_SIGHAND) {
        for action in &mut actions {
            if matches!(action.handler, Handler::Function(_)) {
                *action = Action::default();
            }
        }
    }
    let mut signals = child.signals.lock();
    signals.actions = actions;
    // The alternate stack belongs to the address space: kept unless the child shares it freely.
    let shared = flags.contains(CloneFlags::VM) && !flags.contains(CloneFlags::VFORK);
    if let Some((_, state)) = signals.threads.first_mut() {
        state.blocked = blocked;
        state.alternate_stack = if shared {
            AlternateStack::default()
        } else {
            stack
        };
    }
}

/// Takes down a child that has no thread.
fn discard(context: &Context<'_>, child: &Arc<Process>) {
    super::exit::release_files(context.kernel, child);
    drop(child.take_fs());
    drop(child.take_space());
}

#[cfg(test)]
mod tests {
    use super::{CloneFlags, CloneRequest, child_state};
    use crate::arch::x86_64::regs::UserState;

    #[test]
    fn the_child_returns_zero_on_its_own_stack() {
        let mut parent = UserState::start(0x1000, 0x8000);
        parent.regs.rax = 57;
        parent.regs.orig_rax = 57;
        parent.fs_base = 5;
        let mut request = CloneRequest {
            flags: CloneFlags::empty(),
            stack: 0,
            parent_tid: 0,
            child_tid: 0,
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
        request.flags = CloneFlags::SETTLS;
        let child = child_state(&parent, &request);
        assert_eq!((child.regs.rsp, child.fs_base), (0x9000, 9));
    }
}
