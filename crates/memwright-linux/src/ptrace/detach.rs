//! Ends the tracing of a thread.

use crate::ptrace::stand::with_standing;
use alloc::{boxed::Box, sync::Arc};
use memwright_linux_abi::{errno::Errno, host::ContextId, signal::Signal};
use memwright_linux_base::sync::pause_point;
use memwright_linux_tasks::process::{
    AtCalls, Change, ChangeNotice, Ended, ExitStatus, Process, Resume, Thread, TraceOptions,
    Tracer, Tracing, kill_process,
};

/// Implements `PTRACE_DETACH`: a thread in a ptrace stop continues untraced, and takes `signal`.
///
/// # Errors
/// `ESRCH` if `by` is not the tracer or the thread is not in a ptrace stop.
pub(crate) fn detach(
    by: &Thread,
    thread: &Arc<Thread>,
    signal: Option<Signal>,
) -> Result<(), Errno> {
    let tracer = with_standing(by, thread, |tracing| tracing.tracer.ok_or(Errno::ESRCH))?;
    let removed = {
        let mut tasks = thread.process.tasks.lock();
        let member = tasks.members.get_mut(&tracer.process);
        member.and_then(|member| member.tracees.remove(tracer, thread.id()))
    };
    if removed.is_some() {
        let_go(thread, Some(signal));
    }
    Ok(())
}

/// Ends the tracing of a thread. If the thread is in a ptrace stop, it continues, and `signal` selects the signal that
/// it takes. `None` selects the signal for which it has stopped, unless a wait has reported the stop to the tracer.
/// `Some(None)` selects no signal.
fn let_go(thread: &Arc<Thread>, signal: Option<Option<Signal>>) {
    {
        let mut signals = thread.process.signals.lock();
        if thread.is_leader() {
            signals.leader_tracer = None;
        }
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
                // The thread takes the signal of the stop only if no wait of the tracer has reported the stop (Linux
                // 7.2 `kernel/exit.c`, `wait_task_stopped`).
                let report = &standing.report;
                let unseen = report
                    .info
                    .filter(|_| report.takes_signal && !standing.reported);
                standing.resume = Some(Resume {
                    signal: signal.unwrap_or(unseen.map(|info| info.signal)),
                    step: false,
                    calls: AtCalls::Pass,
                });
            }
            Some(tracing) => tracing.tracer = None,
            None => {}
        }
    }
    thread.process.resumed.wake_all();
}

/// Handles the exit of a tracer: of the thread `by` of the process `tracer`, or, if `by` is `None`, of the whole
/// process. The tracees continue untraced; a tracee with `PTRACE_O_EXITKILL` is killed.
pub(crate) fn release_tracees(tracer: &Process, by: Option<ContextId>) {
    loop {
        let thread = {
            let mut tasks = tracer.tasks.lock();
            if by.is_none() {
                tasks.forget_ended(tracer.id);
            }
            let member = tasks.members.get_mut(&tracer.id);
            member.and_then(|member| member.tracees.remove_one(by))
        };
        let Some(thread) = thread else {
            return;
        };
        let killed = {
            let mut signals = thread.process.signals.lock();
            signals
                .tracing(&thread)
                .is_some_and(|tracing| tracing.options.contains(TraceOptions::KILLED_AT_END))
        };
        if killed {
            kill_process(&thread.process);
        }
        let_go(&thread, None);
        pause_point();
    }
}

/// Notifies the tracer of a traced thread that has exited. `last` is `Some` if the process has exited with this thread,
/// and then contains the tracer of the leader. The exit of the leader is reported when its process exits. A tracer that
/// is also the parent gets no such report, because it is notified of the exit of the process as the parent.
pub(crate) fn abandon(
    thread: &Arc<Thread>,
    tracing: Option<Box<Tracing>>,
    status: ExitStatus,
    last: Option<Option<Tracer>>,
) {
    let id = thread.id();
    if let Some(tracer) = tracing.and_then(|tracing| tracing.tracer)
        && !thread.is_leader()
    {
        report_end(thread, (tracer, id), status, true);
    }
    if let Some(Some(tracer)) = last {
        let process = &thread.process;
        let told = process.parent() == tracer.process;
        report_end(thread, (tracer, process.id), status, !told);
    }
}

/// Removes an exited thread from the tracees of its tracer, and reports its exit if `reports` is true.
fn report_end(
    thread: &Arc<Thread>,
    (tracer, id): (Tracer, u32),
    status: ExitStatus,
    reports: bool,
) {
    let change = Change::Ended(status);
    let notice = {
        let mut tasks = thread.process.tasks.lock();
        let member = tasks.members.get_mut(&tracer.process);
        let removed = member.and_then(|member| member.tracees.remove(tracer, id));
        let notifies = reports && removed.is_some();
        if notifies {
            let group = thread.process.group();
            tasks.note_ended(
                id,
                Ended {
                    tracer,
                    group,
                    change,
                },
            );
        }
        let child = (id, &*thread.process);
        notifies.then(|| ChangeNotice::send(&tasks, tracer.process, child, change))
    };
    notice.flatten().into_iter().for_each(ChangeNotice::wake);
}
