//! Creation of threads.

use crate::{
    context::Context,
    direct_reclaim::Retry,
    errno::Errno,
    kernel::Kernel,
    lifecycle::{CloneFlags, CloneRequest, clone::child_state},
    process::{Process, Start, Stop, Thread, ThreadSignals},
    ptrace::{Traced, attach_child},
    scheduler::Work,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;

impl Thread {
    /// Creates a thread with its kernel stack. It is not yet one of the threads of its process.
    ///
    /// # Errors
    /// `EAGAIN` if there are as many threads as the machine permits, `ENOMEM` if there is no memory for the stack.
    pub(crate) fn create(
        kernel: &Kernel,
        id: u32,
        process: &Arc<Process>,
        start: Start,
    ) -> Result<Arc<Self>, Errno> {
        let context = kernel.reclaim.retry(|| kernel.scheduler.admit(id))?;
        Ok(Arc::new(Self::new(id, process.clone(), context, start)))
    }
}

/// Creates a thread in the caller's process. Returns the id of the new thread.
///
/// # Errors
/// `EAGAIN` without a free id or if there are as many threads as the machine permits, `ENOMEM`, `ERESTARTNOINTR` if the
/// process is exiting, stopped or in `execve`. The caller handles that event before it restarts the call.
pub(super) fn clone_thread(context: &Context<'_>, request: &CloneRequest) -> Result<u64, Errno> {
    let (kernel, process, flags) = (context.kernel, context.process(), request.flags);
    let id = kernel.tasks.lock().allocate_id().ok_or(Errno::EAGAIN)?;
    context.registers.store_bases();
    let state = child_state(&context.registers.state(), request);
    let thread = Thread::create(kernel, id, process, Start::User(state))?;
    thread.set_name(&context.thread.name());
    kernel.host.save_fpu(&mut thread.fpu.lock());
    if flags.contains(CloneFlags::CHILD_CLEARTID) {
        let word = request.child_tid;
        thread.clear_child_tid.store(word, Ordering::Relaxed);
    }
    // As on Linux, a bad address is not an error.
    if flags.contains(CloneFlags::PARENT_SETTID) {
        let _ = context.user.write_value(request.parent_tid, &id);
    }
    if flags.contains(CloneFlags::CHILD_SETTID) {
        let _ = context.user.write_value(request.child_tid, &id);
    }
    thread.inherit_placement(context.thread);
    let slack = context.thread.timer_slack.load(Ordering::Relaxed);
    thread.timer_slack.store(slack, Ordering::Relaxed);
    if let Err(error) = enter(context, &thread) {
        kernel.scheduler.abandon(&thread);
        return Err(error);
    }
    // Only now: a thread that sets a timer finds the new thread, or has marked the caller before.
    thread.set_measured(context.thread.is_measured());
    let traced = Traced::new(
        &context.current,
        &context.registers,
        context.tasks(),
        context.oom(),
    );
    let event = request.event().filter(|event| traced.stops_at(*event));
    if event.is_some() || flags.contains(CloneFlags::PTRACE) {
        attach_child(context.thread, &thread);
    }
    kernel.scheduler.start(&thread);
    if let Some(event) = event {
        traced.event(event, id.into());
    }
    Ok(id.into())
}

/// Adds a thread to its process, with the caller's signal mask.
fn enter(context: &Context<'_>, thread: &Arc<Thread>) -> Result<(), Errno> {
    let mut signals = thread.process.signals.lock();
    let busy = signals.group_exit.is_some() || signals.executing.is_some();
    if busy || signals.stop != Stop::Running {
        return Err(Errno::ERESTARTNOINTR);
    }
    let state = ThreadSignals {
        blocked: signals.thread(context.thread).blocked,
        ..ThreadSignals::default()
    };
    signals.threads.try_push(thread, state)?;
    thread.process.identity.user().threads.add(1);
    drop(signals);
    if thread.process.charged_group().is_some() {
        // Set the flag here: a thread that moves the process to another cgroup sets it only for threads that exist
        // then.
        thread.set_work(Work::CGROUP, true);
    }
    let mut tasks = context.kernel.tasks.lock();
    tasks.threads.insert(thread.id(), thread.clone());
    Ok(())
}
