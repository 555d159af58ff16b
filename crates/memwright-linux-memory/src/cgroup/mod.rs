//! Groups of processes with memory limits: cgroup v2 (Linux 7.3 Documentation/admin-guide/cgroup-v2.rst).
//!
//! ```text
//! tree.rs     creating, finding and removing groups     control.rs  which groups have the memory controller
//! members.rs  processes of a group                      measure.rs  the charge of a group
//! hold.rs     enforcing the limits
//! ```
//!
//! A group is charged for the frames that the processes in it and in the groups below it map: private memory, and
//! shared memory in shared mappings. Each frame is charged once. A group is also charged for pages of in-memory files
//! that were first written by a system call of one of these processes. Pages of other files in private mappings, page
//! tables and the kernel's own memory are not charged. When a process moves to another group, its charge moves with it.
//! Files stay charged to the group that wrote them, and swap slots to the group that swapped the pages out.
//!
//! Mapping and unmapping pages updates no counter of a group, so groups cost nothing for a process in the root. On
//! return to user mode, a thread in a group reads two counters: the pages that were mapped system-wide, and the pages
//! that processes in groups read and wrote by system calls. If these numbers show that neither the group nor a group
//! above it can be over its limit, the thread continues. Otherwise it measures those of these groups that can be over
//! their limits, and reclaims any excess.
//!
//! A measurement walks the memory of the group. A group at its limit is measured every few pages. Most of these
//! measurements do not walk: they compute the change since the last walk from the counters of the address spaces
//! (`process/cgroup_charge.rs`). If all processes and files of a group are in a single group directly below it, the
//! charges of the two groups are equal, so only the lower group is measured.

mod control;
mod hold;
mod measure;
mod members;
mod tree;

pub use measure::Measurement;

use crate::{oom::OomKiller, reclaim::Reclaim};
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_linux_base::sync::{Lock, Rank};
use memwright_linux_tasks::process::Cgroup;
use memwright_linux_vfs::changes::Changes;
use tree::Groups;

/// All groups of the machine, and the state by which their limits are enforced.
pub struct Cgroups {
    reclaim: Arc<Reclaim>,
    oom: Arc<OomKiller>,
    root: Arc<Cgroup>,
    groups: Lock<Groups>,
    /// The number of pages of in-memory files that processes in groups have read or written by system calls.
    called: AtomicU64,
    /// The current epoch, which begins when a process joins a group or a limit changes. In a new epoch, each thread
    /// checks the limits of its groups again.
    epoch: AtomicU64,
}

impl Cgroups {
    /// Creates the state of a machine without groups.
    pub fn new(reclaim: Arc<Reclaim>, oom: Arc<OomKiller>) -> Self {
        Self {
            reclaim,
            oom,
            root: Arc::new(Cgroup::new(0, b"", None)),
            groups: Lock::new(Rank::Lists, Groups::default()),
            called: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
        }
    }

    /// Returns the changes that readers of event files wait for: a group became populated or empty, or an event was
    /// counted.
    pub fn changes(&self) -> &Changes {
        &self.oom.group_changes
    }

    /// Records that a process in a group will read or write `pages` pages by a system call.
    pub fn note_called(&self, pages: u64) {
        self.called.fetch_add(pages, Ordering::Relaxed);
    }

    /// Returns the number of pages ever mapped system-wide, plus the number of pages that processes in groups have read
    /// or written by system calls. Between two points in time, the charge of a group grows by at most the growth of
    /// this value.
    pub(super) fn ever(&self) -> u64 {
        self.oom.memory.ever_mapped() + self.called.load(Ordering::Relaxed)
    }

    /// Makes the next thread that is in one of `groups`, or in a group below them, measure these groups when it returns
    /// to user mode.
    pub fn look_soon<'a>(&self, groups: impl Iterator<Item = &'a Arc<Cgroup>>) {
        // The first new epoch begins before the groups change, so that a thread that reads a changed group also finds a
        // new epoch. The second one begins after the change, so that a thread that has read a group before the change
        // checks again.
        self.epoch.fetch_add(1, Ordering::SeqCst);
        for group in groups {
            group.forget_measurement();
        }
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Sets the memory limit of a group in pages. A caller that lowers the limit enforces it afterwards with `hold`.
    pub fn set_most(&self, group: &Arc<Cgroup>, pages: u64) {
        group.most.store(pages, Ordering::Relaxed);
        self.look_soon(core::iter::once(group));
    }

    /// Sets the swap limit of a group in slots. Slots over the limit stay in use.
    pub fn set_most_slots(&self, group: &Cgroup, slots: u64) {
        // While the process table is locked, no other thread removes the group or disables its controller. Without the
        // lock, another group could have received the memcg by now, and the limit would be set for that group.
        let _tasks = self.oom.tasks.lock();
        if group.has_memory() {
            group.most_slots.store(slots, Ordering::Relaxed);
            self.oom.memory.swap().limit_memcg(group.memcg(), slots);
        }
    }
}
