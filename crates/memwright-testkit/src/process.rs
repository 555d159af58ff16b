//! User programs on a machine, driven as a kernel would drive them.

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use memwright::{Access, AddressSpace, FaultError, ForkError, Layout, Memory, Policy};
#[cfg(feature = "std")]
use memwright_table::Frame;
use memwright_table::sync::relax;
use memwright_table::{CpuId, Frames, HasTable, Loaded, Machine, PAGE_SIZE, Table, VirtAddr};
use spin::Mutex;

use crate::leak::{self, LeakOnPanic};
use crate::machine::{TestMachine, Trap};

/// An address space on the machine.
pub type Space<M> = AddressSpace<M>;

/// The maximum number of faults of one access. An access that faults more often counts as hanging. A typical access
/// needs at most three faults: to populate the page, to make it writable, and to drop a stale translation. More faults
/// are needed if the adversary or another CPU undoes the effect of one of them.
const MOST_FAULTS: usize = 32;

/// The signal that ends a program after an invalid access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGSEGV: nothing is mapped at the address (`SEGV_MAPERR`).
    Unmapped,
    /// SIGSEGV: the rights forbid the access (`SEGV_ACCERR`).
    Forbidden,
    /// SIGBUS: the page is beyond the end of the object, or could not be read.
    Bus,
    /// No frame is free. A kernel would kill a process.
    OutOfMemory,
    /// No signal: the machine does not do what a processor does.
    Broken(&'static str),
}

/// What is wrong if an access faults [`MOST_FAULTS`] times.
pub(crate) const ENDLESS: &str = "an access still faults after many faults that were resolved";
const WRONG_TRAP: &str = "a page fault reports another page, or another kind of access";

/// What a CPU has loaded.
enum Root<M: Machine> {
    /// The table of the host, because no process runs on the CPU.
    Idle(Arc<Table<M>>),
    /// The table of a process.
    Space(Arc<Space<M>>),
}

impl<M: Machine> HasTable for Root<M> {
    type Machine = M;

    fn table(&self) -> &Table<M> {
        match self {
            Self::Idle(table) => table,
            Self::Space(space) => space.table(),
        }
    }
}

/// The part of a kernel that memory management needs: the host records which address space each CPU has loaded.
pub struct Host<M: TestMachine> {
    memory: Arc<Memory<M>>,
    /// The table that a CPU loads when no process runs there.
    idle: Arc<Table<M>>,
    /// What each CPU has loaded; `None` once the host is dropped.
    loaded: Vec<Mutex<Option<Loaded<Root<M>>>>>,
    accesses: AtomicU64,
    faults: AtomicU64,
}

impl<M: TestMachine> Host<M> {
    /// Creates the state that all programs share, and loads an empty table on the first `cpus` CPUs. No program runs on
    /// another CPU.
    ///
    /// # Errors
    /// The machine has too little memory.
    ///
    /// # Panics
    /// If the machine does not have that many CPUs.
    pub fn boot(frames: &Arc<Frames<M>>, cpus: usize) -> Result<Arc<Self>, String> {
        assert!(cpus <= frames.machine().cpu_count(), "{cpus} CPUs");
        let refused = |error| format!("the machine cannot start: {error}");
        let memory = Memory::new(frames.clone(), Policy::default()).map_err(refused)?;
        let idle = Table::new(frames.clone());
        let idle = Arc::new(idle.map_err(|error| format!("no idle table: {error}"))?);
        let load = |index| {
            let _acting = frames.machine().act_as(CpuId::new(index as u16));
            Mutex::new(Some(Loaded::new(Root::Idle(idle.clone()))))
        };
        Ok(Arc::new(Self {
            memory: Arc::new(memory),
            loaded: (0..cpus).map(load).collect(),
            idle,
            accesses: AtomicU64::new(0),
            faults: AtomicU64::new(0),
        }))
    }

    /// Returns the machine.
    #[must_use]
    pub fn machine(&self) -> &M {
        self.frames().machine()
    }

    /// Returns the number of CPUs on which programs run.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.loaded.len()
    }

    fn each_cpu(&self) -> impl Iterator<Item = CpuId> + use<M> {
        (0..self.loaded.len()).map(|index| CpuId::new(index as u16))
    }

    /// Returns the number of accesses that programs have attempted, and the number of page faults that they took.
    #[must_use]
    pub fn attempts(&self) -> (u64, u64) {
        let [accesses, faults] = [&self.accesses, &self.faults];
        (
            accesses.load(Ordering::Relaxed),
            faults.load(Ordering::Relaxed),
        )
    }

    /// Returns the state that all address spaces share.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory<M>> {
        &self.memory
    }

    /// Returns the frame allocator.
    #[must_use]
    pub fn frames(&self) -> &Arc<Frames<M>> {
        self.memory.frames()
    }

    /// Returns the number of page-table frames of the idle table.
    #[must_use]
    pub fn idle_table_frames(&self) -> u64 {
        self.idle.table_frames()
    }

    /// Checks the state of the machine, and of each CPU with the table that it has loaded.
    pub(crate) fn check_machine(&self) -> Result<(), String> {
        self.machine().check()?;
        for cpu in self.each_cpu() {
            let loaded = self.loaded[cpu.index()].lock();
            if let Some(root) = loaded.as_ref().map(Loaded::get) {
                self.machine().check_cpu(cpu, root.table())?;
            }
        }
        Ok(())
    }

    /// Returns the root of the idle table.
    #[cfg(feature = "std")]
    pub(crate) fn idle_root(&self) -> Frame {
        self.idle.root()
    }

    /// Switches `cpu` to `space`, and makes the calling host thread act as `cpu`.
    pub fn enter(&self, cpu: CpuId, space: &Arc<Space<M>>) -> M::Acting {
        let acting = self.machine().act_as(cpu);
        if !self.has_loaded(cpu, space) {
            self.switch(cpu, Root::Space(space.clone()));
        }
        acting
    }

    /// Loads the idle table on each CPU that has `space` loaded. For an address space whose process exits.
    pub fn evict(&self, space: &Arc<Space<M>>) {
        for cpu in self.each_cpu() {
            let _acting = self.machine().act_as(cpu);
            if self.has_loaded(cpu, space) {
                self.switch(cpu, Root::Idle(self.idle.clone()));
            }
        }
    }

    fn has_loaded(&self, cpu: CpuId, space: &Arc<Space<M>>) -> bool {
        match self.loaded[cpu.index()].lock().as_ref().map(Loaded::get) {
            Some(Root::Space(loaded)) => Arc::ptr_eq(loaded, space),
            Some(Root::Idle(_)) | None => false,
        }
    }

    /// Loads `next` on `cpu`, as which the calling thread acts.
    fn switch(&self, cpu: CpuId, next: Root<M>) {
        let mut loaded = self.loaded[cpu.index()].lock();
        let before = loaded.take().expect("the host exists");
        let (next, _before) = before.switch(next);
        *loaded = Some(next);
    }
}

impl<M: TestMachine> Drop for Host<M> {
    /// Ends the use of all page tables on each CPU.
    fn drop(&mut self) {
        for cpu in self.each_cpu() {
            let _acting = self.machine().act_as(cpu);
            if let Some(loaded) = self.loaded[cpu.index()].lock().take() {
                self.machine().unload();
                loaded.stop();
            }
        }
    }
}

/// A user program: an address space, and accesses that fault and are retried.
pub struct Process<M: TestMachine> {
    host: Arc<Host<M>>,
    space: Arc<Space<M>>,
    /// The CPU on which the program ran last, and on which it will exit.
    last: AtomicU16,
}

impl<M: TestMachine> Process<M> {
    /// Creates a program that maps nothing.
    ///
    /// # Panics
    /// If the memory for the program cannot be allocated.
    #[must_use]
    pub fn new(host: &Arc<Host<M>>) -> Self {
        let space = Space::new(host.memory.clone(), Layout::of::<M::Arch>());
        let space = space.expect("room for an empty address space");
        Self::with_space(host, space, CpuId::new(0))
    }

    /// Creates a program with the address space `space`. The program was last run on the CPU `last`, and exits on that
    /// CPU, so that no two host threads act as one CPU at the same time.
    fn with_space(host: &Arc<Host<M>>, space: Space<M>, last: CpuId) -> Self {
        Self {
            host: host.clone(),
            space: Arc::new(space),
            last: AtomicU16::new(last.index() as u16),
        }
    }

    /// Forks the program, as the `fork` system call does.
    ///
    /// # Errors
    /// Like [`AddressSpace::fork`].
    pub fn fork(&self, cpu: CpuId) -> Result<Self, ForkError> {
        let space = self.on(cpu, AddressSpace::fork)?;
        Ok(Self::with_space(&self.host, space, cpu))
    }

    /// Returns the machine on which the program runs.
    #[must_use]
    pub fn host(&self) -> &Arc<Host<M>> {
        &self.host
    }

    /// Returns the address space of the program, for operations on a CPU that has [entered](Self::on) it.
    #[must_use]
    pub fn space(&self) -> &Arc<Space<M>> {
        &self.space
    }

    fn enter(&self, cpu: CpuId) -> M::Acting {
        self.last.store(cpu.index() as u16, Ordering::Relaxed);
        self.host.enter(cpu, &self.space)
    }

    /// Runs `call` on `cpu` with the address space loaded, like a system call.
    pub fn on<T>(&self, cpu: CpuId, call: impl FnOnce(&Space<M>) -> T) -> T {
        let _running = self.enter(cpu);
        call(&self.space)
    }

    /// Loads bytes, page by page.
    ///
    /// # Errors
    /// The signal that would end the program. The bytes of the pages before the faulting page are in `into`.
    pub fn read(&self, cpu: CpuId, address: VirtAddr, into: &mut [u8]) -> Result<(), Signal> {
        let mut done = 0;
        while done < into.len() {
            let (here, bytes) = part(address, done, into.len());
            let into = &mut into[done..done + bytes];
            self.access(cpu, here, Access::READ, |machine, table| {
                machine.load(table, here, into)
            })?;
            done += bytes;
        }
        Ok(())
    }

    /// Stores bytes, page by page.
    ///
    /// # Errors
    /// The signal that would end the program. The pages before the faulting page are written.
    pub fn write(&self, cpu: CpuId, address: VirtAddr, from: &[u8]) -> Result<(), Signal> {
        let mut done = 0;
        while done < from.len() {
            let (here, bytes) = part(address, done, from.len());
            let from = &from[done..done + bytes];
            self.access(cpu, here, Access::WRITE, |machine, table| {
                machine.store(table, here, from)
            })?;
            done += bytes;
        }
        Ok(())
    }

    /// Fetches an instruction byte.
    ///
    /// # Errors
    /// The signal that would end the program.
    pub fn fetch(&self, cpu: CpuId, address: VirtAddr) -> Result<u8, Signal> {
        self.access(cpu, address, Access::FETCH, |machine, table| {
            machine.fetch(table, address)
        })
    }

    /// Performs an access of the kind `kind` to the page of `address`, resolves its faults and retries it.
    ///
    /// # Errors
    /// The signal that would end the program.
    pub fn access<T>(
        &self,
        cpu: CpuId,
        address: VirtAddr,
        kind: Access,
        mut attempt: impl FnMut(&M, &Table<M>) -> Result<T, Trap>,
    ) -> Result<T, Signal> {
        let _acting = self.enter(cpu);
        self.host.accesses.fetch_add(1, Ordering::Relaxed);
        for _ in 0..MOST_FAULTS {
            match attempt(self.host.machine(), self.space.table()) {
                Ok(value) => return Ok(value),
                Err(trap) => {
                    self.host.faults.fetch_add(1, Ordering::Relaxed);
                    if trap.address.page() != address.page() || trap.access != kind {
                        return Err(Signal::Broken(WRONG_TRAP));
                    }
                    self.resolve(trap)?;
                }
            }
        }
        Err(Signal::Broken(ENDLESS))
    }

    fn resolve(&self, trap: Trap) -> Result<(), Signal> {
        match self.space.fault(trap.address, trap.access) {
            Ok(_) => Ok(()),
            // The page is busy only for a short time: another thread reads it or migrates it. The access is retried.
            Err(FaultError::WouldBlock) => {
                relax::<M::Threads>();
                Ok(())
            }
            Err(FaultError::NoArea | FaultError::Guard | FaultError::StackLimit) => {
                Err(Signal::Unmapped)
            }
            Err(FaultError::Denied | FaultError::Key(_)) => Err(Signal::Forbidden),
            // The simulation has no userfaultfd handler, so the access fails as with `UFFD_FEATURE_SIGBUS`.
            Err(
                FaultError::Poison(_)
                | FaultError::BeyondObject
                | FaultError::Io
                | FaultError::NoHugePage
                | FaultError::Watched(_),
            ) => Err(Signal::Bus),
            Err(FaultError::OutOfMemory) => Err(Signal::OutOfMemory),
        }
    }
}

/// Returns the start and the length of one part of an access. The part begins `done` bytes after `address`, and ends
/// with its page or with the access, whose length is `all`.
fn part(address: VirtAddr, done: usize, all: usize) -> (VirtAddr, usize) {
    let here = VirtAddr::new(address.as_u64() + done as u64);
    (here, (PAGE_SIZE - here.offset()).min(all - done))
}

impl<M: TestMachine> Drop for Process<M> {
    fn drop(&mut self) {
        let _kept = LeakOnPanic(self.space.clone());
        if leak::is_panicking() {
            return;
        }
        self.host.evict(&self.space);
        let last = CpuId::new(self.last.load(Ordering::Relaxed));
        let _acting = self.host.machine().act_as(last);
        self.space.clear();
    }
}
