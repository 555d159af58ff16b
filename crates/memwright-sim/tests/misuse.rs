//! Mistakes of an embedder, each of which a debug build reports. `docs/embedding.md` lists them in a table; this test
//! commits each of them, and compares its list with the page.
#![cfg(debug_assertions)]

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memwright_sim::{Arch, MachineOptions, SimulatedMachine};
use memwright_table::sync::{Rank, assert_may_allocate, assert_none_held, pause};
use memwright_table::{
    Architecture, Bits, CpuId, Entry, Frame, FrameKind, Frames, Loaded, Page, PageAccess,
    PageRange, Table, VirtAddr,
};

type Machine = SimulatedMachine;
type Lock<T> = memwright_table::sync::Lock<T, Machine>;

const PAGE: Page = Page::new(0x1234);

/// A row of the table in `docs/embedding.md`: the mistake, a part of the panic's message, and a function that makes the
/// mistake.
type Misuse = (&'static str, &'static str, fn());

const MISUSES: [Misuse; 19] = [
    (
        "`Threads::cpu` returns a number that is not below `cpu_count`",
        "CPU 3 of a machine with 2 CPUs",
        cpu_out_of_range,
    ),
    (
        "A table is dropped while a CPU has it loaded",
        "dropped a table that CPU 0 has loaded",
        drop_of_a_loaded_table,
    ),
    (
        "A CPU leaves a table that another CPU has loaded",
        "CPU 1 leaves a table that CPU 0 has loaded",
        leave_on_another_cpu,
    ),
    (
        "A CPU loads a table that it has loaded",
        "CPU 0 has loaded the table already",
        second_load,
    ),
    (
        "A CPU translates by a table that it has not loaded",
        "CPU 1 has not loaded the table",
        translation_without_load,
    ),
    (
        "A CPU whose registers do not permit the use of the tables loads one, if `Machine::registers` reads them",
        "CPU 1: ",
        wrong_registers,
    ),
    (
        "An entry maps the frame of a page table",
        "is a page table",
        table_as_a_page,
    ),
    (
        "A root points to a table of another root, as after a copy of its user half",
        "is a table of the root",
        table_of_two_roots,
    ),
    (
        "An interrupt handler acquires a lock that its CPU holds",
        "lock order: Table taken under Table",
        lock_in_a_handler,
    ),
    (
        "A lock is acquired after one of a later rank",
        "lock order: Object taken under Leaf",
        locks_out_of_order,
    ),
    (
        "A thread yields while it holds a lock that does not sleep",
        "Object is held where the thread may yield",
        yield_under_a_lock,
    ),
    (
        "A lock is held where `assert_none_held` is called, as before the return to user mode",
        "a lock is held where none may be: Space",
        return_under_a_lock,
    ),
    (
        "The heap calls `assert_may_allocate` under a lock of the frame allocator or a later one",
        "memory is allocated under FrameCache",
        heap_under_a_lock,
    ),
    (
        "A reference that was converted into a raw frame is adopted twice",
        "has no reference to adopt",
        frame_adopted_twice,
    ),
    (
        "An entry is stored where a page is mapped",
        "filled a slot that maps something",
        entry_over_an_entry,
    ),
    (
        "The contents of a frame of the kind `Kernel` or `Table` are accessed through `Frames`",
        "holds no data",
        contents_of_a_kernel_frame,
    ),
    (
        "A cursor is opened on kernel addresses",
        "a cursor needs a position in a range in user memory",
        cursor_in_the_kernel,
    ),
    (
        "A gather is dropped without `finish`",
        "a gather was dropped without",
        gather_without_finish,
    ),
    (
        "A frame is written after it was freed, as through a stale translation",
        "was written to while free",
        write_to_a_free_frame,
    ),
];

fn machine(cpus: usize) -> Machine {
    Machine::new(MachineOptions {
        cpus,
        ..MachineOptions::default()
    })
}

fn table() -> (Arc<Frames<Machine>>, Table<Machine>) {
    let frames = machine(2).frames();
    let table = Table::new(frames.clone()).expect("memory");
    (frames, table)
}

fn range() -> PageRange {
    PageRange::single(PAGE)
}

fn fill(table: &Table<Machine>) {
    let block = table.frames().allocate_zeroed(0, FrameKind::Anonymous);
    let frame = block.expect("memory").into_raw();
    let entry = Entry::page(frame, Bits::READ | Bits::WRITE | Bits::ACCESSED);
    table.cursor(range()).fill(entry).expect("memory");
}

fn cpu_out_of_range() {
    let other = machine(4);
    let _running = other.run_on(CpuId::new(3));
    let _ = machine(2).frames().allocate(0, FrameKind::Kernel);
}

fn drop_of_a_loaded_table() {
    let (_frames, table) = table();
    let loaded = Loaded::new(&table);
    drop(loaded);
    drop(table);
}

fn leave_on_another_cpu() {
    let machine = machine(2);
    let table = Table::new(machine.frames()).expect("memory");
    // The table stays loaded, so it is never dropped.
    let loaded = Loaded::new(&*Box::leak(Box::new(table)));
    let _running = machine.run_on(CpuId::new(1));
    loaded.stop();
}

fn wrong_registers() {
    let second = CpuId::new(1);
    let machine = Machine::new(MachineOptions {
        wrong_registers_on: Some(second),
        ..MachineOptions::default()
    });
    let table = Table::new(machine.frames()).expect("memory");
    let _running = machine.run_on(second);
    Loaded::new(&table).stop();
}

fn second_load() {
    let (_frames, table) = table();
    // The table stays loaded, so it is never dropped.
    let table = &*Box::leak(Box::new(table));
    let _twice = [Loaded::new(table), Loaded::new(table)];
}

fn translation_without_load() {
    let (frames, table) = table();
    let loaded = Loaded::new(&table);
    let second = frames.machine().run_on(CpuId::new(1));
    let found = catch_unwind(AssertUnwindSafe(|| table.translate(PAGE, PageAccess::Load)));
    drop(second);
    loaded.stop();
    found.map(drop).unwrap_or_else(|panic| resume_unwind(panic));
}

fn table_as_a_page() {
    let (frames, table) = table();
    let other = Table::new(frames).expect("memory");
    let entry = Entry::page(other.root(), Bits::READ);
    let _ = table.cursor(range()).fill(entry);
}

fn table_of_two_roots() {
    let (frames, table) = table();
    fill(&table);
    let other = Table::new(frames.clone()).expect("memory");
    // The embedder copies the user half itself, and does not fork.
    let memory = frames.machine().memory();
    for frame in 0..Arch::TABLE_FRAMES {
        let of = |root: Frame| Frame::new(root.number() + frame);
        for index in 0..256 {
            let word = memory.word(of(table.root()), index);
            let word = word.load(Ordering::Relaxed);
            memory
                .word(of(other.root()), index)
                .store(word, Ordering::Relaxed);
        }
    }
    let _ = other.cursor(range());
}

fn lock_in_a_handler() {
    let (_frames, table) = table();
    let handler = || drop(table.cursor(range()));
    let _cursor = table.cursor(range());
    handler();
}

fn locks_out_of_order() {
    let (leaf, object) = (Lock::new(Rank::Leaf, ()), Lock::new(Rank::Object, ()));
    let _leaf = leaf.lock();
    let _object = object.lock();
}

fn yield_under_a_lock() {
    let lock = Lock::new(Rank::Object, ());
    let _held = lock.lock();
    pause::<Machine>();
}

fn return_under_a_lock() {
    let lock = Lock::new(Rank::Space, ());
    let _held = lock.lock();
    assert_none_held::<Machine>();
}

fn heap_under_a_lock() {
    let lock = Lock::new(Rank::FrameCache, ());
    let _held = lock.lock();
    assert_may_allocate::<Machine>();
}

fn frame_adopted_twice() {
    let (frames, _table) = table();
    let frame = frames
        .allocate(0, FrameKind::Object)
        .expect("memory")
        .into_raw();
    drop(frames.adopt(frame));
    drop(frames.adopt(frame));
}

fn entry_over_an_entry() {
    let (_frames, table) = table();
    fill(&table);
    fill(&table);
}

fn contents_of_a_kernel_frame() {
    let (frames, _table) = table();
    let block = frames.allocate(0, FrameKind::Kernel).expect("memory");
    frames.clear(block.frame());
}

fn cursor_in_the_kernel() {
    let (_frames, table) = table();
    let page = VirtAddr::new(0xffff_8000_0000_0000).page();
    let _ = table.cursor(PageRange::single(page));
}

fn gather_without_finish() {
    let (_frames, table) = table();
    fill(&table);
    let mut gather = table.gather();
    table.cursor(range()).remove_all(&mut gather);
    drop(gather);
}

fn write_to_a_free_frame() {
    let (frames, _table) = table();
    let frame: Frame = frames
        .allocate(0, FrameKind::Object)
        .expect("memory")
        .frame();
    frames.machine().memory().store(frame, 8, b"stale");
    let _ = frames.allocate(0, FrameKind::Object);
}

#[test]
fn every_misuse_is_reported() {
    for (misuse, expected, commit) in MISUSES {
        // A kernel on RISC-V cannot read `menvcfg`, so this mistake is not detected there.
        if cfg!(simulated = "riscv64") && expected == "CPU 1: " {
            continue;
        }
        // Another thread, because the list of held locks is per thread.
        let message = std::thread::spawn(move || catch_unwind(commit))
            .join()
            .expect("the panic is caught")
            .expect_err(misuse);
        let text = message
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| message.downcast_ref::<&str>().copied())
            .expect("a message");
        assert!(text.contains(expected), "{misuse}: {text}");
    }
}

#[test]
fn the_page_lists_every_misuse() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/embedding.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let table = page.split("| misuse | panic |\n|---|---|\n").nth(1);
    let rows: Vec<&str> = table
        .expect("the table of misuses")
        .lines()
        .take_while(|line| line.starts_with('|'))
        .collect();
    let expected = MISUSES.map(|(misuse, message, _)| format!("| {misuse} | `{message}` |"));
    assert_eq!(rows, expected);
}
