//! The table of processes and the relations between them.

use super::{ExitStatus, Life, Process, Thread};
use crate::sync::{Lock, LockGuard, Rank};
use alloc::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    vec::Vec,
};
use core::sync::atomic::Ordering;

/// The built-in reaper.
pub const REAPER: u32 = 1;
/// The program of the run.
pub const PROGRAM: u32 = 2;

/// Ids are given from here on after the first round (`RESERVED_PIDS` of Linux 7.2).
const FIRST_REUSED: u32 = 300;
/// Ids end here (`PID_MAX_DEFAULT`).
pub const END: u32 = 32_768;

/// A process in the table.
pub struct Member {
    /// The process.
    pub process: Arc<Process>,
    /// Its children, oldest first.
    pub children: Vec<u32>,
    /// Where it is in its life.
    pub life: Life,
    /// Threads that it traces.
    pub(crate) tracees: Vec<Arc<Thread>>,
    /// Threads that it traced until they ended, and does not wait for as their parent.
    pub(crate) ended_tracees: Vec<(Arc<Thread>, ExitStatus)>,
}

/// Everything under the lock of the process table.
#[derive(Default)]
pub struct TaskTable {
    /// Processes by id, zombies included.
    pub members: BTreeMap<u32, Member>,
    /// Living threads by id.
    pub threads: BTreeMap<u32, Arc<Thread>>,
    /// Each process beside its group, and beside its session.
    groups: BTreeSet<(u32, u32)>,
    sessions: BTreeSet<(u32, u32)>,
    last_id: u32,
}

/// The table of processes.
pub struct Tasks {
    table: Lock<TaskTable>,
}

impl Default for Tasks {
    fn default() -> Self {
        Self {
            table: Lock::new(Rank::Process, TaskTable::default()),
        }
    }
}

impl Tasks {
    /// Takes the lock of the table.
    pub fn lock(&self) -> LockGuard<'_, TaskTable> {
        self.table.lock()
    }

    /// Takes the lock of the table if nobody holds it.
    pub(crate) fn try_lock(&self) -> Option<LockGuard<'_, TaskTable>> {
        self.table.try_lock()
    }

    /// The process with this id, zombies included.
    pub fn process(&self, id: u32) -> Option<Arc<Process>> {
        self.lock()
            .members
            .get(&id)
            .map(|member| member.process.clone())
    }

    /// The living thread with this id.
    pub fn thread(&self, id: u32) -> Option<Arc<Thread>> {
        self.lock().threads.get(&id).cloned()
    }

    /// Every process id in order, zombies included.
    pub fn ids(&self) -> Vec<u32> {
        self.lock().members.keys().copied().collect()
    }

    /// Every process in order of id, zombies included.
    pub fn processes(&self) -> Vec<Arc<Process>> {
        self.lock()
            .members
            .values()
            .map(|member| member.process.clone())
            .collect()
    }

    /// Every process of a group in order of id, zombies included.
    pub fn group(&self, group: u32) -> Vec<Arc<Process>> {
        let table = self.lock();
        let members = table.members_of(group);
        members.map(|member| member.process.clone()).collect()
    }

    /// Where a process is in its life.
    pub fn life(&self, id: u32) -> Option<Life> {
        self.lock().members.get(&id).map(|member| member.life)
    }
}

/// Every pair that begins with this group or session.
fn all_of(group: u32) -> core::ops::RangeInclusive<(u32, u32)> {
    (group, 0)..=(group, u32::MAX)
}

impl TaskTable {
    /// The id that was given last.
    pub fn last_id(&self) -> u32 {
        self.last_id
    }

    /// A free id for a process or thread: the next after the last given.
    pub fn allocate_id(&mut self) -> Option<u32> {
        let mut candidate = self.last_id;
        for _ in 0..END {
            candidate += 1;
            if candidate >= END {
                candidate = FIRST_REUSED;
            }
            let used = self.members.contains_key(&candidate)
                || self.threads.contains_key(&candidate)
                || self.group_exists(candidate);
            if !used {
                self.last_id = candidate;
                return Some(candidate);
            }
        }
        None
    }

    /// Some process belongs to this group or session.
    pub fn group_exists(&self, group: u32) -> bool {
        let named = |set: &BTreeSet<(u32, u32)>| set.range(all_of(group)).next().is_some();
        named(&self.groups) || named(&self.sessions)
    }

    /// The processes of a group in order of id, zombies included.
    pub fn members_of(&self, group: u32) -> impl Iterator<Item = &Member> {
        let ids = self.groups.range(all_of(group));
        ids.filter_map(|(_, id)| self.members.get(id))
    }

    /// Notes that a process in the table goes to this group and session.
    fn place(&mut self, process: &Process, group: u32, session: u32) {
        let id = process.id;
        let before = process.group.swap(group, Ordering::SeqCst);
        if before != group {
            self.groups.remove(&(before, id));
        }
        self.groups.insert((group, id));
        let before = process.session.swap(session, Ordering::SeqCst);
        if before != session {
            self.sessions.remove(&(before, id));
        }
        self.sessions.insert((session, id));
    }

    /// Enters a process as the youngest child of `parent`, in its group and session. It counts as its user's from now on.
    pub fn enter(&mut self, process: &Arc<Process>, parent: u32) {
        process.parent.store(parent, Ordering::SeqCst);
        let (mut group, mut session) = (process.group(), process.session());
        if let Some(parent) = self.members.get_mut(&parent) {
            parent.children.push(process.id);
            (group, session) = (parent.process.group(), parent.process.session());
        }
        self.place(process, group, session);
        process.user().threads.add(1);
        let member = Member {
            process: process.clone(),
            children: Vec::new(),
            life: Life::Alive(None),
            tracees: Vec::new(),
            ended_tracees: Vec::new(),
        };
        self.members.insert(process.id, member);
    }

    /// Makes a process the leader of a session and a group of its own.
    pub fn lead_session(&mut self, process: &Process) {
        self.place(process, process.id, process.id);
    }

    /// Puts a process into a group.
    pub fn join_group(&mut self, process: &Process, group: u32) {
        self.place(process, group, process.session());
    }

    /// Puts a process into a group and a session.
    pub fn join(&mut self, process: &Process, group: u32, session: u32) {
        self.place(process, group, session);
    }

    /// Gives the children of `id` to the reaper; returns them.
    pub fn orphan_children(&mut self, id: u32) -> Vec<Arc<Process>> {
        let children = match self.members.get_mut(&id) {
            Some(member) => core::mem::take(&mut member.children),
            None => Vec::new(),
        };
        let mut orphans = Vec::new();
        for child in children {
            if let Some(member) = self.members.get_mut(&child) {
                member.process.parent.store(REAPER, Ordering::SeqCst);
                orphans.push(member.process.clone());
            }
            if let Some(reaper) = self.members.get_mut(&REAPER) {
                reaper.children.push(child);
            }
        }
        orphans
    }

    /// Gives a thread the id of its process, whose leader has ended.
    pub(crate) fn become_leader(&mut self, thread: &Arc<Thread>) {
        self.threads.remove(&thread.id());
        thread.become_leader();
        self.threads.insert(thread.id(), thread.clone());
    }

    /// Takes a zombie out of the table.
    pub fn remove(&mut self, id: u32) -> Option<Arc<Process>> {
        let member = self.members.remove(&id)?;
        let process = &member.process;
        self.groups.remove(&(process.group(), id));
        self.sessions.remove(&(process.session(), id));
        process.user().threads.remove(1);
        if let Some(parent) = self.members.get_mut(&member.process.parent()) {
            parent.children.retain(|child| *child != id);
        }
        Some(member.process)
    }
}
