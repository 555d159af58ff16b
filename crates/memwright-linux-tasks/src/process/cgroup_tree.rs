//! The processes in the tree of cgroups: which groups are populated, and a walk over the processes of a group and of
//! the groups below it.
//!
//! Each group counts its processes and its populated children. When a process enters or leaves a group, the counts
//! change only in the group and in those above whose children become populated or empty (`cgroup_update_populated` of
//! Linux 7.3, `kernel/cgroup/cgroup.c`). The walk visits only populated groups.

use super::{Cgroup, Process, TaskTable, Tasks};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use memwright_table::{OutOfMemory, TryPush};

impl TaskTable {
    /// Adds a living process to a group. Returns whether the group was empty.
    fn arrive(&mut self, group: &Arc<Cgroup>, process: u32) -> Result<bool, OutOfMemory> {
        if !self.index_cgroup(group.id, process) {
            return Ok(false);
        }
        let was_populated = group.population.is_populated();
        group.population.members.fetch_add(1, Ordering::SeqCst);
        if was_populated {
            return Ok(false);
        }
        let mut here = group;
        while let Some(above) = here.parent() {
            let place = (above.id, here.id);
            if self.populated.insert(place, here.clone()).is_err() {
                self.undo_arrival(group, here, process);
                return Err(OutOfMemory);
            }
            let was_populated = above.population.is_populated();
            above.population.children.fetch_add(1, Ordering::SeqCst);
            if was_populated {
                break;
            }
            here = above;
        }
        Ok(true)
    }

    /// Undoes an incomplete [`arrive`](Self::arrive) in `group`. `failed` is the group, at or above `group`, that could
    /// not be entered in `populated` for lack of memory.
    fn undo_arrival(&mut self, group: &Arc<Cgroup>, failed: &Cgroup, process: u32) {
        self.unindex_cgroup(group.id, process);
        group.population.members.fetch_sub(1, Ordering::SeqCst);
        let mut here: &Cgroup = group;
        while here.id != failed.id
            && let Some(above) = here.parent()
        {
            self.populated.remove(&(above.id, here.id));
            above.population.children.fetch_sub(1, Ordering::SeqCst);
            here = above;
        }
    }

    /// Removes a process from a group. Returns whether the group is empty now.
    fn depart(&mut self, group: &Arc<Cgroup>, process: u32) -> bool {
        if !self.unindex_cgroup(group.id, process) {
            return false;
        }
        group.population.members.fetch_sub(1, Ordering::SeqCst);
        let mut here: &Cgroup = group;
        let emptied = !here.population.is_populated();
        while !here.population.is_populated()
            && let Some(above) = here.parent()
        {
            self.populated.remove(&(above.id, here.id));
            above.population.children.fetch_sub(1, Ordering::SeqCst);
            here = above;
        }
        emptied
    }

    /// Moves a process from its group to `to`; `None` is the root. Does nothing for a process that has exited, because
    /// it is in no group. The caller changes the membership of the process afterwards. Returns whether a group became
    /// populated or empty.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the groups are then unchanged.
    pub fn move_to_cgroup(
        &mut self,
        process: &Process,
        to: Option<&Arc<Cgroup>>,
    ) -> Result<bool, OutOfMemory> {
        let from = process.cgroup();
        let goes = match (&from, to) {
            (Some(from), Some(to)) => from.id != to.id,
            (None, None) => false,
            _ => true,
        };
        let member = self.members.get(&process.id);
        let is_here = member
            .is_some_and(|member| member.is_alive() && core::ptr::eq(&*member.process, process));
        if !goes || !is_here {
            return Ok(false);
        }
        let filled = match to {
            Some(to) => self.arrive(to, process.id)?,
            None => false,
        };
        let emptied = from.is_some_and(|from| self.depart(&from, process.id));
        Ok(filled || emptied)
    }

    /// Removes an exiting process from its group. The process keeps its reference to the group. Returns whether the
    /// group is empty now.
    pub fn leave_cgroup(&mut self, process: &Process) -> bool {
        let from = process.cgroup();
        from.is_some_and(|from| self.depart(&from, process.id))
    }

    /// Puts a new process into the group of its parent. The child is in the process table already, and none of its
    /// threads has run.
    pub fn inherit_cgroup(&mut self, child: &Process, parent: &Process) {
        let Some(group) = parent.cgroup() else {
            return;
        };
        // The parent is in the group, so the group and those above it are populated already and are not inserted here.
        if self.arrive(&group, child.id).is_ok() {
            child.inherit_membership(parent);
        }
    }

    /// Returns the first populated group directly below the group `above` whose id is larger than `id`.
    pub fn populated_after(&self, above: u32, id: u32) -> Option<Arc<Cgroup>> {
        let found = self.populated.first_from(&(above, id.checked_add(1)?));
        let found = found.filter(|((parent, _), _)| *parent == above);
        found.map(|(_, group)| group.clone())
    }

    /// Returns the populated group that follows `at` in a pre-order walk over `top` and the groups below it.
    pub fn next_populated(&self, top: &Cgroup, at: &Cgroup) -> Option<Arc<Cgroup>> {
        if let Some(child) = self.populated_after(at.id, 0) {
            return Some(child);
        }
        let mut here = at;
        while here.id != top.id
            && let Some(above) = here.parent()
        {
            if let Some(sibling) = self.populated_after(above.id, here.id) {
                return Some(sibling);
            }
            here = above;
        }
        None
    }
}

impl Tasks {
    /// Iterates over the living processes of a group and of the groups below it. Visits the groups in pre-order, and
    /// the processes of each group in order of id. The table is locked only during each step.
    pub fn living_in<'a>(&'a self, top: &'a Cgroup) -> impl Iterator<Item = Arc<Process>> + 'a {
        let mut below: Option<Arc<Cgroup>> = None;
        let mut first = 0;
        core::iter::from_fn(move || {
            loop {
                let table = self.lock();
                let at = below.as_deref().unwrap_or(top);
                if let Some(process) = table.member_of_cgroup(at.id, first) {
                    first = process.id + 1;
                    return Some(process);
                }
                let next = table.next_populated(top, at)?;
                drop(table);
                below = Some(next);
                first = 0;
            }
        })
    }

    /// Returns the ids of the living processes of a group and of the groups below it, in order. If there is no memory
    /// for all ids, returns some of them.
    pub fn ids_in(&self, top: &Cgroup) -> Vec<u32> {
        let mut ids = Vec::new();
        for process in self.living_in(top) {
            if ids.try_push(process.id).is_err() {
                break;
            }
        }
        ids.sort_unstable();
        ids
    }
}
