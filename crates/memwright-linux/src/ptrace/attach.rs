//! Starts the tracing of a thread.

use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::Ordering;
use memwright_linux_abi::{
    errno::Errno,
    signal::{Detail, Signal, SignalInfo, code},
};
use memwright_linux_sched::scheduler::Work;
use memwright_linux_tasks::process::{
    AtCalls, REAPER, Stop, Thread, TraceOptions, Tracer, Tracing, send_to_thread,
};

/// Implements `PTRACE_TRACEME`: the caller's parent becomes its tracer.
///
/// # Errors
/// `EPERM` if the caller is traced already or its parent is the reaper.
pub(crate) fn be_traced(thread: &Arc<Thread>) -> Result<(), Errno> {
    let parent = thread.process.parent();
    if parent == REAPER {
        return Err(Errno::EPERM);
    }
    let tracer = Tracer {
        process: parent,
        context: None,
    };
    begin(thread, tracer, None).map(drop)
}

/// Implements `PTRACE_ATTACH` and, with `options`, `PTRACE_SEIZE`: `by` becomes the tracer of the thread.
/// `PTRACE_ATTACH` also stops the thread.
///
/// # Errors
/// `EPERM` if the thread belongs to the caller's process, is traced already, or must not be inspected by the caller.
/// `ESRCH` if the thread has exited.
pub(crate) fn attach(
    by: &Arc<Thread>,
    thread: &Arc<Thread>,
    options: Option<TraceOptions>,
) -> Result<(), Errno> {
    let (tracer, process) = (&by.process, &thread.process);
    if Arc::ptr_eq(process, tracer) || !tracer.identity.may_look_into(&process.identity) {
        return Err(Errno::EPERM);
    }
    by.traces.store(true, Ordering::Relaxed);
    let stopped = begin(thread, tracer_of(by), options)?;
    if options.is_none() {
        send_to_thread(thread, stop_signal(tracer.id));
    }
    if stopped {
        // The thread is stopped with its process. Wake the thread, so that it enters a ptrace stop instead.
        process.resumed.wake_all();
    }
    Ok(())
}

/// Returns the identity of the thread as a tracer.
fn tracer_of(thread: &Thread) -> Tracer {
    Tracer {
        process: thread.process.id,
        context: Some(thread.context),
    }
}

/// Returns whether `thread` is the tracer, or, if all threads of a process are the tracer, is one of them.
pub(super) fn is_tracer(tracer: Tracer, thread: &Thread) -> bool {
    let own = tracer.context.is_none_or(|one| one == thread.context);
    tracer.process == thread.process.id && own
}

/// Returns the SIGSTOP that stops a new tracee. `tracer` is the process id that the signal names as its sender, or 0.
fn stop_signal(tracer: u32) -> SignalInfo {
    SignalInfo {
        signal: Signal::SIGSTOP,
        code: code::SI_USER,
        errno: 0,
        detail: Detail::Sender {
            process: tracer,
            user: 0,
        },
    }
}

/// Makes `tracer` the tracer of the thread. Returns whether the thread's process is stopped.
///
/// # Errors
/// `EPERM` if the thread is traced already, `ESRCH` if the tracer or the thread has exited.
fn begin(
    thread: &Arc<Thread>,
    tracer: Tracer,
    options: Option<TraceOptions>,
) -> Result<bool, Errno> {
    let mut tasks = thread.process.tasks.lock();
    let member = tasks.members.get_mut(&tracer.process).ok_or(Errno::ESRCH)?;
    let stopped = {
        let mut signals = thread.process.signals.lock();
        let stopped = signals.stop != Stop::Running;
        let state = signals.find(thread).ok_or(Errno::ESRCH)?;
        let tracing = state.traced.get_or_insert_default();
        if tracing.tracer.is_some() {
            return Err(Errno::EPERM);
        }
        tracing.tracer = Some(tracer);
        tracing.options = options.unwrap_or_default();
        tracing.seized = options.is_some();
        // Reset the fields that a former tracer may have set, except `standing`: a thread that has not yet left its
        // last stop still loads its registers from that field.
        (tracing.interrupted, tracing.changed) = (false, false);
        (tracing.call_ended, tracing.passes_stop) = (false, false);
        tracing.calls = AtCalls::Pass;
        thread.traced.store(true, Ordering::Relaxed);
        if stopped {
            thread.set_stopped(false);
            thread.set_work(Work::SIGNAL, true);
        }
        stopped
    };
    member.tracees.add(tracer, thread);
    Ok(stopped)
}

/// Makes the tracer of `parent` trace a thread that `parent` has just created and that does not run yet. The new thread
/// starts with a ptrace stop (Linux 7.2 `include/linux/ptrace.h`, `ptrace_init_task`).
pub(crate) fn attach_child(parent: &Arc<Thread>, child: &Arc<Thread>) {
    let mut tasks = parent.process.tasks.lock();
    let inherited = {
        let mut signals = parent.process.signals.lock();
        signals
            .tracing(parent)
            .map(|tracing| (tracing.tracer, tracing.options, tracing.seized))
    };
    let Some((Some(tracer), options, seized)) = inherited else {
        return;
    };
    let Some(member) = tasks.members.get_mut(&tracer.process) else {
        return;
    };
    // If `parent` is no longer in the list, its tracer exits or detaches and is about to end the tracing of `parent`:
    // do not trace the child.
    if !member.tracees.contains(tracer, parent.id()) {
        return;
    }
    {
        let mut signals = child.process.signals.lock();
        let Some(state) = signals.find(child) else {
            return;
        };
        state.traced = Some(Box::new(Tracing {
            tracer: Some(tracer),
            options,
            seized,
            interrupted: seized,
            ..Tracing::default()
        }));
        if !seized {
            state.pending.add(stop_signal(0));
        }
        child.traced.store(true, Ordering::Relaxed);
        child.set_work(Work::SIGNAL, true);
    }
    member.tracees.add(tracer, child);
}
