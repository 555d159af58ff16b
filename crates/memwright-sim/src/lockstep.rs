//! Runs a script on the memory manager and on the model, and compares after each step.

mod tracking;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use memwright::object::{Object, ObjectIdentity, Shmem};
use memwright::uffd::Watch;
use memwright::{
    AdviseError, AreaFlags, FaultError, ForkError, MapError, MapKind, MapRequest, Placement,
    ProtectError, RemapError, RemapRequest, SealError, UnmapError,
};
use memwright_table::{
    Bits, CpuId, Entry, FrameKind, PAGE_SIZE, Page, PageRange, Present, VirtAddr,
};

use crate::adversary::Adversary;
use crate::machine::{MachineOptions, SimulatedMachine};
use crate::model::{Advice, Intent, Model, PAGE, Refusal, Remap, Rights, Source};
use crate::noted_file::NotedFile;
use crate::process::{Host, Process, Signal};
use crate::script::{
    ARENA, Action, FILE_PAGES, MOST_PROCESSES, Range, Scale, Script, Step, Watcher, What,
};
use crate::walk;

/// Why a script cannot go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Memory manager and model disagree, in words.
    Disagreement(String),
    /// The memory manager ran out of memory, which the model never does.
    Exhausted,
}

impl From<String> for Difference {
    fn from(text: String) -> Self {
        Self::Disagreement(text)
    }
}

impl Difference {
    /// The same, with where it was seen.
    fn at(self, place: &dyn std::fmt::Display) -> Self {
        match self {
            Self::Disagreement(text) => Self::Disagreement(format!("{place}: {text}")),
            Self::Exhausted => Self::Exhausted,
        }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Disagreement(text) => f.write_str(text),
            Self::Exhausted => f.write_str("out of memory"),
        }
    }
}

/// What a refusal is about, as far as both must agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Hole,
    Denied,
    Bus,
    NotApplicable,
    Sealed,
    Invalid,
    Busy,
    NotWatched,
    Resources,
}

enum File {
    Plain(Arc<Shmem<SimulatedMachine>>),
    Noted(Arc<NotedFile>),
}

/// A machine and the model, side by side.
pub struct Lockstep {
    host: Arc<Host>,
    model: Model,
    processes: BTreeMap<usize, Process>,
    files: Vec<File>,
    created: usize,
    scale: Scale,
    /// Of each process, by kind, those that it made.
    watchers: Vec<(usize, Watcher, Watch)>,
    /// Who cleared soft-dirty, so that what a survey says is compared.
    clears: bool,
    /// How often each kind of step succeeded: a test that never reaches a case proves nothing.
    successes: BTreeMap<&'static str, u64>,
}

fn kind_of(refusal: Refusal) -> Kind {
    match refusal {
        Refusal::Hole(_) => Kind::Hole,
        Refusal::Denied(_) => Kind::Denied,
        // Nobody waits here: as with `UFFD_FEATURE_SIGBUS`.
        Refusal::BeyondObject(_) | Refusal::Protected(_) => Kind::Bus,
        Refusal::NotApplicable(_) => Kind::NotApplicable,
        Refusal::Sealed(_) => Kind::Sealed,
        Refusal::Invalid => Kind::Invalid,
        Refusal::Watched(_) => Kind::Busy,
        Refusal::NotWatched => Kind::NotWatched,
    }
}

fn kind_of_signal(signal: Signal) -> Kind {
    match signal {
        Signal::Unmapped => Kind::Hole,
        Signal::Forbidden => Kind::Denied,
        Signal::Bus => Kind::Bus,
        Signal::OutOfMemory => Kind::Resources,
    }
}

fn kind_of_protect(error: ProtectError) -> Kind {
    match error {
        ProtectError::Hole(_) => Kind::Hole,
        ProtectError::Denied(_) => Kind::Denied,
        ProtectError::Sealed(_) => Kind::Sealed,
        ProtectError::Misaligned | ProtectError::OutOfRange | ProtectError::Key => Kind::Invalid,
        ProtectError::OverLimit(_) | ProtectError::Overcommit | ProtectError::OutOfMemory => {
            Kind::Resources
        }
    }
}

fn kind_of_seal(error: SealError) -> Kind {
    match error {
        SealError::Hole(_) => Kind::Hole,
        SealError::Invalid => Kind::Invalid,
        SealError::OverLimit(_) | SealError::OutOfMemory => Kind::Resources,
    }
}

fn kind_of_remap(error: RemapError) -> Kind {
    match error {
        RemapError::NoArea(_) => Kind::Hole,
        RemapError::Sealed(_) => Kind::Sealed,
        RemapError::Misaligned
        | RemapError::Invalid
        | RemapError::OutOfRange
        | RemapError::TooLow => Kind::Invalid,
        RemapError::NoRoom
        | RemapError::OverLimit(_)
        | RemapError::Overcommit
        | RemapError::OutOfMemory => Kind::Resources,
    }
}

fn kind_of_fault(error: FaultError) -> Kind {
    match error {
        FaultError::NoArea | FaultError::Guard | FaultError::StackLimit => Kind::Hole,
        FaultError::Denied | FaultError::Key(_) => Kind::Denied,
        // Nobody waits here: as with `UFFD_FEATURE_SIGBUS`.
        FaultError::Poison
        | FaultError::BeyondObject
        | FaultError::Io
        | FaultError::NoHugePage
        | FaultError::Watched(_) => Kind::Bus,
        FaultError::OutOfMemory | FaultError::WouldBlock => Kind::Resources,
    }
}

fn kind_of_advise(error: AdviseError) -> Kind {
    match error {
        AdviseError::Hole(_) => Kind::Hole,
        AdviseError::Denied(_) => Kind::Denied,
        AdviseError::NotApplicable(_) => Kind::NotApplicable,
        AdviseError::Sealed(_) => Kind::Sealed,
        AdviseError::Fault(error) => kind_of_fault(error),
        AdviseError::Misaligned => Kind::Invalid,
        AdviseError::OverLimit(_) | AdviseError::Busy(_) | AdviseError::OutOfMemory => {
            Kind::Resources
        }
    }
}

fn disagree<T>(text: String) -> Result<T, Difference> {
    Err(Difference::Disagreement(text))
}

/// Both succeeded, or both refused for the same kind of reason.
fn agree<T>(
    what: &str,
    model: Result<(), Refusal>,
    real: Result<T, Kind>,
) -> Result<bool, Difference> {
    match (model.map_err(kind_of), real) {
        (Ok(()), Ok(_)) => Ok(true),
        (Err(expected), Err(found)) if expected == found => Ok(false),
        (_, Err(Kind::Resources)) => Err(Difference::Exhausted),
        (expected, found) => disagree(format!(
            "{what}: the model says {expected:?}, memwright {:?}",
            found.map(|_| ())
        )),
    }
}

fn real_rights(rights: Rights) -> memwright::Rights {
    let mut real = memwright::Rights::empty();
    real.set(memwright::Rights::READ, rights.read);
    real.set(memwright::Rights::WRITE, rights.write);
    real.set(memwright::Rights::EXECUTE, rights.execute);
    real
}

fn model_rights(rights: memwright::Rights) -> Rights {
    Rights {
        read: rights.contains(memwright::Rights::READ),
        write: rights.contains(memwright::Rights::WRITE),
        execute: rights.contains(memwright::Rights::EXECUTE),
    }
}

fn address(page: u64) -> VirtAddr {
    Page::new(page).address()
}

fn bytes(pages: u64) -> u64 {
    pages * PAGE_SIZE as u64
}

impl Lockstep {
    /// One process on a machine, with two files of zeroes that nobody maps.
    ///
    /// # Panics
    /// If there is no heap for the files.
    #[must_use]
    pub fn new(options: MachineOptions, adversary: Option<Adversary>) -> Self {
        let host = Host::boot(options);
        host.machine().set_adversary(adversary);
        let mut model = Model::new();
        let memory = host.memory();
        let identity = ObjectIdentity {
            device: 1,
            inode: 1,
        };
        let plain = Shmem::new(memory.clone(), bytes(FILE_PAGES), identity).expect("heap");
        let noted = NotedFile::new(memory.clone(), FILE_PAGES);
        let files = vec![File::Plain(Arc::new(plain)), File::Noted(Arc::new(noted))];
        for file in &files {
            model.create_object(FILE_PAGES, matches!(file, File::Plain(_)));
        }
        model.create_process(0);
        let processes = BTreeMap::from([(0, Process::new(&host))]);
        Self {
            host,
            model,
            processes,
            files,
            created: 1,
            scale: Scale(1),
            watchers: Vec::new(),
            clears: false,
            successes: BTreeMap::new(),
        }
    }

    /// The same where every place of a script is so many pages.
    #[must_use]
    pub fn scaled(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self
    }

    /// The machine, with what runs on it.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Runs all steps, compares after each, then lets every process look at all of its memory and exit.
    /// Returns how often each kind of step succeeded.
    ///
    /// # Errors
    /// The first difference, with the step that showed it.
    pub fn run(mut self, script: &Script) -> Result<BTreeMap<&'static str, u64>, Difference> {
        for (number, step) in script.0.iter().enumerate() {
            self.step(step)
                .and_then(|()| Ok(self.check()?))
                .map_err(|difference| difference.at(&format!("step {number} ({step:?})")))?;
        }
        self.finish()?;
        Ok(self.successes)
    }

    /// The same with an injected failure under way, which is `disarm`ed before the last look. A step
    /// that runs out of memory must change nothing, and succeed when it is tried again. Returns how
    /// many steps did.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_failing(mut self, script: &Script, disarm: &dyn Fn()) -> Result<u64, Difference> {
        let mut exhausted = 0;
        for (number, step) in script.0.iter().enumerate() {
            let before = self.model.clone();
            let mut outcome = self.step(step);
            if outcome == Err(Difference::Exhausted) {
                exhausted += 1;
                self.model = before;
                // Areas below the one that failed have changed, as on Linux, and stay so.
                let stands = matches!(
                    step.action,
                    Action::Protect(..)
                        | Action::Advise(..)
                        | Action::Watch(..)
                        | Action::Unwatch(..)
                        | Action::WriteProtect(..)
                        | Action::Scan(..)
                );
                outcome = if stands {
                    Ok(())
                } else {
                    self.check().map_err(Difference::from)
                }
                .and_then(|()| self.step(step));
            }
            outcome
                .and_then(|()| Ok(self.check()?))
                .map_err(|difference| difference.at(&format!("step {number} ({step:?})")))?;
        }
        disarm();
        self.finish()?;
        Ok(exhausted)
    }

    fn finish(&mut self) -> Result<(), Difference> {
        self.sweep()
            .map_err(|difference| difference.at(&"at the end"))?;
        self.leave()
            .map_err(|difference| difference.at(&"after every exit"))
    }

    fn step(&mut self, step: &Step) -> Result<(), Difference> {
        let alive: Vec<usize> = self.processes.keys().copied().collect();
        let process = alive[usize::from(step.process) % alive.len()];
        let cpu = CpuId::new(u16::from(step.cpu) % self.host.machine().options().cpus as u16);
        match step.action {
            Action::Map(range, rights, what, populate) => {
                self.map(process, cpu, range, rights, what, populate)
            }
            Action::Unmap(range) => self.unmap(process, cpu, range),
            Action::Seal(range) => self.seal(process, cpu, range),
            Action::Protect(range, rights) => self.protect(process, cpu, range, rights),
            Action::Resize(range, pages) => {
                let (from, old) = self.scale.range(range);
                let new_pages = u64::from(pages).clamp(1, ARENA) * self.scale.0;
                let remap = Remap {
                    from,
                    pages: old,
                    new_pages,
                    to: None,
                    keep: false,
                };
                self.remap(process, cpu, remap)
            }
            Action::Move(range, to, keep) => {
                let (from, pages) = self.scale.range(range);
                let to = self.scale.place(to);
                let remap = Remap {
                    from,
                    pages,
                    new_pages: pages,
                    to: Some(to),
                    keep,
                };
                self.remap(process, cpu, remap)
            }
            Action::Advise(range, advice) => self.advise(process, cpu, range, advice),
            Action::Fork => self.fork(process, cpu),
            Action::Exit => {
                if alive.len() > 1 {
                    self.exit(process);
                }
                Ok(())
            }
            Action::Read(page, offset) => self.read(process, cpu, page, offset),
            Action::Write(page, offset, value) => self.write(process, cpu, page, offset, value),
            Action::Fetch(page) => self.fetch(process, cpu, page),
            Action::ReadFile(file, index) => self.read_file(file, index),
            Action::WriteFile(file, index, value) => self.write_file(cpu, file, index, value),
            Action::Truncate(file, pages) => {
                self.truncate(cpu, file, pages);
                Ok(())
            }
            Action::Punch(file, index, pages) => {
                self.punch(cpu, file, index, pages);
                Ok(())
            }
            Action::Clean(file) => {
                self.clean(cpu, file);
                Ok(())
            }
            Action::Watch(range, watcher) => self.watch(process, cpu, range, watcher),
            Action::Unwatch(range, watcher) => self.unwatch(process, cpu, range, watcher),
            Action::WriteProtect(range, watcher, on) => {
                self.write_protect(process, cpu, range, watcher, on)
            }
            Action::Scan(range, protect) => self.scan(process, cpu, range, protect),
            Action::ClearSoftDirty => {
                self.clear_soft_dirty(process, cpu);
                Ok(())
            }
            Action::Collapse(range) => self.collapse(process, cpu, range),
        }
    }

    fn succeeded(&mut self, what: &'static str) {
        *self.successes.entry(what).or_default() += 1;
    }

    fn file(&self, file: u8) -> usize {
        usize::from(file) % self.files.len()
    }

    fn object(&self, file: usize) -> Arc<dyn Object<SimulatedMachine>> {
        match &self.files[file] {
            File::Plain(file) => file.clone(),
            File::Noted(file) => file.clone(),
        }
    }

    fn map(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        rights: Rights,
        what: What,
        populate: bool,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let (source, kind) = match what {
            What::Anonymous => (Source::Anonymous, MapKind::Anonymous),
            What::SharedAnonymous => {
                let number = self.model.create_object(pages, true);
                let identity = ObjectIdentity {
                    device: 3,
                    inode: number as u64,
                };
                let memory = self.host.memory().clone();
                let Ok(object) = Shmem::new(memory, bytes(pages), identity) else {
                    return Err(Difference::Exhausted);
                };
                let object = Arc::new(object);
                (
                    Source::Shared {
                        object: number,
                        index: 0,
                    },
                    MapKind::Object {
                        object,
                        offset: 0,
                        shared: true,
                    },
                )
            }
            What::PrivateFile(file, index) | What::SharedFile(file, index) => {
                let object = self.file(file);
                let index = u64::from(index) % FILE_PAGES;
                let shared = matches!(what, What::SharedFile(..));
                let real = self.object(object);
                let source = if shared {
                    Source::Shared { object, index }
                } else {
                    Source::Private { object, index }
                };
                (
                    source,
                    MapKind::Object {
                        object: real,
                        offset: bytes(index),
                        shared,
                    },
                )
            }
        };
        let request = MapRequest {
            length: bytes(pages),
            rights: real_rights(rights),
            max_rights: memwright::Rights::all(),
            kind,
            placement: Placement::Fixed(address(from)),
            flags: AreaFlags::empty(),
            populate,
        };
        let mapped = self.processes[&process].on(cpu, |space| space.map(&request));
        match mapped {
            Ok(at) if at == address(from) => {}
            Err(MapError::Sealed(_)) if self.model.check_seals(process, from, pages).is_err() => {
                self.succeeded("map over a seal refused");
                return Ok(());
            }
            Err(MapError::OutOfMemory) => return Err(Difference::Exhausted),
            other => return disagree(format!("a fixed mapping gave {other:?}")),
        }
        if let Err(refusal) = self.model.map(process, from, pages, rights, source) {
            return disagree(format!("a fixed mapping in spite of {refusal:?}"));
        }
        if populate {
            self.model.populate(process, from, pages);
        }
        self.succeeded("map");
        Ok(())
    }

    fn unmap(&mut self, process: usize, cpu: CpuId, range: Range) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let real = self.processes[&process]
            .on(cpu, |space| space.unmap(address(from), bytes(pages)))
            .map_err(|error| match error {
                UnmapError::Sealed(_) => Kind::Sealed,
                UnmapError::OutOfMemory | UnmapError::OverLimit(_) => Kind::Resources,
                UnmapError::NoLength | UnmapError::Misaligned | UnmapError::OutOfRange => {
                    Kind::Invalid
                }
            });
        let model = self.model.unmap(process, from, pages);
        if agree("unmap", model, real)? {
            self.succeeded("unmap");
        }
        Ok(())
    }

    fn seal(&mut self, process: usize, cpu: CpuId, range: Range) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let real =
            self.processes[&process].on(cpu, |space| space.seal(address(from), bytes(pages)));
        let model = self.model.seal(process, from, pages);
        if agree("seal", model, real.map_err(kind_of_seal))? {
            self.succeeded("seal");
        }
        Ok(())
    }

    fn protect(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        rights: Rights,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let real = self.processes[&process].on(cpu, |space| {
            space.protect(address(from), bytes(pages), real_rights(rights))
        });
        let model = self.model.protect(process, from, pages, rights);
        if agree("protect", model, real.map_err(kind_of_protect))? {
            self.succeeded("protect");
        }
        Ok(())
    }

    /// A range that is mapped in several ways and changes its length is left alone: whether its parts are
    /// one area depends on how they came about, which the model does not follow. One page is one area.
    fn remap(&mut self, process: usize, cpu: CpuId, remap: Remap) -> Result<(), Difference> {
        let hole = self.model.is_free(process, remap.from, 1);
        let uniform = self.model.is_uniform(process, remap.from, remap.pages);
        let model = &self.model;
        let source = model.check_seals(process, remap.from, remap.pages);
        let target = remap
            .to
            .map_or(Ok(()), |to| model.check_seals(process, to, remap.new_pages));
        let refused_midway = source.and(target).is_err() || self.is_watched(process, remap);
        if !hole && refused_midway && self.has_several(process, remap) {
            // How many parts go before the one that is refused depends on where areas begin.
            return Ok(());
        }
        if !hole && !uniform && remap.to.is_none() {
            return self.shrink_several(process, cpu, remap);
        }
        let refused = if hole {
            self.model
                .may_remap(remap)
                .and(Err(Refusal::Hole(remap.from)))
        } else {
            self.model.may_remap(remap).and(source).and(target)
        };
        let real = self.processes[&process].on(cpu, |space| {
            space.remap(RemapRequest {
                old: address(remap.from),
                old_length: bytes(remap.pages),
                new_length: bytes(remap.new_pages),
                may_move: true,
                fixed: remap.to.map(address),
                dont_unmap: remap.keep,
            })
        });
        if let (None, Ok(()), Err(RemapError::NoArea(_))) = (remap.to, refused, &real) {
            // Alike and adjacent, and still several areas, as on Linux where memory was moved.
            self.succeeded("remap of several areas refused");
            return Ok(());
        }
        if !agree("remap", refused, real.map_err(kind_of_remap))? {
            return Ok(());
        }
        let to = real.expect("both succeeded").page().number();
        if remap.to.is_some_and(|fixed| fixed != to) {
            return disagree(format!("remap to a fixed place went to page {to:#x}"));
        }
        let taken = if to == remap.from {
            let grown = remap.new_pages.saturating_sub(remap.pages);
            grown > 0 && !self.model.is_free(process, to + remap.pages, grown)
        } else {
            remap.to.is_none() && !self.model.is_free(process, to, remap.new_pages)
        };
        if taken {
            return disagree(format!(
                "remap went to page {to:#x}, where something is mapped"
            ));
        }
        if uniform {
            self.model.remap(process, remap, to);
        } else {
            self.model.move_each(process, remap, to);
            self.succeeded("move of several kinds");
        }
        self.succeeded(if remap.to.is_some() { "move" } else { "resize" });
        Ok(())
    }

    /// Whether what moves is more than one area: alike ones may be, after a fork.
    fn has_several(&self, process: usize, remap: Remap) -> bool {
        let (start, end) = (Page::new(remap.from), Page::new(remap.from + remap.pages));
        let mut whole = false;
        self.processes[&process].space().areas(&mut |area| {
            whole |= area.range().covers(PageRange::new(start, end));
        });
        !whole
    }

    /// Whether any of what moves is watched: such areas move alone.
    fn is_watched(&self, process: usize, remap: Remap) -> bool {
        let (start, end) = (Page::new(remap.from), Page::new(remap.from + remap.pages));
        let range = PageRange::new(start, end);
        let mut watched = false;
        self.processes[&process].space().areas(&mut |area| {
            let moves = !area.range().intersect(range).is_empty();
            watched |= moves && area.flags().intersects(AreaFlags::UFFD);
        });
        watched
    }

    fn shrink_several(
        &mut self,
        process: usize,
        cpu: CpuId,
        remap: Remap,
    ) -> Result<(), Difference> {
        let (from, pages) = (remap.from, remap.pages);
        if remap.keep || remap.new_pages != 1 || pages == 1 {
            return Ok(());
        }
        let real = self.processes[&process].on(cpu, |space| {
            space.remap(RemapRequest {
                old: address(from),
                old_length: bytes(pages),
                new_length: bytes(1),
                may_move: true,
                fixed: None,
                dont_unmap: false,
            })
        });
        if real != Ok(address(from)) {
            return disagree(format!(
                "several areas did not shrink to one page: {real:?}"
            ));
        }
        self.model
            .unmap(process, from + 1, pages - 1)
            .expect("none is sealed");
        self.succeeded("shrink of several kinds");
        Ok(())
    }

    fn advise(
        &mut self,
        process: usize,
        cpu: CpuId,
        range: Range,
        advice: Advice,
    ) -> Result<(), Difference> {
        let (from, pages) = self.scale.range(range);
        let real_advice = match advice {
            Advice::Drop => memwright::Advice::DontNeed,
            Advice::Free => memwright::Advice::Free,
            Advice::PopulateRead => memwright::Advice::PopulateRead,
            Advice::PopulateWrite => memwright::Advice::PopulateWrite,
            Advice::OmitOnFork => memwright::Advice::DontFork,
            Advice::InheritOnFork => memwright::Advice::DoFork,
            Advice::WipeOnFork => memwright::Advice::WipeOnFork,
            Advice::KeepOnFork => memwright::Advice::KeepOnFork,
            Advice::InstallGuard => memwright::Advice::GuardInstall,
            Advice::RemoveGuard => memwright::Advice::GuardRemove,
            Advice::WantHuge => memwright::Advice::Huge,
            Advice::RefuseHuge => memwright::Advice::NotHuge,
        };
        let real = self.processes[&process].on(cpu, |space| {
            space.advise(address(from), bytes(pages), real_advice)
        });
        let model = self.model.advise(process, from, pages, advice);
        if agree("advise", model, real.map_err(kind_of_advise))? {
            self.succeeded("advise");
        }
        Ok(())
    }

    fn fork(&mut self, process: usize, cpu: CpuId) -> Result<(), Difference> {
        if self.processes.len() == MOST_PROCESSES {
            return Ok(());
        }
        let forked = self.processes[&process]
            .fork(cpu)
            .map_err(|error| match error {
                ForkError::OutOfMemory => Difference::Exhausted,
                other @ ForkError::Overcommit => {
                    Difference::Disagreement(format!("fork: {other:?}"))
                }
            })?;
        let child = self.created;
        self.created += 1;
        self.processes.insert(child, forked);
        self.model.fork(process, child);
        self.succeeded("fork");
        Ok(())
    }

    fn exit(&mut self, process: usize) {
        self.processes.remove(&process);
        self.watchers.retain(|(owner, ..)| *owner != process);
        self.model.exit(process);
        self.succeeded("exit");
    }

    fn read(
        &mut self,
        process: usize,
        cpu: CpuId,
        page: u8,
        offset: u16,
    ) -> Result<(), Difference> {
        let start = bytes(self.scale.access(page, offset)) + u64::from(offset) % PAGE as u64;
        let mut found = [0; 8];
        let real = self.processes[&process].read(cpu, VirtAddr::new(start), &mut found);
        let mut expected = [0; 8];
        let mut model = Ok(());
        for (at, byte) in (start..).zip(&mut expected) {
            match self
                .model
                .read(process, at / PAGE as u64, at as usize % PAGE)
            {
                Ok(value) => *byte = value,
                Err(refusal) => {
                    model = Err(refusal);
                    break;
                }
            }
        }
        if agree("read", model, real.map_err(kind_of_signal))? {
            if found != expected {
                return disagree(format!(
                    "read {found:?} instead of {expected:?} at {start:#x}"
                ));
            }
            self.succeeded("read");
        }
        Ok(())
    }

    fn write(
        &mut self,
        process: usize,
        cpu: CpuId,
        page: u8,
        offset: u16,
        value: u8,
    ) -> Result<(), Difference> {
        let start = bytes(self.scale.access(page, offset)) + u64::from(offset) % PAGE as u64;
        let real = self.processes[&process].write(cpu, VirtAddr::new(start), &[value; 8]);
        let model = (start..start + 8).try_for_each(|at| {
            self.model
                .write(process, at / PAGE as u64, at as usize % PAGE, value)
        });
        if agree("write", model, real.map_err(kind_of_signal))? {
            self.succeeded("write");
        }
        Ok(())
    }

    fn fetch(&mut self, process: usize, cpu: CpuId, page: u8) -> Result<(), Difference> {
        let page = self.scale.place(page);
        let real = self.processes[&process].fetch(cpu, address(page));
        let model = self.model.permit(process, page, Intent::Fetch);
        if agree("fetch", model, real.map_err(kind_of_signal))? {
            self.succeeded("fetch");
        }
        Ok(())
    }

    fn read_file(&mut self, file: u8, index: u8) -> Result<(), Difference> {
        let file = self.file(file);
        let index = u64::from(index) % FILE_PAGES;
        let mut found = [0];
        let length = match &self.files[file] {
            File::Plain(file) => file.read_at(bytes(index), &mut found),
            File::Noted(file) => file.pages().read_at(bytes(index), &mut found),
        };
        let Ok(length) = length else {
            return Err(Difference::Exhausted);
        };
        let inside = index < self.model.object_pages(file);
        let expected = if inside {
            self.model.read_object(file, index, 0)
        } else {
            0
        };
        if length != usize::from(inside) || found[0] != expected {
            return disagree(format!(
                "file read gave {length} bytes, {found:?}, not {expected}"
            ));
        }
        self.succeeded("read file");
        Ok(())
    }

    fn write_file(&mut self, cpu: CpuId, file: u8, index: u8, value: u8) -> Result<(), Difference> {
        let _running = self.host.machine().run_on(cpu);
        let file = self.file(file);
        let index = u64::from(index) % FILE_PAGES;
        if index >= self.model.object_pages(file) {
            return Ok(());
        }
        let written = match &self.files[file] {
            File::Plain(file) => file.write_at(bytes(index), &[value]),
            File::Noted(file) => file.write_at(bytes(index), &[value]),
        };
        if written.is_err() {
            return Err(Difference::Exhausted);
        }
        if !matches!(written, Ok(1)) {
            return disagree(format!("file write gave {written:?}"));
        }
        self.model.write_object(file, index, 0, value);
        self.succeeded("write file");
        Ok(())
    }

    fn truncate(&mut self, cpu: CpuId, file: u8, pages: u8) {
        let _running = self.host.machine().run_on(cpu);
        let file = self.file(file);
        let pages = u64::from(pages) % (FILE_PAGES + 1);
        match &self.files[file] {
            File::Plain(file) => file.set_size(bytes(pages)).expect("whole pages"),
            File::Noted(file) => file.truncate(pages),
        }
        self.model.truncate(file, pages);
        self.succeeded("truncate");
    }

    fn punch(&mut self, cpu: CpuId, file: u8, index: u8, pages: u8) {
        let _running = self.host.machine().run_on(cpu);
        let file = self.file(file);
        let index = u64::from(index) % FILE_PAGES;
        let pages = u64::from(pages).clamp(1, FILE_PAGES);
        match &self.files[file] {
            File::Plain(file) => {
                let punched = file.punch(bytes(index), bytes(index + pages));
                punched.expect("whole pages");
            }
            File::Noted(file) => file.punch(index, pages),
        }
        self.model.punch(file, index, pages);
        self.succeeded("punch");
    }

    fn clean(&mut self, cpu: CpuId, file: u8) {
        let _running = self.host.machine().run_on(cpu);
        let file = self.file(file);
        if let File::Noted(file) = &self.files[file] {
            if file.clean() > 0 {
                self.succeeded("clean");
            }
        }
    }

    /// Everything that must hold between two steps, found without touching anything.
    fn check(&self) -> Result<(), String> {
        let machine = self.host.machine();
        if let Some(violation) = machine.take_violations().first() {
            return Err(violation.clone());
        }
        if let Some(incoherence) = machine.audit().first() {
            return Err(format!("a stale translation is left: {incoherence:?}"));
        }
        for (&number, process) in &self.processes {
            self.check_areas(number, process)?;
            self.check_pages(number, process)?;
            self.check_tracking(number, process)?;
            process
                .space()
                .audit()
                .map_err(|error| format!("process {number}: audit: {error:?}"))?;
        }
        for file in &self.files {
            if let File::Noted(file) = file {
                if let Some(index) = file.check() {
                    return Err(format!("page {index} was written, and the file not told"));
                }
            }
        }
        self.check_frames()
    }

    fn check_areas(&self, number: usize, process: &Process) -> Result<(), String> {
        let mut found = Vec::new();
        process.space().areas(&mut |area| {
            let rights = model_rights(area.rights());
            found.extend(area.range().iter().map(|page| (page.number(), rights)));
        });
        let expected: Vec<_> = self.model.rights(number).collect();
        if found == expected {
            return Ok(());
        }
        let differs = expected
            .iter()
            .zip(&found)
            .find(|(expected, found)| expected != found);
        Err(format!(
            "process {number}: {} pages in areas, {} in the model, first difference {differs:?}",
            found.len(),
            expected.len()
        ))
    }

    /// No entry gives more than the model permits, or shows anything else than the model does.
    fn check_pages(&self, number: usize, process: &Process) -> Result<(), String> {
        let memory = self.host.machine().memory();
        let rights: BTreeMap<u64, Rights> = self.model.rights(number).collect();
        let mut difference = Ok(());
        walk::for_each_leaf(memory, process.space().table().root(), &mut |leaf| {
            for page in leaf.page..leaf.page + leaf.size.pages() {
                if difference.is_err() {
                    return;
                }
                let Some(rights) = rights.get(&page).copied() else {
                    difference = Err(format!("page {page:#x} has an entry and is not mapped"));
                    return;
                };
                let mut contents = [0; PAGE];
                memory.load(leaf.frame_of(page), 0, &mut contents);
                let more = leaf.rights.user && !rights.any()
                    || leaf.rights.write && !rights.write
                    || leaf.rights.execute && leaf.rights.user && !rights.execute
                    || leaf.rights.write && self.model.refuses_stores(number, page);
                difference = if more {
                    Err(format!(
                        "page {page:#x} gives {:?}, not {rights:?}",
                        leaf.rights
                    ))
                } else if !self.model.may_be_present(number, page) {
                    Err(format!(
                        "page {page:#x} is present beyond the end of its object"
                    ))
                } else if !self.model.contains(number, page, &contents) {
                    Err(format!("page {page:#x} is present with other contents"))
                } else {
                    Ok(())
                };
            }
        });
        difference.map_err(|difference| format!("process {number}: {difference}"))
    }

    /// Every frame is referenced as often as it is mapped, and an exclusive one is mapped once.
    fn check_frames(&self) -> Result<(), String> {
        let frames = self.host.frames();
        let mut anonymous: BTreeMap<u32, (u32, bool)> = BTreeMap::new();
        let mut tables = self.host.idle_table_frames();
        for process in self.processes.values() {
            let table = process.space().table();
            tables += table.table_frames();
            let mut cursor = table.cursor(PageRange::new(Page::new(0), Page::USER_END));
            while let Some(extent) = cursor.next_filled() {
                if let Entry::Present(Present { frame, bits, .. }) = extent.entry {
                    if frames.kind(frame) == FrameKind::Anonymous {
                        let seen = anonymous.entry(frame.number()).or_default();
                        *seen = (seen.0 + 1, seen.1 || bits.contains(Bits::EXCLUSIVE));
                    }
                }
                if !cursor.advance() {
                    break;
                }
            }
        }
        for (&number, &(count, exclusive)) in &anonymous {
            let frame = memwright_table::Frame::new(number);
            let references = frames.references(frame);
            if references != count {
                return Err(format!(
                    "{frame:?}: {count} entries, {references} references"
                ));
            }
            if exclusive && count > 1 {
                return Err(format!("{frame:?} is exclusive in one of {count} entries"));
            }
        }
        let audit = frames.audit();
        if audit.of(FrameKind::Anonymous) != anonymous.len() as u64 {
            return Err(format!(
                "{} anonymous frames, {} of them mapped",
                audit.of(FrameKind::Anonymous),
                anonymous.len()
            ));
        }
        if audit.of(FrameKind::Table) != tables {
            return Err(format!(
                "{} table frames, {tables} of them in use",
                audit.of(FrameKind::Table)
            ));
        }
        Ok(())
    }

    /// Every process reads every byte of what it maps, and of a page beside each mapping.
    fn sweep(&mut self) -> Result<(), Difference> {
        let cpu = CpuId::new(0);
        for (&number, process) in &self.processes {
            let mapped: Vec<u64> = self.model.rights(number).map(|(page, _)| page).collect();
            for page in mapped
                .into_iter()
                .chain([self.scale.start() - 1, self.scale.end()])
            {
                let mut contents = [0; PAGE];
                let real = process.read(cpu, address(page), &mut contents);
                let model = self.model.permit(number, page, Intent::Read);
                let readable = agree("last read", model, real.map_err(kind_of_signal))?;
                if readable && !self.model.contains(number, page, &contents) {
                    return disagree(format!(
                        "process {number} reads other contents in {page:#x}"
                    ));
                }
            }
        }
        Ok(self.check()?)
    }

    /// Every process exits and every file is deleted: the frames are back.
    fn leave(&mut self) -> Result<(), Difference> {
        while let Some((number, process)) = self.processes.pop_first() {
            drop(process);
            self.model.exit(number);
            self.check()?;
        }
        self.watchers.clear();
        {
            let _running = self.host.machine().run_on(CpuId::new(0));
            self.files.clear();
        }
        let frames = self.host.frames();
        let audit = frames.audit();
        for kind in [FrameKind::Anonymous, FrameKind::Object, FrameKind::Slab] {
            if audit.of(kind) != 0 {
                return disagree(format!(
                    "{} frames of kind {kind:?} are left",
                    audit.of(kind)
                ));
            }
        }
        Ok(())
    }
}
