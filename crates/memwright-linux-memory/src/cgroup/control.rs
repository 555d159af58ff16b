//! Enables and disables the memory controller of groups (Linux 7.3 `kernel/cgroup/cgroup.c`,
//! `cgroup_subtree_control_write`).

use super::{Cgroups, tree::each_above};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use memwright::Memcg;
use memwright_linux_abi::errno::Errno;
use memwright_linux_tasks::process::{Cgroup, Process, TaskTable};
use memwright_table::TryPush;

/// A write to `cgroup.subtree_control`, and the state of the group that determines whether the write is allowed.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// Whether the write enables the controller.
    on: bool,
    is_on: bool,
    is_root: bool,
    /// Whether the group itself has the controller.
    available: bool,
    /// Whether a group directly below this one enables the controller for its own children.
    used_below: bool,
    /// Whether a process is in the group itself.
    has_members: bool,
}

/// Returns whether the write changes the state of the controller.
///
/// # Errors
/// `ENOENT` if the controller is not available; `EBUSY` if the groups below this one or the processes in this group
/// prevent the change.
fn decide(asked: Asked) -> Result<bool, Errno> {
    if asked.on == asked.is_on {
        return Ok(false);
    }
    if asked.on && !asked.available {
        return Err(Errno::ENOENT);
    }
    if !asked.on && asked.used_below {
        return Err(Errno::EBUSY);
    }
    if asked.on && asked.has_members && !asked.is_root {
        return Err(Errno::EBUSY);
    }
    Ok(true)
}

impl Cgroups {
    /// Returns whether the memory controller is available in a group. It is always available in the root, although the
    /// root has no files of the controller.
    pub fn is_available(group: &Cgroup) -> bool {
        group.parent().is_none() || group.has_memory()
    }

    /// Enables or disables the memory controller for the groups directly below the group with the ID `id`. Disabling
    /// the controller removes the limits of these groups. The cost grows with the number of these groups and of the
    /// processes in the subtree.
    ///
    /// # Errors
    /// `ENODEV` if the group was removed; `ENOENT` if the group itself has no memory controller; `EBUSY` if a process
    /// is in the group, if a group below it still uses the controller, or if there are too many groups with the
    /// controller; `ENOMEM`.
    pub fn give_memory(&self, id: u32, on: bool) -> Result<(), Errno> {
        let mut tasks = self.oom.tasks.lock();
        let group = self.get(id).ok_or(Errno::ENODEV)?;
        let asked = Asked {
            on,
            is_on: group.place.gives_memory.load(Ordering::SeqCst),
            is_root: group.parent().is_none(),
            available: Self::is_available(&group),
            used_below: group.place.givers.load(Ordering::SeqCst) > 0,
            has_members: group.population.members() > 0,
        };
        if !decide(asked)? {
            return Ok(());
        }
        if on {
            self.open_all(&group)?;
        }
        self.recharge(&mut tasks, &group, on)
            .inspect_err(|_| self.close_all(&group, |_| on))?;
        if !on {
            self.close_all(&group, |_| true);
        }
        group.place.gives_memory.store(on, Ordering::SeqCst);
        let children = group.place.children.load(Ordering::SeqCst);
        each_above(&group, |above| {
            let memories = &above.place.memories;
            if on {
                memories.fetch_add(children, Ordering::SeqCst);
            } else {
                memories.fetch_sub(children, Ordering::SeqCst);
            }
        });
        if let Some(above) = group.parent() {
            let givers = &above.place.givers;
            if on {
                givers.fetch_add(1, Ordering::SeqCst);
            } else {
                givers.fetch_sub(1, Ordering::SeqCst);
            }
        }
        self.look_soon(group.upwards());
        Ok(())
    }

    /// Iterates over the groups directly below a group.
    fn children<'a>(&'a self, group: &'a Cgroup) -> impl Iterator<Item = Arc<Cgroup>> + 'a {
        let mut last = 0;
        core::iter::from_fn(move || {
            let child = self.after(group.id, last)?;
            last = child.id;
            Some(child)
        })
    }

    /// Allocates a memcg for each group directly below `group`. If an allocation fails, frees the memcgs that were
    /// allocated.
    fn open_all(&self, group: &Cgroup) -> Result<(), Errno> {
        for child in self.children(group) {
            match self.open_memcg(group) {
                Ok(memcg) => {
                    child.set_memcg(memcg);
                    child.place.memories.store(1, Ordering::SeqCst);
                }
                Err(errno) => {
                    self.close_all(group, |other| other.id < child.id);
                    return Err(errno);
                }
            }
        }
        Ok(())
    }

    /// Frees the memcgs of the groups directly below `group` for which `wanted` holds.
    fn close_all(&self, group: &Cgroup, wanted: impl Fn(&Cgroup) -> bool) {
        for child in self.children(group).filter(|child| wanted(child)) {
            self.close_memcg(child.set_memcg(Memcg::NOBODY));
            child.place.memories.store(0, Ordering::SeqCst);
        }
    }

    /// Sets the group that is charged for each process in the groups below `group`. If `below` is true, this is the
    /// child of `group` whose subtree contains the process. Otherwise it is the group that is charged for `group`
    /// itself.
    fn recharge(
        &self,
        tasks: &mut TaskTable,
        group: &Arc<Cgroup>,
        below: bool,
    ) -> Result<(), Errno> {
        let mut moved: Vec<(Arc<Process>, Option<Arc<Cgroup>>)> = Vec::new();
        let own = group.charged();
        let mut child = tasks.next_populated(group, group);
        while let Some(top) = child {
            let charged = if below {
                Some(top.clone())
            } else {
                own.clone()
            };
            let mut at = top.clone();
            loop {
                let mut first = 0;
                while let Some(process) = tasks.member_of_cgroup(at.id, first) {
                    first = process.id + 1;
                    let entry = (process, charged.clone());
                    moved.try_push(entry).map_err(|_| Errno::ENOMEM)?;
                }
                match tasks.next_populated(&top, &at) {
                    Some(next) => at = next,
                    None => break,
                }
            }
            child = tasks.populated_after(group.id, top.id);
        }
        for (process, charged) in moved {
            process.set_charged(charged);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_controller_comes_from_above_and_not_to_groups_with_processes() {
        let (no, same) = (Ok(true), Ok(false));
        let (busy, missing) = (Err(Errno::EBUSY), Err(Errno::ENOENT));
        #[rustfmt::skip]
        let rows = [
            // Columns: the write enables the controller, the controller is enabled, the group is the root, the
            // controller is available, it is used below, the group has processes; the result.
            ((true,  false, false, true,  false, false), no),
            ((true,  false, true,  true,  false, true),  no),
            ((true,  false, false, true,  false, true),  busy),
            ((true,  false, false, false, false, true),  missing),
            ((true,  true,  false, true,  true,  false), same),
            ((false, true,  false, true,  false, false), no),
            ((false, true,  false, true,  true,  false), busy),
            ((false, true,  true,  true,  true,  true),  busy),
            ((false, false, false, false, false, true),  same),
        ];
        for (row, expected) in rows {
            let (on, is_on, is_root, available, used_below, has_members) = row;
            let asked = Asked {
                on,
                is_on,
                is_root,
                available,
                used_below,
                has_members,
            };
            assert_eq!(decide(asked), expected, "{asked:?}");
        }
    }
}
