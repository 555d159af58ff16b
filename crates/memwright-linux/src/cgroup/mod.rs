//! Groups of processes with memory limits: cgroup v2 with one level of groups below the root (Linux 7.2
//! Documentation/admin-guide/cgroup-v2.rst).
//!
//! ```text
//! members.rs  membership               measure.rs  the charge of a group
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

mod hold;
mod measure;
mod members;

pub(crate) use hold::{hold, look};
pub use members::Membership;
pub(crate) use members::enter;

use crate::{
    batch::Batch,
    changes::Changes,
    errno::Errno,
    kernel::Kernel,
    process::{Life, Member, Process},
    reclaim::Clock,
    sync::{Lock, Rank},
};
use alloc::{boxed::Box, sync::Arc, vec::Vec};
use core::sync::atomic::{AtomicU64, Ordering};
use memwright::{MAX_MEMCGS, Memcg};
use memwright_table::TryPush;

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
    most: AtomicU64,
    /// Swap limit in slots.
    most_slots: AtomicU64,
    /// While `ever_had` is at most this value, the group cannot be over its limit.
    look_at: AtomicU64,
    /// Pages that system calls of its processes read from or wrote to in-memory files.
    called: AtomicU64,
    /// Number of changes to the inputs of `look_at`.
    changes: AtomicU64,
    /// Largest measured charge in pages.
    peak: AtomicU64,
    pub(crate) events: Events,
    /// Minor and major faults of former members.
    faults: [AtomicU64; 2],
    clock: Clock,
}

impl Cgroup {
    fn new(id: u32, name: &[u8], memcg: Memcg) -> Self {
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
            clock: Clock::new(),
        }
    }

    /// Returns the memory limit in pages, or [`UNLIMITED`].
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Sets the memory limit in pages. A caller that lowers the limit enforces it afterwards with [`hold()`].
    pub(crate) fn set_most(&self, pages: u64) {
        self.most.store(pages, Ordering::Relaxed);
        self.look_soon();
    }

    /// Returns the swap limit in slots, or [`UNLIMITED`].
    pub(crate) fn most_slots(&self) -> u64 {
        self.most_slots.load(Ordering::Relaxed)
    }

    /// Sets the swap limit in slots. Slots over the limit stay in use.
    pub(crate) fn set_most_slots(&self, kernel: &Kernel, slots: u64) {
        self.most_slots.store(slots, Ordering::Relaxed);
        // The lock keeps other threads from removing the group: the swap owner of a removed group can already belong to
        // another group.
        let _tasks = kernel.tasks.lock();
        if kernel.cgroups.get(self.id).is_some() {
            kernel.memory.swap().limit_memcg(self.memcg, slots);
        }
    }

    /// Returns the largest measured charge in pages. It is at most one eighth below the true peak.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Records that processes of the group are about to read or write `pages` pages by system calls.
    pub(crate) fn note_called(&self, pages: u64) {
        self.called.fetch_add(pages, Ordering::Relaxed);
    }

    /// Makes the next thread of the group that returns to user mode measure it.
    fn look_soon(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.look_at.store(0, Ordering::SeqCst);
    }

    /// Returns whether the process is in the group.
    pub(crate) fn has(&self, process: &Process) -> bool {
        let group = process.cgroup();
        group.is_some_and(|group| group.id == self.id)
    }

    /// Iterates over the processes of the group by id, without exited ones.
    pub(crate) fn members<'a>(
        &'a self,
        kernel: &'a Kernel,
    ) -> impl Iterator<Item = Arc<Process>> + 'a {
        living(kernel, |process| self.has(process))
    }
}

/// Iterates over the living processes for which `wanted` holds, in order of id.
pub(crate) fn living<F: Fn(&Process) -> bool>(
    kernel: &Kernel,
    wanted: F,
) -> impl Iterator<Item = Arc<Process>> + use<'_, F> {
    let lives =
        move |member: &Member| matches!(member.life, Life::Alive(_)) && wanted(&member.process);
    kernel.tasks.filter(lives)
}

/// Adds the ids of living processes for which `wanted` holds, from id `first` on, to `batch` until it is full.
pub(crate) fn note_living(
    kernel: &Kernel,
    first: u64,
    batch: &mut Batch<u32>,
    wanted: impl Fn(&Process) -> bool,
) {
    let Ok(first) = u32::try_from(first) else {
        return;
    };
    let tasks = kernel.tasks.lock();
    let mut living = tasks
        .members
        .range(first..)
        .map(|(_, member)| member)
        .filter(|member| matches!(member.life, Life::Alive(_)) && wanted(&member.process));
    let _ = living.all(|member| batch.push(member.process.id));
}

#[derive(Default)]
struct Groups {
    groups: Vec<Arc<Cgroup>>,
    last: u32,
    /// The memory controller is enabled (`cgroup.subtree_control`).
    memory: bool,
}

/// All groups of the machine.
pub(crate) struct Cgroups {
    groups: Lock<Groups>,
    /// A group got its first process, lost its last one, or exceeded its limit.
    pub(crate) changes: Changes,
}

impl Default for Cgroups {
    fn default() -> Self {
        Self {
            groups: Lock::new(Rank::Lists, Groups::default()),
            changes: Changes::default(),
        }
    }
}

impl Cgroups {
    /// Creates a group.
    ///
    /// # Errors
    /// `EEXIST` if a group has the name, `EINVAL` for a name that contains a line break, `EAGAIN` if there are too many
    /// groups, `ENOMEM`.
    pub(crate) fn make(&self, kernel: &Kernel, name: &[u8]) -> Result<(), Errno> {
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        // The lock keeps other threads from creating a group.
        let _tasks = kernel.tasks.lock();
        let memcg = {
            let groups = self.groups.lock();
            if groups.groups.iter().any(|group| &*group.name == name) {
                return Err(Errno::EEXIST);
            }
            let free = |memcg: &Memcg| groups.groups.iter().all(|one| one.memcg != *memcg);
            let mut all = (0..MAX_MEMCGS).map(Memcg::new);
            all.find(free).ok_or(Errno::EAGAIN)?
        };
        let opened = kernel.memory.swap().open_memcg(memcg);
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
    pub(crate) fn remove(&self, kernel: &Kernel, id: u32) -> Result<(), Errno> {
        let removed = {
            let tasks = kernel.tasks.lock();
            let group = self.get(id).ok_or(Errno::ENODEV)?;
            let busy = tasks
                .members
                .values()
                .any(|member| matches!(member.life, Life::Alive(_)) && group.has(&member.process));
            if busy {
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
    pub(crate) fn set_limit_memory(&self, kernel: &Kernel, on: bool) {
        let groups = {
            let mut groups = self.groups.lock();
            groups.memory = on;
            groups.groups.clone()
        };
        if !on {
            for group in groups {
                group.set_most(UNLIMITED);
                group.set_most_slots(kernel, UNLIMITED);
            }
        }
    }
}
