//! Tests of scans for written pages and for accessed pages. These scans skip page tables in which no page was accessed.
//! To find such tables, they rely on the accessed bits of the entries that point to tables. A CPU that has cached such
//! an entry does not set its accessed bit again (rule: fold-before-clearing).

use std::sync::Arc;

use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::{
    Bits, CpuId, Edit, Entry, FrameKind, Frames, Gather, Loaded, Marks, Page, PageRange, Table,
    Tracked,
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
    table: Arc<Table<Machine>>,
    loaded: Vec<Loaded<Arc<Table<Machine>>>>,
}

impl Bench {
    /// Creates a page table that contains write-protection markers and one page. The dirty bit of the page records
    /// stores.
    fn new() -> Self {
        Self::with(RIGHTS | Bits::WATCHED)
    }

    /// Creates a page table with one page that was accessed.
    fn armable() -> Self {
        Self::with(RIGHTS | Bits::ACCESSED)
    }

    fn with(bits: Bits) -> Self {
        let machine = Machine::new(MachineOptions::default());
        let frames = machine.frames();
        let table = Arc::new(Table::new(frames.clone()).expect("memory"));
        let load = |cpu| {
            let _running = machine.run_on(cpu);
            Loaded::new(table.clone())
        };
        let loaded = machine.cpus().map(load).collect();
        if bits.contains(Bits::WATCHED) {
            table.cursor(range()).mark(Marks::UFFD_WP).expect("memory");
        }
        let frame = frames
            .allocate_zeroed(0, FrameKind::Anonymous)
            .expect("memory")
            .into_raw();
        table
            .cursor(PageRange::single(PAGE))
            .fill(Entry::page(frame, bits))
            .expect("memory");
        Self {
            machine,
            _frames: frames,
            table,
            loaded,
        }
    }

    /// Scans the page tables in which a page was accessed. Returns the written pages, and write-protects them again.
    fn look(&self, gather: &mut Gather<'_, Machine>) -> Vec<Page> {
        let mut written = Vec::new();
        if self.table.pass_quiet(range(), Tracked::Stores) == range().end {
            return written;
        }
        let mut cursor = self.table.scanning_cursor(range());
        let may_be_quiet = cursor.may_become_quiet(gather);
        for run in cursor.touched(START, range().end, true, Tracked::Stores) {
            written.push(run.range.start);
            let watch = |_| Edit {
                set: Bits::WATCHED,
                clear: Bits::DIRTY,
            };
            let prepared = cursor.prepare(&run, watch, gather);
            let done = cursor.edit_prepared(&run, run.range.len(), &prepared, gather);
            assert_eq!(done, run.range.len());
        }
        if may_be_quiet {
            cursor.end_look(Tracked::Stores, true);
        }
        written
    }

    /// Performs a complete scan.
    fn scan(&self) -> Vec<Page> {
        let mut gather = self.table.gather();
        self.table.settle(range(), Tracked::Stores, &mut gather);
        gather.flush();
        let written = self.look(&mut gather);
        let _ = gather.finish();
        written
    }

    /// Arms the pages of the table: clears their accessed bits, so that their next access is found. The flush of the
    /// changed entries is left to `gather`.
    fn arm(&self, gather: &mut Gather<'_, Machine>) {
        gather.rely_on_pending();
        if self.table.settle(range(), Tracked::Unarmed, gather) == range().end {
            return;
        }
        let mut cursor = self.table.scanning_cursor(range());
        let may_be_quiet = cursor.may_become_quiet(gather);
        let idle = |_| Edit {
            set: Bits::IDLE,
            clear: Bits::ACCESSED,
        };
        let armed = cursor.edit_touched(range().end, Tracked::Unarmed, idle, gather);
        cursor.end_look(Tracked::Unarmed, armed && may_be_quiet);
    }

    fn arm_now(&self) {
        let mut gather = self.table.gather();
        self.arm(&mut gather);
        let _ = gather.finish();
    }

    /// Returns the pages that were accessed since they were armed.
    fn accessed(&self) -> Vec<Page> {
        let mut accessed = Vec::new();
        if !self.is_still() {
            let look = self.table.look(range());
            for run in look.accessed(START, range().end, true) {
                accessed.extend(run.range.iter());
            }
        }
        accessed
    }

    fn is_still(&self) -> bool {
        self.table.pass_quiet(range(), Tracked::Accesses) == range().end
    }

    fn is_quiet(&self) -> bool {
        self.table.pass_quiet(range(), Tracked::Stores) == range().end
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
        for (cpu, loaded) in self.machine.cpus().zip(self.loaded.drain(..)) {
            let _running = self.machine.run_on(cpu);
            loaded.stop();
        }
    }
}

fn range() -> PageRange {
    PageRange::new(START, START.add(PAGES))
}

#[test]
#[cfg_attr(
    any(simulated = "aarch64", simulated = "riscv64"),
    ignore = "no table is skippable"
)]
fn a_store_through_what_a_cpu_had_cached_is_found() {
    let bench = Bench::new();
    // The other CPU has cached a clean translation of the page, and the entries that point to tables.
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
#[cfg_attr(
    any(simulated = "aarch64", simulated = "riscv64"),
    ignore = "no table is skippable"
)]
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
#[cfg_attr(
    any(simulated = "aarch64", simulated = "riscv64"),
    ignore = "no table is skippable"
)]
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
    // A walk that only reads entries changes no accessed bit.
    assert!(bench.is_quiet());
    assert!(bench.table.look(range()).next_filled().is_some());
    assert!(bench.is_quiet());
}

#[test]
#[cfg_attr(
    any(simulated = "aarch64", simulated = "riscv64"),
    ignore = "no table is skippable"
)]
fn a_scan_does_not_rely_on_what_another_has_not_flushed_yet() {
    let bench = Bench::new();
    bench.read();
    let mut first = bench.table.gather();
    bench.table.settle(range(), Tracked::Stores, &mut first);
    // The second scan finds the accessed bit clear, but must check the entries of the table nevertheless.
    assert!(bench.scan().is_empty());
    // The other CPU still has the translation cached, so its write does not set the accessed bit.
    bench.write();
    first.flush();
    let found = bench.look(&mut first);
    let _ = first.finish();
    let later = bench.scan();
    assert_eq!([found, later].concat(), [PAGE]);
}

#[test]
#[cfg_attr(
    any(simulated = "aarch64", simulated = "riscv64"),
    ignore = "no table is skippable"
)]
fn an_access_through_what_a_cpu_had_cached_is_found_once_the_pages_are_armed() {
    let bench = Bench::armable();
    // The other CPU has cached a translation of the page with the accessed bit set, and the entries that point to
    // tables.
    bench.read();
    bench.arm_now();
    assert!(bench.is_still());
    assert!(bench.accessed().is_empty());
    bench.read();
    assert!(!bench.is_still());
    assert_eq!(bench.accessed(), [PAGE]);
    bench.arm_now();
    assert!(bench.accessed().is_empty());
    bench.write();
    assert_eq!(bench.accessed(), [PAGE]);
}

#[test]
#[cfg_attr(
    any(simulated = "aarch64", simulated = "riscv64"),
    ignore = "no table is skippable"
)]
fn what_software_changes_ends_the_stillness() {
    let bench = Bench::armable();
    bench.arm_now();
    assert!(bench.is_still());
    assert!(bench.table.look(range()).next_filled().is_some());
    assert!(bench.is_still(), "a walk that only reads changes nothing");
    let mut gather = bench.table.gather();
    bench
        .table
        .cursor(PageRange::single(PAGE))
        .edit(Bits::empty(), Bits::IDLE, &mut gather);
    let _ = gather.finish();
    assert!(!bench.is_still());
    assert_eq!(bench.accessed(), [PAGE]);
    bench.arm_now();
    assert!(bench.accessed().is_empty());
}

#[test]
#[cfg_attr(
    any(simulated = "aarch64", simulated = "riscv64"),
    ignore = "no table is skippable"
)]
fn arming_flushes_what_another_has_armed_and_not_flushed_yet() {
    let bench = Bench::armable();
    bench.read();
    let mut first = bench.table.gather();
    bench.arm(&mut first);
    // The second arming has nothing left to change, but no access that begins after it returns may be lost.
    bench.arm_now();
    bench.read();
    assert_eq!(bench.accessed(), [PAGE]);
    let _ = first.finish();
    assert_eq!(bench.accessed(), [PAGE]);
}

#[test]
fn a_page_that_faults_is_unaccessed_but_armed_again_by_its_accessed_bit() {
    let bench = Bench::with(Bits::UFFD_WP | Bits::ACCESSED);
    assert!(bench.accessed().is_empty());
    bench.arm_now();
    let look = bench.table.look(PageRange::single(PAGE));
    let Entry::Present(page) = look.peek() else {
        panic!("the page is gone");
    };
    assert_eq!(page.bits & (Bits::IDLE | Bits::ACCESSED), Bits::IDLE);
}
