//! Ptrace stops: a traced thread publishes its registers, waits, and continues as requested by its tracer.

use crate::ptrace::{Traced, attach::is_tracer};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::Ordering;
use memwright_linux_abi::{
    arch::x86_64::regs::{FpuArea, TRAP_FLAG},
    errno::Errno,
    signal::{Signal, SignalInfo},
};
use memwright_linux_sched::{scheduler::Work, wait::Interest};
use memwright_linux_tasks::process::{
    AtCalls, Change, ChangeNotice, Report, Resume, Standing, Thread, Tracing, report_change,
};

/// How a stop ends.
#[derive(Clone, Copy)]
enum Leave {
    Resumed(Resume),
    /// The thread was in `PTRACE_LISTEN` when its process was stopped or continued. It must report this change in
    /// another stop.
    Again,
}

/// The outcome of a ptrace stop.
pub(super) struct Ended {
    /// The signal that the tracer passed when it resumed the thread.
    pub(super) signal: Option<Signal>,
    /// The `siginfo` of the stop, which the tracer may have changed.
    pub(super) info: Option<SignalInfo>,
    /// The id of the tracer's process, or 0 if the tracer has detached.
    pub(super) tracer: u32,
}

impl Traced<'_> {
    /// Enters a ptrace stop and waits until the tracer resumes the thread. Returns `None` if the thread is no longer
    /// traced (Linux 7.2 `kernel/signal.c`, `ptrace_stop`).
    pub(super) fn stand_still(&self, report: Report) -> Option<Ended> {
        let thread = self.current.thread;
        self.registers.store_bases();
        let mut extended = Box::new(FpuArea::INITIAL);
        self.registers.processor().save_fpu(&mut extended);
        let mut state = *self.registers.state();
        let change = Change::Trapped {
            code: report.code,
            by_stop: report.by_stop,
        };
        let (tracer, complete, notice) = {
            let mut tasks = self.tasks.lock();
            let mut signals = thread.process.signals.lock();
            // Return `None` if the tracer has detached before this thread took the locks.
            let tracing = signals.tracing(thread)?;
            let tracer = tracing.tracer?;
            if tracing.steps {
                state.regs.rflags &= !TRAP_FLAG;
            }
            tracing.standing = Some(Box::new(Standing {
                report,
                reported: false,
                listens: false,
                state,
                extended,
                debug: self.registers.debug.get(),
                resume: None,
            }));
            tracing.interrupted = false;
            if report.by_stop {
                tracing.changed = false;
                tracing.passes_stop = true;
                thread.set_stopped(true);
            }
            let complete = signals.stop_is_complete();
            drop(signals);
            if let Some(member) = tasks.members.get_mut(&tracer.process) {
                member.tracees.note(tracer, thread.id());
            }
            let child = (thread.id(), &*thread.process);
            let notice = ChangeNotice::send(&tasks, tracer.process, child, change);
            (tracer.process, complete, notice)
        };
        notice.into_iter().for_each(ChangeNotice::wake);
        if let Some(signal) = complete.filter(|_| thread.process.parent() != tracer) {
            report_change(&thread.process, Change::Stopped(signal));
        }
        let resumed = || {
            let mut signals = thread.process.signals.lock();
            let tracing = signals.thread(thread).traced.as_deref_mut()?;
            let again = tracing.interrupted || tracing.changed;
            let standing = tracing.standing.as_ref()?;
            let listens = standing.listens && again;
            let resume = standing.resume.map(Leave::Resumed);
            resume.or(listens.then_some(Leave::Again))
        };
        let queues = [&thread.process.resumed];
        let leave = self
            .oom
            .wait(thread, &queues, None, Interest::Tracer, resumed);
        self.go_on(leave.ok())
    }

    /// Ends the stop. Loads the published registers, which the tracer may have changed.
    fn go_on(&self, leave: Option<Leave>) -> Option<Ended> {
        let thread = self.current.thread;
        let (standing, stops, tracer) = {
            let mut signals = thread.process.signals.lock();
            thread.set_stopped(false);
            let state = signals.thread(thread);
            let tracing = state.traced.as_deref_mut()?;
            let mut standing = tracing.standing.take()?;
            match leave {
                Some(Leave::Resumed(resume)) => {
                    (tracing.steps, tracing.calls) = (resume.step, resume.calls);
                }
                Some(Leave::Again) => {}
                None => (tracing.steps, tracing.calls) = (false, AtCalls::Pass),
            }
            if tracing.steps {
                standing.state.regs.rflags |= TRAP_FLAG;
            }
            // If the thread stopped within a system call, the tracer decides by its request whether the end of the call
            // is reported too.
            if standing.report.is_in_call() {
                tracing.call_ended = tracing.steps || tracing.calls == AtCalls::Stop;
            }
            let stops = tracing.steps || tracing.calls != AtCalls::Pass;
            let tracer = tracing.tracer.map(|tracer| tracer.process);
            if tracer.is_none() {
                state.traced = None;
                thread.traced.store(false, Ordering::Relaxed);
            }
            // Check which signals have arrived during the stop. Without one, the system call in which the thread
            // stopped is not interrupted.
            signals.recalculate(thread);
            (standing, stops, tracer.unwrap_or_default())
        };
        self.registers.stop_at_calls(stops);
        self.registers.processor().restore_fpu(&standing.extended);
        self.registers.replace_state(standing.state);
        self.registers.debug.set(standing.debug);
        if self.registers.debug.get().is_active() {
            thread.set_work(Work::DEBUG, true);
        } else if thread.work().contains(Work::DEBUG) {
            thread.set_work(Work::DEBUG, false);
            self.registers.processor().load_debug(&standing.debug);
        }
        let signal = match leave {
            Some(Leave::Resumed(resume)) => resume.signal,
            Some(Leave::Again) | None => None,
        };
        Some(Ended {
            signal,
            info: standing.report.info,
            tracer,
        })
    }
}

/// Calls `act` for a thread that `by` traces and that is in a ptrace stop.
///
/// # Errors
/// `ESRCH` if the thread is not in a ptrace stop or another thread traces it; otherwise the errors of `act`.
pub(crate) fn with_standing<T>(
    by: &Thread,
    thread: &Thread,
    act: impl FnOnce(&mut Tracing) -> Result<T, Errno>,
) -> Result<T, Errno> {
    with_traced(by, thread, |tracing| {
        let standing = tracing.standing.as_ref();
        if !standing.is_some_and(|standing| standing.waits()) {
            return Err(Errno::ESRCH);
        }
        act(tracing)
    })
}

/// Calls `act` for a thread that `by` traces, whether it is in a ptrace stop or not.
///
/// # Errors
/// `ESRCH` if `by` does not trace the thread; otherwise the errors of `act`.
pub(crate) fn with_traced<T>(
    by: &Thread,
    thread: &Thread,
    act: impl FnOnce(&mut Tracing) -> Result<T, Errno>,
) -> Result<T, Errno> {
    let mut signals = thread.process.signals.lock();
    let tracing = signals.tracing(thread).ok_or(Errno::ESRCH)?;
    match tracing.tracer {
        Some(tracer) if is_tracer(tracer, by) => act(tracing),
        Some(_) | None => Err(Errno::ESRCH),
    }
}

/// Resumes a thread in a ptrace stop.
///
/// # Errors
/// The errors of [`with_standing`].
pub(crate) fn resume(by: &Thread, thread: &Arc<Thread>, how: Resume) -> Result<(), Errno> {
    with_standing(by, thread, |tracing| {
        let standing = tracing.standing.as_mut().ok_or(Errno::ESRCH)?;
        standing.resume = Some(how);
        Ok(())
    })?;
    thread.process.resumed.wake_all();
    Ok(())
}

/// Implements `PTRACE_INTERRUPT`: makes a seized thread enter a ptrace stop.
///
/// # Errors
/// `ESRCH` if `by` is not the thread's tracer, `EIO` if the thread was not seized.
pub(crate) fn interrupt(by: &Thread, thread: &Arc<Thread>) -> Result<(), Errno> {
    with_traced(by, thread, |tracing| {
        if !tracing.seized {
            return Err(Errno::EIO);
        }
        tracing.interrupted = true;
        thread.set_work(Work::SIGNAL, true);
        thread.notify();
        Ok(())
    })?;
    thread.process.resumed.wake_all();
    Ok(())
}

/// Implements `PTRACE_LISTEN`: a thread that has stopped with its process stays stopped, and reports the next stop or
/// continuation of the process.
///
/// # Errors
/// `ESRCH` as for [`with_standing`], `EIO` for a thread that was not seized or is in another kind of stop.
pub(crate) fn listen(by: &Thread, thread: &Arc<Thread>) -> Result<(), Errno> {
    with_standing(by, thread, |tracing| {
        let standing = tracing.standing.as_mut().ok_or(Errno::ESRCH)?;
        if !tracing.seized || !standing.report.by_stop {
            return Err(Errno::EIO);
        }
        standing.listens = true;
        Ok(())
    })?;
    thread.process.resumed.wake_all();
    Ok(())
}

/// Returns the change that a ptrace stop of the thread reports, unless a wait of its tracer has already returned it.
/// Marks the stop as reported unless `keep` is true.
pub(crate) fn standing_unreported(thread: &Thread, keep: bool) -> Option<Change> {
    let mut signals = thread.process.signals.lock();
    let standing = signals.tracing(thread)?.standing.as_mut()?;
    if standing.reported || !standing.waits() {
        return None;
    }
    standing.reported = !keep;
    Some(Change::Trapped {
        code: standing.report.code,
        by_stop: standing.report.by_stop,
    })
}
