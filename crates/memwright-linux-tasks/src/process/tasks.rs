//! The table of processes.

use super::{Cgroup, Ended, Life, Process, Thread, Tracees};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::sync::atomic::AtomicU64;
use memwright::Memcg;
use memwright_linux_base::{
    batch::Batch,
    ordered::Ordered,
    sync::{Lock, LockGuard, Rank},
};
use memwright_linux_sched::scheduler::Scheduler;

/// Process id of the built-in reaper.
pub const REAPER: u32 = 1;
/// Process id of the process that executes the program of the run.
pub const PROGRAM: u32 = 2;

/// First id that is reused after a wrap-around (`RESERVED_PIDS` of Linux 7.2).
const FIRST_REUSED: u32 = 300;
/// End of the range of ids (`PID_MAX_DEFAULT`).
pub const END: u32 = 32_768;

/// A process in the table.
pub struct Member {
    /// The process.
    pub process: Arc<Process>,
    /// The children of the process, oldest first.
    pub children: Vec<Arc<Process>>,
    /// The state of the process, as its parent sees it.
    pub life: Life,
    /// The threads that the process traces.
    pub tracees: Tracees,
}

impl Member {
    /// Returns whether the process has not exited.
    pub fn is_alive(&self) -> bool {
        match self.life {
            Life::Alive(_) => true,
            Life::Zombie(_) => false,
        }
    }
}

/// The processes and the objects whose memory a walk visits.
#[derive(Clone, Copy)]
pub enum Among<'a> {
    /// All processes and all objects.
    All,
    /// The processes with these ids, which are in order, and the objects that are charged to this memcg.
    Charged(&'a [u32], Memcg),
}

impl Among<'_> {
    /// Returns the memcg to whose objects the walk is limited; `None` if it visits all objects.
    pub fn memcg(&self) -> Option<Memcg> {
        match self {
            Among::All => None,
            Among::Charged(_, memcg) => Some(*memcg),
        }
    }
}

/// The data under the lock of the process table.
#[derive(Default)]
pub struct TaskTable {
    /// Processes by id, zombies included.
    pub members: BTreeMap<u32, Member>,
    /// Living threads by id.
    pub threads: BTreeMap<u32, Arc<Thread>>,
    /// Traced threads that have exited and that their tracers have not waited for, by id. These ids are not reused.
    ended: BTreeMap<u32, Ended>,
    /// Pairs of the id of a process group and the id of one of its processes. `sessions` contains such pairs for
    /// sessions.
    pub(super) groups: BTreeSet<(u32, u32)>,
    pub(super) sessions: BTreeSet<(u32, u32)>,
    /// Pairs of the id of a cgroup and the id of one of its living processes. Processes in the root cgroup are not
    /// included.
    cgroups: BTreeSet<(u32, u32)>,
    /// The populated cgroups below the root, by the id of the parent and the id of the cgroup.
    pub(super) populated: Ordered<(u32, u32), Arc<Cgroup>>,
    last_id: u32,
    /// Number of living processes that adopt orphans.
    pub(super) subreapers: usize,
    /// Number of processes entered so far.
    pub(super) births: u64,
    /// Whether the program of the run has ended: `fork` then enters no more processes.
    pub closed: bool,
}

/// All processes and threads.
pub struct Tasks {
    /// The scheduler of all threads.
    pub scheduler: &'static Scheduler<Thread>,
    /// Number of user processes created since boot.
    pub made: AtomicU64,
    table: Lock<TaskTable>,
}

impl Tasks {
    /// Creates an empty table of processes whose threads run on `scheduler`.
    #[must_use]
    pub fn new(scheduler: &'static Scheduler<Thread>) -> Self {
        Self {
            scheduler,
            made: AtomicU64::new(0),
            table: Lock::new(Rank::Process, TaskTable::default()),
        }
    }

    /// Takes the lock of the table.
    pub fn lock(&self) -> LockGuard<'_, TaskTable> {
        self.table.lock()
    }

    /// Takes the lock of the table; `None` if it is held.
    pub fn try_lock(&self) -> Option<LockGuard<'_, TaskTable>> {
        self.table.try_lock()
    }

    /// Returns the process `id`, which may be a zombie.
    pub fn process(&self, id: u32) -> Option<Arc<Process>> {
        self.lock()
            .members
            .get(&id)
            .map(|member| member.process.clone())
    }

    /// Returns the living thread `id`.
    pub fn thread(&self, id: u32) -> Option<Arc<Thread>> {
        self.lock().threads.get(&id).cloned()
    }

    /// Returns the process with the lowest id from `first` on for which `wanted` holds.
    pub fn next(&self, first: u32, wanted: impl Fn(&Member) -> bool) -> Option<Arc<Process>> {
        let table = self.lock();
        let mut members = table.members.range(first..).map(|(_, member)| member);
        let found = members.find(|member| wanted(member));
        found.map(|member| member.process.clone())
    }

    /// Iterates over the processes for which `wanted` holds, in order of id. The table is locked only during each step,
    /// so the iteration includes a process that is entered meanwhile if its id is larger than the last one returned.
    pub fn filter<F: Fn(&Member) -> bool>(
        &self,
        wanted: F,
    ) -> impl Iterator<Item = Arc<Process>> + use<'_, F> {
        let mut first = 0;
        core::iter::from_fn(move || {
            let process = self.next(first, &wanted)?;
            first = process.id + 1;
            Some(process)
        })
    }

    /// Iterates over the living processes for which `wanted` holds, in order of id.
    pub fn living<F: Fn(&Process) -> bool>(
        &self,
        wanted: F,
    ) -> impl Iterator<Item = Arc<Process>> + use<'_, F> {
        self.filter(move |member| member.is_alive() && wanted(&member.process))
    }

    /// Returns the process of `among` with the lowest id that is at least `first`. It may be a zombie.
    pub fn next_among(&self, first: u32, among: Among<'_>) -> Option<Arc<Process>> {
        match among {
            Among::All => self.next(first, |_| true),
            Among::Charged(ids, _) => {
                let from = ids.partition_point(|id| *id < first);
                ids[from..].iter().find_map(|id| self.process(*id))
            }
        }
    }

    /// Returns whether the process group is orphaned: no member has a parent in another group of the same session
    /// (`will_become_orphaned_pgrp` of Linux 7.2, `kernel/exit.c`).
    pub fn group_is_orphaned(&self, group: u32) -> bool {
        let tasks = self.lock();
        !tasks.members_of(group).any(|member| {
            let process = &member.process;
            let parent = tasks.members.get(&process.parent());
            member.is_alive()
                && parent.is_some_and(|parent| {
                    parent.process.group() != group && parent.process.session() == process.session()
                })
        })
    }

    /// Adds the ids of living processes for which `wanted` holds to `batch`, in ascending order from `first`, until the
    /// batch is full.
    pub fn note_living(
        &self,
        first: u64,
        batch: &mut Batch<u32>,
        wanted: impl Fn(&Process) -> bool,
    ) {
        let Ok(first) = u32::try_from(first) else {
            return;
        };
        let table = self.lock();
        let mut living = table
            .members
            .range(first..)
            .map(|(_, member)| member)
            .filter(|member| member.is_alive() && wanted(&member.process));
        let _ = living.all(|member| batch.push(member.process.id));
    }

    /// Iterates over all processes in order of id, including zombies. The table is locked only during each step.
    pub fn processes(&self) -> impl Iterator<Item = Arc<Process>> + '_ {
        self.filter(|_| true)
    }

    /// Iterates over the processes of a group in order of id, without the reaper. The table is locked only during each
    /// step.
    pub fn group(&self, group: u32) -> impl Iterator<Item = Arc<Process>> + '_ {
        let mut first = REAPER + 1;
        core::iter::from_fn(move || {
            let process = self.lock().member_of(group, first)?;
            first = process.id + 1;
            Some(process)
        })
    }

    /// Returns the state of the process `id`, as its parent sees it; `None` if there is no such process.
    pub fn life(&self, id: u32) -> Option<Life> {
        self.lock().members.get(&id).map(|member| member.life)
    }
}

/// Returns the range of all pairs whose first element is `group`, the id of a process group, a session or a cgroup.
fn all_of(group: u32) -> core::ops::RangeInclusive<(u32, u32)> {
    (group, 0)..=(group, u32::MAX)
}

impl TaskTable {
    /// Returns the id that was allocated last.
    pub fn last_id(&self) -> u32 {
        self.last_id
    }

    /// Allocates an id for a process or thread: the first free one after the last allocated id.
    pub fn allocate_id(&mut self) -> Option<u32> {
        let next = self.last_id + 1;
        let id = self.first_free(next..END);
        let id = id.or_else(|| self.first_free(FIRST_REUSED..next.min(END)))?;
        self.last_id = id;
        Some(id)
    }

    /// Returns the lowest of `ids` that is not in use. The cost grows with the number of ids in use.
    fn first_free(&self, ids: core::ops::Range<u32>) -> Option<u32> {
        if ids.is_empty() {
            return None;
        }
        let mut members = self
            .members
            .range(ids.clone())
            .map(|(id, _)| *id)
            .peekable();
        let mut threads = self
            .threads
            .range(ids.clone())
            .map(|(id, _)| *id)
            .peekable();
        ids.into_iter().find(|id| {
            let member = members.next_if_eq(id).is_some();
            let thread = threads.next_if_eq(id).is_some();
            !member && !thread && !self.ended.contains_key(id) && !self.group_exists(*id)
        })
    }

    /// Returns whether some process belongs to the group or session `group`.
    pub fn group_exists(&self, group: u32) -> bool {
        let named = |set: &BTreeSet<(u32, u32)>| set.range(all_of(group)).next().is_some();
        named(&self.groups) || named(&self.sessions)
    }

    /// Iterates over the processes of a group in order of id, including zombies.
    pub fn members_of(&self, group: u32) -> impl Iterator<Item = &Member> {
        self.members_in(&self.groups, group, 0)
    }

    /// Iterates over the processes that an index lists for a group, a session or a cgroup, in order of id from `first`
    /// on.
    fn members_in<'a>(
        &'a self,
        index: &'a BTreeSet<(u32, u32)>,
        group: u32,
        first: u32,
    ) -> impl Iterator<Item = &'a Member> {
        let ids = index.range((group, first)..=(group, u32::MAX));
        ids.filter_map(|(_, id)| self.members.get(id))
    }

    /// Returns the process with the lowest id from `first` on in a process group. It may be a zombie.
    fn member_of(&self, group: u32, first: u32) -> Option<Arc<Process>> {
        let member = self.members_in(&self.groups, group, first).next()?;
        Some(member.process.clone())
    }

    /// Returns the living process with the lowest id from `first` on in a cgroup.
    pub fn member_of_cgroup(&self, cgroup: u32, first: u32) -> Option<Arc<Process>> {
        let member = self.members_in(&self.cgroups, cgroup, first).next()?;
        Some(member.process.clone())
    }

    /// Records that a process is in a cgroup. Returns false if this was recorded already.
    pub(super) fn index_cgroup(&mut self, cgroup: u32, process: u32) -> bool {
        self.cgroups.insert((cgroup, process))
    }

    /// Records that a process is no longer in a cgroup. Returns false if the process was not recorded as a member.
    pub(super) fn unindex_cgroup(&mut self, cgroup: u32, process: u32) -> bool {
        self.cgroups.remove(&(cgroup, process))
    }

    /// Records the exit of a traced thread, for a wait of its tracer.
    pub fn note_ended(&mut self, id: u32, ended: Ended) {
        if let Some(member) = self.members.get_mut(&ended.tracer.process) {
            member.tracees.ended.insert(id);
            self.ended.insert(id, ended);
        }
    }

    /// Returns the record of an exited thread that its tracer has not waited for.
    pub fn ended(&self, id: u32) -> Option<Ended> {
        self.ended.get(&id).copied()
    }

    /// Removes the record of an exited thread after its tracer has waited for it.
    pub fn remove_ended(&mut self, id: u32) {
        let ended = self.ended.remove(&id);
        let tracer = ended.and_then(|ended| self.members.get_mut(&ended.tracer.process));
        if let Some(member) = tracer {
            member.tracees.ended.remove(&id);
        }
    }

    /// Removes the records of the exited threads that this process traced.
    pub fn forget_ended(&mut self, tracer: u32) {
        let ids = self.members.get_mut(&tracer);
        let ids = ids.map(|member| core::mem::take(&mut member.tracees.ended));
        for id in ids.iter().flatten() {
            self.ended.remove(id);
        }
    }
}
