//! Ptrace stops: a traced thread publishes its registers, waits, and continues as its tracer requests.

use crate::{
    arch::x86_64::regs::{FpuArea, TRAP_FLAG},
    context::Context,
    errno::Errno,
    process::{Change, Process, Resume, Standing, Thread, Tracing, notify_tracer, report_change},
    signal::{Detail, Signal, SignalInfo, code},
    wait::Interest,
};
use alloc::{boxed::Box, sync::Arc};

/// Enters a ptrace stop until the tracer resumes the thread. `info` is the signal that the thread is about to take; it
/// is `None` if `signal` has stopped the process. Returns the signal that the thread takes after the stop (Linux 7.2
/// `kernel/signal.c`, `ptrace_signal` and `ptrace_stop`).
pub(crate) fn stand_still(
    context: &Context<'_>,
    signal: Signal,
    info: Option<SignalInfo>,
) -> Option<SignalInfo> {
    let (kernel, thread) = (context.kernel, context.thread);
    context.store_bases();
    let mut extended = Box::new(FpuArea::INITIAL);
    kernel.host.save_fpu(&mut extended);
    let mut state = *context.state();
    let (tracer, complete) = {
        let mut signals = thread.process.signals.lock();
        let Some(tracing) = signals.tracing(thread) else {
            // The tracer has detached in the meantime.
            return info;
        };
        if tracing.steps {
            state.regs.rflags &= !TRAP_FLAG;
        }
        tracing.standing = Some(Box::new(Standing {
            signal,
            info,
            reported: false,
            state,
            extended,
            resume: None,
        }));
        tracing.passes_stop |= info.is_none();
        let tracer = tracing.tracer;
        if info.is_none() {
            thread.set_stopped(true);
        }
        (tracer, signals.stop_is_complete())
    };
    if let Some(tracer) = tracer {
        notify_tracer(tracer, thread, Change::Trapped(signal));
        if let Some(signal) = complete.filter(|_| thread.process.parent() != tracer) {
            report_change(&thread.process, Change::Stopped(signal));
        }
    }
    let resumed = || {
        let mut signals = thread.process.signals.lock();
        let tracing = signals.thread(thread).traced.as_deref_mut()?;
        tracing.standing.as_ref()?.resume
    };
    let queues = [&thread.process.resumed];
    let resume = kernel
        .oom
        .wait(thread, &queues, None, Interest::Tracer, resumed);
    go_on(context, resume.ok())
}

/// Loads the published registers, which the tracer may have changed, and ends the stop. Returns the signal that the
/// thread takes.
fn go_on(context: &Context<'_>, resume: Option<Resume>) -> Option<SignalInfo> {
    let thread = context.thread;
    let (standing, tracer) = {
        let mut signals = thread.process.signals.lock();
        thread.set_stopped(false);
        let state = signals.thread(thread);
        let tracing = state.traced.as_deref_mut()?;
        let mut standing = tracing.standing.take()?;
        let tracer = tracing.tracer;
        tracing.steps = resume.is_some_and(|resume| resume.step);
        if tracing.steps {
            standing.state.regs.rflags |= TRAP_FLAG;
        }
        if tracer.is_none() {
            state.traced = None;
        }
        (standing, tracer)
    };
    context.kernel.host.restore_fpu(&standing.extended);
    context.replace_state(standing.state);
    // A killed thread takes no other signal.
    let signal = resume?.signal?;
    let unchanged = standing.info.filter(|info| info.signal == signal);
    Some(unchanged.unwrap_or_else(|| by_tracer(signal, tracer.unwrap_or_default())))
}

/// Creates a signal from the tracer, which replaces the one that the thread was about to take.
fn by_tracer(signal: Signal, tracer: u32) -> SignalInfo {
    SignalInfo {
        signal,
        code: code::SI_USER,
        errno: 0,
        detail: Detail::Sender {
            process: tracer,
            user: 0,
        },
    }
}

/// Calls `act` with a thread that `tracer` traces and that is in a ptrace stop.
///
/// # Errors
/// `ESRCH` if the thread is not in a ptrace stop or another process traces it; otherwise those of `act`.
pub(crate) fn with_standing<T>(
    tracer: &Process,
    thread: &Thread,
    act: impl FnOnce(&mut Tracing) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut signals = thread.process.signals.lock();
    let tracing = signals.tracing(thread).ok_or(Errno::ESRCH)?;
    let waits = tracing
        .standing
        .as_ref()
        .is_some_and(|standing| standing.resume.is_none());
    if tracing.tracer != Some(tracer.id) || !waits {
        return Err(Errno::ESRCH);
    }
    act(tracing)
}

/// Resumes a thread in a ptrace stop of `tracer`.
///
/// # Errors
/// Those of [`with_standing`].
pub(crate) fn resume(tracer: &Process, thread: &Arc<Thread>, how: Resume) -> Result<(), Errno> {
    with_standing(tracer, thread, |tracing| {
        let standing = tracing.standing.as_mut().ok_or(Errno::ESRCH)?;
        standing.resume = Some(how);
        Ok(())
    })?;
    thread.process.resumed.wake_all();
    Ok(())
}

/// Returns the signal of a thread's ptrace stop, unless a wait of its tracer has already reported the stop. Marks the
/// stop as reported unless `keep`.
pub(crate) fn standing_unreported(thread: &Thread, keep: bool) -> Option<Signal> {
    let mut signals = thread.process.signals.lock();
    let standing = signals.tracing(thread)?.standing.as_mut()?;
    if standing.reported || standing.resume.is_some() {
        return None;
    }
    standing.reported = !keep;
    Some(standing.signal)
}
