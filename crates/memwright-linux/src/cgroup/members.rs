//! The processes of a group.

use super::Cgroups;
use crate::{
    errno::Errno,
    process::{Cgroup, Process, faults},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright::Memcg;

impl Cgroups {
    /// Returns the minor and major faults of the present and former members of the group, counted while they were
    /// members.
    pub(crate) fn total_faults(&self, group: &Cgroup) -> [u64; 2] {
        let mut sum = [0, 1].map(|kind| group.faults[kind].load(Ordering::Relaxed));
        for process in self.oom.tasks.living_in(group) {
            let own = process.faults_in_group();
            sum = [sum[0] + own[0], sum[1] + own[1]];
        }
        sum
    }

    /// Moves a process to a group, or to the root.
    ///
    /// # Errors
    /// `ENODEV` if the group was removed.
    pub(crate) fn enter(&self, process: &Process, group: Option<Arc<Cgroup>>) -> Result<(), Errno> {
        let usage = process.total_usage();
        // The lock keeps other threads from removing the group and from creating processes.
        let mut tasks = self.oom.tasks.lock();
        if let Some(group) = &group {
            self.get(group.id).ok_or(Errno::ENODEV)?;
            group.look_soon();
        }
        let memcg = group.as_ref().map_or(Memcg::NOBODY, |group| group.memcg);
        tasks.note_cgroup(process, group.as_deref());
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
        self.changes.note();
        Ok(())
    }
}
