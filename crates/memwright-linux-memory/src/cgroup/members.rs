//! Moves processes between groups, and sums up their faults.

use super::Cgroups;
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright::Memcg;
use memwright_linux_abi::errno::Errno;
use memwright_linux_tasks::process::{Cgroup, Process, faults};

impl Cgroups {
    /// Returns the minor and major faults of the group and of the groups below it. The faults of a process count for
    /// the groups to which it belonged when it took them.
    pub fn total_faults(&self, group: &Cgroup) -> [u64; 2] {
        let mut sum = [0, 1].map(|kind| group.faults[kind].load(Ordering::Relaxed));
        for process in self.oom.tasks.living_in(group) {
            let own = process.faults_in_group();
            sum = [sum[0] + own[0], sum[1] + own[1]];
        }
        sum
    }

    /// Moves a process to the group with the ID `id`; 0 is the root.
    ///
    /// # Errors
    /// `ENODEV` if the group was removed, `EBUSY` if the group is not the root and enables a controller for the groups
    /// below it (`cgroup_migrate_vet_dst`), `ENOMEM`.
    pub fn enter(&self, process: &Process, id: u32) -> Result<(), Errno> {
        let usage = process.total_usage();
        // While the process table is locked, no other thread removes the group or creates a process.
        let mut tasks = self.oom.tasks.lock();
        let group = self.get(id).ok_or(Errno::ENODEV)?;
        let group = group.parent().is_some().then_some(group);
        let gives = |group: &Arc<Cgroup>| group.place.gives_memory.load(Ordering::SeqCst);
        if group.as_ref().is_some_and(gives) {
            return Err(Errno::EBUSY);
        }
        let moved = tasks.move_to_cgroup(process, group.as_ref());
        let changed = moved.map_err(|_| Errno::ENOMEM)?;
        let charged = group.as_ref().and_then(Cgroup::charged);
        let memcg = charged
            .as_ref()
            .map_or(Memcg::NOBODY, |group| group.memcg());
        let old = {
            let mut membership = process.membership.lock();
            membership.settle(faults(&usage));
            let group = core::mem::replace(&mut membership.group, group);
            (
                group,
                core::mem::replace(&mut membership.charged, charged.clone()),
            )
        };
        drop(old);
        if let Some(space) = process.space() {
            space.set_memcg(memcg);
        }
        self.look_soon(charged.iter().flat_map(|group| group.upwards()));
        process.mark_threads();
        drop(tasks);
        if changed {
            self.changes().note();
        }
        Ok(())
    }
}
