//! Tests of the rows of the account that count lock acquisitions, and writes to cache lines that several CPUs write.
//! The operations of each test have known counts. The statistics are global to the test process, so there is a single
//! test. The CPUs take turns on one host thread, except where one CPU waits for another, so every count is the same in
//! each run.

mod support;

use std::sync::Arc;

use memwright::Row;
use memwright::{Advice, MapRequest, Placement};
use memwright_sim::programs::{self, Host, Process};
use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::sync::stat::{self, Line, Waits};
use memwright_table::sync::{Lock, Rank};
use memwright_table::{CpuId, Page, VirtAddr};
use support::{READ, READ_WRITE, bytes};

const CPUS: u16 = 4;
const PAGES: u64 = 8;
/// The number of pages that one lowest-level table maps.
const TABLE: u64 = 512;

/// The number of rounds of a measurement.
const ROUNDS: u64 = 3;

/// The rows of the account that the policy `locks=count` adds.
const REQUESTED: [Row; 7] = [
    Row::LocksTaken,
    Row::LocksBounced,
    Row::LockWordsShared,
    Row::LocksWaited,
    Row::LinesBounced,
    Row::LinesShared,
    Row::LinesMissed,
];

struct Bench {
    host: Arc<Host>,
    process: Process,
    /// The number of pages from the start of one CPU's memory to the start of the next CPU's memory.
    stride: u64,
}

impl Bench {
    /// Creates a process with memory for each CPU. The page tables of the memory exist, and each CPU has allocated and
    /// freed frames, so that operations are in the steady state.
    fn new(stride: u64) -> Self {
        let host = programs::boot(MachineOptions {
            frames: 2048,
            cpus: CPUS.into(),
            ..MachineOptions::default()
        });
        host.memory().policy().set("locks", "count").unwrap();
        let process = Process::new(&host);
        let bench = Self {
            host,
            process,
            stride,
        };
        for cpu in bench.cpus() {
            let request = MapRequest::anonymous(bytes(PAGES), READ_WRITE);
            let request = request.at(Placement::Fixed(bench.at(cpu, 0)));
            bench.process.on(cpu, |space| space.map(&request)).unwrap();
        }
        bench.each(|bench, cpu| bench.touch(cpu));
        bench.each(Self::drop_pages);
        bench
    }

    fn cpus(&self) -> impl Iterator<Item = CpuId> + use<> {
        self.host.machine().cpus()
    }

    fn at(&self, cpu: CpuId, page: u64) -> VirtAddr {
        let first = 3 * TABLE * TABLE + cpu.index() as u64 * self.stride;
        Page::new(first + page).address()
    }

    /// Runs `act` for each CPU, one after another.
    fn each(&self, act: impl Fn(&Self, CpuId)) {
        self.cpus().for_each(|cpu| act(self, cpu));
    }

    /// Reads each page of one CPU, which maps the zero frame. Then writes to it, which maps a private frame.
    fn touch(&self, cpu: CpuId) {
        for page in 0..PAGES {
            let mut byte = [0];
            self.process
                .read(cpu, self.at(cpu, page), &mut byte)
                .unwrap();
            self.process.write(cpu, self.at(cpu, page), &[1]).unwrap();
        }
    }

    fn drop_pages(&self, cpu: CpuId) {
        let drop = |space: &memwright_sim::programs::Space| {
            space.advise(self.at(cpu, 0), bytes(PAGES), Advice::DontNeed)
        };
        self.process.on(cpu, drop).unwrap();
    }

    fn protect(&self, cpu: CpuId) {
        for rights in [READ, READ_WRITE] {
            self.process
                .on(cpu, |space| {
                    space.protect(self.at(cpu, 0), bytes(PAGES), rights)
                })
                .unwrap();
        }
    }

    /// Counts during `ROUNDS` rounds, in each of which every CPU performs `act`.
    fn count(&self, act: impl Fn(&Self, CpuId)) {
        self.count_rounds(ROUNDS, act);
    }

    fn count_rounds(&self, rounds: u64, act: impl Fn(&Self, CpuId)) {
        self.host.memory().set_lock_statistics(true);
        for _ in 0..rounds {
            self.each(&act);
        }
        self.host.memory().set_lock_statistics(false);
    }
}

/// Returns the counts of the rows in `REQUESTED`.
fn rows(bench: &Bench) -> [u64; REQUESTED.len()] {
    let account = bench.host.memory().account();
    REQUESTED.map(|row| account.count(row))
}

#[test]
fn each_row_about_locks_counts_what_it_says() {
    own_memory_shares_no_line();
    writers_take_every_word();
    neighbours_share_a_table();
    a_wait_is_counted_once();
    writes_beyond_the_table_are_told();
    rows_are_there_on_request();
}

/// Checks that reads, writes and `MADV_DONTNEED` of memory in different lowest-level tables share no cache line.
fn own_memory_shares_no_line() {
    let apart = Bench::new(TABLE);
    apart.count(|bench, cpu| {
        bench.touch(cpu);
        bench.drop_pages(cpu);
    });
    // Each read of a page, each write and each `MADV_DONTNEED` takes the lock of the address space and the lock of one
    // page table. Operations that allocate or free a frame also take the lock of the CPU's frame cache.
    let faults = ROUNDS * u64::from(CPUS) * PAGES * 2;
    let calls = ROUNDS * u64::from(CPUS);
    assert_eq!(stat::locks(Rank::Space).taken, faults + calls);
    assert_eq!(stat::locks(Rank::Table).taken, faults + calls);
    assert_eq!(stat::locks(Rank::FrameCache).taken, faults / 2 + calls);
    let frames = stat::lines(Line::Frame);
    assert_eq!((frames.taken, frames.bounced), (faults / 2, 0));
    // No other lock is taken.
    let taken = 2 * (faults + calls) + faults / 2 + calls;
    assert_eq!(rows(&apart), [taken, 0, 0, 0, 0, 0, 0]);
}

/// Checks that a writer of the area tree acquires the lock words of all CPUs.
fn writers_take_every_word() {
    let apart = Bench::new(TABLE);
    apart.count(Bench::protect);
    let space = stat::locks(Rank::Space);
    let words = u64::from(CPUS) + 1;
    assert_eq!(space.shared, words, "a word per CPU and the writers'");
    let writers = ROUNDS * u64::from(CPUS) * 2;
    assert_eq!(space.taken, writers * words);
    // At every turn of a CPU except the first, the cache line of each lock word moves from the previous CPU to this
    // one.
    let turns = ROUNDS * u64::from(CPUS);
    assert_eq!(space.bounced, (turns - 1) * words);
    assert_eq!(stat::locks(Rank::Table).bounced, 0);
}

/// Checks that the counts detect sharing: memory in one lowest-level table shares the lock of the table and the cache
/// lines of its entries.
fn neighbours_share_a_table() {
    let together = Bench::new(PAGES);
    together.count_rounds(1, |bench, cpu| bench.touch(cpu));
    let faults = u64::from(CPUS) * PAGES * 2;
    let taken = faults * 2 + faults / 2;
    // The lock of the table is one word. Eight entries fill a cache line, and each CPU has eight entries.
    let others = u64::from(CPUS) - 1;
    assert_eq!(rows(&together), [taken, others, 1, 0, 0, 0, 0]);
    let table = stat::locks(Rank::Table);
    assert_eq!((table.bounced, table.shared), (others, 1));

    let odd = Bench::new(PAGES + 1);
    odd.count_rounds(1, |bench, cpu| bench.touch(cpu));
    // The entries of the second and the third CPU end in the cache line in which those of the next CPU begin.
    let ends = u64::from(CPUS) - 2;
    assert_eq!(rows(&odd), [taken, others, 1, 0, ends, ends, 0]);
    let entries = stat::lines(Line::Entries);
    assert_eq!((entries.bounced, entries.shared), (ends, ends));
}

/// Checks that waiting for a lock counts as one wait, however often the CPU spins and halts meanwhile.
fn a_wait_is_counted_once() {
    let host = programs::boot(MachineOptions {
        frames: 256,
        cpus: 2,
        ..MachineOptions::default()
    });
    host.memory().policy().set("locks", "count").unwrap();
    let waits = || [Waits::Contended, Waits::Halted].map(stat::waits);
    let before = waits();
    let lock = Lock::<_, SimulatedMachine>::new(Rank::Leaf, ());
    host.memory().set_lock_statistics(true);
    std::thread::scope(|scope| {
        let _cpu = host.machine().run_on(CpuId::new(0));
        let held = lock.lock();
        let waiter = scope.spawn(|| {
            let _cpu = host.machine().run_on(CpuId::new(1));
            drop(lock.lock());
        });
        // The wait counts as halted when the waiter has finished spinning and begins to halt.
        while waits()[1] == before[1] {
            std::thread::yield_now();
        }
        drop(held);
        waiter.join().unwrap();
    });
    host.memory().set_lock_statistics(false);
    assert_eq!(waits(), before.map(|count| count + 1));
    let account = host.memory().account();
    let expected = [2, 1, 1, 1, 0, 0, 0];
    assert_eq!(REQUESTED.map(|row| account.count(row)), expected);
}

/// Checks that each write to a cache line is either tracked or counted as missed.
fn writes_beyond_the_table_are_told() {
    let bench = Bench::new(TABLE);
    let lines: Vec<[u64; 8]> = vec![[0; 8]; 64 * stat::SLOTS];
    bench.host.memory().set_lock_statistics(true);
    for line in &lines {
        stat::line::<SimulatedMachine>(Line::Frame, line);
    }
    bench.host.memory().set_lock_statistics(false);
    // The number of tracked lines is the number of slots, so the lines occupy every slot of the table.
    assert_eq!(stat::lines(Line::Frame).taken, stat::SLOTS as u64);
    let missed = 63 * stat::SLOTS as u64;
    assert_eq!(rows(&bench), [0, 0, 0, 0, 0, 0, missed]);
}

fn rows_are_there_on_request() {
    let bench = Bench::new(TABLE);
    let policy = bench.host.memory().policy();
    for (choice, expected) in [("off", 0), ("count", REQUESTED.len())] {
        policy.set("locks", choice).unwrap();
        let account = bench.host.memory().account();
        let shown = account
            .iter()
            .filter(|(definition, _)| REQUESTED.contains(&definition.row));
        assert_eq!(shown.count(), expected, "{choice}");
    }
}
