//! Signal delivery on return to user mode.

use crate::{
    abi::Plain,
    arch::x86_64::{
        regs::{FpuArea, UserRegs},
        signal_frame::{
            FRAME_SIZE, FrameHead, HANDLER_CLEARED_FLAGS, SIGINFO_OFFSET, UCONTEXT_OFFSET, compose,
            place,
        },
        xstate,
    },
    context::Context,
    errno::Errno,
    lifecycle::end_group,
    probes::Probes,
    process::{
        Change, ExitStatus, Signals, Stop, Thread, Tracing, force_default, force_fault,
        report_change,
    },
    protection_keys,
    ptrace::Traced,
    restartable::{Place, abort, settle},
    scheduler::Work,
    signal::{
        Action, ActionFlags, AlternateStack, DefaultAction, Handler, Restart, Signal, SignalInfo,
        SignalSet, default_action, restart_decision,
    },
    wait::Interest,
};
use alloc::sync::Arc;

/// Number of the system call `restart_syscall`.
const RESTART_CALL: u64 = linux_raw_sys::general::__NR_restart_syscall as u64;
/// Length of the SYSCALL instruction in bytes.
const CALL_LENGTH: u64 = 2;

/// What the thread does after handling its signals.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// Return to user mode.
    Resume,
    /// Exit.
    Exit(ExitStatus),
}

/// One step of signal handling, decided under the lock.
enum Step {
    Exit(ExitStatus),
    Stopped,
    /// Report the end of a system call to the tracer.
    CallEnded,
    /// Enter a ptrace stop before this signal is taken.
    Take(SignalInfo),
    /// Enter a ptrace stop because this signal has stopped the process, or because the tracer requested it. The flag
    /// says whether the tracer has seized the thread.
    Trap(Option<Signal>, bool),
    Stop(Signal),
    Handle(SignalInfo, Action, SignalSet),
    Nothing,
}

/// Handles every event that keeps the thread from returning to user mode: exit of the process, stops and signals.
// Not inlined into the loop of a thread, where every page fault would pay for the registers that this needs.
#[inline(never)]
pub fn deliver(context: &Context<'_>) -> After {
    let mut granted = None;
    let traced = Traced { context };
    loop {
        match next_step(context, granted.take()) {
            Step::Exit(status) => return After::Exit(status),
            Step::Stopped => wait_while_stopped(context),
            Step::CallEnded => traced.report_end_of_call(),
            Step::Take(info) => {
                Probes::rewind(context);
                if let Some(info) = context.process().complete_signal(info) {
                    granted = traced.take_signal(info);
                }
            }
            Step::Trap(signal, seized) => {
                Probes::rewind(context);
                traced.stop(signal, seized);
            }
            Step::Stop(signal) => stop(context, signal),
            Step::Handle(info, action, mask) => {
                Probes::rewind(context);
                restart_call(context, Some(action.flags));
                let stepping = traced.before_handler();
                abort_section(context, info.signal);
                let entered = enter_handler(context, &info, &action, mask);
                if entered.is_err() {
                    frame_failed(context, info.signal);
                } else if stepping {
                    traced.entered_handler();
                }
            }
            Step::Nothing => {
                restart_call(context, None);
                if settle_section(context) {
                    return After::Resume;
                }
            }
        }
    }
}

/// Returns the next step. `granted` is a signal that the tracer permits the thread to take.
fn next_step(context: &Context<'_>, mut granted: Option<SignalInfo>) -> Step {
    let thread = context.thread;
    let mut signals = context.process().signals.lock();
    loop {
        if let Some(status) = signals.group_exit {
            return Step::Exit(status);
        }
        if signals
            .executing
            .as_ref()
            .is_some_and(|one| !Arc::ptr_eq(one, thread))
        {
            return Step::Exit(ExitStatus::Exited(0));
        }
        if let Some(code) = thread.exit_code() {
            return Step::Exit(ExitStatus::Exited(code));
        }
        if let Some(step) = step_of_stop(&mut signals, thread) {
            if let Some(info) = granted {
                signals.thread(thread).pending.add(info);
            }
            return step;
        }
        let blocked = signals.thread(thread).blocked;
        let info = if let Some(info) = granted.take() {
            if blocked.contains(info.signal) {
                signals.thread(thread).pending.add(info);
                continue;
            }
            info
        } else if let Some(info) = signals.take(thread, blocked) {
            if info.signal != Signal::SIGKILL && signals.is_traced(thread) {
                return Step::Take(info);
            }
            if info.is_of_timer() {
                drop(signals);
                granted = context.process().complete_signal(info);
                signals = context.process().signals.lock();
                continue;
            }
            info
        } else {
            if let Some(mask) = signals.thread(thread).saved_mask.take() {
                signals.set_blocked(thread, mask);
                continue;
            }
            signals.recalculate(thread);
            return Step::Nothing;
        };
        let action = signals.actions.deliver(info.signal);
        match action.handler {
            Handler::Ignore => {}
            Handler::Function(_) => {
                let state = signals.thread(thread);
                let mask = state.saved_mask.take().unwrap_or(state.blocked);
                return Step::Handle(info, action, mask);
            }
            Handler::Default => match default_action(info.signal) {
                DefaultAction::Ignore | DefaultAction::Continue => {}
                DefaultAction::Terminate | DefaultAction::Core => {
                    drop(signals);
                    let status = ExitStatus::Killed(info.signal);
                    end_group(context.process(), status);
                    return Step::Exit(status);
                }
                DefaultAction::Stop => return Step::Stop(info.signal),
            },
        }
    }
}

/// Returns the step that a stop of the process requires. A traced thread enters a ptrace stop, and its tracer can
/// resume it before the process continues.
fn step_of_stop(signals: &mut Signals, thread: &Arc<Thread>) -> Option<Step> {
    let stop = signals.stop;
    let traced = signals.thread(thread).traced.as_deref_mut();
    match (stop, traced.filter(|tracing| tracing.tracer.is_some())) {
        (Stop::Running, None) => None,
        (Stop::Stopped(_), None) => Some(Step::Stopped),
        (stop, Some(tracing)) => step_of_tracing(stop, tracing),
    }
}

/// Returns the step that a traced thread takes before it looks at its signals.
fn step_of_tracing(stop: Stop, tracing: &mut Tracing) -> Option<Step> {
    if core::mem::take(&mut tracing.call_ended) {
        return Some(Step::CallEnded);
    }
    let requested = tracing.interrupted || tracing.changed;
    match stop {
        Stop::Running => {
            tracing.passes_stop = false;
            requested.then_some(Step::Trap(None, tracing.seized))
        }
        Stop::Stopped(_) if tracing.passes_stop && !requested => None,
        Stop::Stopped(signal) => Some(Step::Trap(Some(signal), tracing.seized)),
    }
}

/// Stops the process: each thread stops when it next handles signals. A terminal stop signal has no effect on an
/// orphaned process group.
fn stop(context: &Context<'_>, signal: Signal) {
    let process = context.process();
    if signal != Signal::SIGSTOP && context.kernel.group_is_orphaned(process.group()) {
        return;
    }
    {
        let mut signals = process.signals.lock();
        if signals.group_exit.is_some() {
            return;
        }
        if signals.stop == Stop::Running {
            signals.stop = Stop::Stopped(signal);
            signals.stop_reported = false;
        }
        for state in signals.threads.values_mut() {
            if let Some(tracing) = state.traced.as_deref_mut() {
                tracing.passes_stop = false;
                tracing.note_change();
            }
        }
        signals.alert_all();
    }
    // Threads that listen report the stop.
    process.resumed.wake_all();
}

/// Waits until the process continues. If this is the last thread to stop, notifies the parent first.
fn wait_while_stopped(context: &Context<'_>) {
    let process = context.process();
    let complete = {
        let mut signals = process.signals.lock();
        context.thread.set_stopped(signals.stop != Stop::Running);
        signals.stop_is_complete()
    };
    if let Some(signal) = complete {
        report_change(process, Change::Stopped(signal));
    }
    // SIGCONT clears the thread's stopped flag, so that a new stop counts the thread again.
    let running = || {
        // Take the lock: the thread that clears the flag under it wakes this thread afterwards.
        let _signals = process.signals.lock();
        (!context.thread.is_stopped()).then_some(())
    };
    // The wait ends early only if the process is killed, which the next step handles.
    let _ended = context.kernel.oom.wait(
        context.thread,
        &[&process.resumed],
        None,
        Interest::Continuation,
        running,
    );
    let mut signals = process.signals.lock();
    context.thread.set_stopped(false);
    signals.recalculate(context.thread);
}

/// Changes the registers so that an interrupted call is restarted. Has no effect after the first call for one system
/// call.
fn restart_call(context: &Context<'_>, handler: Option<ActionFlags>) {
    let mut state = context.registers.state();
    let regs = &mut state.regs;
    if regs.orig_rax == u64::MAX {
        return;
    }
    if let Some(errno) = Errno::from_result(regs.rax) {
        match restart_decision(errno, handler) {
            Restart::Keep => {}
            Restart::Interrupt => regs.rax = Errno::EINTR.as_result(),
            Restart::Again => {
                regs.rax = regs.orig_rax;
                regs.rip -= CALL_LENGTH;
            }
            Restart::Block => {
                regs.rax = RESTART_CALL;
                regs.rip -= CALL_LENGTH;
            }
        }
    }
    regs.orig_rax = u64::MAX;
}

/// Aborts the critical section of the interrupted program before it enters the handler of `signal`. If the program's
/// structures cannot be read, for example because of a protection key, SIGSEGV is raised, and the handler is entered
/// nevertheless: it runs to its end where it blocks SIGSEGV (Linux 7.3 `kernel/rseq.c`, `__rseq_signal_deliver`).
fn abort_section(context: &Context<'_>, signal: Signal) {
    if !context.thread.is_restartable() {
        return;
    }
    let instruction = context.registers.state().regs.rip;
    match abort(context.user, context.thread, instruction) {
        Ok(next) => context.registers.state().regs.rip = next,
        Err(_) if signal == Signal::SIGSEGV => {
            force_default(context.thread, SignalInfo::kernel(Signal::SIGSEGV));
        }
        Err(_) => force_fault(context.thread, SignalInfo::kernel(Signal::SIGSEGV)),
    }
}

/// Tells the program on which CPU the thread runs, if the thread has left a CPU and has a restartable sequence. Returns
/// false if that raised a signal.
fn settle_section(context: &Context<'_>) -> bool {
    let thread = context.thread;
    // A copy to user memory can wait, and the thread can continue on another CPU.
    while thread.work().contains(Work::RESTARTABLE) {
        let place = Place::of(context.kernel.host, &context.kernel.memory);
        let instruction = context.registers.state().regs.rip;
        match settle(context.user, thread, place, instruction) {
            Ok(next) => context.registers.state().regs.rip = next,
            Err(_) => {
                force_fault(thread, SignalInfo::kernel(Signal::SIGSEGV));
                return false;
            }
        }
    }
    true
}

/// Writes the signal frame and sets the registers so that user mode continues in the handler.
fn enter_handler(
    context: &Context<'_>,
    info: &SignalInfo,
    action: &Action,
    mask: SignalSet,
) -> Result<(), Errno> {
    let Handler::Function(handler) = action.handler else {
        return Ok(());
    };
    // Like on Linux for x86-64, a handler without a restorer cannot be entered.
    if !action.flags.contains(ActionFlags::RESTORER) {
        return Err(Errno::EFAULT);
    }
    let host = context.kernel.host;
    let regs = context.registers.state().regs;
    let stack = context
        .process()
        .signals
        .lock()
        .thread(context.thread)
        .alternate_stack;
    let switch = action.flags.contains(ActionFlags::ONSTACK) && stack.state(regs.rsp) == 0;
    let on_stack = stack.state(regs.rsp) == AlternateStack::ONSTACK;
    let size = xstate::frame_size(host.fpu_size());
    let place = place(regs.rsp, switch.then_some(&stack), size).ok_or(Errno::EFAULT)?;
    // The thread already runs on the alternate stack, and the frame would overflow it.
    if on_stack && place.frame <= stack.base {
        return Err(Errno::EFAULT);
    }
    let mut area = FpuArea::INITIAL;
    host.save_fpu(&mut area);
    xstate::mark(
        &mut area.bytes[..size],
        host.fpu_size(),
        host.fpu_features(),
    );
    let fault = *context.thread.last_fault.lock();
    let head = compose(&regs, place, action.restorer, stack, mask.0, fault);
    let mut frame = [0; FRAME_SIZE];
    head.to_bytes(&mut frame[..FrameHead::SIZE]);
    frame[FrameHead::SIZE..].copy_from_slice(&info.to_bytes());
    // The stack can have a protection key that denies writes to the interrupted code.
    let key_rights = protection_keys::permit_all(host);
    let written = context
        .user
        .write_bytes(place.extended_state, &area.bytes[..size])
        .and_then(|()| context.user.write_bytes(place.frame, &frame));
    if let Err(error) = written {
        protection_keys::restore(host, key_rights);
        return Err(error);
    }
    context.registers.state().regs = UserRegs {
        rax: 0,
        rdi: info.signal.number().into(),
        rsi: place.frame + SIGINFO_OFFSET,
        rdx: place.frame + UCONTEXT_OFFSET,
        rip: handler,
        rsp: place.frame,
        rflags: regs.rflags & !HANDLER_CLEARED_FLAGS,
        ..regs
    };
    host.restore_fpu(&FpuArea::INITIAL);
    protection_keys::reset(host);
    let mut signals = context.process().signals.lock();
    let state = signals.thread(context.thread);
    if switch && stack.flags & AlternateStack::AUTODISARM != 0 {
        state.alternate_stack = AlternateStack::default();
    }
    let mut blocked = state.blocked.union(action.mask);
    if !action.flags.contains(ActionFlags::NODEFER) {
        blocked = blocked.with(info.signal);
    }
    signals.set_blocked(context.thread, blocked);
    Ok(())
}

/// Handles a failed write of the frame: raises SIGSEGV, or kills the process if the signal was SIGSEGV itself
/// (`force_sigsegv` of Linux 7.2).
fn frame_failed(context: &Context<'_>, signal: Signal) {
    if signal == Signal::SIGSEGV {
        end_group(context.process(), ExitStatus::Killed(Signal::SIGSEGV));
    } else {
        force_fault(context.thread, SignalInfo::kernel(Signal::SIGSEGV));
    }
}
