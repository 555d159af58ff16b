//! Creates threads.

use crate::{
    current::Current,
    lifecycle::{
        Child, CloneFlags, CloneRequest,
        clone::{child_state, count_thread},
    },
    thread_registers::ThreadRegisters,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_memory::reclaim::Reclaim;
use memwright_linux_sched::scheduler::Work;
use memwright_linux_tasks::process::{Process, Start, Stop, Thread, ThreadSignals};
use memwright_linux_vfs::direct_reclaim::Retry;

/// Creates a thread with its kernel stack. The thread is not yet in its process's list of threads.
///
/// # Errors
/// `EAGAIN` if the machine has its maximum number of threads, `ENOMEM` if the stack cannot be allocated.
pub(crate) fn new_thread(
    reclaim: &Reclaim,
    id: u32,
    process: &Arc<Process>,
    start: Start,
) -> Result<Arc<Thread>, Errno> {
    let scheduler = process.tasks.scheduler;
    let context = reclaim.retry(|| scheduler.admit(id))?;
    Ok(Arc::new(Thread::new(id, process.clone(), context, start)))
}

/// Creates a thread in the caller's process. The thread does not run yet.
///
/// # Errors
/// `EAGAIN` if no id is free or the machine has its maximum number of threads; `ENOMEM`; `ERESTARTNOINTR` if the
/// process is exiting, stopped or in `execve`. The caller handles that event before it restarts the call.
pub(super) fn create_thread<'a>(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    request: &'a CloneRequest,
) -> Result<Child<'a>, Errno> {
    let (process, flags) = (current.process(), request.flags);
    let id = process.tasks.lock().allocate_id().ok_or(Errno::EAGAIN)?;
    registers.store_bases();
    let state = child_state(&registers.state(), request);
    let thread = new_thread(current.reclaim(), id, process, Start::User(state))?;
    thread.set_name(&current.thread.name());
    registers.processor().save_fpu(&mut thread.fpu.lock());
    if flags.contains(CloneFlags::CHILD_CLEARTID) {
        let word = request.child_tid;
        thread.clear_child_tid.store(word, Ordering::Relaxed);
    }
    // As on Linux, a failed write is not an error.
    if flags.contains(CloneFlags::PARENT_SETTID) {
        let _ = current.user.write_value(request.parent_tid, &id);
    }
    if flags.contains(CloneFlags::CHILD_SETTID) {
        let _ = current.user.write_value(request.child_tid, &id);
    }
    thread.inherit_placement(current.thread);
    let slack = current.thread.timer_slack.load(Ordering::Relaxed);
    thread.timer_slack.store(slack, Ordering::Relaxed);
    if let Err(error) = enter(current.thread, &thread) {
        process.tasks.scheduler.abandon(&thread);
        return Err(error);
    }
    // Copy the flag after the new thread is in the list: a thread that arms a CPU-time timer either finds the new
    // thread there, or has set the caller's flag before this copy.
    thread.set_measured(current.thread.is_measured());
    Ok(Child {
        request,
        thread,
        process: None,
    })
}

/// Adds a thread to its process, with the signal mask of `caller`.
fn enter(caller: &Thread, thread: &Arc<Thread>) -> Result<(), Errno> {
    let mut signals = thread.process.signals.lock();
    let busy = signals.group_exit.is_some() || signals.executing.is_some();
    if busy || signals.stop != Stop::Running {
        return Err(Errno::ERESTARTNOINTR);
    }
    let state = ThreadSignals {
        blocked: signals.thread(caller).blocked,
        ..ThreadSignals::default()
    };
    count_thread(&thread.process)?;
    if let Err(error) = signals.threads.try_push(thread, state) {
        thread.process.identity.user().threads.remove(1);
        return Err(error.into());
    }
    drop(signals);
    if thread.process.charged_group().is_some() {
        // Set the flag for the new thread: a move of the process to another cgroup sets it only for the threads that
        // exist at the time of the move.
        thread.set_work(Work::CGROUP, true);
    }
    let mut tasks = thread.process.tasks.lock();
    tasks.threads.insert(thread.id(), thread.clone());
    Ok(())
}
