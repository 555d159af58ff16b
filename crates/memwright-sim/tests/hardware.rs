//! Tests of the simulated CPUs on handwritten page tables: stale translations stay in use, each dirty bit is set once,
//! rights are enforced, and an invalidation drops only the translations that it names. The entries are those of x86-64.

#![cfg(not(any(simulated = "aarch64", simulated = "riscv64")))]

#[path = "support/handwritten.rs"]
mod handwritten;

use std::sync::Arc;

use handwritten::{
    ADDRESS, CPU as FIRST, DATA, LOWEST as LOWER, OTHER, TABLES, get, invalidate, load, set, store,
};
use memwright_sim::{
    Adversary, Incoherence, MachineOptions, Mistake, RightsMiss, SimulatedMachine,
};
use memwright_table::{CpuId, CpuSet, Frame, Invalidation, Machine, Page, PageSize, VirtAddr};

const PRESENT: u64 = 1;
const WRITABLE: u64 = 2;
const USER: u64 = 4;
const ACCESSED: u64 = 0x20;
const DIRTY: u64 = 0x40;
const LEAF: u64 = 0x80;
const NO_EXECUTE: u64 = 1 << 63;
const OPEN: u64 = PRESENT | WRITABLE | USER;

const SECOND: CpuId = CpuId::new(1);
const ROOT: Frame = TABLES[0];
const UPPER: Frame = TABLES[1];
const MIDDLE: Frame = TABLES[2];

fn entry(frame: Frame, bits: u64) -> u64 {
    frame.address().as_u64() | bits
}

fn machine_with(options: MachineOptions, leaf: u64) -> SimulatedMachine {
    handwritten::machine(options, |table| entry(table, OPEN), leaf)
}

fn machine(leaf: u64) -> SimulatedMachine {
    machine_with(handwritten::options(), leaf)
}

fn one_page() -> Invalidation {
    Invalidation::page(ADDRESS.page())
}

#[test]
fn a_stale_translation_serves_until_it_is_invalidated() {
    let machine = machine(entry(DATA, OPEN));
    assert_eq!(load(&machine, SECOND), Ok(*b"data"));
    set(&machine, LOWER, 5, entry(OTHER, OPEN));
    assert_eq!(
        load(&machine, FIRST),
        Ok(*b"else"),
        "a CPU that cached nothing walks"
    );
    assert_eq!(
        load(&machine, SECOND),
        Ok(*b"data"),
        "the stale translation serves"
    );
    assert!(matches!(
        machine.audit()[..],
        [Incoherence::Moved(SECOND, _, OTHER)]
    ));
    machine.invalidate_remote(CpuSet::single(SECOND), ROOT, &[one_page()]);
    assert_eq!(load(&machine, SECOND), Ok(*b"else"));
    assert_eq!(machine.audit(), []);
}

#[test]
fn an_unmapped_page_stays_reachable_through_a_stale_translation() {
    let machine = machine(entry(DATA, OPEN));
    load(&machine, FIRST).expect("the page is mapped");
    set(&machine, LOWER, 5, 0);
    assert_eq!(load(&machine, FIRST), Ok(*b"data"));
    assert!(matches!(
        machine.audit()[..],
        [Incoherence::Freed(FIRST, _)]
    ));
    machine.clear_frame(DATA);
    let violations = machine.take_violations();
    assert_eq!(violations.len(), 1, "{violations:?}");
    assert!(violations[0].starts_with("cleared"), "{violations:?}");
    invalidate(&machine, FIRST);
    assert!(load(&machine, FIRST).is_err());
    machine.clear_frame(DATA);
    assert_eq!(machine.take_violations(), Vec::<String>::new());
}

#[test]
fn a_write_sets_accessed_and_dirty_and_a_read_only_accessed() {
    let machine = machine(entry(DATA, OPEN));
    load(&machine, FIRST).expect("the page is mapped");
    assert_eq!(get(&machine, LOWER, 5) & (ACCESSED | DIRTY), ACCESSED);
    for table in [ROOT, UPPER, MIDDLE] {
        assert_eq!(get(&machine, table, 0) & (ACCESSED | DIRTY), ACCESSED);
    }
    store(&machine).expect("the page is writable");
    assert_eq!(
        get(&machine, LOWER, 5) & (ACCESSED | DIRTY),
        ACCESSED | DIRTY
    );
    assert_eq!(machine.cost(FIRST).dirty_walks, 1);
}

#[test]
fn a_write_through_an_entry_cached_dirty_is_not_noticed() {
    let machine = machine(entry(DATA, OPEN));
    store(&machine).expect("the page is writable");
    set(&machine, LOWER, 5, entry(DATA, OPEN | ACCESSED));
    machine
        .on(FIRST)
        .write(ADDRESS, b"y")
        .expect("the cached entry serves");
    assert_eq!(
        get(&machine, LOWER, 5) & DIRTY,
        0,
        "the second write left no trace"
    );
    assert!(matches!(
        machine.audit()[..],
        [Incoherence::Cleaned(FIRST, _)]
    ));
}

#[test]
fn a_write_through_an_entry_cached_clean_walks_and_meets_the_new_rights() {
    let machine = machine(entry(DATA, OPEN));
    load(&machine, FIRST).expect("the page is mapped");
    set(&machine, LOWER, 5, entry(DATA, PRESENT | USER));
    let fault = machine
        .on(FIRST)
        .write(ADDRESS, b"x")
        .expect_err("the tables forbid it");
    assert!(fault.code.present && fault.code.write && !fault.code.fetch);
    assert_eq!(fault.address, ADDRESS);
}

#[test]
fn rights_that_grew_fault_once_at_most() {
    let machine = machine(entry(DATA, PRESENT | USER));
    load(&machine, FIRST).expect("the page is mapped");
    set(&machine, LOWER, 5, entry(DATA, OPEN));
    assert_eq!(machine.audit(), [], "a smaller right may be cached");
    assert!(store(&machine).is_err(), "the stale right forbids it");
    assert!(store(&machine).is_ok(), "the fault dropped it");
    assert_eq!(machine.cost(FIRST).stale_faults, 1);
}

#[test]
fn a_machine_that_walks_on_a_rights_miss_does_not_fault() {
    let options = MachineOptions {
        frames: 2048,
        rights_miss: RightsMiss::Walks,
        ..MachineOptions::default()
    };
    let machine = machine_with(options, entry(DATA, PRESENT | USER));
    load(&machine, FIRST).expect("the page is mapped");
    set(&machine, LOWER, 5, entry(DATA, OPEN));
    assert!(store(&machine).is_ok());
    assert_eq!(machine.cost(FIRST).faults, 0);
}

#[test]
fn every_level_restricts() {
    let forbidden = |table: Frame, slot: usize, without: u64, with: u64| {
        let machine = machine(entry(DATA, OPEN));
        set(
            &machine,
            table,
            slot,
            get(&machine, table, slot) & !without | with,
        );
        let cpu = machine.on(FIRST);
        [
            cpu.read(ADDRESS, &mut [0]).is_err(),
            cpu.write(ADDRESS, &[0]).is_err(),
            cpu.fetch(ADDRESS).is_err(),
        ]
    };
    for (table, slot) in [(ROOT, 0), (UPPER, 0), (MIDDLE, 0), (LOWER, 5)] {
        assert_eq!(
            forbidden(table, slot, 0, 0),
            [false, false, false],
            "{table:?}"
        );
        assert_eq!(
            forbidden(table, slot, PRESENT, 0),
            [true, true, true],
            "{table:?}"
        );
        assert_eq!(
            forbidden(table, slot, USER, 0),
            [true, true, true],
            "{table:?}"
        );
        assert_eq!(
            forbidden(table, slot, WRITABLE, 0),
            [false, true, false],
            "{table:?}"
        );
        assert_eq!(
            forbidden(table, slot, 0, NO_EXECUTE),
            [false, false, true],
            "{table:?}"
        );
    }
}

#[test]
fn an_entry_beyond_memory_has_a_reserved_bit_set() {
    let machine = machine(entry(Frame::new(2048), OPEN));
    let fault = machine
        .on(FIRST)
        .read(ADDRESS, &mut [0])
        .expect_err("no such frame");
    assert!(fault.code.reserved);
}

#[test]
fn a_huge_leaf_translates_all_of_its_pages() {
    let machine = machine(0);
    set(&machine, MIDDLE, 1, entry(Frame::new(512), OPEN | LEAF));
    let address = VirtAddr::new(0x20_0000 + 7 * 4096 + 3);
    machine
        .on(FIRST)
        .write(address, b"huge")
        .expect("mapped by the huge leaf");
    let mut bytes = [0; 4];
    machine.memory().load(Frame::new(519), 3, &mut bytes);
    assert_eq!(&bytes, b"huge");
    assert_eq!(
        get(&machine, MIDDLE, 1) & (ACCESSED | DIRTY),
        ACCESSED | DIRTY
    );
    machine
        .on(FIRST)
        .write(VirtAddr::new(0x20_0000), b"x")
        .expect("the same translation");
    assert_eq!(
        (machine.cost(FIRST).walks, machine.cost(FIRST).hits),
        (1, 1)
    );
}

#[test]
fn a_freed_table_is_walked_until_the_structure_caches_are_flushed() {
    let machine = machine(entry(DATA, OPEN));
    load(&machine, FIRST).expect("the page is mapped");
    set(&machine, MIDDLE, 0, 0);
    machine.invalidate_local(&Invalidation::All);
    assert_eq!(
        load(&machine, FIRST),
        Ok(*b"data"),
        "the cached upper level leads there"
    );
    assert!(
        machine
            .audit()
            .iter()
            .any(|found| matches!(found, Incoherence::Table(..)))
    );
    machine.clear_frame(LOWER);
    assert!(machine.take_violations()[0].contains("as a table"));
    machine.invalidate_local(&Invalidation::AllAndTables);
    assert!(load(&machine, FIRST).is_err());
}

#[test]
fn the_load_of_a_root_forgets_everything() {
    let machine = machine(entry(DATA, OPEN));
    load(&machine, FIRST).expect("the page is mapped");
    set(&machine, MIDDLE, 0, 0);
    machine.load_root(ROOT);
    assert!(load(&machine, FIRST).is_err());
}

#[test]
fn an_interrupt_for_another_root_changes_nothing() {
    let machine = machine(entry(DATA, OPEN));
    load(&machine, SECOND).expect("the page is mapped");
    set(&machine, LOWER, 5, 0);
    machine.invalidate_remote(CpuSet::single(SECOND), Frame::new(77), &[one_page()]);
    assert_eq!(load(&machine, SECOND), Ok(*b"data"));
    assert_eq!(machine.cost(FIRST).interrupts_sent, 1);
    assert_eq!(machine.cost(SECOND).interrupts_taken, 1);
}

#[test]
fn the_window_opens_before_the_invalidation_arrives() {
    let machine = machine(entry(DATA, OPEN));
    machine.on(SECOND).write(ADDRESS, b"0").expect("writable");
    set(
        &machine,
        LOWER,
        5,
        entry(DATA, PRESENT | USER | ACCESSED | DIRTY),
    );
    machine.set_window(Some(Arc::new(|machine: &SimulatedMachine, cpu| {
        machine
            .on(cpu)
            .write(ADDRESS, b"late")
            .expect("still cached");
    })));
    machine.invalidate_remote(CpuSet::single(SECOND), ROOT, &[one_page()]);
    assert_eq!(load(&machine, SECOND), Ok(*b"late"));
    assert!(machine.on(SECOND).write(ADDRESS, b"x").is_err());
}

#[test]
fn every_planted_mistake_leaves_something_stale() {
    let pages = Invalidation::Pages {
        first: Page::new(4),
        count: 2,
        stride: PageSize::Size4K,
    };
    for (mistake, what) in [
        (Mistake::NoLocal, pages),
        (Mistake::NoRemote, pages),
        (Mistake::OnePageShort, pages),
        (Mistake::NoTables, Invalidation::AllAndTables),
    ] {
        let machine = machine(entry(DATA, OPEN));
        load(&machine, FIRST).expect("the page is mapped");
        load(&machine, SECOND).expect("the page is mapped");
        set(&machine, MIDDLE, 0, 0);
        machine.set_mistake(Some(mistake));
        machine.invalidate_local(&what);
        machine.invalidate_remote(CpuSet::single(SECOND), ROOT, &[what]);
        assert_ne!(machine.audit(), [], "{mistake:?}");
    }
}

#[test]
fn an_adversary_repeats_itself_and_never_writes() {
    let run = |seed| {
        let machine = machine(entry(DATA, OPEN));
        machine.set_adversary(Some(Adversary::new(seed)));
        for _ in 0..100 {
            load(&machine, FIRST).expect("the page is mapped");
            invalidate(&machine, FIRST);
        }
        assert_eq!(get(&machine, LOWER, 5) & DIRTY, 0);
        assert_eq!(machine.audit(), []);
        (machine.cost(FIRST), machine.cost(SECOND))
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let (first, second) = run(3);
    assert!(first.speculative_fills > 0 && second.speculative_fills > 0);
    assert!(first.evictions + second.evictions > 0);
}
