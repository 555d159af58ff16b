//! Enforces a group's limit: reclaims pages and, if that does not suffice, kills a process (Linux 7.2
//! `mm/memcontrol.c`, `try_charge_memcg`).

use super::{Cgroups, Measurement};
use crate::{
    oom::Relief,
    process::{Among, Cgroup, Thread},
    scheduler::Work,
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_table::Machine as _;

/// The smallest number of pages to reclaim at a time (`SWAP_CLUSTER_MAX`).
const AT_LEAST: u64 = 32;
/// Most rounds of reclaim after which the charge of the group did not shrink (`MAX_RECLAIM_RETRIES`).
const MOST_ROUNDS: u32 = 16;

impl Cgroups {
    /// Checks the limit of the thread's group. Called before the thread returns to user mode, and when a user copy has
    /// faulted.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&self, thread: &Arc<Thread>) {
        match thread.process.cgroup() {
            None => {
                thread.set_work(Work::CGROUP, false);
                // The process may have joined a group after the check above, and the flag that was set then has just
                // been cleared.
                if thread.process.cgroup().is_some() {
                    thread.set_work(Work::CGROUP, true);
                }
            }
            Some(group) => {
                if self.ever_had(&group) > group.look_at.load(Ordering::SeqCst) {
                    self.hold(thread, &group);
                }
            }
        }
    }

    /// Enforces the limit of a group: reclaims pages until the group is no longer over its limit, and kills a process
    /// if that does not suffice. `thread` waits meanwhile; it need not be in the group.
    pub(crate) fn hold(&self, thread: &Arc<Thread>, group: &Arc<Cgroup>) {
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
                group.events.max.fetch_add(1, Ordering::Relaxed);
                self.changes.note();
            }
            if pages < least {
                (least, rounds) = (pages, 0);
            }
            rounds += 1;
            if rounds <= MOST_ROUNDS && self.send_out(group, excess.max(AT_LEAST)) {
                continue;
            }
            if how == Measurement::Bound {
                // An estimate is no reason to kill a process.
                (how, rounds) = (Measurement::Walk, rounds - 1);
                continue;
            }
            self.changes.note();
            match self.oom.relieve_group(thread, group) {
                Relief::Killed => {
                    group.events.out_of_memory.fetch_add(1, Ordering::Relaxed);
                    group.events.killed.fetch_add(1, Ordering::Relaxed);
                    self.changes.note();
                }
                Relief::Awaited => {}
                Relief::Nobody => return,
            }
            if thread.fatal_pending() {
                return;
            }
            self.oom.tasks.scheduler.yield_now(thread);
            // The thread that frees the memory may run on another CPU.
            self.oom.memory.frames().machine().relax();
        }
    }

    /// Reclaims `wanted` pages of the group, starting with those that were not accessed recently. Returns false if no
    /// page can be reclaimed.
    fn send_out(&self, group: &Cgroup, wanted: u64) -> bool {
        self.reclaim
            .relieve_some(&group.cursor, wanted, Among::Cgroup(group))
    }
}
