//! Groups of processes with limits on their memory: cgroup v2 with one level of groups (Linux 7.2
//! Documentation/admin-guide/cgroup-v2.rst).
//!
//! ```text
//! members.rs  who is in a group        measure.rs  what a group has
//! hold.rs     a group that has too much
//! ```
//!
//! A group is charged for the frames that its processes show: those of private memory, and those of shared memory that
//! a shared mapping shows, each once; and for the files in memory into which one of its processes was the first to store
//! by a call. Pages of other files in private mappings, page tables and the kernel's own memory are not charged. What a
//! process has goes with it to another group; files, and slots in swap, stay with the group that stored into them, or
//! sent the pages out.
//!
//! Nothing is counted where pages come and go, so that who is in no group pays nothing. A thread in a group looks at
//! how many pages were mapped at all, or read and stored by its group's calls, on its way back to its program; only when the group
//! may have passed its limit is it measured, and what is too much leaves before the thread goes on.

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
use memwright::{MOST_PAYERS, SwapPayer};
use memwright_table::TryPush;

/// No limit.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// How often something happened in a group (`memory.events`).
#[derive(Default)]
pub(crate) struct Events {
    /// It was about to have more than it may.
    pub(crate) max: AtomicU64,
    /// Nothing more of it could leave.
    pub(crate) out_of_memory: AtomicU64,
    /// One of its processes was killed for that.
    pub(crate) killed: AtomicU64,
}

/// A group.
pub struct Cgroup {
    /// Its number, which no other ever has.
    pub(crate) id: u32,
    /// Its name.
    pub(crate) name: Box<[u8]>,
    /// Pays for slots.
    pub(crate) payer: SwapPayer,
    /// Pages that it may have.
    most: AtomicU64,
    /// Slots that it may have.
    most_slots: AtomicU64,
    /// Unless more pages than this were ever mapped or called for, it has no more than it may.
    look_at: AtomicU64,
    /// Pages that calls of its processes read from files in memory, or stored there.
    called: AtomicU64,
    /// How often it changed what `look_at` follows from.
    changes: AtomicU64,
    /// The most pages that it was measured to have.
    peak: AtomicU64,
    pub(crate) events: Events,
    /// Minor and major faults of processes that are gone.
    faults: [AtomicU64; 2],
    clock: Clock,
}

impl Cgroup {
    fn new(id: u32, name: &[u8], payer: SwapPayer) -> Self {
        Self {
            id,
            name: name.into(),
            payer,
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

    /// Pages that it may have, or [`UNLIMITED`].
    pub(crate) fn most(&self) -> u64 {
        self.most.load(Ordering::Relaxed)
    }

    /// Lets it have that many pages from now on. Who lowers the limit [`hold`]s it to that.
    pub(crate) fn set_most(&self, pages: u64) {
        self.most.store(pages, Ordering::Relaxed);
        self.look_soon();
    }

    /// Slots that it may have, or [`UNLIMITED`].
    pub(crate) fn most_slots(&self) -> u64 {
        self.most_slots.load(Ordering::Relaxed)
    }

    /// Lets it have that many slots from now on; what it has more stays.
    pub(crate) fn set_most_slots(&self, kernel: &Kernel, slots: u64) {
        self.most_slots.store(slots, Ordering::Relaxed);
        // Nobody removes the group meanwhile: of one that is gone the payer may be another's by now.
        let _tasks = kernel.tasks.lock();
        if kernel.cgroups.get(self.id).is_some() {
            kernel.memory.swap().limit_payer(self.payer, slots);
        }
    }

    /// The most pages that it was measured to have: one eighth less than it ever had at worst.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Its processes are about to read or store `pages` pages by calls.
    pub(crate) fn note_called(&self, pages: u64) {
        self.called.fetch_add(pages, Ordering::Relaxed);
    }

    /// Its next thread that goes back to its program measures it.
    fn look_soon(&self) {
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.look_at.store(0, Ordering::SeqCst);
    }

    /// Whether the process is in it.
    pub(crate) fn has(&self, process: &Process) -> bool {
        let group = process.cgroup();
        group.is_some_and(|group| group.id == self.id)
    }

    /// Its processes, ended ones left out, by id.
    pub(crate) fn members<'a>(
        &'a self,
        kernel: &'a Kernel,
    ) -> impl Iterator<Item = Arc<Process>> + 'a {
        living(kernel, |process| self.has(process))
    }
}

/// The processes that live and for which `wanted` holds, by id.
pub(crate) fn living<F: Fn(&Process) -> bool>(
    kernel: &Kernel,
    wanted: F,
) -> impl Iterator<Item = Arc<Process>> + use<'_, F> {
    let lives =
        move |member: &Member| matches!(member.life, Life::Alive(_)) && wanted(&member.process);
    kernel.tasks.filter(lives)
}

/// Adds the ids of processes that live and for which `wanted` holds to `batch`, from `first` on, until it is full.
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
    /// Groups have limits of memory (`cgroup.subtree_control`).
    memory: bool,
}

/// The groups of a machine.
pub(crate) struct Cgroups {
    groups: Lock<Groups>,
    /// A group has its first process, has lost its last, or had more than it may.
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
    /// Makes a group.
    ///
    /// # Errors
    /// `EEXIST`, `EINVAL` for a name of several lines, `EAGAIN` when there are too many, `ENOMEM`.
    pub(crate) fn make(&self, kernel: &Kernel, name: &[u8]) -> Result<(), Errno> {
        if name.contains(&b'\n') {
            return Err(Errno::EINVAL);
        }
        // Nobody else makes a group meanwhile.
        let _tasks = kernel.tasks.lock();
        let payer = {
            let groups = self.groups.lock();
            if groups.groups.iter().any(|group| &*group.name == name) {
                return Err(Errno::EEXIST);
            }
            let free = |payer: &SwapPayer| groups.groups.iter().all(|one| one.payer != *payer);
            let mut all = (0..MOST_PAYERS).map(SwapPayer::new);
            all.find(free).ok_or(Errno::EAGAIN)?
        };
        let opened = kernel.memory.swap().open_payer(payer);
        opened.map_err(|_| Errno::ENOMEM)?;
        let mut groups = self.groups.lock();
        groups.last += 1;
        let group = Arc::new(Cgroup::new(groups.last, name, payer));
        groups.groups.try_push(group).map_err(|_| Errno::ENOMEM)
    }

    /// Removes a group.
    ///
    /// # Errors
    /// `EBUSY` while a process is in it, `ENODEV` if there is none.
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

    /// The group of that number.
    pub(crate) fn get(&self, id: u32) -> Option<Arc<Cgroup>> {
        self.find(|group| group.id == id)
    }

    /// The group of that name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<Arc<Cgroup>> {
        self.find(|group| &*group.name == name)
    }

    /// The first group made after that of number `id`.
    pub(crate) fn after(&self, id: u32) -> Option<Arc<Cgroup>> {
        self.find(|group| group.id > id)
    }

    fn find(&self, wanted: impl Fn(&Cgroup) -> bool) -> Option<Arc<Cgroup>> {
        let groups = self.groups.lock();
        groups.groups.iter().find(|group| wanted(group)).cloned()
    }

    /// Whether groups have limits of memory.
    pub(crate) fn limit_memory(&self) -> bool {
        self.groups.lock().memory
    }

    /// Lets groups have limits of memory, or none: then those that were set are gone.
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
