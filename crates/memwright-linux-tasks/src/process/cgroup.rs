//! Cgroups: their limits, their counts of events, and the membership of a process.

use super::Walked;
use crate::reclaim_cursor::ReclaimCursor;
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};
use memwright::Memcg;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_sched::scheduler::UsageSnapshot;
use memwright_table::TryPush;

/// The value of a memory or swap limit that stands for no limit (`max`).
pub const UNLIMITED: u64 = u64::MAX;
/// The value of `cgroup.max.descendants` or `cgroup.max.depth` that stands for no limit (`INT_MAX`).
pub const NO_MOST: u32 = i32::MAX as u32;

/// The number of times that each event occurred in a group, or in a group and the groups below it.
#[derive(Default)]
pub struct Events {
    /// The group was about to exceed its limit.
    pub max: AtomicU64,
    /// Reclaim found no further page.
    pub out_of_memory: AtomicU64,
    /// The out-of-memory killer killed one of the group's processes.
    pub killed: AtomicU64,
}

/// An event of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The group was about to exceed its limit.
    Max,
    /// Reclaim found no further page.
    OutOfMemory,
    /// The out-of-memory killer killed one of the group's processes.
    Killed,
}

impl Events {
    fn count(&self, event: Event) {
        let counter = match event {
            Event::Max => &self.max,
            Event::OutOfMemory => &self.out_of_memory,
            Event::Killed => &self.killed,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn reset(&self) {
        for counter in [&self.max, &self.out_of_memory, &self.killed] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// The reason why the path of a group cannot be returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathError {
    /// The path is longer than the caller allows.
    TooLong,
    /// There is no memory for the path.
    OutOfMemory,
}

/// The state of a group as a part of the tree of groups. Changed under the lock of the process table.
pub struct GroupPlace {
    /// Number of groups directly below this group.
    pub children: AtomicU32,
    /// Number of all groups below this group.
    pub descendants: AtomicU32,
    /// Number of groups with the memory controller: this group, if it has the controller, and those below it.
    pub memories: AtomicU32,
    /// The maximum number of all groups below this group (`cgroup.max.descendants`). `most_depth` is the maximum number
    /// of levels below this group (`cgroup.max.depth`).
    pub most_descendants: AtomicU32,
    pub most_depth: AtomicU32,
    /// Whether the groups directly below this group have the memory controller (`cgroup.subtree_control`).
    pub gives_memory: AtomicBool,
    /// Number of groups directly below this group for which `gives_memory` is set.
    pub givers: AtomicU32,
    /// Whether the group was removed.
    pub removed: AtomicBool,
}

impl Default for GroupPlace {
    fn default() -> Self {
        Self {
            children: AtomicU32::new(0),
            descendants: AtomicU32::new(0),
            memories: AtomicU32::new(0),
            most_descendants: AtomicU32::new(NO_MOST),
            most_depth: AtomicU32::new(NO_MOST),
            gives_memory: AtomicBool::new(false),
            givers: AtomicU32::new(0),
            removed: AtomicBool::new(false),
        }
    }
}

/// A group of processes.
pub struct Cgroup {
    /// The id of the group. Ids are never reused. The root has 0.
    pub id: u32,
    /// The name of the group.
    pub name: Box<[u8]>,
    /// The group directly above this group; `None` for the root.
    above: Option<Arc<Cgroup>>,
    /// The number of groups above.
    pub level: u32,
    /// The counts and limits of the group as a part of the tree.
    pub place: GroupPlace,
    /// The counts that determine whether the group is populated.
    pub population: Population,
    /// The number of the group's memcg; that of `Memcg::NOBODY` while the group has no memory controller.
    memcg: AtomicU16,
    /// Memory limit in pages.
    pub most: AtomicU64,
    /// Swap limit in slots.
    pub most_slots: AtomicU64,
    /// While `Cgroups::ever` is at most this value, the group cannot be over its limit.
    pub look_at: AtomicU64,
    /// The value of `Cgroups::ever` above which threads of the group check the limits: the lowest `look_at` of the
    /// group and those above it.
    pub due: Due,
    /// Number of times that a process joined or a limit changed, which makes earlier measurements invalid.
    pub changes: AtomicU64,
    /// The largest charge that was measured, in pages.
    pub peak: AtomicU64,
    /// The counts of the events of the group and of those below it.
    pub events: Events,
    /// The counts of the events of the group itself.
    pub own_events: Events,
    /// The minor and the major faults of processes that were charged to the group or to a group below it. Only the
    /// faults that `Membership::settle` has added are included.
    pub faults: [AtomicU64; 2],
    /// The reclaim cursor over the pages of the group.
    pub cursor: ReclaimCursor,
    /// The result of the last walk over the memory of the group; `None` before the first walk.
    pub walked: Lock<Option<Walked>>,
}

impl Cgroup {
    /// Creates a group below `above`, or the root if `above` is `None`.
    pub fn new(id: u32, name: &[u8], above: Option<Arc<Self>>) -> Self {
        Self {
            id,
            name: name.into(),
            level: above.as_ref().map_or(0, |above| above.level + 1),
            above,
            place: GroupPlace::default(),
            population: Population::default(),
            memcg: AtomicU16::new(Memcg::NOBODY.raw()),
            most: AtomicU64::new(UNLIMITED),
            most_slots: AtomicU64::new(UNLIMITED),
            look_at: AtomicU64::new(0),
            due: Due::new(),
            changes: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            events: Events::default(),
            own_events: Events::default(),
            faults: Default::default(),
            cursor: ReclaimCursor::default(),
            walked: Lock::new(Rank::Leaf, None),
        }
    }

    /// Returns the group above; `None` for the root.
    pub fn parent(&self) -> Option<&Arc<Self>> {
        self.above.as_ref()
    }

    /// Iterates over the group and those above it, without the root.
    pub fn upwards(self: &Arc<Self>) -> impl Iterator<Item = &Arc<Self>> {
        core::iter::successors(Some(self), |group| group.parent())
            .take_while(|group| group.parent().is_some())
    }

    /// Returns whether the group is `above` itself or a group below `above`.
    pub fn is_within(self: &Arc<Self>, above: &Self) -> bool {
        let mut groups = self.upwards().skip_while(|group| group.level > above.level);
        above.parent().is_none() || groups.next().is_some_and(|group| group.id == above.id)
    }

    /// Returns the path from the root, without the slash at its start. `most` is the maximum length in bytes, in which
    /// that slash and a NUL at the end are counted.
    ///
    /// # Errors
    /// [`PathError`]: the path is longer than `most`, or there is no memory for it.
    pub fn path(self: &Arc<Self>, most: usize) -> Result<Vec<u8>, PathError> {
        let mut start: usize = self.upwards().map(|group| group.name.len() + 1).sum();
        if start >= most {
            return Err(PathError::TooLong);
        }
        let mut path = Vec::new();
        let filled = path.try_fill(start, b'/');
        filled.map_err(|_| PathError::OutOfMemory)?;
        for group in self.upwards() {
            start -= group.name.len();
            path[start..][..group.name.len()].copy_from_slice(&group.name);
            start -= 1;
        }
        path.drain(..path.len().min(1));
        Ok(path)
    }

    /// Returns the memcg that the group's swap slots are charged to; `Memcg::NOBODY` while the group has no memory
    /// controller.
    pub fn memcg(&self) -> Memcg {
        Memcg::from_raw(self.memcg.load(Ordering::SeqCst))
    }

    /// Returns whether the group has the memory controller.
    pub fn has_memory(&self) -> bool {
        self.memcg() != Memcg::NOBODY
    }

    /// Enables the memory controller of the group, without limits, or disables it if `memcg` is `Memcg::NOBODY`.
    /// Returns the previous memcg.
    pub fn set_memcg(&self, memcg: Memcg) -> Memcg {
        self.most.store(UNLIMITED, Ordering::Relaxed);
        self.most_slots.store(UNLIMITED, Ordering::Relaxed);
        self.peak.store(0, Ordering::Relaxed);
        self.events.reset();
        self.own_events.reset();
        self.forget_measurement();
        Memcg::from_raw(self.memcg.swap(memcg.raw(), Ordering::SeqCst))
    }

    /// Returns the group that is charged for processes of this group: the nearest one with the memory controller, from
    /// this one upwards; `None` if there is none.
    pub fn charged(self: &Arc<Self>) -> Option<Arc<Self>> {
        self.upwards().find(|group| group.has_memory()).cloned()
    }

    /// Counts an event of this group, in its own counts and in the total counts of this group and of all groups above
    /// it.
    pub fn count(self: &Arc<Self>, event: Event) {
        self.own_events.count(event);
        for group in self.upwards() {
            group.events.count(event);
        }
    }

    /// Returns the memory limit in pages, or [`UNLIMITED`].
    pub fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Returns the swap limit in slots, or [`UNLIMITED`].
    pub fn most_slots(&self) -> u64 {
        self.most_slots.load(Ordering::Relaxed)
    }

    /// Returns the largest measured charge in pages. It is at most one eighth below the true peak, and at most a
    /// 64th above it.
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Makes the next check of the limits measure the charge of the group. Unlike `Cgroups::look_soon`, this function
    /// does not request a check.
    pub fn forget_measurement(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.look_at.store(0, Ordering::SeqCst);
    }
}

impl Drop for Cgroup {
    /// Drops the groups above in a loop. Programs determine the depth of the tree, so a recursive drop could overflow
    /// the kernel stack.
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut group) = above.and_then(Arc::into_inner) {
            above = group.above.take();
        }
    }
}

/// The value of `Cgroups::ever` above which the threads of a group check the limits of the group and of those above it.
pub struct Due {
    /// The value of `Cgroups::epoch` for which `at` was computed.
    epoch: AtomicU64,
    at: AtomicU64,
    /// Serialises the writers.
    writer: Lock<()>,
}

impl Due {
    fn new() -> Self {
        Self {
            epoch: AtomicU64::new(0),
            at: AtomicU64::new(0),
            writer: Lock::new(Rank::Leaf, ()),
        }
    }

    /// Returns whether a thread must check the limits if `epoch` is the current epoch and `Cgroups::ever` is `ever`.
    pub fn is_due(&self, epoch: u64, ever: u64) -> bool {
        self.epoch.load(Ordering::SeqCst) != epoch || ever > self.at.load(Ordering::SeqCst)
    }

    /// Sets `at` to a value that was computed from the state in `epoch`, unless a newer epoch is recorded.
    pub fn set(&self, epoch: u64, at: u64) {
        let _writer = self.writer.lock();
        if self.epoch.load(Ordering::SeqCst) <= epoch {
            self.at.store(at, Ordering::SeqCst);
            self.epoch.store(epoch, Ordering::SeqCst);
        }
    }
}

/// The membership of a process in a group.
#[derive(Clone, Default)]
pub struct Membership {
    /// The group; `None` for the root.
    pub group: Option<Arc<Cgroup>>,
    /// The group that is charged for the process, if there is one: `group` or one above it.
    pub charged: Option<Arc<Cgroup>>,
    /// The minor and the major faults of the process that must not be added to the counts of the group: those from
    /// before the process joined, and those that [`settle`](Self::settle) has added already.
    pub(super) before: [u64; 2],
}

/// Returns the minor and major faults of a process.
pub const fn faults(usage: &UsageSnapshot) -> [u64; 2] {
    [usage.minor_faults, usage.major_faults]
}

impl Membership {
    /// Adds the faults since the process joined the group, or since the last call, to the counts of the charged group
    /// and of those above it. `now` contains the minor and major faults of the process since it started.
    pub fn settle(&mut self, now: [u64; 2]) {
        let charged = self.charged.as_ref();
        for group in charged.into_iter().flat_map(|group| group.upwards()) {
            for (sum, (now, before)) in group.faults.iter().zip(now.iter().zip(self.before)) {
                sum.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
            }
        }
        self.before = now;
    }
}

/// The counts that determine whether a group is populated (`cgroup.events`). Changed under the lock of the process
/// table.
#[derive(Default)]
pub struct Population {
    /// Number of living processes of the group itself.
    pub(super) members: AtomicU32,
    /// Number of populated groups directly below the group.
    pub(super) children: AtomicU32,
}

impl Population {
    /// Returns the number of living processes of the group itself.
    pub fn members(&self) -> u32 {
        self.members.load(Ordering::SeqCst)
    }

    /// Returns the number of populated groups directly below the group.
    pub fn children(&self) -> u32 {
        self.children.load(Ordering::SeqCst)
    }

    /// Returns whether the group or one below it has a living process.
    pub fn is_populated(&self) -> bool {
        self.members() > 0 || self.children() > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_the_names_of_all_groups() {
        let root = Arc::new(Cgroup::new(0, b"", None));
        let one = Arc::new(Cgroup::new(1, b"one", Some(root)));
        let two = Arc::new(Cgroup::new(2, b"b", Some(one.clone())));
        assert_eq!(one.path(4096).as_deref(), Ok(&b"one"[..]));
        assert_eq!(two.path(7).as_deref(), Ok(&b"one/b"[..]));
        assert_eq!(two.path(6), Err(PathError::TooLong));
    }

    #[test]
    fn the_newest_epoch_says_when_to_check() {
        let due = Due::new();
        assert!(due.is_due(1, 0));
        due.set(1, 100);
        assert!(!due.is_due(1, 100) && due.is_due(1, 101));
        assert!(due.is_due(2, 0));
        due.set(3, 50);
        // The result of a check that began in an older epoch does not replace that of a newer epoch.
        due.set(2, 1000);
        assert!(!due.is_due(3, 50) && due.is_due(3, 51) && due.is_due(2, 0));
    }
}
