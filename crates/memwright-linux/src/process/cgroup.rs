//! The cgroup of a process: its limits, its events, and the membership.

use super::{Process, Walked};
use crate::{
    reclaim_cursor::ReclaimCursor,
    scheduler::{UsageSnapshot, Work},
    sync::{Lock, Rank},
};
use alloc::{boxed::Box, sync::Arc};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright::Memcg;

/// No limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// How often each event happened in a group (`memory.events`).
#[derive(Default)]
pub(crate) struct Events {
    /// The group was about to exceed its limit.
    pub(crate) max: AtomicU64,
    /// Reclaim found no further page.
    pub(crate) out_of_memory: AtomicU64,
    /// One of its processes was killed for lack of memory.
    pub(crate) killed: AtomicU64,
}

/// A group of processes.
pub struct Cgroup {
    /// Its number. Numbers are never reused.
    pub(crate) id: u32,
    /// Its name.
    pub(crate) name: Box<[u8]>,
    /// The owner that its swap slots are charged to.
    pub(crate) memcg: Memcg,
    /// Memory limit in pages.
    pub(crate) most: AtomicU64,
    /// Swap limit in slots.
    pub(crate) most_slots: AtomicU64,
    /// While `ever_had` is at most this value, the group cannot be over its limit.
    pub(crate) look_at: AtomicU64,
    /// Pages that system calls of its processes read from or wrote to in-memory files.
    pub(crate) called: AtomicU64,
    /// Number of changes to the inputs of `look_at`.
    pub(crate) changes: AtomicU64,
    /// Largest measured charge in pages.
    pub(crate) peak: AtomicU64,
    pub(crate) events: Events,
    /// Minor and major faults of former members.
    pub(crate) faults: [AtomicU64; 2],
    /// The cursor of the reclaim of its pages.
    pub(crate) cursor: ReclaimCursor,
    /// The last walk over its memory.
    pub(crate) walked: Lock<Option<Walked>>,
}

impl Cgroup {
    pub(crate) fn new(id: u32, name: &[u8], memcg: Memcg) -> Self {
        Self {
            id,
            name: name.into(),
            memcg,
            most: AtomicU64::new(UNLIMITED),
            most_slots: AtomicU64::new(UNLIMITED),
            look_at: AtomicU64::new(0),
            called: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            events: Events::default(),
            faults: Default::default(),
            cursor: ReclaimCursor::new(),
            walked: Lock::new(Rank::Leaf, None),
        }
    }

    /// Returns the memory limit in pages, or [`UNLIMITED`].
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets the memory limit in pages. A caller that lowers the limit enforces it afterwards with `Cgroups::hold`.
    pub(crate) fn set_most(&self, pages: u64) {
        self.most.store(pages, Ordering::Relaxed);
        self.look_soon();
    }

    /// Returns the swap limit in slots, or [`UNLIMITED`].
    pub(crate) fn most_slots(&self) -> u64 {
        self.most_slots.load(Ordering::Relaxed)
    }

    /// Returns the largest measured charge in pages. It is at most one eighth below the true peak, and at most a
    /// 64th above it.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Records that processes of the group are about to read or write `pages` pages by system calls.
    pub(crate) fn note_called(&self, pages: u64) {
        self.called.fetch_add(pages, Ordering::Relaxed);
    }

    /// Makes the next thread of the group that returns to user mode measure it.
    pub(crate) fn look_soon(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.look_at.store(0, Ordering::SeqCst);
    }
}

/// The membership of a process in a group.
#[derive(Clone, Default)]
pub struct Membership {
    /// The group; `None` for the root.
    pub(crate) group: Option<Arc<Cgroup>>,
    /// Minor and major faults of the process before it joined the group.
    before: [u64; 2],
}

pub(crate) const fn faults(usage: &UsageSnapshot) -> [u64; 2] {
    [usage.minor_faults, usage.major_faults]
}

impl Process {
    /// Returns the group of the process; `None` for the root.
    pub(crate) fn cgroup(&self) -> Option<Arc<Cgroup>> {
        self.membership.lock().group.clone()
    }

    /// Returns whether the process is in `group`.
    pub(crate) fn is_in(&self, group: &Cgroup) -> bool {
        self.cgroup().is_some_and(|own| own.id == group.id)
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
    pub(crate) fn mark_threads(&self) {
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
    pub(crate) fn faults_in_group(&self) -> [u64; 2] {
        let now = faults(&self.total_usage());
        let before = self.membership.lock().before;
        [
            now[0].saturating_sub(before[0]),
            now[1].saturating_sub(before[1]),
        ]
    }
}

impl Membership {
    pub(crate) fn settle(&mut self, now: [u64; 2]) {
        if let Some(group) = &self.group {
            for (sum, (now, before)) in group.faults.iter().zip(now.iter().zip(self.before)) {
                sum.fetch_add(now.saturating_sub(before), Ordering::Relaxed);
            }
        }
        self.before = now;
    }
}
