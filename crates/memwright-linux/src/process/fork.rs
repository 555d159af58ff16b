//! New processes.

use super::{CloneFlags, CloneRequest, Parts, Process, Start, Thread, clone::child_state};
use crate::{
    context::Context,
    errno::Errno,
    memory::fork_errno,
    signal::{Action, AlternateStack, Handler, ThreadSignals},
    wait::Interest,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_table::VirtAddr;

/// Makes a process; returns its id in the parent.
///
/// # Errors
/// `EAGAIN` without a free id, `ENOMEM`.
pub(super) fn clone_process(context: &Context<'_>, request: &CloneRequest) -> Result<u64, Errno> {
    let kernel = context.kernel;
    let flags = request.flags;
    let parent = context.process();
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
    context.store_bases();
    let state = child_state(&context.state(), request);
    let thread = match Thread::create(kernel, id, &child, Start::User(state)) {
        Ok(thread) => thread,
        Err(error) => {
            discard(context, &child);
            return Err(error);
        }
    };
    kernel.host.save_fpu(&mut thread.fpu.lock());
    thread.inherit_affinity(context.thread);
    inherit_signals(context, &child, &thread, flags);
    kernel.processes_made.fetch_add(1, Ordering::Relaxed);
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
        tasks.threads.insert(id, thread.clone());
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
    } else if flags.contains(CloneFlags::VM) {
        child.share_space(true);
        parent.share_space(true);
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
        name: context.thread.name(),
    })
}

/// The child has its parent's actions and mask, and nothing pending.
fn inherit_signals(
    context: &Context<'_>,
    child: &Arc<Process>,
    thread: &Arc<Thread>,
    flags: CloneFlags,
) {
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
    // The alternate stack belongs to the address space: kept unless the child shares it freely.
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
    signals.threads.push((thread.clone(), state));
}

/// Takes down a child that has no thread.
fn discard(context: &Context<'_>, child: &Arc<Process>) {
    super::exit::release_files(context.kernel, child);
    drop(child.take_fs());
    drop(child.take_space());
}
