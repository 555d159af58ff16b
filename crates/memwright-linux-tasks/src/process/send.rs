//! Sending signals.

use crate::process::{
    Change, ExitStatus, Life, Process, REAPER, Signals, Stop, TaskTable, Tasks, Thread, ticks,
};
use alloc::sync::Arc;
use memwright_linux_abi::{
    errno::Errno,
    signal::{ActionFlags, Detail, Handler, Signal, SignalInfo, SignalSet, code},
};
use memwright_linux_sched::scheduler::Work;
use memwright_linux_vfs::identity::Resource;

/// Sends a signal to a process. Any of its threads can take the signal.
pub fn send_to_process(process: &Arc<Process>, info: SignalInfo) {
    let _ = send(process, None, info);
}

/// Sends a signal to a process or to one of its threads, at the request of a program.
///
/// # Errors
/// `EAGAIN` if the number of queued signals has reached `RLIMIT_SIGPENDING` and this signal must be queued.
pub fn queue(
    process: &Arc<Process>,
    target: Option<&Arc<Thread>>,
    info: SignalInfo,
) -> Result<(), Errno> {
    send(process, target, info).map(drop)
}

/// Sends the signal of a POSIX timer to a process or to one of its threads. Returns whether this call queued the signal
/// together with its cause; false if the signal is ignored or cannot be queued.
pub fn send_timer_signal(
    process: &Arc<Process>,
    target: Option<&Arc<Thread>>,
    info: SignalInfo,
) -> bool {
    send(process, target, info) == Ok(true)
}

/// Sends a signal to one thread.
pub fn send_to_thread(thread: &Arc<Thread>, info: SignalInfo) {
    let _ = send(&thread.process, Some(thread), info);
}

/// Sends a signal to every process of a group. Returns the number of processes.
pub fn send_to_group(tasks: &Tasks, group: u32, info: SignalInfo) -> usize {
    let mut count = 0;
    for process in tasks.group(group) {
        send_to_process(&process, info);
        count += 1;
    }
    count
}

/// Sends SIGKILL to a process.
pub fn kill_process(process: &Arc<Process>) {
    send_to_process(process, SignalInfo::kernel(Signal::SIGKILL));
}

/// Returns whether a signal must be queued together with its cause. If the number of queued signals has reached
/// `limit`, returns false for a signal that `kill` sent, which then becomes pending without its cause (Linux 7.3
/// `kernel/signal.c`, `__send_signal_locked`).
///
/// # Errors
/// `EAGAIN` for any other signal at the limit, because its receiver needs the cause.
fn place(info: &SignalInfo, signals: &Signals, limit: Option<u64>) -> Result<bool, Errno> {
    match limit {
        Some(limit) if signals.queued() as u64 >= limit => match info.code {
            code::SI_USER => Ok(false),
            _ => Err(Errno::EAGAIN),
        },
        Some(_) | None => Ok(true),
    }
}

/// Sends a signal to the thread `target`, or to the whole process if `target` is `None`. Returns whether the signal
/// became pending; false if it is ignored, or is a standard signal that is pending already.
fn send(
    process: &Arc<Process>,
    target: Option<&Arc<Thread>>,
    info: SignalInfo,
) -> Result<bool, Errno> {
    let sent = make_pending(process, target, info)?;
    Ok(sent.is_some_and(|sent| sent.wake(process)))
}

/// The result of making a signal pending. The caller still has to wake the threads that wait for the signal. A caller
/// that holds the lock of the tasks wakes them after it has released that lock.
#[must_use]
pub struct Sent {
    signal: Signal,
    continued: Continued,
    arrived: bool,
}

impl Sent {
    /// Wakes the readers of signalfds and, for SIGCONT, the stopped threads. If the process was continued, also
    /// notifies its parent. Returns whether the signal became pending.
    fn wake(self, process: &Arc<Process>) -> bool {
        if self.arrived {
            process.signal_arrived.wake_all();
        }
        match self.continued {
            // The process was not stopped, but threads with a tracer that used `PTRACE_SEIZE` report every SIGCONT.
            Continued::No if self.signal == Signal::SIGCONT => process.resumed.wake_all(),
            Continued::No => {}
            Continued::BeforeItStopped => process.resumed.wake_all(),
            Continued::Yes => {
                process.resumed.wake_all();
                report_change(process, Change::Continued);
            }
        }
        self.arrived
    }
}

/// Makes a signal pending, and interrupts the thread that will take it. Returns `None` if the process is exiting or
/// `target` has left the process.
fn make_pending(
    process: &Arc<Process>,
    target: Option<&Arc<Thread>>,
    info: SignalInfo,
) -> Result<Option<Sent>, Errno> {
    let signal = info.signal;
    let limit = || process.identity.soft_limit(Resource::PendingSignals);
    let limit = (signal.is_real_time() || info.is_of_timer()).then(limit);
    let mut signals = process.signals.lock();
    if signals.threads.is_empty() || signals.group_exit.is_some() {
        return Ok(None);
    }
    let continued = prepare(&mut signals, signal);
    let mut arrived = false;
    if signal == Signal::SIGKILL {
        begin_end(&mut signals, ExitStatus::Killed(signal));
    } else if !signals.ignored(signal) {
        let is_queued = place(&info, &signals, limit)?;
        arrived = match target {
            Some(thread) => match signals.find(thread) {
                Some(state) => state.pending.add_queued(info, is_queued),
                None => return Ok(None),
            },
            None => signals.pending.add_queued(info, is_queued),
        };
        choose_and_wake(&mut signals, target, signal);
    }
    Ok(Some(Sent {
        signal,
        continued,
        arrived,
    }))
}

/// The effect of a signal on a stopped process.
enum Continued {
    /// No effect: the process was not stopped, or the signal was not SIGCONT.
    No,
    /// SIGCONT cancelled a stop before all threads had stopped.
    BeforeItStopped,
    /// SIGCONT continued a stopped process.
    Yes,
}

/// Handles the interaction of stop signals and SIGCONT: each of them discards pending signals of the other kind, and
/// SIGCONT continues a stopped process.
fn prepare(signals: &mut Signals, signal: Signal) -> Continued {
    let cancelled = if SignalSet::STOPPING.contains(signal) {
        SignalSet::EMPTY.with(Signal::SIGCONT)
    } else if signal == Signal::SIGCONT {
        SignalSet::STOPPING
    } else {
        return Continued::No;
    };
    signals.pending.discard(cancelled);
    let mut seized = false;
    for state in signals.threads.values_mut() {
        state.pending.discard(cancelled);
        if let Some(tracing) = state.traced.as_deref_mut()
            && signal == Signal::SIGCONT
        {
            seized |= tracing.note_change();
        }
    }
    if seized {
        signals.alert_all();
    }
    if signal != Signal::SIGCONT || signals.stop == Stop::Running {
        return Continued::No;
    }
    signals.stop = Stop::Running;
    for (thread, _) in signals.threads.iter() {
        thread.set_stopped(false);
    }
    if core::mem::take(&mut signals.stop_reported) {
        Continued::Yes
    } else {
        Continued::BeforeItStopped
    }
}

/// Chooses the thread that takes a new signal, sets its work flag, and notifies it.
fn choose_and_wake(signals: &mut Signals, target: Option<&Arc<Thread>>, signal: Signal) {
    let taker = match target {
        Some(thread) => signals
            .find(thread)
            .is_some_and(|state| state.takes(signal))
            .then_some(thread),
        None => signals.taker(signal),
    };
    if let Some(thread) = taker {
        thread.set_work(Work::SIGNAL, true);
        thread.notify();
    }
}

/// Starts the termination of a process with `status`: every thread exits when it next handles signals.
pub fn begin_end(signals: &mut Signals, status: ExitStatus) {
    signals.group_exit.get_or_insert(status);
    signals.stop = Stop::Running;
    signals.stop_reported = false;
    for (thread, _) in signals.threads.iter() {
        thread.set_work(Work::SIGNAL.union(Work::FATAL), true);
        thread.notify();
    }
}

/// Makes every thread of a process exit except `survivor`, which is in `execve`.
pub fn end_others(signals: &Signals, survivor: &Arc<Thread>) {
    for (thread, _) in signals.threads.iter() {
        if !Arc::ptr_eq(thread, survivor) {
            thread.set_work(Work::SIGNAL.union(Work::FATAL), true);
            thread.notify();
        }
    }
}

/// Raises a signal for a fault of the calling thread. If the thread blocks or ignores the signal, its default action is
/// taken (`force_sig_info_to_task` of Linux 7.2, `kernel/signal.c`).
pub fn force_fault(thread: &Arc<Thread>, info: SignalInfo) {
    let mut signals = thread.process.signals.lock();
    let blocked = signals.thread(thread).blocked;
    let forced = blocked.contains(info.signal);
    if signals.actions.force_default(info.signal, forced) {
        signals.thread(thread).blocked = blocked.without(info.signal);
    }
    signals.thread(thread).pending.add(info);
    signals.recalculate(thread);
}

/// Raises a signal for which the thread takes the default action as soon as it unblocks the signal (`force_fatal_sig`
/// of Linux 7.3, `kernel/signal.c`).
pub fn force_default(thread: &Arc<Thread>, info: SignalInfo) {
    let mut signals = thread.process.signals.lock();
    signals.actions.force_default(info.signal, true);
    signals.thread(thread).pending.add(info);
    signals.recalculate(thread);
}

/// Records that a process has stopped or continued, for a wait of its parent, and notifies the parent.
pub fn report_change(process: &Arc<Process>, change: Change) {
    let notice = {
        let mut tasks = process.tasks.lock();
        match tasks.members.get_mut(&process.id) {
            Some(member) if matches!(member.life, Life::Alive(_)) => {
                member.life = Life::Alive(Some(change));
            }
            _ => return,
        }
        ChangeNotice::send(&tasks, process.parent(), (process.id, process), change)
    };
    notice.into_iter().for_each(ChangeNotice::wake);
}

/// Returns whether a child whose exit sends `signal` becomes a zombie, for which `parent` must wait. The child does not
/// become a zombie if the signal is SIGCHLD and `parent` ignores it or has set `SA_NOCLDWAIT`, or if `parent` is the
/// reaper.
pub fn waits_for_ended(parent: &Process, signal: Option<Signal>) -> bool {
    if parent.id == REAPER {
        return false;
    }
    let action = parent.signals.lock().actions.get(Signal::SIGCHLD);
    let waits = action.handler != Handler::Ignore && !action.flags.contains(ActionFlags::NOCLDWAIT);
    waits || signal != Some(Signal::SIGCHLD)
}

/// Returns whether a parent ignores SIGCHLD. Such a parent gets no SIGCHLD for a child that exits, even if it blocks
/// the signal (`do_notify_parent` of Linux 7.3, `kernel/signal.c`).
pub fn ignores_ended(parent: &Arc<Process>) -> bool {
    let action = parent.signals.lock().actions.get(Signal::SIGCHLD);
    action.handler == Handler::Ignore
}

/// A notification of a process whose child or tracee changed state. The signal is pending, but the threads that wait
/// for the change or for the signal have not been woken yet.
#[must_use]
pub struct ChangeNotice {
    to: Arc<Process>,
    sent: Option<Sent>,
}

impl ChangeNotice {
    /// Makes SIGCHLD pending for the process `to`, because the process or thread `id` changed state. `child` is that
    /// process, or the process of that thread. Returns `None` if `to` does not exist.
    ///
    /// # Locks
    /// The caller holds the lock of the tasks, under which it has made the change visible to a wait. So no wait returns
    /// the change before the signal is pending (`ptrace_stop` of Linux 7.3, `kernel/signal.c`).
    pub fn send(
        tasks: &TaskTable,
        to: u32,
        (id, child): (u32, &Process),
        change: Change,
    ) -> Option<Self> {
        let to = tasks.members.get(&to)?.process.clone();
        let sent = send_change(&to, id, child, change, Signal::SIGCHLD);
        Some(Self { to, sent })
    }

    /// Wakes the threads that wait for the change or for the signal. The caller does not hold the lock of the tasks.
    pub fn wake(self) {
        wake_parent(&self.to, self.sent);
    }
}

/// Wakes the threads of a process that wait for a child, or for the signal of [`send_change`].
pub fn wake_parent(parent: &Arc<Process>, sent: Option<Sent>) {
    if let Some(sent) = sent {
        sent.wake(parent);
    }
    parent.child_event.wake_all();
}

/// Makes the signal of a state change pending for `parent`. Returns `None` if the parent gets no signal. This function
/// wakes no thread that waits for a child, so the caller may hold the lock of the tasks: then no wait returns a child
/// before its signal is pending (`exit_notify` of Linux 7.2, `kernel/exit.c`).
pub fn send_change(
    parent: &Arc<Process>,
    id: u32,
    child: &Process,
    change: Change,
    signal: Signal,
) -> Option<Sent> {
    let quiet = parent.id == REAPER || {
        let action = parent.signals.lock().actions.get(Signal::SIGCHLD);
        let stop = !matches!(change, Change::Ended(_));
        stop && (action.handler == Handler::Ignore || action.flags.contains(ActionFlags::NOCLDSTOP))
    };
    if quiet {
        return None;
    }
    let usage = child.total_usage();
    let (code, status) = change.notice_fields();
    let detail = Detail::Child {
        process: id,
        user: 0,
        status,
        user_ticks: ticks(usage.user) as i64,
        system_ticks: ticks(usage.system) as i64,
    };
    let info = SignalInfo {
        signal,
        code,
        errno: 0,
        detail,
    };
    // This fails only for a real-time signal beyond `RLIMIT_SIGPENDING`, which is lost, as on Linux.
    make_pending(parent, None, info).unwrap_or_default()
}
