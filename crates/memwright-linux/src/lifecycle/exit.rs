//! Termination of threads and processes.

use crate::lifecycle::wait::reap_unwanted;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_linux_abi::signal::{Detail, Signal, SignalInfo, code};
use memwright_linux_base::sync::pause_point;
use memwright_linux_memory::{cgroup::Cgroups, futex::Futexes, semaphores::Sets};
use memwright_linux_tasks::process::{
    Change, ChangeNotice, ExitStatus, Life, PROGRAM, Process, Sent, Stop, TaskTable, Tasks, Thread,
    begin_end, ignores_ended, peak_resident_kib, report_change, send_change, send_to_process,
    waits_for_ended, wake_parent,
};
use memwright_linux_vfs::fs::{socket::Registry, vfs::Vfs};

/// Terminates a process with `status`: each of its threads exits when it next handles signals. If the process is
/// exiting already, its status does not change.
pub fn end_group(process: &Arc<Process>, status: ExitStatus) {
    begin_end(&mut process.signals.lock(), status);
}

/// Removes a thread from its process and from all lists. Returns the [`ProcessEnd`] if this was the last thread. Once
/// the caller has completed this end, the thread must only call
/// [`leave`](memwright_linux_sched::scheduler::Scheduler::leave).
pub(crate) fn exit_thread<'a>(
    futexes: &Futexes,
    thread: &'a Arc<Thread>,
    status: ExitStatus,
) -> Option<ProcessEnd<'a>> {
    let process = &thread.process;
    let tasks = process.tasks;
    thread.ends.store(true, Ordering::Relaxed);
    futexes.release(thread);
    tasks.lock().threads.remove(&thread.id());
    let mut leader = None;
    let (end, stop, traced) = {
        let mut signals = process.signals.lock();
        let traced = signals.find(thread).and_then(|state| state.traced.take());
        if thread.is_leader()
            && let Some(tracing) = &traced
        {
            signals.leader_tracer = tracing.tracer;
        }
        // Add the usage under the same lock as the removal of the thread, so that a sum over the process and its
        // threads counts the thread exactly once.
        process.usage.add(&tasks.scheduler.usage_of(thread));
        signals.threads.remove(thread);
        if signals.threads.is_empty() {
            // The exit status is that of the last thread, unless the whole process was killed or has called
            // `exit_group` (`synchronize_group_exit` of Linux 7.2, `kernel/exit.c`).
            let status = *signals.group_exit.get_or_insert(status);
            leader = Some(signals.leader_tracer.take());
            (Some(status), None, traced)
        } else {
            // Subtract every thread except the last here. The last thread counts for its user until the process is
            // reaped.
            process.identity.user().threads.remove(1);
            let unserved = signals.pending.set();
            signals.retarget(unserved);
            (None, signals.stop_is_complete(), traced)
        }
    };
    let tracer = leader.flatten().map(|tracer| tracer.process);
    if traced.is_some() || tracer.is_some() {
        crate::ptrace::abandon(thread, traced, end.unwrap_or(status), leader);
    }
    if thread.traces.load(Ordering::Relaxed) {
        crate::ptrace::release_tracees(process, Some(thread.context));
    }
    process.thread_ended.wake_all();
    if let Some(signal) = stop {
        report_change(process, Change::Stopped(signal));
    }
    end.map(|status| ProcessEnd {
        process,
        status,
        tracer,
    })
}

/// The remaining steps of the exit of a process that has no thread left.
#[must_use]
pub struct ProcessEnd<'a> {
    process: &'a Arc<Process>,
    status: ExitStatus,
    /// The id of the process that traced the leader, if any.
    tracer: Option<u32>,
}

impl ProcessEnd<'_> {
    /// Releases the resources of the process.
    pub(crate) fn release(&self, vfs: &Vfs, sockets: &Registry, semaphores: &Sets) {
        let process = self.process;
        process.clear_alarm();
        process.delete_timers();
        process.forget_cpu_deadline();
        process.settle_faults();
        semaphores.undo(process.id);
        crate::ptrace::release_tracees(process, None);
        release_files(process);
        drop(process.take_fs());
        process.tasks.scheduler.unload_space();
        let (space, image) = process.take_space();
        if let Some(space) = space {
            let peak = peak_resident_kib(&space);
            process
                .usage
                .resident_peak
                .fetch_max(peak, Ordering::Relaxed);
            drop(space);
        }
        drop(image);
        vfs.mounts.reap(sockets);
        process.return_space();
    }

    /// Makes the process a zombie or removes it, and notifies its children and its parent. Returns the exit status if
    /// the process executed the program of the run; otherwise `None`.
    pub(crate) fn publish(self, cgroups: &Cgroups) -> Option<ExitStatus> {
        let Self {
            process,
            status,
            tracer,
        } = self;
        let tasks = process.tasks;
        let (orphans, heir, adopter, emptied, end) = {
            let mut tasks = tasks.lock();
            let (orphans, heir) = tasks.orphan_children(process.id);
            let adopter = notify_heir(&tasks, &orphans, heir);
            let emptied = tasks.leave_cgroup(process);
            let end = End::publish(&mut tasks, process, status, tracer);
            (orphans, heir, adopter, emptied, end)
        };
        let End {
            parent,
            wanted,
            sent,
        } = end;
        process.ended.wake_all();
        if emptied {
            cgroups.changes().note();
        }
        for orphan in &orphans {
            adopt(tasks, process, orphan, heir);
            pause_point();
        }
        adopter.into_iter().for_each(ChangeNotice::wake);
        if let Some(parent) = &parent {
            wake_parent(parent, sent);
        }
        release_orphaned_groups(process, parent.as_ref(), &orphans);
        if !wanted {
            reap_unwanted(tasks, process);
            process.ended.wake_all();
            if let Some(parent) = &parent {
                parent.child_event.wake_all();
            }
        }
        (process.id == PROGRAM).then_some(status)
    }
}

/// The result of [`End::publish`]: the parent to wake, and whether the process is now a zombie.
struct End {
    parent: Option<Arc<Process>>,
    /// Whether the process remains a zombie until its parent waits for it.
    wanted: bool,
    /// The exit signal that was sent to the parent, if one was sent.
    sent: Option<Sent>,
}

impl End {
    /// Makes a process a zombie if its parent waits for it, and sends the exit signal. `tracer` is the process that
    /// traced the leader. The caller holds the lock of the tasks for both steps, so a parent that need not wait for the
    /// child never finds a zombie, on any CPU (`exit_notify` of Linux 7.2, `kernel/exit.c`). A parent that traces the
    /// child always waits for it (`do_notify_parent`).
    fn publish(
        tasks: &mut TaskTable,
        process: &Arc<Process>,
        status: ExitStatus,
        tracer: Option<u32>,
    ) -> Self {
        let number = process.exit_signal.load(Ordering::SeqCst);
        let signal = Signal::new(number.into());
        let parent = tasks.members.get(&process.parent());
        let Some(parent) = parent.map(|parent| parent.process.clone()) else {
            return Self {
                parent: None,
                wanted: false,
                sent: None,
            };
        };
        let traces = Some(parent.id) == tracer;
        let wanted = traces || waits_for_ended(&parent, signal);
        if let Some(member) = tasks.members.get_mut(&process.id).filter(|_| wanted) {
            member.life = Life::Zombie(status);
        }
        let silent = !traces && ignores_ended(&parent);
        let signal = signal.filter(|signal| !silent || *signal != Signal::SIGCHLD);
        let change = Change::Ended(status);
        let send = |signal| send_change(&parent, process.id, process, change, signal);
        let sent = signal.and_then(send);
        Self {
            parent: Some(parent),
            wanted,
            sent,
        }
    }
}

/// Releases the descriptor table. If no other process uses the table, all descriptors are closed.
pub(super) fn release_files(process: &Process) {
    if let Some(files) = process.take_files() {
        files.release(process.id);
    }
}

/// Notifies process `heir`, which has adopted the children of an exited process, of the zombies among them
/// (`reparent_leader` of Linux 7.2, `kernel/exit.c`). The caller has held the lock of the tasks since the adoption.
fn notify_heir(tasks: &TaskTable, orphans: &[Arc<Process>], heir: u32) -> Option<ChangeNotice> {
    let chld = Signal::SIGCHLD;
    let waits = tasks.members.get(&heir);
    let waits = waits.is_some_and(|heir| waits_for_ended(&heir.process, Some(chld)));
    let mut notice = None;
    for orphan in orphans {
        orphan.exit_signal.store(chld.number(), Ordering::SeqCst);
        // One notice is enough: a further SIGCHLD would have no effect while the first one is pending.
        if waits
            && notice.is_none()
            && let Some(member) = tasks.members.get(&orphan.id)
            && let Life::Zombie(status) = member.life
        {
            notice = ChangeNotice::send(tasks, heir, (orphan.id, orphan), Change::Ended(status));
        }
    }
    notice
}

/// Completes the adoption of a child of an exited process: sends the child its parent-death signal. If the child is a
/// zombie and the new parent ignores its children, as the reaper does, reaps the child at once (`reparent_leader` of
/// Linux 7.2, `kernel/exit.c`).
fn adopt(tasks: &Tasks, parent: &Process, orphan: &Arc<Process>, heir: u32) {
    let chld = Signal::SIGCHLD;
    let number = orphan.parent_death_signal.load(Ordering::SeqCst);
    if let Some(signal) = Signal::new(number.into()) {
        let detail = Detail::Sender {
            process: parent.id,
            user: 0,
        };
        let info = SignalInfo {
            signal,
            code: code::SI_USER,
            errno: 0,
            detail,
        };
        send_to_process(orphan, info);
    }
    let Some(Life::Zombie(_)) = tasks.life(orphan.id) else {
        return;
    };
    let waits = tasks
        .process(heir)
        .is_some_and(|heir| waits_for_ended(&heir, Some(chld)));
    if !waits {
        reap_unwanted(tasks, orphan);
    }
}

/// Sends SIGHUP and SIGCONT to each process group that the exit of `process` has orphaned and that has a stopped
/// member. `parent` is the parent of `process` (`kill_orphaned_pgrp` of Linux 7.2).
fn release_orphaned_groups(
    process: &Process,
    parent: Option<&Arc<Process>>,
    children: &[Arc<Process>],
) {
    // The exit can orphan only two kinds of groups: the group of the process itself, and the groups of its children.
    let tied = |one: &Process, other: &Process| {
        one.group() != other.group() && one.session() == other.session()
    };
    if parent.is_some_and(|parent| tied(parent, process)) {
        release_if_orphaned(process.tasks, process.group());
    }
    for child in children {
        if tied(child, process) {
            release_if_orphaned(process.tasks, child.group());
            pause_point();
        }
    }
}

fn release_if_orphaned(tasks: &Tasks, group: u32) {
    if !tasks.group_is_orphaned(group) {
        return;
    }
    let members = || tasks.group(group);
    let stopped = |member: Arc<Process>| matches!(member.signals.lock().stop, Stop::Stopped(_));
    if !members().any(stopped) {
        return;
    }
    for member in members() {
        for signal in [Signal::SIGHUP, Signal::SIGCONT] {
            send_to_process(&member, SignalInfo::kernel(signal));
        }
    }
}
