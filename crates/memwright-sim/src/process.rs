//! User programs on the simulated machine, driven as a kernel would drive them.

use crate::Arch;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use memwright::{Access, AddressSpace, FaultError, ForkError, Layout, Memory, Policy};
use memwright_table::sync::relax;
use memwright_table::{CpuId, Frames, HasTable, Loaded, PAGE_SIZE, Table, VirtAddr};

use crate::leak::LeakOnPanic;
use crate::locked::locked;
use crate::machine::{MachineOptions, RunningOn, SimulatedMachine};
use crate::mmu::PageFault;

/// An address space on the simulated machine.
pub type Space = AddressSpace<SimulatedMachine>;

/// The maximum number of faults of one access. An access that faults more often counts as hanging. A typical access
/// needs at most three: to populate the page, to make it writable, and to drop a stale translation. More are needed if
/// the adversary or another CPU undoes the effect of one.
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
}

/// What a CPU has loaded.
enum Root {
    /// The table of the host, because no process runs on the CPU.
    Idle(Arc<Table<SimulatedMachine>>),
    /// The table of a process.
    Space(Arc<Space>),
}

impl HasTable for Root {
    type Machine = SimulatedMachine;

    fn table(&self) -> &Table<SimulatedMachine> {
        match self {
            Self::Idle(table) => table,
            Self::Space(space) => space.table(),
        }
    }
}

/// The part of a kernel that memory management needs: the host records which address space each CPU has loaded.
pub struct Host {
    machine: SimulatedMachine,
    memory: Arc<Memory<SimulatedMachine>>,
    /// The table that a CPU loads when no process runs there.
    idle: Arc<Table<SimulatedMachine>>,
    /// What each CPU has loaded; `None` once the machine is off.
    loaded: Vec<Mutex<Option<Loaded<Root>>>>,
}

impl Host {
    /// Boots a machine whose frame allocator has all memory except frame 0.
    ///
    /// # Panics
    /// If the machine has too little memory to start.
    #[must_use]
    pub fn boot(options: MachineOptions) -> Arc<Self> {
        let machine = SimulatedMachine::new(options);
        let frames = machine.frames();
        let memory = Arc::new(
            Memory::new(frames.clone(), Policy::default()).expect("room for the zero frame"),
        );
        let idle = Table::new(frames, None).expect("room for the idle table");
        let idle = Arc::new(idle);
        let load = |cpu| {
            let _running = machine.run_on(cpu);
            Mutex::new(Some(Loaded::new(Root::Idle(idle.clone()))))
        };
        let loaded = machine.cpus().map(load).collect();
        Arc::new(Self {
            machine,
            memory,
            idle,
            loaded,
        })
    }

    /// Returns the machine.
    #[must_use]
    pub fn machine(&self) -> &SimulatedMachine {
        &self.machine
    }

    /// Returns the state that all address spaces share.
    #[must_use]
    pub fn memory(&self) -> &Arc<Memory<SimulatedMachine>> {
        &self.memory
    }

    /// Returns the frame allocator.
    #[must_use]
    pub fn frames(&self) -> &Arc<Frames<SimulatedMachine>> {
        self.memory.frames()
    }

    /// Returns the number of page-table frames of the idle table.
    #[must_use]
    pub fn idle_table_frames(&self) -> u64 {
        self.idle.table_frames()
    }

    /// Switches `cpu` to `space`, and makes the calling host thread act as `cpu`.
    pub fn enter(&self, cpu: CpuId, space: &Arc<Space>) -> RunningOn {
        let running = self.machine.run_on(cpu);
        if !self.has_loaded(cpu, space) {
            self.switch(cpu, Root::Space(space.clone()));
        }
        running
    }

    /// Loads the idle table on each CPU that has `space` loaded. For an address space whose process exits.
    pub fn evict(&self, space: &Arc<Space>) {
        for cpu in self.machine.cpus() {
            let _running = self.machine.run_on(cpu);
            if self.has_loaded(cpu, space) {
                self.switch(cpu, Root::Idle(self.idle.clone()));
            }
        }
    }

    fn has_loaded(&self, cpu: CpuId, space: &Arc<Space>) -> bool {
        match locked(&self.loaded[cpu.index()]).as_ref().map(Loaded::get) {
            Some(Root::Space(loaded)) => Arc::ptr_eq(loaded, space),
            Some(Root::Idle(_)) | None => false,
        }
    }

    /// Loads `next` on `cpu`, as which the calling thread acts.
    fn switch(&self, cpu: CpuId, next: Root) {
        let mut loaded = locked(&self.loaded[cpu.index()]);
        let before = loaded.take().expect("the machine is on");
        let (next, _before) = before.switch(next);
        *loaded = Some(next);
    }
}

impl Drop for Host {
    /// Switches the machine off. No CPU uses any page table afterwards.
    fn drop(&mut self) {
        for cpu in self.machine.cpus() {
            let _running = self.machine.run_on(cpu);
            if let Some(loaded) = locked(&self.loaded[cpu.index()]).take() {
                loaded.stop();
            }
        }
    }
}

/// A user program: an address space, and accesses that fault and are retried.
pub struct Process {
    host: Arc<Host>,
    space: Arc<Space>,
    /// The CPU on which the program ran last, and on which it will exit.
    last: AtomicU16,
}

impl Process {
    /// Creates a program that maps nothing.
    ///
    /// # Panics
    /// If the memory for the program cannot be allocated.
    #[must_use]
    pub fn new(host: &Arc<Host>) -> Self {
        let layout = Layout::of::<Arch>();
        let space =
            Space::new(host.memory.clone(), layout, None).expect("room for an empty address space");
        Self::with_space(host, space, CpuId::new(0))
    }

    /// Creates a program with this address space. The program was last run on the CPU `last`, and exits on that CPU, so
    /// that no two host threads act as one CPU at the same time.
    fn with_space(host: &Arc<Host>, space: Space, last: CpuId) -> Self {
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
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// Returns the address space of the program, for operations on a CPU that has [entered](Self::on) it.
    #[must_use]
    pub fn space(&self) -> &Arc<Space> {
        &self.space
    }

    fn enter(&self, cpu: CpuId) -> RunningOn {
        self.last.store(cpu.index() as u16, Ordering::Relaxed);
        self.host.enter(cpu, &self.space)
    }

    /// Runs `call` on `cpu` with the address space loaded, like a system call.
    pub fn on<T>(&self, cpu: CpuId, call: impl FnOnce(&Space) -> T) -> T {
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
            let here = VirtAddr::new(address.as_u64() + done as u64);
            let bytes = (PAGE_SIZE - here.offset()).min(into.len() - done);
            self.retry(cpu, |host| {
                host.machine
                    .on(cpu)
                    .read(here, &mut into[done..done + bytes])
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
            let here = VirtAddr::new(address.as_u64() + done as u64);
            let bytes = (PAGE_SIZE - here.offset()).min(from.len() - done);
            self.retry(cpu, |host| {
                host.machine.on(cpu).write(here, &from[done..done + bytes])
            })?;
            done += bytes;
        }
        Ok(())
    }

    /// Adds to a word as one locked instruction, and returns its previous value.
    ///
    /// # Errors
    /// The signal that would end the program.
    pub fn fetch_add(&self, cpu: CpuId, address: VirtAddr, value: u64) -> Result<u64, Signal> {
        self.retry(cpu, |host| host.machine.on(cpu).fetch_add(address, value))
    }

    /// Fetches an instruction byte.
    ///
    /// # Errors
    /// The signal that would end the program.
    pub fn fetch(&self, cpu: CpuId, address: VirtAddr) -> Result<u8, Signal> {
        self.retry(cpu, |host| host.machine.on(cpu).fetch(address))
    }

    /// Performs one access, resolves its faults and retries it.
    ///
    /// # Panics
    /// If the access still faults after `MOST_FAULTS` faults were resolved.
    fn retry<T>(
        &self,
        cpu: CpuId,
        mut access: impl FnMut(&Host) -> Result<T, PageFault>,
    ) -> Result<T, Signal> {
        let _running = self.enter(cpu);
        for _ in 0..MOST_FAULTS {
            match access(&self.host) {
                Ok(value) => return Ok(value),
                Err(fault) => self.resolve(fault)?,
            }
        }
        panic!("an access still faults after {MOST_FAULTS} faults that were resolved");
    }

    fn resolve(&self, fault: PageFault) -> Result<(), Signal> {
        assert!(
            !fault.code.reserved,
            "{fault:?}: an entry with a reserved bit set"
        );
        let access = Access {
            write: fault.code.write,
            fetch: fault.code.fetch,
            user: true,
        };
        match self.space.fault(fault.address, access) {
            Ok(_) => Ok(()),
            // The page is busy only for a short time: another thread reads it or migrates it. The access is retried.
            Err(FaultError::WouldBlock) => {
                relax::<SimulatedMachine>();
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

impl Drop for Process {
    fn drop(&mut self) {
        let _kept = LeakOnPanic(self.space.clone());
        if std::thread::panicking() {
            return;
        }
        self.host.evict(&self.space);
        let last = CpuId::new(self.last.load(Ordering::Relaxed));
        let _running = self.host.machine.run_on(last);
        self.space.clear();
    }
}
