//! Membership of processes in groups.

use super::Cgroup;
use crate::{
    errno::Errno,
    kernel::Kernel,
    process::Process,
    scheduler::{UsageSnapshot, Work},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright::Memcg;

/// The group of a process.
#[derive(Clone, Default)]
pub struct Membership {
    /// The group; `None` for the root.
    pub(crate) group: Option<Arc<Cgroup>>,
    /// Minor and major faults of the process before it joined the group.
    before: [u64; 2],
}

const fn faults(usage: &UsageSnapshot) -> [u64; 2] {
    [usage.minor_faults, usage.major_faults]
}

impl Process {
    /// Returns the group of the process; `None` for the root.
    pub(crate) fn cgroup(&self) -> Option<Arc<Cgroup>> {
        self.membership.lock().group.clone()
    }

    /// Returns the owner that the swap slots of the process are charged to.
    pub(crate) fn memcg(&self) -> Memcg {
        let membership = self.membership.lock();
        let group = membership.group.as_ref();
        group.map_or(Memcg::NOBODY, |group| group.memcg)
    }

    /// Puts a new process into the group of its parent. No thread of the new process runs yet.
    ///
    /// # Locks
    /// The caller holds the lock of the process table.
    pub(crate) fn inherit_cgroup(&self, parent: &Self) {
        let Some(group) = parent.cgroup() else {
            return;
        };
        let memcg = group.memcg;
        *self.membership.lock() = Membership {
            group: Some(group),
            before: [0; 2],
        };
        if let Some(space) = self.space() {
            space.set_memcg(memcg);
        }
        self.mark_threads();
    }

    /// Sets the work flag by which the threads of the process check the limit of their group.
    fn mark_threads(&self) {
        self.each_thread(|thread| thread.set_work(Work::CGROUP, true));
    }

    /// Adds the faults that the process has had since it joined its group, or since the last call, to the count of the
    /// group.
    pub(crate) fn settle_faults(&self) {
        let now = faults(&self.total_usage());
        let mut membership = self.membership.lock();
        membership.settle(now);
    }

    /// Returns the minor and major faults since the process joined its group.
    pub(super) fn faults_in_group(&self) -> [u64; 2] {
        let now = faults(&self.total_usage());
        let before = self.membership.lock().before;
        [
            now[0].saturating_sub(before[0]),
            now[1].saturating_sub(before[1]),
        ]
    }
}

impl Membership {
    fn settle(&mut self, now: [u64; 2]) {
        if let Some(group) = &self.group {
            for (sum, (now, before)) in group.faults.iter().zip(now.iter().zip(self.before)) {
                sum.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
            }
        }
        self.before = now;
    }
}

impl Cgroup {
    /// Returns the minor and major faults of the present and former members of the group, counted while they were
    /// members.
    pub(crate) fn total_faults(&self, kernel: &Kernel) -> [u64; 2] {
        let mut sum = [0, 1].map(|kind| self.faults[kind].load(Ordering::Relaxed));
        for process in self.members(kernel) {
            let own = process.faults_in_group();
            sum = [sum[0] + own[0], sum[1] + own[1]];
        }
        sum
    }
}

/// Moves a process to a group, or to the root.
///
/// # Errors
/// `ENODEV` if the group was removed.
pub(crate) fn enter(
    kernel: &Kernel,
    process: &Process,
    group: Option<Arc<Cgroup>>,
) -> Result<(), Errno> {
    let usage = process.total_usage();
    // The lock keeps other threads from removing the group and from creating processes.
    let tasks = kernel.tasks.lock();
    if let Some(group) = &group {
        kernel.cgroups.get(group.id).ok_or(Errno::ENODEV)?;
        group.look_soon();
    }
    let memcg = group.as_ref().map_or(Memcg::NOBODY, |group| group.memcg);
    {
        let mut membership = process.membership.lock();
        membership.settle(faults(&usage));
        let old = core::mem::replace(&mut membership.group, group);
        drop(membership);
        drop(old);
    }
    if let Some(space) = process.space() {
        space.set_memcg(memcg);
    }
    process.mark_threads();
    drop(tasks);
    kernel.cgroups.changes.note();
    Ok(())
}
