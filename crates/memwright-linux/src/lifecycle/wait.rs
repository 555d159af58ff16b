//! Implements `wait4` and `waitid`.

use crate::{current::Current, ptrace::standing_unreported};
use alloc::sync::Arc;
use memwright_linux_abi::{errno::Errno, host::ContextId};
use memwright_linux_base::flags;
use memwright_linux_sched::scheduler::UsageSnapshot;
use memwright_linux_tasks::process::{Change, Life, Process, TaskTable, Tasks, Thread, is_visible};

/// The children to wait for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum WaitTarget {
    /// Any child.
    Any,
    /// The child with this id.
    Process(u32),
    /// The children in this process group.
    Group(u32),
}

flags! {
    /// Options of `wait4` and `waitid` (`linux/wait.h`).
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct WaitOptions: u32 {
        /// Do not block.
        const NOHANG = 1;
        /// Report stopped children too.
        const STOPPED = 2;
        /// Report exited children.
        const EXITED = 4;
        /// Report continued children too.
        const CONTINUED = 8;
        /// Leave the child waitable: a later wait reports the change again.
        const NOWAIT = 0x0100_0000;
        /// Wait only for children of the calling thread.
        const NOTHREAD = 0x2000_0000;
        /// Wait for all children, regardless of their exit signal.
        const ALL = 0x4000_0000;
        /// Wait only for children whose exit signal is not SIGCHLD.
        const CLONE = 0x8000_0000;
    }
}

/// A child with a state change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Waited {
    /// The id of the child.
    pub process: u32,
    /// The state change.
    pub change: Change,
    /// Resources used by the child and by the children that it has reaped.
    pub usage: UsageSnapshot,
}

/// The result of one check of all children that the caller waits for.
enum Look {
    Found(Waited),
    Nothing,
    NoChildren,
}

/// Waits for a child of the calling process to change state. Returns `None` if no child has changed state and `options`
/// contains [`WaitOptions::NOHANG`].
///
/// # Errors
/// `ECHILD` if no child is included in `target`, `ERESTARTSYS` if a signal arrived.
pub fn wait_for_child(
    current: &Current<'_>,
    tasks: &Tasks,
    target: WaitTarget,
    options: WaitOptions,
) -> Result<Option<Waited>, Errno> {
    let process = current.process();
    let look = || match look(tasks, current.thread, target, options) {
        Look::Found(waited) => Some(Ok(Some(waited))),
        Look::NoChildren => Some(Err(Errno::ECHILD)),
        Look::Nothing if options.contains(WaitOptions::NOHANG) => Some(Ok(None)),
        Look::Nothing => None,
    };
    match current.wait_until(&[&process.child_event], None, look) {
        Ok(result) => result,
        Err(error) => Err(error.restart()),
    }
}

fn look(tasks: &Tasks, by: &Thread, target: WaitTarget, options: WaitOptions) -> Look {
    let parent = &by.process;
    let mut reaped = None;
    let mut result = Look::NoChildren;
    {
        let mut tasks = tasks.lock();
        // Search the traced threads first: the search for a stopped one takes constant time, however many children the
        // tracer has.
        match look_at_tracees(&mut tasks, by, target, options) {
            Traced::Changed(id, process, change) => {
                drop(tasks);
                let usage = process.map(|process| usage_of(&process));
                return Look::Found(Waited {
                    process: id,
                    change,
                    usage: usage.unwrap_or_default(),
                });
            }
            Traced::Unchanged => result = Look::Nothing,
            Traced::None => {}
        }
        let mut number = 0;
        while let Some(child) = nth_child(&tasks, parent, target, number) {
            number += 1;
            let Some(member) = tasks.members.get_mut(&child) else {
                continue;
            };
            if !eligible(&member.process, target, options) {
                continue;
            }
            if matches!(result, Look::NoChildren) {
                result = Look::Nothing;
            }
            let Some(change) = reportable(member.life, options) else {
                continue;
            };
            let process = member.process.clone();
            let keep = options.contains(WaitOptions::NOWAIT);
            match change {
                Change::Ended(_) if !keep => {
                    tasks.remove(child);
                    reaped = Some((child, process, change));
                }
                Change::Stopped(_) | Change::Continued if !keep => {
                    member.life = Life::Alive(None);
                    reaped = Some((child, process, change));
                }
                Change::Ended(_)
                | Change::Stopped(_)
                | Change::Continued
                | Change::Trapped { .. } => {
                    reaped = Some((child, process, change));
                }
            }
            break;
        }
    }
    let Some((id, process, change)) = reaped else {
        return result;
    };
    let usage = usage_of(&process);
    if matches!(change, Change::Ended(_)) && !options.contains(WaitOptions::NOWAIT) {
        parent.children_usage.add(&usage);
        forget_signals(&process);
    }
    Look::Found(Waited {
        process: id,
        change,
        usage,
    })
}

/// Returns the resources used by a process and by the children that it has reaped.
fn usage_of(process: &Process) -> UsageSnapshot {
    let own = process.total_usage();
    own.plus(&process.children_usage.snapshot())
}

/// The result of one check of the threads that the caller traces.
enum Traced {
    /// The thread with this id has changed state. The process is `None` for a thread that has exited.
    Changed(u32, Option<Arc<Process>>, Change),
    Unchanged,
    None,
}

/// Searches for a traced thread that is in a ptrace stop or has exited. `WaitOptions::EXITED` is checked only for
/// exited threads: ptrace stops are always reported (Linux 7.2 `kernel/exit.c`, `wait_task_stopped`).
fn look_at_tracees(
    tasks: &mut TaskTable,
    by: &Thread,
    target: WaitTarget,
    options: WaitOptions,
) -> Traced {
    let process = by.process.id;
    let Some(member) = tasks.members.get(&process) else {
        return Traced::None;
    };
    if member.tracees.is_empty() {
        return Traced::None;
    }
    let context = options
        .contains(WaitOptions::NOTHREAD)
        .then_some(by.context);
    let keep = options.contains(WaitOptions::NOWAIT);
    let mut found = false;
    if let Some((id, change)) = ended_tracee(tasks, (process, context), target) {
        if options.contains(WaitOptions::EXITED) {
            if !keep {
                tasks.remove_ended(id);
            }
            return Traced::Changed(id, None, change);
        }
        found = true;
    }
    if let WaitTarget::Process(id) = target {
        let thread = tasks.threads.get(&id).cloned();
        if let Some(thread) = thread.filter(|thread| thread.is_traced_by(process, context)) {
            return match standing_unreported(&thread, keep) {
                Some(change) => Traced::Changed(id, Some(thread.process.clone()), change),
                None => Traced::Unchanged,
            };
        }
        // The thread is exiting, or is a leader that has exited before its process's other threads: its exit will be
        // reported later.
        let member = tasks.members.get(&process);
        let held = member.is_some_and(|member| member.tracees.has(id, context));
        return if found || held {
            Traced::Unchanged
        } else {
            Traced::None
        };
    }
    stopped_tracee(tasks, (process, context), target, keep, found)
}

/// Returns a traced thread that has exited and whose exit no wait of its tracer has returned yet.
fn ended_tracee(
    tasks: &TaskTable,
    (process, context): (u32, Option<ContextId>),
    target: WaitTarget,
) -> Option<(u32, Change)> {
    let matches = |id: u32| {
        let ended = tasks.ended(id)?;
        let own = ended.tracer.process == process && is_visible(ended.tracer.context, context);
        (own && is_target(id, ended.group, target)).then_some((id, ended.change))
    };
    match target {
        WaitTarget::Process(id) => matches(id),
        WaitTarget::Any | WaitTarget::Group(_) => {
            let member = tasks.members.get(&process)?;
            member.tracees.ended.iter().find_map(|id| matches(*id))
        }
    }
}

/// Searches the traced threads for one that `target` includes and whose ptrace stop no wait has reported yet.
fn stopped_tracee(
    tasks: &mut TaskTable,
    (process, context): (u32, Option<ContextId>),
    target: WaitTarget,
    keep: bool,
    found: bool,
) -> Traced {
    let Some(member) = tasks.members.get_mut(&process) else {
        return Traced::None;
    };
    let wanted = |thread: &Thread| is_target(thread.id(), thread.process.group(), target);
    let mut last = None;
    while let Some((key, thread)) = member.tracees.next_news(last, context) {
        last = Some(key);
        if !wanted(&thread) {
            continue;
        }
        let change = standing_unreported(&thread, keep);
        if change.is_none() || !keep {
            member.tracees.forget_news(key);
        }
        if let Some(change) = change {
            return Traced::Changed(thread.id(), Some(thread.process.clone()), change);
        }
    }
    if found || member.tracees.iter(context).any(|thread| wanted(thread)) {
        Traced::Unchanged
    } else {
        Traced::None
    }
}

/// Returns the child at index `number` of those that a search for `target` visits. If `target` is a single process, the
/// search visits only that child.
fn nth_child(
    tasks: &TaskTable,
    parent: &Process,
    target: WaitTarget,
    number: usize,
) -> Option<u32> {
    match target {
        WaitTarget::Process(id) => {
            let member = tasks.members.get(&id).filter(|_| number == 0)?;
            (member.process.parent() == parent.id).then_some(id)
        }
        WaitTarget::Any | WaitTarget::Group(_) => {
            let member = tasks.members.get(&parent.id)?;
            member.children.get(number).map(|child| child.id)
        }
    }
}

/// Returns whether `target` includes the child or traced thread `id`. `group` is the group of its process.
fn is_target(id: u32, group: u32, target: WaitTarget) -> bool {
    match target {
        WaitTarget::Any => true,
        WaitTarget::Process(wanted) => id == wanted,
        WaitTarget::Group(wanted) => group == wanted,
    }
}

fn eligible(child: &Process, target: WaitTarget, options: WaitOptions) -> bool {
    let wanted = is_target(child.id, child.group(), target);
    let signals = child.exit_signal.load(core::sync::atomic::Ordering::SeqCst)
        != memwright_linux_abi::signal::Signal::SIGCHLD.number();
    wanted
        && (options.contains(WaitOptions::ALL) || signals == options.contains(WaitOptions::CLONE))
}

/// Returns the state change of a child that a wait with these options reports. Returns `None` if there is none to
/// report.
fn reportable(life: Life, options: WaitOptions) -> Option<Change> {
    match life {
        Life::Zombie(status) if options.contains(WaitOptions::EXITED) => {
            Some(Change::Ended(status))
        }
        Life::Alive(Some(change @ Change::Stopped(_)))
            if options.contains(WaitOptions::STOPPED) =>
        {
            Some(change)
        }
        Life::Alive(Some(change @ Change::Continued))
            if options.contains(WaitOptions::CONTINUED) =>
        {
            Some(change)
        }
        Life::Zombie(_) | Life::Alive(_) => None,
    }
}

/// Removes a zombie from the process table. The caller has checked that its parent does not wait for it.
pub(super) fn reap_unwanted(tasks: &Tasks, process: &Arc<Process>) {
    let removed = tasks.lock().remove(process.id);
    drop(removed);
    forget_signals(process);
}

/// Wakes the threads that wait for signals of a process that was removed from the process table, so that they check the
/// process again (`signalfd_cleanup` of Linux 7.3, `fs/signalfd.c`).
fn forget_signals(process: &Process) {
    process.signal_arrived.wake_all();
}

#[cfg(test)]
mod tests {
    use super::{Change, Life, WaitOptions, reportable};
    use memwright_linux_abi::signal::Signal;
    use memwright_linux_tasks::process::ExitStatus;

    #[test]
    fn options_choose_what_is_reported() {
        let ended = Life::Zombie(ExitStatus::Exited(0));
        let stopped = Life::Alive(Some(Change::Stopped(Signal::SIGSTOP)));
        assert!(reportable(ended, WaitOptions::EXITED).is_some());
        assert!(reportable(ended, WaitOptions::STOPPED).is_none());
        assert!(reportable(stopped, WaitOptions::EXITED).is_none());
        assert!(reportable(stopped, WaitOptions::STOPPED | WaitOptions::EXITED).is_some());
        assert!(reportable(Life::Alive(None), WaitOptions::all()).is_none());
    }
}
