//! Tests of the cursors, gathers and tables of `memwright-table` on CPUs with stale TLBs. After every operation no CPU
//! can make an access that the table no longer permits. Only unnecessary flushes are elided.

use std::sync::Arc;

use memwright_sim::{Adversary, Arch, MachineOptions, SimulatedMachine};
use memwright_table::{
    Architecture, Bits, Change, CopyRule, CopyStop, CpuId, Edit, Entry, Frame, FrameKind, Frames,
    GatherCounts, Invalidation, Loaded, Machine as _, MoveRule, Page, PageRange, PageSize, Present,
    Table,
};

type Machine = SimulatedMachine;

const FIRST: CpuId = CpuId::new(0);
const SECOND: CpuId = CpuId::new(1);
/// The first page of the ranges: four pages below the boundary between two lowest-level tables, which is also a
/// boundary between two tables of the level above.
const START: Page = Page::new(512 * 512 - 4);
const RIGHTS: Bits = Bits::READ.union(Bits::WRITE);

/// Two CPUs that have loaded the same table.
struct Bench {
    machine: Machine,
    frames: Arc<Frames<Machine>>,
    table: Arc<Table<Machine>>,
    loaded: Vec<Loaded<Arc<Table<Machine>>>>,
    idle: Table<Machine>,
}

impl Bench {
    fn new() -> Self {
        let machine = Machine::new(MachineOptions {
            frames: 2048,
            ..MachineOptions::default()
        });
        let frames = machine.frames();
        let table = Arc::new(Table::new(frames.clone()).expect("memory"));
        let idle = Table::new(frames.clone()).expect("memory");
        let load = |cpu| {
            let _running = machine.run_on(cpu);
            Loaded::new(table.clone())
        };
        let loaded = machine.cpus().map(load).collect();
        Self {
            machine,
            frames,
            table,
            loaded,
            idle,
        }
    }

    fn range(&self, pages: u64) -> PageRange {
        PageRange::new(START, START.add(pages))
    }

    fn page(&self, bits: Bits, order: u8) -> Entry {
        let size = if order == 0 {
            PageSize::Size4K
        } else {
            PageSize::Size2M
        };
        let frame = self
            .frames
            .allocate_zeroed(order, FrameKind::Anonymous)
            .expect("memory");
        Entry::Present(Present {
            frame: frame.into_raw(),
            size,
            bits,
        })
    }

    /// Maps pages with `RIGHTS`, each to a separate frame.
    fn fill(&self, pages: u64) {
        let mut cursor = self.table.cursor(self.range(pages));
        for page in self.range(pages).iter() {
            cursor.seek(page);
            cursor.fill(self.page(RIGHTS, 0)).expect("memory");
        }
    }

    /// Writes to all pages on both CPUs, so that both have cached writable and dirty translations.
    fn touch(&self, pages: u64) {
        for cpu in [FIRST, SECOND] {
            for page in self.range(pages).iter() {
                self.end_fault(cpu, page);
                self.machine
                    .on(cpu)
                    .write(page.address(), b"touched")
                    .expect("mapped");
            }
        }
    }

    /// Invalidates the page if the handler of a page fault must do so before the CPU restarts the instruction.
    fn end_fault(&self, cpu: CpuId, page: Page) {
        if !Arch::FAULT_DROPS_STALE {
            let _running = self.machine.run_on(cpu);
            self.machine.invalidate_local(&Invalidation::page(page));
        }
    }

    fn interrupts(&self) -> u64 {
        self.machine.total_cost().interrupts_sent
    }

    fn check(&self) {
        assert_eq!(self.machine.audit(), []);
        assert_eq!(self.machine.take_violations(), Vec::<String>::new());
    }

    fn protect(&self, pages: u64, set: Bits, clear: Bits) -> GatherCounts {
        let mut gather = self.table.gather();
        let mut cursor = self.table.cursor(self.range(pages));
        cursor.edit_run(
            self.range(pages).end,
            |_, _| Edit { set, clear },
            &mut gather,
        );
        drop(cursor);
        gather.finish()
    }

    fn remove(&self, pages: u64) -> GatherCounts {
        let mut gather = self.table.gather();
        let mut cursor = self.table.cursor(self.range(pages));
        cursor.split_edges(&mut gather).expect("memory");
        cursor.remove_all(&mut gather);
        cursor.free_tables(&mut gather);
        gather.finish()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for (cpu, loaded) in self.machine.cpus().zip(self.loaded.drain(..)) {
            let _running = self.machine.run_on(cpu);
            // The root of `idle` stays loaded, but the CPU accesses memory no more.
            let (idle, _) = loaded.switch(&self.idle);
            idle.stop();
        }
    }
}

#[test]
fn losing_a_right_interrupts_each_cpu_once() {
    let bench = Bench::new();
    bench.fill(8);
    bench.touch(8);
    let before = bench.interrupts();
    let counts = bench.protect(8, Bits::empty(), Bits::WRITE);
    assert_eq!((counts.of(Change::Shrank), counts.interrupted), (8, 1));
    assert_eq!(bench.interrupts() - before, 1);
    for cpu in [FIRST, SECOND] {
        assert!(bench.machine.on(cpu).write(START.address(), b"x").is_err());
        assert!(
            bench
                .machine
                .on(cpu)
                .read(START.address(), &mut [0])
                .is_ok()
        );
    }
    bench.check();
}

#[test]
fn winning_a_right_interrupts_nobody_and_faults_at_most_once() {
    let bench = Bench::new();
    bench.fill(8);
    bench.touch(8);
    bench.protect(8, Bits::empty(), Bits::WRITE);
    for cpu in [FIRST, SECOND] {
        bench
            .machine
            .on(cpu)
            .read(START.address(), &mut [0])
            .expect("readable");
    }
    let before = bench.interrupts();
    let counts = bench.protect(8, Bits::WRITE, Bits::empty());
    assert_eq!(counts.of(Change::Grew), 8);
    assert_eq!(bench.interrupts(), before);
    bench.check();
    bench
        .machine
        .on(FIRST)
        .write(START.address(), b"x")
        .expect("the local entry was dropped");
    assert!(
        bench
            .machine
            .on(SECOND)
            .write(START.address(), b"x")
            .is_err(),
        "stale, smaller"
    );
    bench.end_fault(SECOND, START);
    bench
        .machine
        .on(SECOND)
        .write(START.address(), b"x")
        .expect("and then not");
}

#[test]
fn pages_that_nobody_touched_are_protected_and_removed_in_silence() {
    let bench = Bench::new();
    bench.fill(8);
    let before = bench.machine.total_cost();
    let counts = bench.protect(8, Bits::empty(), Bits::WRITE);
    // Two flushes are elided for all eight pages together: the local flush on this CPU, and the shootdown of the other
    // CPU.
    assert_eq!(
        (counts.of(Change::Shrank), counts.elided_not_accessed),
        (8, 2)
    );
    let spent = bench.machine.total_cost().since(&before);
    assert_eq!((spent.interrupts_sent, spent.local_invalidations), (0, 0));
    bench.check();
    // Removing frees the tables, which always needs a shootdown (rule: flush-freed-tables).
    assert_eq!(bench.remove(8).interrupted, 1);
    bench.check();
    assert_eq!(bench.frames.used_by(FrameKind::Anonymous), 0);
}

#[test]
fn an_adversary_that_caches_at_every_step_finds_no_elision_that_is_wrong() {
    for seed in 0..60 {
        let bench = Bench::new();
        let _running = bench.machine.run_on(FIRST);
        bench
            .machine
            .set_adversary(Some(Adversary::with_appetite(seed, 3, 1)));
        bench.fill(8);
        for (set, clear) in [
            (Bits::empty(), Bits::WRITE),
            (Bits::WRITE, Bits::empty()),
            (Bits::empty(), Bits::READ | Bits::WRITE),
            (Bits::READ, Bits::empty()),
            (Bits::empty(), Bits::ACCESSED | Bits::DIRTY),
            (Bits::WRITE, Bits::empty()),
        ] {
            bench.protect(8, set, clear);
            bench.check();
        }
        bench.remove(4);
        bench.check();
        bench.remove(8);
        bench.check();
    }
}

#[test]
fn frames_are_released_only_after_every_cpu_forgot_them() {
    let bench = Bench::new();
    bench.fill(8);
    bench.touch(8);
    let used = bench.frames.used_by(FrameKind::Anonymous);
    let mut gather = bench.table.gather();
    let mut cursor = bench.table.cursor(bench.range(8));
    assert_eq!(cursor.remove_all(&mut gather), 8);
    drop(cursor);
    assert_eq!(
        bench.frames.used_by(FrameKind::Anonymous),
        used,
        "still reachable, still taken"
    );
    let mut bytes = [0; 7];
    bench
        .machine
        .on(SECOND)
        .read(START.address(), &mut bytes)
        .expect("the stale entry serves");
    assert_eq!(&bytes, b"touched");
    let counts = gather.finish();
    assert_eq!(
        (
            counts.of(Change::Freed),
            counts.released,
            counts.interrupted
        ),
        (8, 8, 1)
    );
    assert_eq!(bench.frames.used_by(FrameKind::Anonymous), used - 8);
    assert!(
        bench
            .machine
            .on(SECOND)
            .read(START.address(), &mut bytes)
            .is_err()
    );
    bench.check();
}

#[test]
fn freed_tables_are_forgotten_with_their_upper_levels() {
    let bench = Bench::new();
    bench.fill(8);
    bench.touch(8);
    let tables = bench.table.table_frames();
    assert!(tables >= 6, "the range crosses tables: {tables}");
    bench.remove(8);
    assert_eq!(bench.table.table_frames(), u64::from(Arch::TABLE_FRAMES));
    bench.check();
    for cpu in [FIRST, SECOND] {
        assert!(
            bench
                .machine
                .on(cpu)
                .read(START.address(), &mut [0])
                .is_err()
        );
    }
    // Frames of freed tables are used for pages again. No CPU may still walk them as tables.
    bench.fill(8);
    bench.touch(8);
    bench.check();
}

#[test]
fn a_page_is_replaced_by_empty_flush_fill() {
    let bench = Bench::new();
    bench.fill(1);
    bench.touch(1);
    let new = bench.page(RIGHTS, 0);
    let mut gather = bench.table.gather();
    let mut cursor = bench.table.cursor(bench.range(1));
    cursor.remove(&mut gather);
    gather.flush();
    cursor.fill(new).expect("memory");
    drop(cursor);
    let _ = gather.finish();
    let mut bytes = [1; 7];
    bench
        .machine
        .on(SECOND)
        .read(START.address(), &mut bytes)
        .expect("mapped");
    assert_eq!(bytes, [0; 7], "the new page");
    bench.check();
}

#[test]
fn a_huge_page_splits_without_a_moment_of_two_sizes() {
    let bench = Bench::new();
    let huge = Page::new(512 * 8);
    let range = PageRange::new(huge, huge.add(512));
    bench
        .table
        .cursor(range)
        .fill(bench.page(RIGHTS, 9))
        .expect("memory");
    for cpu in [FIRST, SECOND] {
        bench
            .machine
            .on(cpu)
            .write(huge.add(7).address(), b"seven")
            .expect("mapped");
    }
    let mut gather = bench.table.gather();
    let mut cursor = bench.table.cursor(range);
    cursor.seek(huge.add(7));
    cursor.split(&mut gather).expect("memory");
    let page = cursor.entry().entry.present().expect("still mapped");
    assert_eq!(page.size, PageSize::Size4K);
    assert!(page.bits.contains(Bits::DIRTY | Bits::ACCESSED | RIGHTS));
    drop(cursor);
    let _ = gather.finish();
    let mut bytes = [0; 5];
    bench
        .machine
        .on(SECOND)
        .read(huge.add(7).address(), &mut bytes)
        .expect("mapped");
    assert_eq!(&bytes, b"seven");
    bench.check();
    assert_eq!(bench.frames.references(page.frame), 1);
}

/// Copies the table as fork does for a private area: afterwards, both tables map the pages read-only.
fn copy(bench: &Bench, pages: u64) -> Table<Machine> {
    let child = Table::new(bench.frames.clone()).expect("memory");
    let mut gather = bench.table.gather();
    let mut from = bench.table.cursor(bench.range(pages));
    let mut to = child.second_cursor(bench.range(pages));
    let copied = from
        .copy_to(&mut to, CopyRule::PRIVATE, &mut gather)
        .expect("memory");
    assert_eq!((copied.pages, copied.stop), (pages, CopyStop::Done));
    drop((from, to));
    let _ = gather.finish();
    child
}

#[test]
fn after_a_copy_no_cpu_writes_what_both_tables_map() {
    let bench = Bench::new();
    bench.fill(8);
    bench.touch(8);
    let child = copy(&bench, 8);
    bench.check();
    for cpu in [FIRST, SECOND] {
        assert!(
            bench
                .machine
                .on(cpu)
                .write(START.address(), b"mine")
                .is_err()
        );
    }
    let mut cursor = child.cursor(bench.range(8));
    while let Some(extent) = cursor.next_filled() {
        let page = extent.entry.present().expect("a page");
        assert!(!page.bits.intersects(Bits::WRITE | Bits::EXCLUSIVE));
        assert_eq!(bench.frames.references(page.frame), 2);
        cursor.advance();
    }
}

#[test]
fn a_move_takes_contents_along_and_leaves_no_old_translation() {
    let bench = Bench::new();
    bench.fill(8);
    bench.touch(8);
    let to = Page::new(512 * 512 * 3 - 5);
    let mut gather = bench.table.gather();
    assert_eq!(
        bench
            .table
            .move_entries(bench.range(8), to, MoveRule::PLAIN, &mut gather),
        Ok(8)
    );
    let _ = gather.finish();
    bench.check();
    for cpu in [FIRST, SECOND] {
        let mut bytes = [0; 7];
        bench
            .machine
            .on(cpu)
            .read(to.add(7).address(), &mut bytes)
            .expect("moved here");
        assert_eq!(&bytes, b"touched");
        assert!(
            bench
                .machine
                .on(cpu)
                .read(START.address(), &mut bytes)
                .is_err()
        );
    }
}

#[test]
fn moved_tables_leave_no_old_translation() {
    let bench = Bench::new();
    bench.fill(8);
    bench.touch(8);
    let first = Page::new(START.number() & !511);
    let pages = PageRange::new(first, first.add(1024));
    let to = |page: Page| page.add(512 * 512 * 3);
    let rule = MoveRule {
        whole_tables: true,
        ..MoveRule::PLAIN
    };
    let tables = bench.table.table_frames();
    let mut gather = bench.table.gather();
    let moved = bench
        .table
        .move_entries(pages, to(first), rule, &mut gather);
    assert_eq!(moved, Ok(8));
    // The range straddles a boundary of 1 GiB, so two level-2 tables were allocated at the new place. The two level-1
    // tables were moved.
    let more = 2 * u64::from(Arch::TABLE_FRAMES);
    assert_eq!(bench.table.table_frames(), tables + more);
    let _ = gather.finish();
    bench.check();
    for cpu in [FIRST, SECOND] {
        let mut bytes = [0; 7];
        let here = bench.machine.on(cpu);
        here.read(to(START).add(7).address(), &mut bytes)
            .expect("moved here");
        assert_eq!(&bytes, b"touched");
        assert!(here.read(START.address(), &mut bytes).is_err());
    }
}

#[test]
fn an_entry_that_lost_its_frame_leaves_the_memory_to_others() {
    let bench = Bench::new();
    bench.fill(8);
    bench.touch(8);
    bench.remove(8);
    let taken: Vec<Frame> = (0..8)
        .map(|_| {
            bench
                .frames
                .allocate_zeroed(0, FrameKind::Anonymous)
                .expect("memory")
                .into_raw()
        })
        .collect();
    bench.check();
    for frame in taken {
        drop(bench.frames.adopt(frame));
    }
}
