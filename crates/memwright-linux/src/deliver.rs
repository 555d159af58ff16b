//! Signal delivery on return to user mode.

use crate::{
    current::Current,
    lifecycle::end_group,
    probe_step,
    ptrace::Traced,
    restartable::{Place, abort, settle},
    thread_registers::ThreadRegisters,
};
use alloc::sync::Arc;
use memwright_linux_abi::{
    abi::Plain,
    arch::x86_64::{
        regs::{FpuArea, UserRegs},
        signal_frame::{
            FRAME_SIZE, FrameHead, HANDLER_CLEARED_FLAGS, SIGINFO_OFFSET, UCONTEXT_OFFSET, compose,
            place,
        },
        xstate,
    },
    errno::Errno,
    protection_keys,
    signal::{
        Action, ActionFlags, AlternateStack, DefaultAction, Handler, Restart, Signal, SignalInfo,
        SignalSet, default_action, restart_decision,
    },
};
use memwright_linux_memory::oom::OomKiller;
use memwright_linux_sched::{scheduler::Work, wait::Interest};
use memwright_linux_tasks::process::{
    Change, ExitStatus, Process, Signals, Stop, Tasks, Thread, Tracing, force_default, force_fault,
    report_change,
};

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

/// One step of signal handling. It is chosen with the signals' lock held and executed after the lock is released.
enum Step {
    Exit(ExitStatus),
    Stopped,
    /// Report the end of a system call to the tracer.
    CallEnded,
    /// Enter a ptrace stop before this signal is taken.
    Take(SignalInfo),
    /// Enter a ptrace stop because this signal has stopped the process, or, for `None`, because the tracer requested
    /// the stop. The flag is true if the tracer has seized the thread.
    Trap(Option<Signal>, bool),
    Stop(Signal),
    Handle(SignalInfo, Action, SignalSet),
    Nothing,
}

/// Handles every event that keeps the thread from returning to user mode: the exit of the process, stops and signals.
// Not inlined into the main loop of the thread: otherwise, every page fault would save the registers that this function
// needs.
#[inline(never)]
pub(crate) fn deliver(traced: &Traced<'_>) -> After {
    let (current, registers) = (traced.current, traced.registers);
    let mut granted = None;
    loop {
        match next_step(current.thread, granted.take()) {
            Step::Exit(status) => return After::Exit(status),
            Step::Stopped => wait_while_stopped(current.thread, traced.oom),
            Step::CallEnded => traced.report_end_of_call(),
            Step::Take(info) => {
                probe_step::rewind(current.thread, registers);
                if let Some(info) = current.process().complete_signal(info) {
                    granted = traced.take_signal(info);
                }
            }
            Step::Trap(signal, seized) => {
                probe_step::rewind(current.thread, registers);
                traced.stop(signal, seized);
            }
            Step::Stop(signal) => stop(current.process(), traced.tasks, signal),
            Step::Handle(info, action, mask) => {
                probe_step::rewind(current.thread, registers);
                restart_call(registers, Some(action.flags));
                let stepping = traced.before_handler();
                abort_section(current, registers, info.signal);
                let entered = enter_handler(current, registers, &info, &action, mask);
                if entered.is_err() {
                    frame_failed(current.thread, info.signal);
                } else if stepping {
                    traced.entered_handler();
                }
            }
            Step::Nothing => {
                restart_call(registers, None);
                if settle_section(current, registers) {
                    return After::Resume;
                }
            }
        }
    }
}

/// Returns the next step. `granted` is a signal whose delivery the tracer has permitted.
fn next_step(thread: &Arc<Thread>, mut granted: Option<SignalInfo>) -> Step {
    let process = &thread.process;
    let mut signals = process.signals.lock();
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
                granted = process.complete_signal(info);
                signals = process.signals.lock();
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
                    end_group(process, status);
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

/// Returns the step that a traced thread must execute before it dequeues a signal.
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
fn stop(process: &Process, tasks: &Tasks, signal: Signal) {
    if signal != Signal::SIGSTOP && tasks.group_is_orphaned(process.group()) {
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
    // Wake the threads in `PTRACE_LISTEN`, so that they report the stop to their tracers.
    process.resumed.wake_all();
}

/// Waits until the process continues. If this is the last thread to stop, notifies the parent first.
fn wait_while_stopped(thread: &Arc<Thread>, oom: &OomKiller) {
    let process = &thread.process;
    let complete = {
        let mut signals = process.signals.lock();
        thread.set_stopped(signals.stop != Stop::Running);
        signals.stop_is_complete()
    };
    if let Some(signal) = complete {
        report_change(process, Change::Stopped(signal));
    }
    // Wait for SIGCONT to clear the thread's stopped flag. Waiting for the process to run would not suffice, because
    // another stop may begin before this thread wakes, and that stop must count the thread again.
    let running = || {
        // Take the lock under which SIGCONT clears the flag. The sender wakes this thread afterwards.
        let _signals = process.signals.lock();
        (!thread.is_stopped()).then_some(())
    };
    // The wait ends early only if the process is killed, which the next step handles.
    let _ended = oom.wait(
        thread,
        &[&process.resumed],
        None,
        Interest::Continuation,
        running,
    );
    let mut signals = process.signals.lock();
    thread.set_stopped(false);
    signals.recalculate(thread);
}

/// Changes the registers so that user mode restarts an interrupted system call, or gets `EINTR`. Further calls for the
/// same system call have no effect.
fn restart_call(registers: &ThreadRegisters<'_>, handler: Option<ActionFlags>) {
    let mut state = registers.state();
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

/// Aborts the critical section of the interrupted program before the thread enters the handler of `signal`. If the
/// program's structures cannot be read, for example because of a protection key, raises SIGSEGV. The thread enters the
/// handler nevertheless, and a handler that blocks SIGSEGV runs to its end (Linux 7.3 `kernel/rseq.c`,
/// `__rseq_signal_deliver`).
fn abort_section(current: &Current<'_>, registers: &ThreadRegisters<'_>, signal: Signal) {
    if !current.thread.is_restartable() {
        return;
    }
    let instruction = registers.state().regs.rip;
    match abort(current.user, current.thread, instruction) {
        Ok(next) => registers.state().regs.rip = next,
        Err(_) if signal == Signal::SIGSEGV => {
            force_default(current.thread, SignalInfo::kernel(Signal::SIGSEGV));
        }
        Err(_) => force_fault(current.thread, SignalInfo::kernel(Signal::SIGSEGV)),
    }
}

/// If the thread has a restartable sequence and has left a CPU, aborts its critical section and writes the number of
/// its present CPU to its `struct rseq`. Returns false if one of the steps fails; SIGSEGV is then pending.
fn settle_section(current: &Current<'_>, registers: &ThreadRegisters<'_>) -> bool {
    let thread = current.thread;
    // Repeat both steps as long as the flag is set: the thread can wait during the copy to user memory, and then
    // continue on another CPU.
    while thread.work().contains(Work::RESTARTABLE) {
        let place = Place::of(&current.vfs().memory);
        let instruction = registers.state().regs.rip;
        match settle(current.user, thread, place, instruction) {
            Ok(next) => registers.state().regs.rip = next,
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
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
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
    let processor = registers.processor();
    let regs = registers.state().regs;
    let stack = current
        .process()
        .signals
        .lock()
        .thread(current.thread)
        .alternate_stack;
    let switch = action.flags.contains(ActionFlags::ONSTACK) && stack.state(regs.rsp) == 0;
    let on_stack = stack.state(regs.rsp) == AlternateStack::ONSTACK;
    let size = xstate::frame_size(processor.fpu_size());
    let place = place(regs.rsp, switch.then_some(&stack), size).ok_or(Errno::EFAULT)?;
    // The thread already runs on the alternate stack, and the frame does not fit on it.
    if on_stack && place.frame <= stack.base {
        return Err(Errno::EFAULT);
    }
    let mut area = FpuArea::INITIAL;
    processor.save_fpu(&mut area);
    xstate::mark(
        &mut area.bytes[..size],
        processor.fpu_size(),
        processor.fpu_features(),
    );
    let fault = *current.thread.last_fault.lock();
    let head = compose(&regs, place, action.restorer, stack, mask.0, fault);
    let mut frame = [0; FRAME_SIZE];
    head.to_bytes(&mut frame[..FrameHead::SIZE]);
    frame[FrameHead::SIZE..].copy_from_slice(&info.to_bytes());
    // Permit all keys: the protection-key rights of the interrupted code may deny writes to the stack.
    let key_rights = protection_keys::permit_all(processor, &current.vfs().memory);
    let written = current
        .user
        .write_bytes(place.extended_state, &area.bytes[..size])
        .and_then(|()| current.user.write_bytes(place.frame, &frame));
    if let Err(error) = written {
        protection_keys::restore(processor, key_rights);
        return Err(error);
    }
    registers.state().regs = UserRegs {
        rax: 0,
        rdi: info.signal.number().into(),
        rsi: place.frame + SIGINFO_OFFSET,
        rdx: place.frame + UCONTEXT_OFFSET,
        rip: handler,
        rsp: place.frame,
        rflags: regs.rflags & !HANDLER_CLEARED_FLAGS,
        ..regs
    };
    processor.restore_fpu(&FpuArea::INITIAL);
    protection_keys::reset(processor);
    let mut signals = current.process().signals.lock();
    let state = signals.thread(current.thread);
    if switch && stack.flags & AlternateStack::AUTODISARM != 0 {
        state.alternate_stack = AlternateStack::default();
    }
    let mut blocked = state.blocked.union(action.mask);
    if !action.flags.contains(ActionFlags::NODEFER) {
        blocked = blocked.with(info.signal);
    }
    signals.set_blocked(current.thread, blocked);
    Ok(())
}

/// Handles a failed write of the frame: raises SIGSEGV, or kills the process if the signal was SIGSEGV itself
/// (`force_sigsegv` of Linux 7.2).
fn frame_failed(thread: &Arc<Thread>, signal: Signal) {
    if signal == Signal::SIGSEGV {
        end_group(&thread.process, ExitStatus::Killed(Signal::SIGSEGV));
    } else {
        force_fault(thread, SignalInfo::kernel(Signal::SIGSEGV));
    }
}
