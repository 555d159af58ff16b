//! Creation of processes.

use crate::{
    current::Current,
    lifecycle::{
        Child, CloneFlags, CloneRequest,
        clone::{child_state, count_thread},
        thread_start::new_thread,
    },
    thread_registers::ThreadRegisters,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{Space, errno::Errno, signal::AlternateStack};
use memwright_linux_memory::{memory::fork_errno, userfault::Userfaults};
use memwright_linux_tasks::{
    pidfd,
    process::{Parts, Process, Start, Thread, ThreadSignals},
};
use memwright_linux_vfs::direct_reclaim::Retry;
use memwright_table::VirtAddr;

/// Creates a process, whose thread does not run yet.
///
/// # Errors
/// `EAGAIN` if no id is free; `ENOMEM`; `EMFILE` and `EFAULT` for the pidfd of the child; `ERESTARTNOINTR` if the
/// caller is being killed.
pub(super) fn create_process<'a>(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    userfaults: &'static Userfaults,
    request: &'a CloneRequest,
) -> Result<Child<'a>, Errno> {
    let child = new_process(current, userfaults, request)?;
    registers.store_bases();
    let state = child_state(&registers.state(), request);
    let thread = match new_thread(current.reclaim(), child.id, &child, Start::User(state)) {
        Ok(thread) => thread,
        Err(error) => {
            discard(&child);
            return Err(error);
        }
    };
    registers.processor().save_fpu(&mut thread.fpu.lock());
    thread.inherit_scheduling(current.thread);
    let slack = current.thread.timer_slack.load(Ordering::Relaxed);
    thread.timer_slack.store(slack, Ordering::Relaxed);
    // A child with a copy of the memory keeps the registered `struct rseq`. A child that shares the memory must
    // register another one.
    if !request.flags.contains(CloneFlags::VM) {
        thread.inherit_registration(current.thread);
    }
    let entered = inherit_signals(current.thread, &child, &thread, request.flags)
        .and_then(|()| store_ids(current, request, &child, &thread))
        .and_then(|()| enter(current.thread, request.flags, &child, &thread));
    if let Err(error) = entered {
        child.signals.lock().threads.remove(&thread);
        child.tasks.scheduler.abandon(&thread);
        discard(&child);
        return Err(error);
    }
    child.tasks.made.fetch_add(1, Ordering::Relaxed);
    child.inherit_cpu_limit();
    Ok(Child {
        request,
        thread,
        process: Some(child),
    })
}

/// Creates the child process without a thread. The child is not yet in the process table.
fn new_process(
    current: &Current<'_>,
    userfaults: &'static Userfaults,
    request: &CloneRequest,
) -> Result<Arc<Process>, Errno> {
    let (parent, flags) = (current.process(), request.flags);
    let parts = child_parts(current, userfaults, flags)?;
    let limits = parts.limits.clone();
    let id = parent.tasks.lock().allocate_id().ok_or(Errno::EAGAIN)?;
    let (now, user) = (current.now(), parent.identity.user());
    let child = Arc::new(Process::new(
        parent.tasks,
        id,
        now,
        Some(parts),
        limits,
        user,
    ));
    let credentials = parent.identity.credentials.lock().clone();
    *child.identity.credentials.lock() = credentials;
    let exit_signal = if flags.contains(CloneFlags::PARENT) {
        parent.exit_signal.load(Ordering::SeqCst)
    } else {
        request.exit_signal as u8
    };
    child.exit_signal.store(exit_signal, Ordering::SeqCst);
    child
        .kill_score
        .store(parent.kill_score.load(Ordering::Relaxed), Ordering::Relaxed);
    child
        .dumpable
        .store(parent.dumpable.load(Ordering::Relaxed), Ordering::Relaxed);
    child.personality.store(
        parent.personality.load(Ordering::Relaxed),
        Ordering::Relaxed,
    );
    child
        .barriers
        .store(parent.barriers.load(Ordering::Relaxed), Ordering::Relaxed);
    if flags.contains(CloneFlags::VFORK) {
        child.borrow_space();
    } else if flags.contains(CloneFlags::VM) {
        child.share_space(true);
        parent.share_space(true);
    }
    Ok(child)
}

/// Stores the child's id and a pidfd of the child at the requested addresses.
fn store_ids(
    current: &Current<'_>,
    request: &CloneRequest,
    child: &Arc<Process>,
    thread: &Arc<Thread>,
) -> Result<(), Errno> {
    let flags = request.flags;
    if flags.contains(CloneFlags::CHILD_CLEARTID) {
        thread
            .clear_child_tid
            .store(request.child_tid, Ordering::Relaxed);
    }
    if flags.contains(CloneFlags::CHILD_SETTID)
        && let Some(space) = child.space()
    {
        // As on Linux, a bad address is not an error.
        let (at, id) = (VirtAddr::new(request.child_tid), child.id.to_le_bytes());
        let _ = current.reclaim().retry(|| space.write(at, &id));
    }
    if flags.contains(CloneFlags::PIDFD) {
        current.caller().check_open_files()?;
        let open = pidfd::open(current.vfs(), child, 0);
        let descriptor = current.caller().add_descriptor(open, raw::O_CLOEXEC)? as i32;
        if let Err(error) = current.user.write_value(request.descriptor, &descriptor) {
            let process = current.process().id;
            // The pidfd is new: closing it fails only if another thread has already closed it.
            let _ = current.files().close(process, descriptor);
            return Err(error);
        }
    }
    if flags.contains(CloneFlags::PARENT_SETTID) {
        let _ = current.user.write_value(request.parent_tid, &child.id);
    }
    Ok(())
}

/// Adds the child to the process table, where its parent and the senders of signals can find it from then on. No new
/// process escapes a kill of a group or of all processes: the sender repeats its walk until it finds no new process,
/// and a thread that is being killed creates no process.
fn enter(
    caller: &Thread,
    flags: CloneFlags,
    child: &Arc<Process>,
    thread: &Arc<Thread>,
) -> Result<(), Errno> {
    let parent = &caller.process;
    let mut tasks = parent.tasks.lock();
    if caller.fatal_pending() || tasks.closed {
        return Err(Errno::ERESTARTNOINTR);
    }
    let to = if flags.contains(CloneFlags::PARENT) {
        parent.parent()
    } else {
        parent.id
    };
    count_thread(child)?;
    if let Err(error) = tasks.enter(child, to) {
        child.identity.user().threads.remove(1);
        return Err(error.into());
    }
    tasks.inherit_cgroup(child, parent);
    tasks.threads.insert(child.id, thread.clone());
    // The child joins the caller's group and session even if `CLONE_PARENT` gives it the caller's parent.
    tasks.join(child, parent.group(), parent.session());
    Ok(())
}

fn fork_space(current: &Current<'_>, userfaults: &'static Userfaults) -> Result<Arc<Space>, Errno> {
    let reclaim = current.reclaim();
    if current.vfs().memory.swap().is_on() {
        reclaim.make_room();
    }
    let fork = || current.with_space(|space| userfaults.fork(current.thread, space));
    let forked = reclaim.retry(fork);
    forked.map_err(fork_errno)
}

fn child_parts(
    current: &Current<'_>,
    userfaults: &'static Userfaults,
    flags: CloneFlags,
) -> Result<Parts, Errno> {
    let parent = current.process();
    // Copy the descriptors before the memory. While the memory is forked, the readers of userfaultfds get descriptors
    // for contexts of the child, and the child must not inherit them if a reader belongs to the parent.
    let files = current.files();
    let files = if flags.contains(CloneFlags::FILES) {
        files
    } else {
        Arc::new(files.duplicate(current.vfs())?)
    };
    let (space, image) = if flags.contains(CloneFlags::VM) {
        (current.space(), parent.image())
    } else {
        (
            fork_space(current, userfaults)?,
            parent.image().map(|image| Arc::new(image.fork())),
        )
    };
    let fs = current.fs();
    let fs = if flags.contains(CloneFlags::FS) {
        fs
    } else {
        Arc::new(fs.duplicate())
    };
    let limits = parent.identity.limits.lock().clone();
    Ok(Parts {
        space,
        image,
        files,
        fs,
        limits,
        name: current.thread.name(),
    })
}

/// Copies or shares the parent's signal actions, and copies the signal mask. The child has no pending signals.
///
/// # Errors
/// `ENOMEM` if the shared actions cannot be allocated.
fn inherit_signals(
    caller: &Thread,
    child: &Arc<Process>,
    thread: &Arc<Thread>,
    flags: CloneFlags,
) -> Result<(), Errno> {
    let (mut actions, blocked, stack) = {
        let mut signals = caller.process.signals.lock();
        let actions = if flags.contains(CloneFlags::SIGHAND) {
            signals.actions.share()?
        } else {
            signals.actions.inherit()
        };
        let state = signals.thread(caller);
        (actions, state.blocked, state.alternate_stack)
    };
    if flags.contains(CloneFlags::CLEAR_SIGHAND) {
        actions.reset();
    }
    // The alternate stack is in the parent's address space. The child keeps it, unless the child shares the address
    // space and the parent does not wait for the child (`CLONE_VM` without `CLONE_VFORK`).
    let shared = flags.contains(CloneFlags::VM) && !flags.contains(CloneFlags::VFORK);
    let state = ThreadSignals {
        blocked,
        alternate_stack: if shared {
            AlternateStack::default()
        } else {
            stack
        },
        ..ThreadSignals::default()
    };
    let mut signals = child.signals.lock();
    signals.actions = actions;
    let entered = signals.threads.try_push(thread, state);
    entered.map_err(Errno::from)
}

/// Destroys a child that has no thread.
fn discard(child: &Arc<Process>) {
    super::exit::release_files(child);
    drop(child.take_fs());
    drop(child.take_space());
}
