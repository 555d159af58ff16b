//! System calls for signals: actions, masks, sending, waiting.

use crate::{
    context::{Arguments, CallResult},
    current::Current,
    syscall::call::int,
    thread_registers::ThreadRegisters,
};
use alloc::sync::Arc;
use linux_raw_sys::general as raw;
use memwright_linux_abi::{
    abi::{Plain, Timespec},
    arch::x86_64::{
        regs::FpuArea,
        signal_frame::{FrameHead, restore, selectors_return},
        uapi::FP_XSTATE_MAGIC2,
        xstate::{self, Extent, Unloadable},
    },
    errno::Errno,
    host::Registers,
    protection_keys,
    signal::{Action, AlternateStack, Detail, KernelAction, Signal, SignalInfo, SignalSet, code},
};
use memwright_linux_base::sync::PausePoints;
use memwright_linux_sched::wait::WaitError;
use memwright_linux_tasks::process::{Process, REAPER, Tasks, force_fault, queue, send_to_process};
use memwright_linux_vfs::user::UserMemory;

/// Size of `sigset_t` in bytes.
const SET_SIZE: u64 = 8;
/// Number of processes to which a signal is sent between two scheduling points.
const PROCESSES: u32 = 16;

fn check_size(size: u64) -> Result<(), Errno> {
    if size == SET_SIZE {
        Ok(())
    } else {
        Err(Errno::EINVAL)
    }
}

/// Implements `rt_sigaction`.
pub fn rt_sigaction(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [signal, new, old, size, ..] = *arguments;
    check_size(size)?;
    let new: Option<KernelAction> = current.user.read_optional(new)?;
    let signal = Signal::new(u64::from(signal as u32)).ok_or(Errno::EINVAL)?;
    if new.is_some() && SignalSet::UNBLOCKABLE.contains(signal) {
        return Err(Errno::EINVAL);
    }
    let before = {
        let mut signals = current.process().signals.lock();
        let before = match new.map(Action::from) {
            None => signals.actions.get(signal),
            Some(new) => signals.actions.replace(signal, new),
        };
        if let Some(new) = new
            && Action::from(new).ignores(signal)
        {
            // Discard the pending instances of the signal, whether it is blocked or not.
            signals.pending.discard_one(signal);
            for state in signals.threads.values_mut() {
                state.pending.discard_one(signal);
            }
            signals.recalculate(current.thread);
        }
        before
    };
    if let Some(new) = new {
        let ignores = Action::from(new).ignores(signal);
        if ignores || before.ignores(signal) {
            current.process().change_timer_action(signal, ignores);
        }
    }
    current
        .user
        .write_optional(old, &KernelAction::from(before))?;
    Ok(0)
}

/// Implements `rt_sigprocmask`.
pub fn rt_sigprocmask(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [how, new, old, size, ..] = *arguments;
    check_size(size)?;
    let new: Option<u64> = current.user.read_optional(new)?;
    let before = {
        let mut signals = current.process().signals.lock();
        let before = signals.thread(current.thread).blocked;
        if let Some(set) = new.map(SignalSet) {
            let blocked = match how as u32 {
                raw::SIG_BLOCK => before.union(set),
                raw::SIG_UNBLOCK => before.minus(set),
                raw::SIG_SETMASK => set,
                _ => return Err(Errno::EINVAL),
            };
            signals.set_blocked(current.thread, blocked);
        }
        before
    };
    current.user.write_optional(old, &before.0)?;
    Ok(0)
}

/// Implements `rt_sigpending`.
pub fn rt_sigpending(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    if arguments[1] > SET_SIZE {
        return Err(Errno::EINVAL);
    }
    let pending = {
        let mut signals = current.process().signals.lock();
        let shared = signals.pending.set();
        let state = signals.thread(current.thread);
        state
            .pending
            .set()
            .union(shared)
            .intersection(state.blocked)
    };
    let bytes = pending.0.to_le_bytes();
    current
        .user
        .write_bytes(arguments[0], &bytes[..arguments[1] as usize])?;
    Ok(0)
}

/// Replaces the signal mask until the present system call returns. If a signal handler runs, the old mask is restored
/// when the handler returns.
pub fn with_mask_until_return(current: &Current<'_>, mask: SignalSet) {
    let mut signals = current.process().signals.lock();
    let state = signals.thread(current.thread);
    let before = state.blocked;
    state.saved_mask.get_or_insert(before);
    signals.set_blocked(current.thread, mask);
}

/// Restores the mask that [`with_mask_until_return`] replaced. Must be called only if no signal has arrived: otherwise,
/// the delivery of the signal restores the mask.
pub fn restore_mask(current: &Current<'_>) {
    let mut signals = current.process().signals.lock();
    if let Some(mask) = signals.thread(current.thread).saved_mask.take() {
        signals.set_blocked(current.thread, mask);
    }
}

/// Implements `rt_sigsuspend`.
pub fn rt_sigsuspend(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    check_size(arguments[1])?;
    let mask: u64 = current.user.read_value(arguments[0])?;
    with_mask_until_return(current, SignalSet(mask));
    wait_for_signal(current)
}

/// Implements `pause`.
pub fn pause(current: &Current<'_>, _arguments: &Arguments) -> CallResult {
    wait_for_signal(current)
}

fn wait_for_signal(current: &Current<'_>) -> CallResult {
    let never = current.wait_until(&[], None, || None::<()>);
    debug_assert_eq!(never, Err(WaitError::Interrupted));
    Err(Errno::ERESTARTNOHAND)
}

/// Implements `rt_sigtimedwait`.
pub fn rt_sigtimedwait(current: &Current<'_>, arguments: &Arguments) -> CallResult {
    let [set, info, timeout, size, ..] = *arguments;
    check_size(size)?;
    let set: u64 = current.user.read_value(set)?;
    let set = SignalSet(set).minus(SignalSet::UNBLOCKABLE);
    let timeout: Option<Timespec> = current.user.read_optional(timeout)?;
    let deadline = match timeout {
        Some(timeout) => {
            let length = timeout.to_nanoseconds().ok_or(Errno::EINVAL)?;
            Some(current.now().saturating_add(length))
        }
        None => None,
    };
    let process = current.process();
    let take = || {
        loop {
            let taken = {
                let mut signals = process.signals.lock();
                let taken = signals.take(current.thread, SignalSet(!set.0));
                signals.recalculate(current.thread);
                taken?
            };
            let completed = process.complete_signal(taken);
            if completed.is_some() {
                return completed;
            }
        }
    };
    process.signals.lock().thread(current.thread).waited = set;
    let result = current.wait_until(&[], deadline, take);
    process.signals.lock().thread(current.thread).waited = SignalSet::EMPTY;
    let taken = result.map_err(WaitError::interrupt)?;
    if info != 0 {
        current.user.write_bytes(info, &taken.to_bytes())?;
    }
    Ok(taken.signal.number().into())
}

/// Implements `sigaltstack`.
pub fn sigaltstack(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    arguments: &Arguments,
) -> CallResult {
    /// `MINSIGSTKSZ` of `asm/signal.h`.
    const LEAST: u64 = 2048;
    let new: Option<AlternateStack> = current.user.read_optional(arguments[0])?;
    let pointer = registers.state().regs.rsp;
    let before = {
        let mut signals = current.process().signals.lock();
        let state = signals.thread(current.thread);
        let mut before = state.alternate_stack;
        let now = before.state(pointer);
        if let Some(new) = new {
            if now == AlternateStack::ONSTACK {
                return Err(Errno::EPERM);
            }
            let mode = new.flags & !AlternateStack::AUTODISARM;
            state.alternate_stack = match mode {
                AlternateStack::DISABLE => AlternateStack::default(),
                0 | AlternateStack::ONSTACK if new.size < LEAST => return Err(Errno::ENOMEM),
                0 | AlternateStack::ONSTACK => AlternateStack {
                    flags: new.flags & AlternateStack::AUTODISARM,
                    padding: 0,
                    ..new
                },
                _ => return Err(Errno::EINVAL),
            };
        }
        before.flags |= now;
        before
    };
    current.user.write_optional(arguments[1], &before)?;
    Ok(0)
}

/// Implements `rt_sigreturn`: loads the registers from the signal frame. Raises SIGSEGV if the frame cannot be read.
pub fn rt_sigreturn(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    _arguments: &Arguments,
) -> CallResult {
    let regs = registers.state().regs;
    match restore_frame(current, registers, regs.rsp.wrapping_sub(8)) {
        Ok(()) => {
            let result = registers.state().regs.rax;
            Ok(result)
        }
        Err(_) => {
            force_fault(current.thread, SignalInfo::kernel(Signal::SIGSEGV));
            Ok(0)
        }
    }
}

fn restore_frame(
    current: &Current<'_>,
    registers: &ThreadRegisters<'_>,
    frame: u64,
) -> Result<(), Errno> {
    let mut bytes = [0; FrameHead::SIZE];
    current.user.read_bytes(frame, &mut bytes)?;
    let head = FrameHead::from_bytes(&bytes);
    restore_extended(
        current.user,
        registers.processor(),
        head.context.extended_state,
    )?;
    let regs = restore(&head.context, &registers.state().regs);
    registers.replace_registers(regs);
    if !selectors_return(&head) {
        // The processor would refuse to return to user mode with these selectors. Like Linux, treat them as a general
        // protection fault of the program (Linux 7.3 `arch/x86/kernel/traps.c`, `fixup_bad_iret`).
        force_fault(current.thread, SignalInfo::kernel(Signal::SIGSEGV));
    }
    let mut signals = current.process().signals.lock();
    signals.set_blocked(current.thread, SignalSet(head.mask));
    // Like Linux, restore the alternate stack from the frame.
    let flags = head.stack.flags & AlternateStack::AUTODISARM;
    let pointer = head.context.rsp;
    let state = signals.thread(current.thread);
    if state.alternate_stack.state(pointer) != AlternateStack::ONSTACK {
        state.alternate_stack = AlternateStack {
            flags,
            padding: 0,
            ..head.stack
        };
    }
    Ok(())
}

/// Loads the extended state of a signal frame from `address`. If the frame contains none, `address` is null, and the
/// initial state is loaded.
fn restore_extended(
    user: UserMemory<'_>,
    processor: &dyn Registers,
    address: u64,
) -> Result<(), Errno> {
    let mut area = FpuArea::INITIAL;
    if address == 0 {
        processor.restore_fpu(&area);
        protection_keys::reset(processor);
        return Ok(());
    }
    if !address.is_multiple_of(64) {
        return Err(Errno::EFAULT);
    }
    user.read_bytes(address, &mut area.bytes[..FpuArea::HEADER])?;
    let mut extended = false;
    if let Extent::Extended(size) = xstate::extent(&area.bytes[..512], processor.fpu_size()) {
        let end: u32 = user.read_value(address + size as u64)?;
        if end == FP_XSTATE_MAGIC2 {
            let rest = &mut area.bytes[FpuArea::HEADER..size];
            user.read_bytes(address + FpuArea::HEADER as u64, rest)?;
            extended = true;
        }
    }
    let features = processor.fpu_features();
    xstate::check(&area, features, extended).map_err(|Unloadable| Errno::EFAULT)?;
    xstate::sanitize(&mut area, features, extended);
    processor.restore_fpu(&area);
    Ok(())
}

/// Creates the information of a signal that the caller sends.
pub(crate) fn sent_by(current: &Current<'_>, signal: Signal, code: i32) -> SignalInfo {
    let process = current.process();
    let user = process.identity.credentials.lock().user.real;
    let detail = Detail::Sender {
        process: process.id,
        user,
    };
    SignalInfo {
        signal,
        code,
        errno: 0,
        detail,
    }
}

/// Returns whether the caller is allowed to send this signal to a process: either the ids of the caller and of the
/// process permit it, or the signal is SIGCONT and the process is in the caller's session.
pub(crate) fn may_signal(current: &Current<'_>, to: &Process, signal: Option<Signal>) -> bool {
    let caller = current.process();
    let ids = to.identity.credentials.lock().user;
    caller.id == to.id
        || caller.identity.credentials.lock().may_signal(&ids)
        || (signal == Some(Signal::SIGCONT) && caller.session() == to.session())
}

/// Implements `kill`.
pub fn kill(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let target = int(arguments[0]);
    let number = u64::from(arguments[1] as u32);
    if number > Signal::MAX.into() {
        return Err(Errno::EINVAL);
    }
    let signal = Signal::new(number);
    let (mut found, mut sent) = (false, false);
    loop {
        let mut killed = false;
        each_target(current, tasks, target, |process| {
            found = true;
            if may_signal(current, process, signal) {
                sent = true;
                if let Some(signal) = signal {
                    killed |= signal == Signal::SIGKILL && !process.is_ending();
                    send_to_process(process, sent_by(current, signal, code::SI_USER));
                }
            }
        });
        // Repeat the walk if it killed a process: the process may have created another one before, which the walk did
        // not visit. A killed process creates no process, so the repetition ends.
        if target > 0 || !killed {
            break;
        }
    }
    match (sent, found) {
        (true, _) => Ok(0),
        (false, false) => Err(Errno::ESRCH),
        (false, true) => Err(Errno::EPERM),
    }
}

/// Calls `act` for each target of `kill`: one process, the processes of a group, or all processes except the caller.
fn each_target(current: &Current<'_>, tasks: &Tasks, target: i32, act: impl FnMut(&Arc<Process>)) {
    let own = current.process();
    match target {
        id if id > 0 => tasks.process(id as u32).iter().for_each(act),
        -1 => {
            let is_other = |process: &Process| process.id != REAPER && process.id != own.id;
            let others = tasks.living(is_other);
            for_each(others, act);
        }
        i32::MIN => {}
        0 => for_each(tasks.group(own.group()), act),
        group => for_each(tasks.group(group.unsigned_abs()), act),
    }
}

fn for_each(processes: impl Iterator<Item = Arc<Process>>, mut act: impl FnMut(&Arc<Process>)) {
    let mut points = PausePoints::every(PROCESSES);
    for process in processes {
        act(&process);
        points.round();
    }
}

/// Implements `tkill`.
pub fn tkill(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    send_to_one(current, tasks, None, arguments[0], arguments[1])
}

/// Implements `tgkill`.
pub fn tgkill(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    if int(arguments[0]) <= 0 {
        return Err(Errno::EINVAL);
    }
    send_to_one(
        current,
        tasks,
        Some(arguments[0] as u32),
        arguments[1],
        arguments[2],
    )
}

fn send_to_one(
    current: &Current<'_>,
    tasks: &Tasks,
    process: Option<u32>,
    thread: u64,
    signal: u64,
) -> CallResult {
    let signal = u64::from(signal as u32);
    if int(thread) <= 0 || signal > Signal::MAX.into() {
        return Err(Errno::EINVAL);
    }
    let thread = tasks.thread(thread as u32).ok_or(Errno::ESRCH)?;
    if process.is_some_and(|process| process != thread.process.id) {
        return Err(Errno::ESRCH);
    }
    let signal = Signal::new(signal);
    if !may_signal(current, &thread.process, signal) {
        return Err(Errno::EPERM);
    }
    if let Some(signal) = signal {
        let info = sent_by(current, signal, code::SI_TKILL);
        queue(&thread.process, Some(&thread), info)?;
    }
    Ok(0)
}

/// Implements `rt_sigqueueinfo`: sends a signal to the process that contains the thread with this id (Linux 7.3
/// `kernel/signal.c`, `do_rt_sigqueueinfo` and `kill_pid_info`).
pub fn rt_sigqueueinfo(current: &Current<'_>, tasks: &Tasks, arguments: &Arguments) -> CallResult {
    let [id, number, info, ..] = *arguments;
    let mut bytes = [0; SignalInfo::SIZE];
    current.user.read_bytes(info, &mut bytes)?;
    let number = u64::from(number as u32);
    let signal = Signal::new(number);
    // Check the code for signal 0 too, although that signal only tests whether the process exists.
    let info = SignalInfo::from_user(signal.unwrap_or(Signal::SIGKILL), &bytes);
    // These codes identify a signal as sent by the kernel, `kill` or `tgkill`: from another sender, they are forged.
    let forged = info.code >= 0 || info.code == code::SI_TKILL;
    if forged && id as u32 != current.thread.id() {
        return Err(Errno::EPERM);
    }
    let process = tasks.thread(id as u32).map(|thread| thread.process.clone());
    let process = process.or_else(|| tasks.process(id as u32));
    let process = process.ok_or(Errno::ESRCH)?;
    if number > Signal::MAX.into() {
        return Err(Errno::EINVAL);
    }
    if !may_signal(current, &process, signal) {
        return Err(Errno::EPERM);
    }
    if signal.is_some() {
        queue(&process, None, info)?;
    }
    Ok(0)
}

/// Calls `act` while the signal mask at user address `address` is in effect. If `address` is null, the mask is not
/// changed.
///
/// # Errors
/// `EFAULT` if the mask cannot be read, `EINVAL` if `size` is not 8, and the errors of `act`.
pub fn with_signal_mask(
    current: &Current<'_>,
    address: u64,
    size: u64,
    act: impl FnOnce() -> Result<u64, Errno>,
) -> Result<u64, Errno> {
    if address == 0 {
        return act();
    }
    if size != 8 {
        return Err(Errno::EINVAL);
    }
    let mask: u64 = current.user.read_value(address)?;
    with_mask_until_return(current, SignalSet(mask));
    let result = act();
    // If a signal has interrupted `act`, its handler runs with the temporary mask, and the previous mask is restored
    // when the handler returns.
    if !matches!(
        result,
        Err(Errno::EINTR | Errno::ERESTARTNOHAND | Errno::ERESTARTSYS)
    ) {
        restore_mask(current);
    }
    result
}
