//! Which lock words and count lines several CPUs write. The statistics are the process's, so all of it is
//! one test; CPUs take turns on one host thread, so every count is the same on each run.

mod support;

use std::sync::Arc;

use memwright::Row;
use memwright::{Advice, MapRequest, Placement};
use memwright_sim::MachineOptions;
use memwright_sim::process::{Host, Process};
use memwright_table::sync::stat::{self, Line};
use memwright_table::sync::{RANKS, Rank};
use memwright_table::{CpuId, Page, VirtAddr};
use support::{READ, READ_WRITE, bytes};

const CPUS: u16 = 4;
const PAGES: u64 = 8;
/// Pages of a lowest table.
const TABLE: u64 = 512;

/// Locks that a fault of private anonymous memory has to do with.
const FAULT_RANKS: [Rank; 4] = [Rank::Space, Rank::Table, Rank::FrameCache, Rank::Frames];

struct Bench {
    host: Arc<Host>,
    process: Process,
    /// From the first page of one CPU's memory to that of the next.
    stride: u64,
}

impl Bench {
    /// A process with memory for each CPU, whose tables are there and whose frames each CPU has used and
    /// given back, so that what follows is the steady state.
    fn new(stride: u64) -> Self {
        let host = Host::boot(MachineOptions {
            frames: 2048,
            cpus: CPUS.into(),
            ..MachineOptions::default()
        });
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

    /// Lets every CPU act in turn.
    fn each(&self, act: impl Fn(&Self, CpuId)) {
        self.cpus().for_each(|cpu| act(self, cpu));
    }

    /// One CPU reads its pages, then writes them: the zero frame, then one of its own.
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
        let drop = |space: &memwright_sim::process::Space| {
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

    /// Three rounds of `act`, all CPUs in each, counted.
    fn count(&self, act: impl Fn(&Self, CpuId)) {
        self.host.memory().set_lock_statistics(true);
        for _ in 0..3 {
            self.each(&act);
        }
        self.host.memory().set_lock_statistics(false);
        assert_eq!(stat::missed(), 0);
    }
}

fn bounced_lines() -> u64 {
    Line::ALL.map(|line| stat::lines(line).bounced).iter().sum()
}

fn bounced_locks() -> u64 {
    RANKS.map(|rank| stat::locks(rank).bounced).iter().sum()
}

#[test]
fn cpus_that_use_memory_of_their_own_write_no_common_line() {
    let apart = Bench::new(TABLE);

    // Reads, writes and DONTNEED of memory in different lowest tables share nothing at all.
    apart.count(|bench, cpu| {
        bench.touch(cpu);
        bench.drop_pages(cpu);
    });
    for rank in FAULT_RANKS {
        let counts = stat::locks(rank);
        assert_eq!((counts.bounced, counts.shared), (0, 0), "{rank:?}");
    }
    for rank in RANKS {
        let c = stat::locks(rank);
        if c.taken > 0 {}
    }
    assert_eq!((bounced_locks(), bounced_lines()), (0, 0));
    // A read and a write of each page, and DONTNEED, each take the lock of the space, of one table, and of
    // the CPU's frames where one is needed or given back.
    let faults = 3 * u64::from(CPUS) * PAGES * 2;
    let calls = 3 * u64::from(CPUS);
    assert_eq!(stat::locks(Rank::Space).taken, faults + calls);
    assert_eq!(stat::locks(Rank::Table).taken, faults + calls);
    assert_eq!(stat::locks(Rank::FrameCache).taken, faults / 2 + calls);
    assert_eq!(stat::locks(Rank::Frames).taken, 0);
    let frames = stat::lines(Line::Frame);
    assert_eq!((frames.taken, frames.bounced), (faults / 2, 0));

    // Who changes areas takes the word of every CPU.
    apart.count(Bench::protect);
    let space = stat::locks(Rank::Space);
    assert_eq!(
        space.shared,
        u64::from(CPUS) + 1,
        "a word per CPU and the writers'"
    );
    assert!(space.bounced >= space.shared);
    assert_eq!(stat::locks(Rank::Table).bounced, 0);

    // The yardstick works: memory in one lowest table shares its lock, and its entries' lines.
    let together = Bench::new(PAGES);
    together.count(|bench, cpu| bench.touch(cpu));
    let table = stat::locks(Rank::Table);
    assert_eq!((table.shared, table.bounced), (1, u64::from(CPUS) - 1));
    assert_eq!(stat::locks(Rank::Space).bounced, 0);
    // Eight entries fill a line, and each CPU has eight.
    assert_eq!(stat::lines(Line::Entries).bounced, 0);
    let odd = Bench::new(PAGES + 1);
    odd.count(|bench, cpu| bench.touch(cpu));
    let entries = stat::lines(Line::Entries);
    // From the second CPU on each ends in the line in which the next one begins.
    assert_eq!(
        (entries.shared, entries.bounced),
        (u64::from(CPUS) - 2, u64::from(CPUS) - 2)
    );

    // The account has the rows if they were asked for.
    let account = odd.host.memory().account();
    assert!(account.iter().all(|(row, _)| row.row != Row::LocksTaken));
}
