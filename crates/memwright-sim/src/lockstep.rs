//! Runs a script on the memory manager and on the model, and compares after each step.

mod access;
mod area;
mod armed;
mod check;
mod copies;
mod end;
mod file;
mod fill;
mod frames;
mod kinds;
mod merge;
mod nodes;
mod process;
mod reclaim;
mod remap;
mod swap;
mod tracking;

use std::collections::BTreeMap;
use std::sync::Arc;

use memwright::SharedSetting;
use memwright::object::{ObjectIdentity, Shmem};
use memwright::uffd::Watch;
use memwright::{SharedSizeMode, SizeMode};
use memwright_table::{CpuId, PAGE_SIZE, Page, PageSize, VirtAddr};

use crate::HostSwap;
use crate::adversary::Adversary;
use crate::machine::{MachineOptions, SimulatedMachine};
use crate::model::Model;
use crate::noted_file::NotedFile;
use crate::process::{Host, Process};
use crate::script::{ARENA, Action, Range, Scale, Script, Step, Watcher};
use crate::terms::{Remap, Rights};

/// Why a script cannot continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The memory manager and the model disagree; the text says how.
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
    /// Adds the place where the difference was found.
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
    /// Pages of the largest folio that the machine allocates.
    largest: u64,
    /// The userfaultfd contexts of each process, by kind.
    watchers: Vec<(usize, Watcher, Watch)>,
    /// The swap device, and its number while it is in use.
    device: Option<(Arc<HostSwap>, Option<usize>)>,
    /// Whether a step that runs out of memory reclaims pages and is retried.
    reclaims: bool,
    /// Whether the hardware loads pages speculatively, which counts as an access.
    speculates: bool,
    /// Whether a process has cleared soft-dirty, so that the soft-dirty state is compared.
    clears: bool,
    /// How often each kind of step succeeded: a test that never reaches a case proves nothing.
    successes: BTreeMap<&'static str, u64>,
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
    /// Creates a machine with one process and two files of zeroes that are not mapped.
    #[must_use]
    pub fn new(options: MachineOptions, adversary: Option<Adversary>) -> Self {
        let host = Host::boot(options);
        let speculates = adversary.is_some();
        host.machine().set_adversary(adversary);
        let processes = BTreeMap::from([(0, Process::new(&host))]);
        let mut lockstep = Self {
            host,
            model: Model::default(),
            processes,
            files: Vec::new(),
            created: 1,
            scale: Scale(1),
            largest: 1,
            watchers: Vec::new(),
            device: None,
            reclaims: false,
            speculates,
            clears: false,
            successes: BTreeMap::new(),
        };
        lockstep.model.create_process(0);
        lockstep.create_files();
        lockstep
    }

    fn create_files(&mut self) {
        let (memory, pages) = (self.host.memory(), self.scale.file());
        let identity = ObjectIdentity {
            device: 1,
            inode: 1,
        };
        let plain = Shmem::new(memory.clone(), bytes(pages), identity);
        let plain = plain.expect("heap");
        let plain = plain.with_huge_pages(SharedSetting::File);
        let noted = NotedFile::new(memory.clone(), pages);
        self.files = vec![File::Plain(Arc::new(plain)), File::Noted(Arc::new(noted))];
        for file in &self.files {
            let memory = matches!(file, File::Plain(_));
            self.model.create_object(pages, memory);
        }
    }

    /// Sets how many pages each place of a script stands for.
    #[must_use]
    pub fn scaled(mut self, scale: Scale) -> Self {
        self.scale = scale;
        self.largest = PageSize::Size2M.pages();
        self.model = Model::default();
        self.model.create_process(0);
        self.create_files();
        self
    }

    /// Allocates anonymous and shared memory in folios of these orders wherever they fit.
    #[must_use]
    pub fn in_folios(mut self, orders: &[u8]) -> Self {
        let settings = self.host.memory().huge();
        for order in orders {
            settings.sizes.set_mode(*order, SizeMode::Always);
            settings.set_shared_size(*order, SharedSizeMode::Always);
            self.largest = self.largest.max(1 << order);
        }
        self
    }

    /// Adds a swap device.
    ///
    /// # Panics
    /// If there is no heap memory for the state of its slots.
    #[must_use]
    pub fn with_swap(mut self, device: Arc<HostSwap>) -> Self {
        let number = self.host.memory().add_swap(device.clone(), 0);
        self.device = Some((device, number.expect("heap")));
        self
    }

    /// Reclaims pages when a step runs out of memory, and retries it. If that does not help, the script ends there.
    #[must_use]
    pub fn reclaiming(mut self) -> Self {
        self.reclaims = true;
        self
    }

    /// Returns the machine and the memory manager that runs on it.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Runs all steps and compares after each. At the end every process reads all of its memory and exits. Returns how
    /// often each kind of step succeeded.
    ///
    /// # Errors
    /// The first difference, with the step at which it was found.
    pub fn run(mut self, script: &Script) -> Result<BTreeMap<&'static str, u64>, Difference> {
        for (number, step) in script.0.iter().enumerate() {
            let outcome = self.step_or_reclaim(step);
            if self.reclaims && outcome == Err(Difference::Exhausted) {
                return self.end_exhausted();
            }
            outcome
                .and_then(|()| Ok(self.check()?))
                .map_err(|difference| difference.at(&format!("step {number} ({step:?})")))?;
        }
        match self.finish() {
            Err(Difference::Exhausted) if self.reclaims => self.end_exhausted(),
            outcome => outcome.map(|()| self.successes),
        }
    }

    /// Like [`run`](Self::run), with an injected failure under way, which `disarm` ends before the final comparison. A
    /// step that runs out of memory must change nothing, and must succeed when it is retried. Returns how many steps
    /// ran out of memory.
    ///
    /// # Errors
    /// Like [`run`](Self::run).
    pub fn run_failing(mut self, script: &Script, disarm: &dyn Fn()) -> Result<u64, Difference> {
        let mut exhausted = 0;
        for (number, step) in script.0.iter().enumerate() {
            let before = self.model.clone();
            let mut outcome = self.step(step);
            if outcome == Err(Difference::Exhausted) {
                exhausted += 1;
                self.model = before;
                // If one of these steps fails, the areas below the one that failed stay changed, as on Linux.
                let stands = matches!(
                    step.action,
                    Action::Protect(..)
                        | Action::Advise(..)
                        | Action::Watch(..)
                        | Action::Unwatch(..)
                        | Action::WriteProtect(..)
                        | Action::Scan(..)
                        | Action::Relocate(..)
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

    /// Returns how memory is resized in place.
    fn resizing(&self, range: Range, pages: u8) -> Remap {
        let (from, old) = self.scale.range(range);
        Remap {
            from,
            pages: old,
            new_pages: u64::from(pages).clamp(1, ARENA) * self.scale.0,
            to: None,
            keep: false,
        }
    }

    /// Returns how memory is moved.
    fn moving(&self, range: Range, to: u8, keep: bool) -> Remap {
        let (from, pages) = self.scale.range(range);
        Remap {
            from,
            pages,
            new_pages: pages,
            to: Some(self.scale.place(to)),
            keep,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), Difference> {
        let alive: Vec<usize> = self.processes.keys().copied().collect();
        let process = alive[usize::from(step.process) % alive.len()];
        let cpu = CpuId::new(u16::from(step.cpu) % self.host.machine().options().cpus as u16);
        match step.action {
            Action::Map(range, rights, what, populate) => {
                self.map(process, cpu, range, rights, what, populate)?;
            }
            Action::Unmap(range) => self.unmap(process, cpu, range)?,
            Action::Seal(range) => self.seal(process, cpu, range)?,
            Action::Protect(range, rights) => self.protect(process, cpu, range, rights)?,
            Action::Resize(range, pages) => {
                self.remap(process, cpu, self.resizing(range, pages))?;
            }
            Action::Move(range, to, keep) => {
                self.remap(process, cpu, self.moving(range, to, keep))?;
            }
            Action::Advise(range, advice) => self.advise(process, cpu, range, advice)?,
            Action::Fork => self.fork(process, cpu)?,
            Action::Exit if alive.len() > 1 => self.exit(process),
            Action::Exit => {}
            Action::Read(page, offset) => self.read(process, cpu, page, offset)?,
            Action::Write(page, offset, value) => self.write(process, cpu, page, offset, value)?,
            Action::Fetch(page) => self.fetch(process, cpu, page)?,
            Action::ReadFile(file, index) => self.read_file(file, index)?,
            Action::WriteFile(file, index, value) => self.write_file(cpu, file, index, value)?,
            Action::Truncate(file, pages) => self.truncate(cpu, file, pages),
            Action::Punch(file, index, pages) => self.punch(cpu, file, index, pages),
            Action::Clean(file) => self.clean(cpu, file),
            Action::Watch(range, watcher) => self.watch(process, cpu, range, watcher)?,
            Action::Unwatch(range, watcher) => self.unwatch(process, cpu, range, watcher)?,
            Action::WriteProtect(range, watcher, on) => {
                self.write_protect(process, cpu, range, watcher, on)?;
            }
            Action::ReadWriteProtect(range, on) => {
                self.read_write_protect(process, cpu, range, on)?;
            }
            Action::CountAccesses(on) => self.count_accesses(process, cpu, on)?,
            Action::ScanAccessed(range) => self.scan_accessed(process, cpu, range)?,
            Action::Scan(range, protect) => self.scan(process, cpu, range, protect)?,
            Action::ClearSoftDirty => self.clear_soft_dirty(process, cpu),
            Action::Collapse(range) => self.collapse(process, cpu, range)?,
            Action::Split(range, order) => self.split(process, cpu, range, order),
            Action::KernelRead(page, offset) => self.kernel_read(process, cpu, page, offset)?,
            Action::KernelWrite(page, offset, value) => {
                self.kernel_write(process, cpu, page, offset, value)?;
            }
            Action::Transfer(from, to, other) => {
                let other = alive[usize::from(other) % alive.len()];
                self.transfer(cpu, (process, from), (other, to))?;
            }
            Action::Reclaim => self.reclaim(cpu),
            Action::Swap(true) => self.swap_on(cpu)?,
            Action::Swap(false) => self.swap_off(cpu)?,
            Action::Merge => self.merge(cpu),
            Action::Bind(range, node) => self.bind(process, cpu, range, node)?,
            Action::Migrate(range, node) => self.migrate(process, cpu, range, node)?,
            Action::Hint => self.hint(process, cpu),
            Action::Fill(page, value, protect) => self.fill(process, cpu, page, value, protect)?,
            Action::Relocate(range, to) => self.relocate(process, cpu, range, to)?,
        }
        Ok(())
    }

    fn succeeded(&mut self, what: &'static str) {
        *self.successes.entry(what).or_default() += 1;
    }
}
