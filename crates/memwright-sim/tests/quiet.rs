//! Tests of scans for written pages, which skip page tables in which nothing was accessed. A scan relies on the
//! accessed bits of upper-level entries, which a processor sets only if it has not cached the entry (rule:
//! fold-before-clearing).

use std::sync::Arc;

use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::{
    Bits, CpuId, Edit, Entry, FrameKind, Frames, Gather, Marks, Page, PageRange, Table,
};

type Machine = SimulatedMachine;

const OTHER: CpuId = CpuId::new(1);
/// The first page of a lowest-level table.
const START: Page = Page::new(0x1200);
const PAGES: u64 = 512;
const PAGE: Page = Page::new(0x1234);
const RIGHTS: Bits = Bits::READ.union(Bits::WRITE);

struct Bench {
    machine: Machine,
    _frames: Arc<Frames<Machine>>,
    table: Table<Machine>,
}

impl Bench {
    /// Creates one table with write-protection markers and one page, whose dirty bit records stores.
    fn new() -> Self {
        let machine = Machine::new(MachineOptions::default());
        let frames = machine.frames();
        let table = Table::new(frames.clone(), None).expect("memory");
        for cpu in machine.cpus() {
            let _running = machine.run_on(cpu);
            table.load();
        }
        table.cursor(range()).mark(Marks::UFFD_WP).expect("memory");
        let frame = frames
            .allocate_zeroed(0, FrameKind::Anonymous)
            .expect("memory")
            .into_raw();
        table
            .cursor(PageRange::single(PAGE))
            .fill(Entry::page(frame, RIGHTS | Bits::WATCHED))
            .expect("memory");
        Self {
            machine,
            _frames: frames,
            table,
        }
    }

    /// Scans the tables in which something was accessed. Returns the written pages, and write-protects them again.
    fn look(&self, gather: &mut Gather<'_, Machine>) -> Vec<Page> {
        let mut written = Vec::new();
        if self.table.pass_quiet(range()) == range().end {
            return written;
        }
        let mut cursor = self.table.scanning_cursor(range());
        let may_be_quiet = cursor.may_become_quiet(gather);
        let mut next = START;
        while let Some(run) = cursor.next_written(next, range().end, true) {
            next = run.start.add(run.pages);
            written.push(run.start);
            let watch = |_| Edit {
                set: Bits::WATCHED,
                clear: Bits::DIRTY,
            };
            let prepared = cursor.prepare(&run, watch, gather);
            let done = cursor.edit_prepared(&run, run.pages, &prepared, gather);
            assert_eq!(done, run.pages);
        }
        if may_be_quiet {
            cursor.end_look(true);
        }
        written
    }

    /// Performs a complete scan.
    fn scan(&self) -> Vec<Page> {
        let mut gather = self.table.gather();
        self.table.settle(range(), &mut gather);
        gather.flush();
        let written = self.look(&mut gather);
        let _ = gather.finish();
        written
    }

    fn is_quiet(&self) -> bool {
        self.table.pass_quiet(range()) == range().end
    }

    fn read(&self) {
        let mut byte = [0];
        let other = self.machine.on(OTHER);
        other.read(PAGE.address(), &mut byte).expect("mapped");
    }

    fn write(&self) {
        let other = self.machine.on(OTHER);
        other.write(PAGE.address(), b"x").expect("mapped");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for cpu in self.machine.cpus() {
            self.table.note_unloaded(cpu);
        }
    }
}

fn range() -> PageRange {
    PageRange::new(START, START.add(PAGES))
}

#[test]
fn a_store_through_what_a_cpu_had_cached_is_found() {
    let bench = Bench::new();
    // The other CPU has cached the page, clean, and the upper levels.
    bench.read();
    assert!(bench.scan().is_empty());
    assert!(bench.is_quiet());
    bench.write();
    assert_eq!(bench.scan(), [PAGE]);
    bench.write();
    assert_eq!(bench.scan(), [PAGE], "dirty was cached");
    assert!(bench.scan().is_empty());
    assert!(bench.is_quiet());
}

#[test]
fn loads_end_the_quiet_and_are_no_stores() {
    let bench = Bench::new();
    assert!(bench.scan().is_empty());
    assert!(bench.is_quiet());
    bench.read();
    assert!(!bench.is_quiet());
    assert!(bench.scan().is_empty());
    assert!(bench.is_quiet());
}

#[test]
fn what_software_writes_without_a_walk_is_found() {
    let bench = Bench::new();
    assert!(bench.scan().is_empty());
    assert!(bench.is_quiet());
    let mut gather = bench.table.gather();
    bench
        .table
        .cursor(PageRange::single(PAGE))
        .edit(Bits::DIRTY, Bits::empty(), &mut gather);
    let _ = gather.finish();
    assert_eq!(bench.scan(), [PAGE]);
    // A walk that only reads changes nothing.
    assert!(bench.is_quiet());
    assert!(bench.table.look(range()).next_filled().is_some());
    assert!(bench.is_quiet());
}

#[test]
fn a_scan_does_not_rely_on_what_another_has_not_flushed_yet() {
    let bench = Bench::new();
    bench.read();
    let mut first = bench.table.gather();
    bench.table.settle(range(), &mut first);
    // The second scan finds the accessed bit already cleared, and must check the entries nevertheless.
    assert!(bench.scan().is_empty());
    // The other CPU still has the translation cached, so it writes without setting the accessed bit.
    bench.write();
    first.flush();
    let found = bench.look(&mut first);
    let _ = first.finish();
    let later = bench.scan();
    assert_eq!([found, later].concat(), [PAGE]);
}
