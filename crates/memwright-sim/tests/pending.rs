//! Tests of rule see-pending-flushes. An operation that removes a right can find that another operation has removed it
//! already but has not flushed yet. The second operation must not return before the flush is done.

use memwright_table::MoveRule;
use std::sync::Arc;

use memwright_sim::{Incoherence, MachineOptions, SimulatedMachine};
use memwright_table::{
    Bits, CopyRule, CpuId, Edit, Entry, FrameKind, Frames, Gather, Loaded, Page, PageRange, Table,
};

type Machine = SimulatedMachine;

const OTHER: CpuId = CpuId::new(1);
const PAGE: Page = Page::new(0x1234);
const RIGHTS: Bits = Bits::READ.union(Bits::WRITE);

struct Bench {
    machine: Machine,
    frames: Arc<Frames<Machine>>,
    table: Arc<Table<Machine>>,
    loaded: Vec<Loaded<Arc<Table<Machine>>>>,
}

impl Bench {
    /// Creates a table with one page. The other CPU has cached a writable and dirty translation of the page.
    fn new() -> Self {
        let machine = Machine::new(MachineOptions::default());
        let frames = machine.frames();
        let table = Arc::new(Table::new(frames.clone()).expect("memory"));
        let load = |cpu| {
            let _running = machine.run_on(cpu);
            Loaded::new(table.clone())
        };
        let loaded = machine.cpus().map(load).collect();
        let frame = frames
            .allocate_zeroed(0, FrameKind::Anonymous)
            .expect("memory")
            .into_raw();
        table
            .cursor(range())
            .fill(Entry::page(frame, RIGHTS))
            .expect("memory");
        machine
            .on(OTHER)
            .write(PAGE.address(), b"x")
            .expect("mapped");
        Self {
            machine,
            frames,
            table,
            loaded,
        }
    }

    /// Removes rights without a flush. This is the first of the two operations.
    fn take(&self, clear: Bits) -> Gather<'_, Machine> {
        let mut gather = self.table.gather();
        self.table
            .cursor(range())
            .edit(Bits::empty(), clear, &mut gather);
        assert_ne!(
            self.machine.audit(),
            [],
            "the other CPU still has the right"
        );
        gather
    }

    fn assert_coherent(&self, what: &str) {
        assert_eq!(
            self.machine.audit(),
            [],
            "{what} returned before the flush it relied on"
        );
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
    PageRange::single(PAGE)
}

#[test]
fn a_second_protection_change_completes_the_first() {
    let bench = Bench::new();
    let first = bench.take(Bits::WRITE);
    let mut second = bench.table.gather();
    let edit = Edit {
        set: Bits::empty(),
        clear: Bits::WRITE,
    };
    let changed = bench
        .table
        .cursor(range())
        .edit_run(range().end, |_, _| edit, &mut second);
    assert_eq!(changed, 0);
    let _ = second.finish();
    bench.assert_coherent("a protection change");
    let _ = first.finish();
}

/// Tests a protection change of one page and one of several pages: they take different paths in the cursor.
#[test]
fn a_second_change_of_alike_pages_completes_the_first() {
    for end in [range().end, PAGE.add(3)] {
        let bench = Bench::new();
        let first = bench.take(Bits::WRITE);
        let edit = Edit {
            set: Bits::empty(),
            clear: Bits::WRITE,
        };
        let mut second = bench.table.gather();
        let edited =
            bench
                .table
                .cursor(PageRange::new(PAGE, end))
                .edit_alike(end, |_| edit, &mut second);
        assert_eq!(edited.changed, 0);
        let _ = second.finish();
        bench.assert_coherent("a protection change");
        let _ = first.finish();
    }
}

/// The accessed bit of the page was cleared, and the flush for that is pending: a removal of the page must not elide
/// its own flush although the bit is clear.
#[test]
fn a_removal_completes_the_clearing_of_the_accessed_bit() {
    let bench = Bench::new();
    let mut first = bench.table.gather();
    bench
        .table
        .cursor(range())
        .edit(Bits::empty(), Bits::ACCESSED, &mut first);
    let mut second = bench.table.gather();
    bench.table.cursor(range()).remove(&mut second);
    let counts = second.finish();
    assert_eq!((counts.elided_not_accessed, counts.completed), (0, 1));
    bench.assert_coherent("a removal");
    let _ = first.finish();
}

#[test]
fn a_removal_completes_the_protection_change_before() {
    let bench = Bench::new();
    let first = bench.take(RIGHTS);
    let mut second = bench.table.gather();
    bench.table.cursor(range()).remove_all(&mut second);
    let _ = second.finish();
    assert_eq!(
        bench.frames.used_by(FrameKind::Anonymous),
        0,
        "the frame is free"
    );
    bench.assert_coherent("a removal");
    let _ = first.finish();
}

#[test]
fn the_removal_of_one_entry_completes_the_protection_change_before() {
    let bench = Bench::new();
    let first = bench.take(RIGHTS);
    let mut second = bench.table.gather();
    bench.table.cursor(range()).remove(&mut second);
    let _ = second.finish();
    bench.assert_coherent("a removal");
    let _ = first.finish();
}

#[test]
fn a_removal_that_finds_nothing_completes_the_removal_before() {
    let bench = Bench::new();
    let mut first = bench.table.gather();
    bench.table.cursor(range()).remove_all(&mut first);
    let mut second = bench.table.gather();
    assert_eq!(bench.table.cursor(range()).remove_all(&mut second), 0);
    let _ = second.finish();
    bench.assert_coherent("a removal");
    let _ = first.finish();
}

#[test]
fn cleaning_that_finds_nothing_completes_the_removal_before() {
    let bench = Bench::new();
    let mut first = bench.table.gather();
    bench.table.cursor(range()).remove_all(&mut first);
    let mut second = bench.table.gather();
    let edit = Edit {
        set: Bits::empty(),
        clear: Bits::WRITE | Bits::DIRTY,
    };
    bench
        .table
        .cursor(range())
        .edit_run(range().end, |_, _| edit, &mut second);
    let _ = second.finish();
    bench.assert_coherent("cleaning");
    let _ = first.finish();
}

#[test]
fn a_copy_completes_the_protection_change_before() {
    let bench = Bench::new();
    let first = bench.take(Bits::WRITE);
    let child = Table::new(bench.frames.clone()).expect("memory");
    let mut second = bench.table.gather();
    {
        let mut from = bench.table.cursor(range());
        let mut to = child.second_cursor(range());
        from.copy_to(&mut to, CopyRule::PRIVATE, &mut second)
            .expect("memory");
    }
    let _ = second.finish();
    bench.assert_coherent("a copy");
    let _ = first.finish();
}

#[test]
fn a_move_completes_the_protection_change_before() {
    let bench = Bench::new();
    let first = bench.take(RIGHTS);
    let mut second = bench.table.gather();
    bench
        .table
        .move_entries(range(), PAGE.add(600), MoveRule::PLAIN, &mut second)
        .expect("memory");
    let _ = second.finish();
    bench.assert_coherent("a move");
    let _ = first.finish();
}

#[test]
fn a_freed_table_is_flushed_as_a_table_although_another_flush_is_pending() {
    let bench = Bench::new();
    let first = bench.take(Bits::WRITE);
    let mut second = bench.table.gather();
    {
        let mut cursor = bench.table.cursor(range());
        // The entry needs no change, because the right is removed already: the operation relies on the pending flush.
        cursor.edit(Bits::empty(), Bits::WRITE, &mut second);
        cursor.remove_all(&mut second);
        assert!(cursor.free_tables(&mut second) > 0);
    }
    let _ = second.finish();
    let stale = bench.machine.audit();
    assert!(
        !stale
            .iter()
            .any(|found| matches!(found, Incoherence::Table(..))),
        "{stale:?}"
    );
    let _ = first.finish();
}
