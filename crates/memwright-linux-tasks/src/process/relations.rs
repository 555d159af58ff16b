//! Changes of the relations between processes: parents and children, groups and sessions.

use super::{Life, Member, Process, REAPER, TaskTable, Thread, Tracees};
use alloc::{sync::Arc, vec::Vec};
use core::sync::atomic::Ordering;
use memwright_table::{OutOfMemory, TryPush};

impl TaskTable {
    /// Makes room in the reaper's list of children for all present processes and one more, so that the reaper can adopt
    /// all of them without an allocation.
    fn make_room_for_orphans(&mut self) -> Result<(), OutOfMemory> {
        let most = self.members.len() + 1;
        let Some(reaper) = self.members.get_mut(&REAPER) else {
            return Ok(());
        };
        let children = &mut reaper.children;
        children.try_make_room(most.saturating_sub(children.len()))
    }

    /// Enters a process into the table as the youngest child of `parent`, in the group and session of `parent`. The
    /// caller has already counted the thread of the process for the user of the process.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the table is then unchanged.
    pub fn enter(&mut self, process: &Arc<Process>, parent: u32) -> Result<(), OutOfMemory> {
        self.make_room_for_orphans()?;
        self.births += 1;
        process.birth.store(self.births, Ordering::Relaxed);
        let (mut group, mut session) = (process.group(), process.session());
        if let Some(parent) = self.members.get_mut(&parent) {
            parent.children.try_push(process.clone())?;
            (group, session) = (parent.process.group(), parent.process.session());
        }
        process.parent.store(parent, Ordering::SeqCst);
        self.place(process, group, session);
        let member = Member {
            process: process.clone(),
            children: Vec::new(),
            life: Life::Alive(None),
            tracees: Tracees::default(),
        };
        self.members.insert(process.id, member);
        Ok(())
    }

    /// Moves a process to the group `group` and the session `session`, in the process itself and in the indices of the
    /// table.
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

    /// Makes a process the leader of a new session and group.
    pub fn lead_session(&mut self, process: &Process) {
        self.place(process, process.id, process.id);
    }

    /// Puts a process into a process group; its session stays the same.
    pub fn join_group(&mut self, process: &Process, group: u32) {
        self.place(process, group, process.session());
    }

    /// Puts a process into a process group and a session.
    pub fn join(&mut self, process: &Process, group: u32, session: u32) {
        self.place(process, group, session);
    }

    /// Sets whether a process adopts orphans among its descendants.
    pub fn set_subreaper(&mut self, process: &Process, adopts: bool) {
        let before = process.adopts.swap(adopts, Ordering::SeqCst);
        self.subreapers = self.subreapers + usize::from(adopts) - usize::from(before);
    }

    /// Returns the process that adopts the children of `id`: the nearest living ancestor that adopts orphans, or else
    /// the reaper (`find_new_reaper` of Linux 7.2, `kernel/exit.c`).
    fn heir_of(&self, id: u32) -> u32 {
        if self.subreapers == 0 {
            return REAPER;
        }
        let parent = |id: &u32| Some(self.members.get(id)?.process.parent());
        let ancestors = core::iter::successors(parent(&id), parent);
        let mut ancestors = ancestors.take_while(|id| *id != REAPER);
        let adopts = |id: &u32| {
            let member = self.members.get(id);
            member.is_some_and(|member| {
                member.is_alive() && member.process.adopts.load(Ordering::SeqCst)
            })
        };
        ancestors.find(adopts).unwrap_or(REAPER)
    }

    /// Moves the children of `id`, which has exited, to the process that adopts them. Returns the children and the id
    /// of that process.
    pub fn orphan_children(&mut self, id: u32) -> (Vec<Arc<Process>>, u32) {
        let orphans = match self.members.get_mut(&id) {
            Some(member) => core::mem::take(&mut member.children),
            None => Vec::new(),
        };
        if let Some(member) = self.members.get(&id) {
            let process = member.process.clone();
            self.set_subreaper(&process, false);
        }
        if orphans.is_empty() {
            return (orphans, REAPER);
        }
        let mut heir = self.heir_of(id);
        // If there is no memory to enlarge the new parent's list of children, the reaper adopts the orphans, because
        // `make_room_for_orphans` has already enlarged the reaper's list.
        let room = self.members.get_mut(&heir);
        let room = room.map(|member| member.children.try_make_room(orphans.len()));
        if !matches!(room, Some(Ok(()))) {
            heir = REAPER;
        }
        for orphan in &orphans {
            orphan.parent.store(heir, Ordering::SeqCst);
        }
        if let Some(heir) = self.members.get_mut(&heir) {
            #[expect(clippy::disallowed_methods, reason = "there is room")]
            heir.children.extend(orphans.iter().cloned());
        }
        (orphans, heir)
    }

    /// Changes the id of a thread to that of its process, whose leader has exited. The former leader is no longer a
    /// tracee of its tracer.
    pub fn become_leader(&mut self, thread: &Arc<Thread>) {
        let (former, own) = {
            let mut signals = thread.process.signals.lock();
            let former = signals.leader_tracer.take();
            let tracing = signals.tracing(thread);
            (former, tracing.and_then(|tracing| tracing.tracer))
        };
        let id = thread.process.id;
        let mut member = former.and_then(|tracer| self.members.get_mut(&tracer.process));
        if let (Some(member), Some(tracer)) = (&mut member, former) {
            member.tracees.remove(tracer, id);
        }
        self.threads.remove(&thread.id());
        let before = thread.id();
        thread.become_leader();
        self.threads.insert(thread.id(), thread.clone());
        let mut member = own.and_then(|tracer| self.members.get_mut(&tracer.process));
        if let (Some(member), Some(tracer)) = (&mut member, own)
            && member.tracees.remove(tracer, before).is_some()
        {
            member.tracees.add(tracer, thread);
        }
    }

    /// Removes a zombie from the table and from the children of its parent. Returns the process.
    pub fn remove(&mut self, id: u32) -> Option<Arc<Process>> {
        let member = self.members.remove(&id)?;
        let process = &member.process;
        self.groups.remove(&(process.group(), id));
        self.sessions.remove(&(process.session(), id));
        self.leave_cgroup(process);
        process.identity.user().threads.remove(1);
        if let Some(parent) = self.members.get_mut(&member.process.parent()) {
            let children = &mut parent.children;
            let birth = |child: &Arc<Process>| child.birth.load(Ordering::Relaxed);
            // Children are usually in the order of their creation, so search by it first. Adopted children follow in
            // the order in which their parents exited.
            let place = children
                .binary_search_by_key(&birth(process), birth)
                .ok()
                .filter(|place| children[*place].id == id)
                .or_else(|| children.iter().position(|child| child.id == id));
            let child = place.map(|place| children.remove(place));
            drop(child);
        }
        Some(member.process)
    }
}
