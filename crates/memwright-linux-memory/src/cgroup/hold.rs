//! Enforces a group's limit: reclaims pages and, if that does not suffice, kills a process (Linux 7.2
//! `mm/memcontrol.c`, `try_charge_memcg`).

use super::{Cgroups, Measurement, measure::Measured};
use crate::oom::Relief;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_linux_base::sync;
use memwright_linux_sched::scheduler::Work;
use memwright_linux_tasks::process::{Among, Cgroup, Event, Thread};

/// The minimum number of pages to reclaim at a time (`SWAP_CLUSTER_MAX`).
const AT_LEAST: u64 = 32;
/// The maximum number of consecutive rounds of reclaim that do not lower the charge of the group. After these, a
/// process is killed (`MAX_RECLAIM_RETRIES`).
const MOST_ROUNDS: u32 = 16;

impl Cgroups {
    /// Checks the limits of the thread's group and of the groups above it. Called before the thread returns to user
    /// mode, and after a user copy has faulted.
    #[cold]
    #[inline(never)]
    pub fn look(&self, thread: &Arc<Thread>) {
        match thread.process.charged_group() {
            None => {
                thread.set_work(Work::CGROUP, false);
                // If the process has joined a group since the check above, the flag that was just cleared requested a
                // check of that group. So set the flag again.
                if thread.process.charged_group().is_some() {
                    thread.set_work(Work::CGROUP, true);
                }
            }
            Some(group) => {
                let epoch = self.epoch.load(Ordering::SeqCst);
                if group.due.is_due(epoch, self.ever()) {
                    self.look_upwards(thread, &group, epoch);
                }
            }
        }
    }

    /// Checks the limits of `group` and of each group above it, from the bottom up (`page_counter_try_charge`). A group
    /// whose charge equals the charge of the group below it is not measured again.
    fn look_upwards(&self, thread: &Arc<Thread>, group: &Arc<Cgroup>, epoch: u64) {
        let mut due = u64::MAX;
        let mut below: Option<(&Arc<Cgroup>, Measured)> = None;
        for group in group.upwards() {
            let same = below.filter(|(below, _)| self.is_charged_like(group, below));
            below = None;
            if self.ever() > group.look_at.load(Ordering::SeqCst) {
                let taken_over = same.map(|(_, measured)| {
                    measured.note(group);
                    measured
                });
                // A new epoch means that a process may have joined this group since the group below was measured. In a
                // new epoch, measure this group instead.
                let taken_over = taken_over.filter(|_| self.epoch.load(Ordering::SeqCst) == epoch);
                let measured =
                    taken_over.unwrap_or_else(|| self.measured(group, Measurement::Bound));
                if measured.pages > group.most() {
                    self.hold(thread, group);
                    if thread.fatal_pending() {
                        return;
                    }
                } else {
                    below = Some((group, measured));
                }
            } else if let Some((_, measured)) = same {
                below = Some((group, measured));
            }
            due = due.min(group.look_at.load(Ordering::SeqCst));
        }
        group.due.set(epoch, due);
    }

    /// Enforces the limit of `group`: reclaims pages of the processes in the group and in the groups below it until the
    /// group is no longer over its limit. If reclaim does not suffice, kills one of these processes. The calling thread
    /// `thread` need not be in the group. Returns early if `thread` is killed, or if no process may be killed.
    pub fn hold(&self, thread: &Arc<Thread>, group: &Arc<Cgroup>) {
        let mut least = u64::MAX;
        let mut rounds = 0;
        let mut counted = false;
        let mut how = Measurement::Bound;
        loop {
            let pages = self.measure(group, how);
            if thread.fatal_pending() {
                return;
            }
            let excess = pages.saturating_sub(group.most());
            if excess == 0 {
                return;
            }
            if !core::mem::replace(&mut counted, true) {
                group.count(Event::Max);
                self.changes().note();
            }
            if pages < least {
                (least, rounds) = (pages, 0);
            }
            rounds += 1;
            if rounds <= MOST_ROUNDS && self.send_out(group, excess.max(AT_LEAST)) {
                continue;
            }
            if how == Measurement::Bound {
                // Before a process is killed, measure the charge by a walk, because the estimate may be too high.
                (how, rounds) = (Measurement::Walk, rounds - 1);
                continue;
            }
            let is_over = || self.measure(group, Measurement::Walk) > group.most();
            match self.oom.relieve_group(thread, group, is_over) {
                Relief::Killed => {
                    group.count(Event::OutOfMemory);
                    self.changes().note();
                }
                Relief::Awaited => {}
                Relief::Nobody => return,
            }
            if thread.fatal_pending() {
                return;
            }
            self.oom.tasks.scheduler.yield_now(thread);
            // Pause briefly, because the thread that frees the memory may run on another CPU.
            sync::relax();
        }
    }

    /// Reclaims up to `wanted` pages of the group, beginning with pages that were not accessed recently. Returns false
    /// if it reclaimed none.
    fn send_out(&self, group: &Cgroup, wanted: u64) -> bool {
        let ids = self.oom.tasks.ids_in(group);
        let among = Among::Charged(&ids, group.memcg());
        self.reclaim.relieve_some(&group.cursor, wanted, among)
    }
}
