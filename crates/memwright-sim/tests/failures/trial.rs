//! One run of a subject, which is a function that tests some operations step by step. The run may make one allocation
//! fail.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::rc::Rc;
use std::sync::Arc;

use memwright::error::{FillError, MoveError, WatchError};
use memwright::object::{ObjectIdentity, Shmem};
use memwright::{
    AdviseError, BindError, Effort, FaultError, ForkError, LockError, MapError, NameError,
    ObjectError, ProtectError, RemapError, Row, SealError, SyncError, UnmapError, Unmoved,
};
use memwright_sim::programs::{self, Host, Process};
use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::handle::{fail_heap_after, heap_failure_pending};
use memwright_table::{OutOfFrames, OutOfMemory, PoolCounts};
use memwright_testkit::process::Signal;

use crate::support::{FIRST, assert_coherent, at, bytes};

/// An error that can be due to a failed allocation. `is_exhausted` returns whether it is the error that Linux returns
/// when memory runs out.
pub trait Exhausted: Debug {
    fn is_exhausted(&self) -> bool;
}

macro_rules! exhausted {
    ($($error:ty: $pattern:pat,)*) => {
        $(impl Exhausted for $error {
            fn is_exhausted(&self) -> bool {
                matches!(self, $pattern)
            }
        })*
    };
}

exhausted! {
    MapError: MapError::OutOfMemory,
    NameError: NameError::OutOfMemory,
    UnmapError: UnmapError::OutOfMemory,
    ProtectError: ProtectError::OutOfMemory,
    RemapError: RemapError::OutOfMemory,
    AdviseError: AdviseError::OutOfMemory | AdviseError::Fault(FaultError::OutOfMemory),
    SealError: SealError::OutOfMemory,
    LockError: LockError::OutOfMemory | LockError::Fault(FaultError::OutOfMemory),
    SyncError: SyncError::Object(ObjectError::OutOfMemory),
    ForkError: ForkError::OutOfMemory,
    FaultError: FaultError::OutOfMemory,
    WatchError: WatchError::OutOfMemory,
    MoveError: MoveError::OutOfMemory,
    FillError: FillError::OutOfMemory,
    ObjectError: ObjectError::OutOfMemory,
    BindError: BindError::OutOfMemory,
    Unmoved: Unmoved::NoFrame,
    Signal: Signal::OutOfMemory,
    OutOfFrames: OutOfFrames,
    OutOfMemory: OutOfMemory,
    (FaultError, usize): (FaultError::OutOfMemory, _),
}

/// The allocation that fails.
#[derive(Clone, Copy, Debug)]
enum Failing {
    None,
    Frame(u64),
    Heap(u64),
}

/// A machine, the programs on it, and the expected contents of their memory.
pub struct Trial {
    pub host: Arc<Host>,
    failing: Failing,
    processes: RefCell<Vec<Rc<Process>>>,
    /// The expected first byte of each page of each program.
    contents: RefCell<BTreeMap<(usize, u64), u8>>,
    used_before: u64,
    /// The number of frames that were allocated before the first step.
    allocated: Cell<u64>,
    failed: Cell<u64>,
    /// Whether the selected allocation is still to fail.
    armed: Cell<bool>,
    /// Whether a page has an additional reference, such as a pin, that the audit cannot find.
    pub lent: Cell<bool>,
}

/// A program of a trial.
#[derive(Clone)]
pub struct Program {
    pub number: usize,
    pub process: Rc<Process>,
}

impl Trial {
    fn new(options: MachineOptions, failing: Failing) -> Self {
        let host = programs::boot(options);
        let used_before = host.frames().used();
        Self {
            host,
            failing,
            processes: RefCell::default(),
            contents: RefCell::default(),
            used_before,
            allocated: Cell::new(0),
            failed: Cell::new(0),
            armed: Cell::new(false),
            lent: Cell::new(false),
        }
    }

    /// Creates a program that maps nothing.
    pub fn program(&self) -> Program {
        self.admit(Process::new(&self.host))
    }

    fn admit(&self, process: Process) -> Program {
        let process = Rc::new(process);
        let mut processes = self.processes.borrow_mut();
        processes.push(process.clone());
        Program {
            number: processes.len() - 1,
            process,
        }
    }

    pub fn shmem(&self, pages: u64) -> Arc<Shmem<SimulatedMachine>> {
        let identity = ObjectIdentity {
            device: 1,
            inode: 7,
        };
        let memory = self.host.memory().clone();
        Arc::new(Shmem::new(memory, bytes(pages), identity).expect("heap"))
    }

    /// Ends the preparation, and selects the allocation that will fail.
    pub fn begin(&self) {
        let _running = self.host.machine().run_on(FIRST);
        self.check("prepared");
        self.allocated.set(self.host.frames().allocations());
        self.armed.set(true);
        match self.failing {
            Failing::None => self.armed.set(false),
            Failing::Frame(nth) => self.host.frames().fail_after(Some(nth)),
            Failing::Heap(nth) => fail_heap_after(Some(nth)),
        }
    }

    fn disarm(&self) -> bool {
        let pending = heap_failure_pending();
        fail_heap_after(None);
        self.host.frames().fail_after(None);
        self.armed.set(false);
        pending
    }

    /// Performs an operation and returns its result. The operation must either succeed at once, or report that no
    /// memory is available and succeed when it is retried.
    pub fn step<T, E: Exhausted>(&self, name: &str, act: impl FnMut() -> Result<T, E>) -> T {
        let done = self.attempt(name, act);
        self.check(name);
        done
    }

    /// Like `step`, without the check after success. For callers that record the expected contents only afterwards.
    fn attempt<T, E: Exhausted>(&self, name: &str, mut act: impl FnMut() -> Result<T, E>) -> T {
        match act() {
            Ok(done) => done,
            Err(error) => {
                assert!(
                    error.is_exhausted() && self.armed.get(),
                    "{name}: {error:?}, with {:?} failing",
                    self.failing
                );
                self.disarm();
                self.failed.set(self.failed.get() + 1);
                self.check(name);
                act().unwrap_or_else(|error| {
                    panic!("{name} again: {error:?}, after {:?}", self.failing)
                })
            }
        }
    }

    /// Performs an operation on the memory of a program.
    pub fn on<T, E: Exhausted>(
        &self,
        name: &str,
        program: &Program,
        mut act: impl FnMut(&memwright_sim::programs::Space) -> Result<T, E>,
    ) -> T {
        self.step(name, || program.process.on(FIRST, &mut act))
    }

    /// Stores to a page, as the program.
    pub fn write(&self, program: &Program, page: u64, value: u8) {
        self.attempt("write", || program.process.write(FIRST, at(page), &[value]));
        self.expect(program, page, value);
        self.check("write");
    }

    /// Loads from a page, as the program.
    pub fn read(&self, program: &Program, page: u64) {
        let mut byte = [0];
        self.step("read", || program.process.read(FIRST, at(page), &mut byte));
        if let Some(value) = self.contents.borrow().get(&(program.number, page)) {
            assert_eq!(byte[0], *value, "page {page} with {:?}", self.failing);
        }
    }

    /// Reclaims pages of a program, in three passes with a small budget.
    pub fn reclaim(&self, program: &Program) {
        program.process.on(FIRST, |space| {
            for _ in 0..3 {
                let mut effort = Effort {
                    look: 1000,
                    wanted: 8,
                    charged: false,
                };
                space.reclaim(at(0).page(), &mut effort);
            }
        });
    }

    /// Sets the expected contents of a page.
    pub fn expect(&self, program: &Program, page: u64, value: u8) {
        let mut contents = self.contents.borrow_mut();
        contents.insert((program.number, page), value);
    }

    /// Removes the expectations about the contents of pages.
    pub fn forget(&self, program: &Program, pages: std::ops::Range<u64>) {
        let mut contents = self.contents.borrow_mut();
        contents.retain(|(number, page), _| *number != program.number || !pages.contains(page));
    }

    /// Forks a program. The expected contents of the child are those of the parent.
    pub fn fork(&self, parent: &Program) -> Program {
        let child = self.step("fork", || parent.process.fork(FIRST));
        let child = self.admit(child);
        let mut contents = self.contents.borrow_mut();
        let copied: Vec<_> = contents
            .iter()
            .filter(|((number, _), _)| *number == parent.number)
            .map(|(&(_, page), &value)| ((child.number, page), value))
            .collect();
        contents.extend(copied);
        drop(contents);
        child
    }

    /// Checks the conditions that must hold after every step, without causing faults.
    fn check(&self, name: &str) {
        assert_coherent(&self.host);
        let memory = self.host.machine().memory();
        let contents = self.contents.borrow();
        for (number, process) in self.processes.borrow().iter().enumerate() {
            let space = process.space();
            let _running = self.host.machine().run_on(FIRST);
            if !self.lent.get() {
                let audit = space.audit();
                assert_eq!(audit, Ok(()), "{name}, with {:?} failing", self.failing);
            }
            for (&(_, page), value) in contents.range((number, 0)..(number + 1, 0)) {
                let Some(present) = space.entry(at(page)).present() else {
                    continue;
                };
                let mut byte = [0];
                memory.load(present.frame_of(at(page).page()), 0, &mut byte);
                assert_eq!(
                    byte[0], *value,
                    "{name}, with {:?} failing: page {page} of program {number}",
                    self.failing
                );
            }
        }
    }

    /// Checks the memory of every program, ends the programs, and checks that nothing has leaked. Returns the number of
    /// steps that reported a failure, and whether the subject never reached the selected allocation.
    fn finish(self) -> (u64, bool) {
        let pending = self.disarm();
        for (number, process) in self.processes.borrow().iter().enumerate() {
            let contents = self.contents.borrow().clone();
            for (&(_, page), value) in contents.range((number, 0)..(number + 1, 0)) {
                let mut byte = [0];
                let read = process.read(FIRST, at(page), &mut byte);
                assert_eq!(
                    (read, byte[0]),
                    (Ok(()), *value),
                    "page {page} of program {number}, after {:?}",
                    self.failing
                );
            }
        }
        self.check("last");
        self.processes.borrow_mut().clear();
        let memory = self.host.memory();
        let frames = self.host.frames();
        let _running = self.host.machine().run_on(FIRST);
        assert_eq!(memory.swap().totals().1, 0, "slots, {:?}", self.failing);
        assert_eq!(
            memory.commit().committed(),
            0,
            "promises, {:?}",
            self.failing
        );
        let pool = frames.pool();
        assert_eq!((pool.free, pool.reserved), (pool.total, 0), "{pool:?}");
        frames.set_pool_surplus(0);
        frames.resize_pool(0);
        assert_eq!(frames.pool(), PoolCounts::default());
        while memory.merging().shed(memory) > 0 {}
        // The huge zero page stays allocated after its first use.
        let zeroes = memory.huge().zero_pages() * 512;
        assert_eq!(
            frames.used(),
            self.used_before + zeroes,
            "frames, after {:?}",
            self.failing
        );
        (self.failed.get(), pending)
    }

    /// Returns the count of a row of the account. Subjects use it to check whether an event has happened.
    pub fn count(&self, row: Row) -> u64 {
        self.host.memory().account().count(row)
    }
}

/// Runs a subject once for each of its allocations, and makes that allocation fail. Steps must report at least `frames`
/// failures of frame allocations, and the subject must allocate at least `heap` heap blocks.
pub fn run(options: &MachineOptions, frames: u64, heap: u64, subject: fn(&Trial)) {
    let clean = Trial::new(*options, Failing::None);
    subject(&clean);
    let allocations = clean.host.frames().allocations() - clean.allocated.get();
    assert_eq!(clean.finish().0, 0);
    let mut told = 0;
    for nth in 0..allocations {
        let trial = Trial::new(*options, Failing::Frame(nth));
        subject(&trial);
        told += trial.finish().0;
    }
    // Not every failed allocation makes a step fail: some operations fall back to small pages, or try again in another
    // round or at a later fault.
    assert!(told >= frames, "{told} of {allocations} frames");
    for nth in 0.. {
        let trial = Trial::new(*options, Failing::Heap(nth));
        subject(&trial);
        if trial.finish().1 {
            assert!(nth >= heap, "{nth} pieces of heap");
            println!("{told} of {allocations} frames told, {nth} pieces of heap");
            break;
        }
    }
}

/// Returns the options of a machine with this number of frames.
pub fn machine(frames: u32) -> MachineOptions {
    MachineOptions {
        frames,
        ..MachineOptions::default()
    }
}
