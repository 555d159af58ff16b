//! Creates, finds and removes groups (Linux 7.3 `kernel/cgroup/cgroup.c`, `cgroup_mkdir` and `cgroup_rmdir`).

use super::Cgroups;
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU32, Ordering};
use memwright::{Memcg, NoMemcg};
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::ordered::Ordered;
use memwright_linux_tasks::process::Cgroup;
use memwright_table::{OutOfMemory, TryPush};

/// All groups except the root. They are changed under the lock of the process table.
#[derive(Default)]
pub(super) struct Groups {
    by_id: Ordered<u32, Arc<Cgroup>>,
    /// The IDs of the groups, by the ID of the parent and the group's name.
    by_name: Ordered<(u32, Vec<u8>), u32>,
    /// The groups, by the ID of the parent and the group's own ID.
    by_parent: Ordered<(u32, u32), Arc<Cgroup>>,
    last: u32,
}

fn key(parent: u32, name: &[u8]) -> Result<(u32, Vec<u8>), OutOfMemory> {
    let mut bytes = Vec::new();
    bytes.try_push_all(name)?;
    Ok((parent, bytes))
}

impl Groups {
    fn insert(&mut self, parent: u32, group: &Arc<Cgroup>) -> Result<(), OutOfMemory> {
        let name = key(parent, &group.name)?;
        self.by_id.insert(group.id, group.clone())?;
        let place = (parent, group.id);
        let inserted = self.by_parent.insert(place, group.clone());
        let inserted = inserted.and_then(|_| self.by_name.insert(name, group.id));
        if inserted.is_err() {
            self.by_parent.remove(&place);
            self.by_id.remove(&group.id);
        }
        inserted.map(|_| ())
    }
}

fn no_memcg(reason: NoMemcg) -> Errno {
    match reason {
        // Linux fails with this error too: `mem_cgroup_alloc` returns it if `xa_alloc` finds no free number.
        NoMemcg::TooMany => Errno::EBUSY,
        NoMemcg::OutOfMemory => Errno::ENOMEM,
    }
}

impl Cgroups {
    /// Creates a group with the name `name` below the group with the ID `above`.
    ///
    /// # Errors
    /// In this order: `ENOENT` if the group `above` was removed, `EEXIST` if it has a group with this name below it,
    /// `EINVAL` for a name that contains a line break, `EAGAIN` if a limit on the number or depth of groups does not
    /// allow the new group, `EBUSY` if there are too many groups with the memory controller, `ENOMEM`.
    pub fn make(&self, above: u32, name: &[u8]) -> Result<(), Errno> {
        // While the process table is locked, no other thread changes the tree of groups.
        let _tasks = self.oom.tasks.lock();
        let parent = self.get(above).ok_or(Errno::ENOENT)?;
        if self.named(above, name)?.is_some() {
            return Err(Errno::EEXIST);
        }
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        if !may_grow(&parent) {
            return Err(Errno::EAGAIN);
        }
        let id = self.groups.lock().last + 1;
        let group = Arc::new(Cgroup::new(id, name, Some(parent.clone())));
        if parent.place.gives_memory.load(Ordering::SeqCst) {
            let memcg = self.open_memcg(&parent)?;
            group.set_memcg(memcg);
        }
        {
            let mut groups = self.groups.lock();
            if groups.insert(above, &group).is_err() {
                drop(groups);
                self.close_memcg(group.memcg());
                return Err(Errno::ENOMEM);
            }
            groups.last = id;
        }
        parent.place.children.fetch_add(1, Ordering::SeqCst);
        let memories = u32::from(group.has_memory());
        group.place.memories.store(memories, Ordering::SeqCst);
        each_above(&parent, |above| {
            above.place.descendants.fetch_add(1, Ordering::SeqCst);
            above.place.memories.fetch_add(memories, Ordering::SeqCst);
        });
        Ok(())
    }

    /// Removes the group with the ID `id`.
    ///
    /// # Errors
    /// `ENOENT` if there is no such group; `EBUSY` for the root, and for a group that contains a process or another
    /// group; `ENOMEM`.
    pub fn remove(&self, id: u32) -> Result<(), Errno> {
        let removed = {
            let _tasks = self.oom.tasks.lock();
            let group = self.get(id).ok_or(Errno::ENOENT)?;
            let Some(parent) = group.parent() else {
                return Err(Errno::EBUSY);
            };
            if group.population.is_populated() || group.place.children.load(Ordering::SeqCst) > 0 {
                return Err(Errno::EBUSY);
            }
            // Allocate the key first: if there is no memory for it, the group is not removed.
            let name = key(parent.id, &group.name).map_err(|_| Errno::ENOMEM)?;
            let mut groups = self.groups.lock();
            groups.by_name.remove(&name);
            groups.by_parent.remove(&(parent.id, id));
            groups.by_id.remove(&id);
            drop(groups);
            group.place.removed.store(true, Ordering::SeqCst);
            parent.place.children.fetch_sub(1, Ordering::SeqCst);
            if group.place.gives_memory.load(Ordering::SeqCst) {
                parent.place.givers.fetch_sub(1, Ordering::SeqCst);
            }
            let memories = u32::from(group.has_memory());
            each_above(parent, |above| {
                above.place.descendants.fetch_sub(1, Ordering::SeqCst);
                above.place.memories.fetch_sub(memories, Ordering::SeqCst);
            });
            self.close_memcg(group.set_memcg(Memcg::NOBODY));
            group
        };
        drop(removed);
        Ok(())
    }

    /// Allocates a memcg for a group directly below `parent`.
    pub(super) fn open_memcg(&self, parent: &Cgroup) -> Result<Memcg, Errno> {
        let opened = self.oom.memory.swap().open_memcg(parent.memcg());
        opened.map_err(no_memcg)
    }

    pub(super) fn close_memcg(&self, memcg: Memcg) {
        if memcg != Memcg::NOBODY {
            self.oom.memory.swap().close_memcg(memcg);
        }
    }

    /// Returns the group with the ID `id`, or the root for 0.
    pub fn get(&self, id: u32) -> Option<Arc<Cgroup>> {
        if id == 0 {
            return Some(self.root.clone());
        }
        self.groups.lock().by_id.get(&id).cloned()
    }

    /// Returns the ID of the group with the name `name` directly below the group `above`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn named(&self, above: u32, name: &[u8]) -> Result<Option<u32>, Errno> {
        let name = key(above, name).map_err(|_| Errno::ENOMEM)?;
        Ok(self.groups.lock().by_name.get(&name).copied())
    }

    /// Returns the first group directly below the group `above` that was created after the group with the ID `id`.
    pub fn after(&self, above: u32, id: u32) -> Option<Arc<Cgroup>> {
        let groups = self.groups.lock();
        let found = groups.by_parent.first_from(&(above, id.checked_add(1)?));
        let found = found.filter(|((parent, _), _)| *parent == above);
        found.map(|(_, group)| group.clone())
    }
}

/// Calls `act` for `group` and for each group above it, up to and including the root.
pub(super) fn each_above(group: &Arc<Cgroup>, mut act: impl FnMut(&Cgroup)) {
    let mut next = Some(group);
    while let Some(group) = next {
        act(group);
        next = group.parent();
    }
}

/// Returns whether the limits of `parent` and of the groups above it allow one more group below `parent`
/// (`cgroup_check_hierarchy_limits`).
fn may_grow(parent: &Arc<Cgroup>) -> bool {
    let (mut depth, mut allowed) = (1, true);
    let value = |value: &AtomicU32| value.load(Ordering::SeqCst);
    each_above(parent, |group| {
        let place = &group.place;
        allowed &= value(&place.descendants) < value(&place.most_descendants);
        allowed &= depth <= value(&place.most_depth);
        depth += 1;
    });
    allowed
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a chain of nested groups, the deepest last.
    fn chain(length: u32) -> Vec<Arc<Cgroup>> {
        let mut groups: Vec<Arc<Cgroup>> = Vec::new();
        for id in 0..length {
            let above = groups.last().cloned();
            groups.push(Arc::new(Cgroup::new(id, b"x", above)));
        }
        groups
    }

    #[test]
    fn limits_of_each_group_above_hold() {
        // In a chain of four groups: the index of the group that has limits, its `cgroup.max.descendants` and
        // `cgroup.max.depth`, and whether a group can be created below the last group of the chain.
        for (at, descendants, depth, allowed) in [
            (3, 1, 1, true),
            (3, 0, 1, false),
            (3, 1, 0, false),
            (0, 4, 4, true),
            (0, 3, 4, false),
            (0, 4, 3, false),
            (1, 3, 3, true),
            (1, 2, 3, false),
        ] {
            let groups = chain(4);
            for (index, group) in groups.iter().enumerate() {
                let below = (3 - index) as u32;
                group.place.descendants.store(below, Ordering::SeqCst);
            }
            let place = &groups[at].place;
            place.most_descendants.store(descendants, Ordering::SeqCst);
            place.most_depth.store(depth, Ordering::SeqCst);
            assert_eq!(may_grow(&groups[3]), allowed, "{at} {descendants} {depth}");
        }
    }

    #[test]
    fn a_deep_chain_is_dropped_iteratively() {
        let mut groups = chain(200_000);
        let deepest = groups.pop();
        drop(groups);
        drop(deepest);
    }

    #[test]
    fn a_group_is_within_those_above_it() {
        let groups = chain(4);
        let other = Arc::new(Cgroup::new(9, b"y", Some(groups[1].clone())));
        for (group, above, within) in [
            (&groups[3], &groups[3], true),
            (&groups[3], &groups[1], true),
            (&groups[3], &groups[0], true),
            (&groups[1], &groups[3], false),
            (&other, &groups[1], true),
            (&other, &groups[2], false),
            (&groups[3], &other, false),
        ] {
            assert_eq!(group.is_within(above), within, "{} {}", group.id, above.id);
        }
    }
}
