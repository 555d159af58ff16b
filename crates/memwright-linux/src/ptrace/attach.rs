//! Attaching and detaching tracers.

use crate::{
    context::Context,
    errno::Errno,
    kernel::Kernel,
    process::{
        ExitStatus, Process, REAPER, Resume, Stop, Thread, Tracing, kill_process, notify_tracer,
        send_to_thread,
    },
    scheduler::Work,
    signal::{Detail, Signal, SignalInfo, code},
    sync::pause_point,
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use memwright_table::TryPush;

/// Implements `PTRACE_TRACEME`: the caller's parent becomes its tracer.
///
/// # Errors
/// `EPERM` if the caller is traced already, or its parent is the built-in reaper.
pub(crate) fn be_traced(context: &Context<'_>) -> Result<(), Errno> {
    let parent = context.process().parent();
    if parent == REAPER {
        return Err(Errno::EPERM);
    }
    begin(context.kernel, context.thread, parent).map(drop)
}

/// Implements `PTRACE_ATTACH`: the calling process becomes the tracer of the thread, which is stopped.
///
/// # Errors
/// `EPERM` for a thread of the caller's process, a thread that is traced already, or one that the caller is not allowed
/// to inspect; `ESRCH` for a thread that has exited.
pub(crate) fn attach(context: &Context<'_>, thread: &Arc<Thread>) -> Result<(), Errno> {
    if Arc::ptr_eq(&thread.process, context.process()) {
        return Err(Errno::EPERM);
    }
    if !context
        .process()
        .identity
        .may_look_into(&thread.process.identity)
    {
        return Err(Errno::EPERM);
    }
    let kernel = context.kernel;
    let stopped = begin(kernel, thread, context.process().id)?;
    let info = SignalInfo {
        signal: Signal::SIGSTOP,
        code: code::SI_USER,
        errno: 0,
        detail: Detail::Sender {
            process: context.process().id,
            user: 0,
        },
    };
    send_to_thread(thread, info);
    if stopped {
        // The thread is stopped with its process; from now on it stops as a traced thread.
        thread.process.resumed.wake_all();
    }
    Ok(())
}

/// Makes process `tracer` the tracer of the thread. Returns whether the thread's process is stopped.
///
/// # Errors
/// `EPERM` if the thread is traced already, `ESRCH` if the tracer or the thread has exited, `ENOMEM`.
fn begin(kernel: &Kernel, thread: &Arc<Thread>, tracer: u32) -> Result<bool, Errno> {
    let mut tasks = kernel.tasks.lock();
    let member = tasks.members.get_mut(&tracer).ok_or(Errno::ESRCH)?;
    member.tracees.try_make_room(1)?;
    // Reserve room for the exit of each tracee, so that a thread that exits allocates nothing.
    let room = member.tracees.len() + 1;
    member.ended_tracees.try_make_room(room)?;
    let stopped = {
        let mut signals = thread.process.signals.lock();
        let stopped = signals.stop != Stop::Running;
        let state = signals.find(thread).ok_or(Errno::ESRCH)?;
        let tracing = state.traced.get_or_insert_default();
        if tracing.tracer.is_some() {
            return Err(Errno::EPERM);
        }
        tracing.tracer = Some(tracer);
        if stopped {
            thread.set_stopped(false);
            thread.set_work(Work::SIGNAL, true);
        }
        stopped
    };
    #[expect(clippy::disallowed_methods, reason = "there is room")]
    member.tracees.push(thread.clone());
    Ok(stopped)
}

/// Implements `PTRACE_DETACH`: a thread in a ptrace stop continues untraced, and takes this signal.
pub(crate) fn detach(
    kernel: &Kernel,
    tracer: &Process,
    thread: &Arc<Thread>,
    signal: Option<Signal>,
) {
    let member = kernel
        .tasks
        .lock()
        .members
        .get_mut(&tracer.id)
        .map(|member| {
            member.tracees.retain(|tracee| !Arc::ptr_eq(tracee, thread));
        });
    if member.is_some() {
        let_go(thread, Some(signal));
    }
}

/// Ends the tracing of a thread. If `signal` is given, it replaces the signal that the thread was about to take; the
/// inner `None` means no signal.
fn let_go(thread: &Arc<Thread>, signal: Option<Option<Signal>>) {
    {
        let mut signals = thread.process.signals.lock();
        let Some(state) = signals.find(thread) else {
            return;
        };
        match state.traced.as_deref_mut() {
            Some(Tracing {
                tracer,
                standing: Some(standing),
                ..
            }) => {
                *tracer = None;
                // A signal is dropped if a wait of the tracer has reported it (Linux 7.2 `kernel/exit.c`,
                // `wait_task_stopped`).
                let unseen = standing.info.filter(|_| !standing.reported);
                standing.resume = Some(Resume {
                    signal: signal.unwrap_or(unseen.map(|info| info.signal)),
                    step: false,
                });
            }
            Some(_) | None => state.traced = None,
        }
    }
    thread.process.resumed.wake_all();
}

/// Handles the exit of a tracer: its tracees continue untraced, or are killed if the tracer requested that.
pub(crate) fn release_tracees(kernel: &Kernel, tracer: &Process) {
    let tracees: Vec<Arc<Thread>> = {
        let mut tasks = kernel.tasks.lock();
        match tasks.members.get_mut(&tracer.id) {
            Some(member) => {
                member.ended_tracees.clear();
                core::mem::take(&mut member.tracees)
            }
            None => return,
        }
    };
    for thread in &tracees {
        let killed = {
            let mut signals = thread.process.signals.lock();
            signals
                .tracing(thread)
                .is_some_and(|tracing| tracing.killed_at_end)
        };
        let_go(thread, None);
        if killed {
            kill_process(&thread.process);
        }
        pause_point();
    }
}

/// Handles the exit of a traced thread. Notifies the tracer, unless the tracer is also the parent and is notified as
/// that.
pub(crate) fn abandon(
    kernel: &Kernel,
    thread: &Arc<Thread>,
    tracing: Option<Box<Tracing>>,
    status: ExitStatus,
    last: bool,
) {
    let Some(tracer) = tracing.and_then(|tracing| tracing.tracer) else {
        return;
    };
    let told_as_parent = last && thread.process.parent() == tracer;
    {
        let mut tasks = kernel.tasks.lock();
        let Some(member) = tasks.members.get_mut(&tracer) else {
            return;
        };
        member.tracees.retain(|tracee| !Arc::ptr_eq(tracee, thread));
        if !told_as_parent {
            #[expect(clippy::disallowed_methods, reason = "`begin` made room")]
            member.ended_tracees.push((thread.clone(), status));
        }
    }
    if !told_as_parent {
        notify_tracer(tracer, thread, crate::process::Change::Ended(status));
    }
}
