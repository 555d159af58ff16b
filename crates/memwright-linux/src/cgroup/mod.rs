//! Groups of processes with memory limits: cgroup v2 with one level of groups below the root (Linux 7.2
//! Documentation/admin-guide/cgroup-v2.rst).
//!
//! ```text
//! members.rs  processes of a group     measure.rs  the charge of a group
//! hold.rs     enforcing the limit
//! ```
//!
//! A group is charged for the frames that its processes map: private memory, and shared memory in shared mappings, each
//! frame once. It is also charged for pages of in-memory files that were first written by a system call of one of its
//! processes. Pages of other files in private mappings, page tables and the kernel's own memory are not charged. When a
//! process moves to another group, its charge moves with it. Files stay charged to the group that wrote them, and swap
//! slots to the group that swapped the pages out.
//!
//! Mapping and unmapping pages updates no counter of a group, so a process outside all groups pays nothing. On return
//! to user mode, a thread in a group checks how many pages were mapped system-wide, and how many the group's system
//! calls read and wrote. The thread measures the group only if these numbers allow the group to be over its limit. It
//! then reclaims any excess before it continues.
//!
//! A measurement walks the memory of the group. At the limit, where a group is measured for every few pages, the counters
//! of its address spaces tell the change since the last walk (`process/cgroup_charge.rs`).

mod hold;
mod measure;
mod members;

pub(crate) use measure::Measurement;

use crate::{
    changes::Changes,
    errno::Errno,
    oom::OomKiller,
    process::{Cgroup, UNLIMITED},
    reclaim::Reclaim,
    sync::{Lock, Rank},
};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use memwright::{MAX_MEMCGS, Memcg};
use memwright_table::TryPush;

#[derive(Default)]
struct Groups {
    groups: Vec<Arc<Cgroup>>,
    last: u32,
    /// The memory controller is enabled (`cgroup.subtree_control`).
    memory: bool,
}

/// All groups of the machine, and what enforces their limits.
pub(crate) struct Cgroups {
    reclaim: Arc<Reclaim>,
    oom: Arc<OomKiller>,
    groups: Lock<Groups>,
    /// A group got its first process, lost its last one, or exceeded its limit.
    pub(crate) changes: Changes,
}

impl Cgroups {
    /// Creates the state of a machine without groups.
    pub(crate) fn new(reclaim: Arc<Reclaim>, oom: Arc<OomKiller>) -> Self {
        Self {
            reclaim,
            oom,
            groups: Lock::new(Rank::Lists, Groups::default()),
            changes: Changes::default(),
        }
    }

    /// Creates a group.
    ///
    /// # Errors
    /// `EEXIST` if a group has the name, `EINVAL` for a name that contains a line break, `EAGAIN` if there are too many
    /// groups, `ENOMEM`.
    pub(crate) fn make(&self, name: &[u8]) -> Result<(), Errno> {
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        // The lock keeps other threads from creating a group.
        let _tasks = self.oom.tasks.lock();
        let memcg = {
            let groups = self.groups.lock();
            if groups.groups.iter().any(|group| &*group.name == name) {
                return Err(Errno::EEXIST);
            }
            let free = |memcg: &Memcg| groups.groups.iter().all(|one| one.memcg != *memcg);
            let mut all = (0..MAX_MEMCGS).map(Memcg::new);
            all.find(free).ok_or(Errno::EAGAIN)?
        };
        let opened = self.oom.memory.swap().open_memcg(memcg);
        opened.map_err(|_| Errno::ENOMEM)?;
        let mut groups = self.groups.lock();
        groups.last += 1;
        let group = Arc::new(Cgroup::new(groups.last, name, memcg));
        groups.groups.try_push(group).map_err(|_| Errno::ENOMEM)
    }

    /// Removes a group.
    ///
    /// # Errors
    /// `EBUSY` while a process is in the group, `ENODEV` if there is no group with this number.
    pub(crate) fn remove(&self, id: u32) -> Result<(), Errno> {
        let removed = {
            let tasks = self.oom.tasks.lock();
            let group = self.get(id).ok_or(Errno::ENODEV)?;
            if tasks.has_living_in(&group) {
                return Err(Errno::EBUSY);
            }
            self.groups.lock().groups.retain(|other| other.id != id);
            group
        };
        drop(removed);
        Ok(())
    }

    /// Returns the group with this number.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<Cgroup>> {
        self.find(|group| group.id == id)
    }

    /// Returns the group with this name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<Arc<Cgroup>> {
        self.find(|group| &*group.name == name)
    }

    /// Returns the first group created after the one with number `id`.
    pub(crate) fn after(&self, id: u32) -> Option<Arc<Cgroup>> {
        self.find(|group| group.id > id)
    }

    fn find(&self, wanted: impl Fn(&Cgroup) -> bool) -> Option<Arc<Cgroup>> {
        let groups = self.groups.lock();
        groups.groups.iter().find(|group| wanted(group)).cloned()
    }

    /// Returns whether the memory controller is enabled.
    pub(crate) fn limit_memory(&self) -> bool {
        self.groups.lock().memory
    }

    /// Enables or disables the memory controller. Disabling it removes all limits.
    pub(crate) fn set_limit_memory(&self, on: bool) {
        let groups = {
            let mut groups = self.groups.lock();
            groups.memory = on;
            groups.groups.clone()
        };
        if !on {
            for group in groups {
                group.set_most(UNLIMITED);
                self.set_most_slots(&group, UNLIMITED);
            }
        }
    }

    /// Sets the swap limit of a group in slots. Slots over the limit stay in use.
    pub(crate) fn set_most_slots(&self, group: &Cgroup, slots: u64) {
        group.most_slots.store(slots, Ordering::Relaxed);
        // The lock keeps other threads from removing the group: the swap owner of a removed group can already belong to
        // another group.
        let _tasks = self.oom.tasks.lock();
        if self.get(group.id).is_some() {
            self.oom.memory.swap().limit_memcg(group.memcg, slots);
        }
    }
}
