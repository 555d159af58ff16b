//! What the kernel does with Memwright, and what its programs must then observe.

use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::error::Error;
use core::fmt::Debug;
use core::sync::atomic::Ordering;

use memwright::track::{Categories, Scan, Share};
use memwright::uffd::{Watch, WatchEvents, WatchModes, Watcher};
use memwright::{
    AddressSpace, Advice, FaultError, FaultKind, Layout, MapRequest, Memory, Rights, Row,
};
use memwright_example_boot::println;
use memwright_table::sync::Threads;
use memwright_table::{Loaded, Machine, PAGE_SIZE, Page, PageRange, VirtAddr};

use crate::Hardware;
use crate::program::{Ended, Job, Program, TRAPS, second_has_ended, wait_for_second};
use crate::swap::HeapSwap;

type Space = AddressSpace<Hardware>;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The page faults of a program.
type Faults = [Result<FaultKind, FaultError>];

const NO_FAULT: &Faults = &[];
const DENIED: &Faults = &[Err(FaultError::Denied)];
const NO_AREA: &Faults = &[Err(FaultError::NoArea)];
const DEMAND_ZERO: &Faults = &[Ok(FaultKind::DemandZero)];
const COPY: &Faults = &[Ok(FaultKind::Copy)];
const WRITE_ONLY: &Faults = &[Ok(FaultKind::WriteOnly)];
const SWAP_IN: &Faults = &[Ok(FaultKind::SwapIn)];

const READ_WRITE: Rights = Rights::READ.union(Rights::WRITE);
const PAGES: u64 = 4;
const BYTES: u64 = PAGES * PAGE_SIZE as u64;

/// A step of the scenario.
type Step = fn(&mut Scenario, &Process) -> Outcome;

/// The steps, and for each what traps in it.
const STEPS: [(Step, &str); 7] = [
    (Scenario::map, "the first store to each of 4 pages"),
    (Scenario::protect, "a store to a page that is read-only"),
    (
        Scenario::invalidate,
        "a store on the second CPU, when the first one has made the page read-only",
    ),
    (
        Scenario::fork,
        "2 stores that copy a page after a fork, 3 to pages that are no longer shared",
    ),
    (Scenario::track, "stores to pages whose writes are tracked"),
    (
        Scenario::swap,
        "a load of a page that was swapped out, which brings back 3 others",
    ),
    (Scenario::unmap, "a load of a page that was unmapped"),
];

/// The CPU that runs a program.
#[derive(Clone, Copy, Debug)]
enum On {
    First,
    Second,
}

/// An address space with the instructions of the programs, and with pages to which they store.
struct Process {
    space: Arc<Space>,
    code: VirtAddr,
    data: VirtAddr,
}

impl Process {
    fn page(&self, page: u64) -> VirtAddr {
        self.data.page().add(page).address()
    }

    fn job(&self, program: Program, page: u64, value: u64) -> Job {
        Job {
            space: self.space.clone(),
            code: self.code,
            program,
            address: self.page(page),
            value,
        }
    }

    /// Loads a value from a page, in the kernel.
    fn read(&self, page: u64) -> Outcome<u64> {
        let mut bytes = [0; 8];
        let outcome = self.space.read(self.page(page), &mut bytes);
        outcome.map_err(|(error, _)| error)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

/// The state of the scenario.
struct Scenario {
    memory: Arc<Memory<Hardware>>,
    /// The number of page faults that the programs have had to take so far.
    expected: u64,
}

/// Fails if a value is not the expected one.
fn check<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Outcome {
    if found == expected {
        return Ok(());
    }
    Err(format!("{what}: found {found:?}, expected {expected:?}").into())
}

impl Scenario {
    /// Fails unless a program ended with this value and took these faults.
    fn check(&mut self, what: &str, ended: &Ended, value: u64, faults: &Faults) -> Outcome {
        self.expected += faults.len() as u64;
        check(what, &(ended.value, &ended.faults[..]), &(value, faults))
    }

    /// Stores `value` to a page, in user mode.
    fn store(&mut self, on: On, to: &Process, page: u64, value: u64, faults: &Faults) -> Outcome {
        let ended = complete(on, &to.job(Program::Store, page, value));
        self.check(&format!("store to page {page}"), &ended, value, faults)
    }

    /// Loads `value` from a page, in user mode.
    fn load(&mut self, on: On, from: &Process, page: u64, value: u64, faults: &Faults) -> Outcome {
        let ended = complete(on, &from.job(Program::Load, page, 0));
        self.check(&format!("load of page {page}"), &ended, value, faults)
    }

    /// Creates an address space, and maps the programs.
    fn process(&self) -> Outcome<Process> {
        let layout = Layout::of::<<Hardware as Machine>::Arch>();
        let space = Space::new(self.memory.clone(), layout)?;
        let code = space.map(&MapRequest::anonymous(PAGE_SIZE as u64, READ_WRITE))?;
        let written = space.write(code, Program::code());
        written.map_err(|(error, _)| error)?;
        space.protect(code, PAGE_SIZE as u64, Rights::READ | Rights::EXECUTE)?;
        let data = space.map(&MapRequest::anonymous(BYTES, READ_WRITE))?;
        Ok(Process {
            space: Arc::new(space),
            code,
            data,
        })
    }

    /// The first store to a page traps, and gets a zeroed frame. The next accesses do not trap.
    fn map(&mut self, process: &Process) -> Outcome {
        for page in 0..PAGES {
            self.store(On::First, process, page, page, DEMAND_ZERO)?;
            self.load(On::First, process, page, page, NO_FAULT)?;
        }
        Ok(())
    }

    /// Without the right to write, a store traps. After the right is restored, a store does not trap.
    fn protect(&mut self, process: &Process) -> Outcome {
        process.space.protect(process.data, BYTES, Rights::READ)?;
        self.store(On::First, process, 0, 7, DENIED)?;
        self.load(On::First, process, 0, 0, NO_FAULT)?;
        process.space.protect(process.data, BYTES, READ_WRITE)?;
        self.store(On::First, process, 0, 0, NO_FAULT)?;
        Ok(())
    }

    /// While a program stores to a page on the second CPU, the first CPU makes the page read-only. After `protect` has
    /// returned, the value in memory does not change any more.
    fn invalidate(&mut self, process: &Process) -> Outcome {
        const ENOUGH: u64 = 1000;
        let interrupted = self.memory.account().count(Row::FlushCpusInterrupted);
        let job = process.job(Program::Count, 0, 0);
        job.begin_on_second();
        while process.read(0)? < ENOUGH {
            Hardware::relax();
        }
        process.space.protect(process.data, BYTES, Rights::READ)?;
        let last = process.read(0)?;
        while !second_has_ended() {
            check("page 0, which is read-only", &process.read(0)?, &last)?;
            Hardware::relax();
        }
        // The store that trapped was the store of the value after `last`.
        self.check("the second CPU", &wait_for_second(), last + 1, DENIED)?;
        let interrupted = self.memory.account().count(Row::FlushCpusInterrupted) - interrupted;
        check("CPUs interrupted", &interrupted, &1)?;
        process.space.protect(process.data, BYTES, READ_WRITE)?;
        self.store(On::Second, process, 0, 0, NO_FAULT)?;
        Ok(())
    }

    /// Two address spaces share pages until one of them stores. The parent runs on the first CPU, the child on the
    /// second.
    fn fork(&mut self, parent: &Process) -> Outcome {
        let child = Process {
            space: Arc::new(parent.space.fork()?),
            ..*parent
        };
        self.load(On::Second, &child, 0, 0, NO_FAULT)?;
        self.store(On::First, parent, 0, 10, COPY)?;
        self.load(On::Second, &child, 0, 0, NO_FAULT)?;
        self.store(On::Second, &child, 1, 21, COPY)?;
        self.load(On::First, parent, 1, 1, NO_FAULT)?;
        // The parent is now the only owner of the original.
        self.store(On::First, parent, 1, 11, WRITE_ONLY)?;
        // The second CPU keeps no translation of the child when it loads the root of the parent.
        self.load(On::Second, &child, 1, 21, NO_FAULT)?;
        self.load(On::Second, parent, 1, 11, NO_FAULT)?;
        child.space.audit()?;
        drop(child);
        for page in 2..PAGES {
            self.store(On::First, parent, page, 10 + page, WRITE_ONLY)?;
        }
        Ok(())
    }

    /// A scan returns the pages that were written since the last one. No store traps: the processor sets a dirty bit.
    fn track(&mut self, process: &Process) -> Outcome {
        let watch = Watch::try_new(Watcher {
            number: 0,
            asynchronous: true,
            unpopulated: true,
            counts_accesses: false.into(),
            events: WatchEvents::empty(),
        })?;
        let (space, data) = (&process.space, process.data);
        space
            .uffd()
            .watch(data, BYTES, &watch, WatchModes::WRITE_PROTECT)?;
        let range = PageRange::from_addresses(data, BYTES).ok_or("unaligned")?;
        let written = || -> Outcome<Vec<u64>> {
            let mut pages = Vec::new();
            let mut take = |run: PageRange, _: Categories, _: Share| {
                pages.extend(
                    run.iter()
                        .map(|page: Page| page.number() - range.start.number()),
                );
                run.len()
            };
            space
                .tracking()
                .scan(range, &Scan::written(true), &mut take)?;
            Ok(pages)
        };
        check("pages written before", &written()?, &[0, 1, 2, 3].into())?;
        self.store(On::First, process, 1, 31, NO_FAULT)?;
        self.store(On::Second, process, 3, 33, NO_FAULT)?;
        check("pages written", &written()?, &[1, 3].into())?;
        check("pages written after", &written()?, &[].into())?;
        space.uffd().unwatch(data, BYTES, &watch)?;
        Ok(())
    }

    /// Pages go to the swap device, and come back at the next access.
    fn swap(&mut self, process: &Process) -> Outcome {
        let added = self.memory.add_swap(Arc::new(HeapSwap::new()), 0)?;
        added.ok_or("no swap")?;
        process.space.advise(process.data, BYTES, Advice::PageOut)?;
        let out = self.memory.account().count(Row::SwapOut);
        check("pages swapped out", &out, &PAGES)?;
        self.load(On::First, process, 0, 10, SWAP_IN)?;
        self.load(On::Second, process, 1, 31, NO_FAULT)?;
        self.store(On::First, process, 2, 42, NO_FAULT)?;
        self.load(On::Second, process, 3, 33, NO_FAULT)?;
        Ok(())
    }

    /// Without an area, an access traps and cannot be resolved.
    fn unmap(&mut self, process: &Process) -> Outcome {
        process.space.unmap(process.data, BYTES)?;
        self.load(On::First, process, 0, 0, NO_AREA)?;
        process.space.audit()?;
        Ok(())
    }

    /// Performs all steps, and compares the numbers of traps.
    fn perform(&mut self, process: &Process) -> Outcome {
        println!("traps  taken by");
        for (step, what) in STEPS {
            let before = self.expected;
            step(self, process)?;
            println!("{:>5}  {what}", self.expected - before);
        }
        let account = self.memory.account();
        let resolved = FaultKind::ALL.map(|kind| account.count(kind.row()));
        let resolved: u64 = resolved.into_iter().sum();
        let refused = account.count(Row::FaultRefused);
        let handled = TRAPS.load(Ordering::Relaxed);
        check("traps handled", &handled, &self.expected)?;
        check("faults in the account", &(resolved + refused), &handled)?;
        println!("{handled:>5}  all programs, as expected: {resolved} resolved, {refused} refused");
        Ok(())
    }
}

/// Runs a program to its end.
fn complete(on: On, job: &Job) -> Ended {
    match on {
        On::First => job.run(),
        On::Second => {
            job.begin_on_second();
            wait_for_second()
        }
    }
}

/// Performs the scenario on the calling CPU, which is the first, and on the second one.
///
/// # Errors
/// If a program read a wrong value, or did not take exactly the expected traps.
pub fn run(memory: &Arc<Memory<Hardware>>) -> Outcome {
    let mut scenario = Scenario {
        memory: memory.clone(),
        expected: 0,
    };
    let process = scenario.process()?;
    let loaded = Loaded::new(&process.space);
    let outcome = scenario.perform(&process);
    loaded.leave(memory.frames().machine().root);
    outcome
}
