//! Tests of the simulated CPUs of AArch64 on handwritten page tables: the meaning of each entry, and how a store is
//! recorded. Making a new entry before every CPU has dropped the old translation must be a violation.

#![cfg(simulated = "aarch64")]

#[path = "support/handwritten.rs"]
mod handwritten;

use handwritten::{ADDRESS, CPU, DATA, LOWEST, OTHER, TABLES, get, invalidate, load, set, store};
use memwright_sim::{MemoryType, SimulatedMachine};
use memwright_table::{CpuId, Frame};

const VALID: u64 = 1 << 0;
const TABLE: u64 = 0b11;
const USER: u64 = 1 << 6;
const READ_ONLY: u64 = 1 << 7;
const SHAREABLE: u64 = 0b11 << 8;
const ACCESSED: u64 = 1 << 10;
const NOT_GLOBAL: u64 = 1 << 11;
const DIRTY_MODIFIER: u64 = 1 << 51;
const CONTIGUOUS: u64 = 1 << 52;
const KERNEL_NO_EXECUTE: u64 = 1 << 53;
const NO_EXECUTE: u64 = 1 << 54;
const BLOCK: u64 = VALID | USER | SHAREABLE | NOT_GLOBAL | KERNEL_NO_EXECUTE;
const PAGE: u64 = BLOCK | 0b10;
/// Writable, and not written yet.
const CLEAN: u64 = PAGE | DIRTY_MODIFIER | READ_ONLY;

const OTHER_CPU: CpuId = CpuId::new(1);
fn entry(frame: Frame, bits: u64) -> u64 {
    frame.address().as_u64() | bits
}

fn machine(leaf: u64) -> SimulatedMachine {
    handwritten::machine(handwritten::options(), |table| entry(table, TABLE), leaf)
}

#[test]
fn an_invalid_entry_is_not_cached() {
    let machine = machine(0);
    assert!(!load(&machine, CPU).unwrap_err().present);
    set(&machine, LOWEST, 5, entry(DATA, PAGE | READ_ONLY));
    assert_eq!(load(&machine, CPU), Ok(*b"data"));
}

#[test]
fn a_fault_keeps_the_stale_rights() {
    let machine = machine(entry(DATA, PAGE | READ_ONLY));
    assert_eq!(load(&machine, CPU), Ok(*b"data"));
    set(&machine, LOWEST, 5, entry(DATA, CLEAN));
    for _ in 0..3 {
        assert!(store(&machine).unwrap_err().present);
    }
    invalidate(&machine, CPU);
    assert_eq!(store(&machine), Ok(()));
}

#[test]
fn a_store_clears_read_only_where_the_modifier_permits_it() {
    let machine = machine(entry(DATA, CLEAN));
    assert_eq!(load(&machine, CPU), Ok(*b"data"));
    assert_eq!(get(&machine, LOWEST, 5), entry(DATA, CLEAN | ACCESSED));
    assert_eq!(store(&machine), Ok(()));
    let written = entry(DATA, PAGE | DIRTY_MODIFIER | ACCESSED);
    assert_eq!(get(&machine, LOWEST, 5), written);
    let upper = [0, 1, 2].map(|table| get(&machine, TABLES[table], 0));
    let expected = [1, 2, 3].map(|table| entry(TABLES[table], TABLE));
    assert_eq!(upper, expected);
}

#[test]
fn rights_are_those_of_the_leaf() {
    let readable = machine(entry(DATA, PAGE | READ_ONLY | NO_EXECUTE));
    assert!(store(&readable).unwrap_err().present);
    assert!(readable.on(CPU).fetch(ADDRESS).is_err());
    assert!(load(&machine(entry(DATA, PAGE & !USER)), CPU).is_err());
    let executable = machine(entry(DATA, PAGE | READ_ONLY));
    assert!(executable.on(CPU).fetch(ADDRESS).is_ok());
}

#[test]
fn entries_that_memwright_may_not_write_are_reported() {
    let leaves = [
        entry(DATA, BLOCK),
        entry(DATA, PAGE & !NOT_GLOBAL),
        entry(DATA, PAGE & !KERNEL_NO_EXECUTE),
        entry(DATA, PAGE & !SHAREABLE),
        entry(DATA, PAGE | CONTIGUOUS),
        entry(DATA, PAGE | 3 << 2),
    ];
    for leaf in leaves {
        assert!(load(&machine(leaf), CPU).unwrap_err().reserved, "{leaf:#x}");
    }
    let machine = machine(entry(DATA, PAGE));
    set(&machine, TABLES[2], 0, entry(LOWEST, TABLE | 1 << 62));
    assert!(load(&machine, CPU).unwrap_err().reserved);
}

#[test]
fn a_block_translates_all_of_its_pages() {
    let machine = machine(0);
    set(&machine, TABLES[2], 0, entry(Frame::new(512), BLOCK));
    machine.memory().store(Frame::new(512 + 5), 0, b"huge");
    assert_eq!(load(&machine, CPU), Ok(*b"huge"));
}

#[test]
fn an_entry_is_broken_everywhere_before_it_is_made() {
    let machine = machine(entry(DATA, PAGE));
    assert_eq!(load(&machine, OTHER_CPU), Ok(*b"data"));
    set(&machine, LOWEST, 5, entry(OTHER, PAGE));
    assert_eq!(load(&machine, CPU), Ok(*b"else"));
    assert_eq!(machine.take_violations().len(), 1);

    invalidate(&machine, OTHER_CPU);
    assert_eq!(load(&machine, OTHER_CPU), Ok(*b"else"));
    assert_eq!(machine.take_violations(), Vec::<String>::new());
}

#[test]
fn the_index_selects_the_memory_type() {
    let rows = [
        (0, MemoryType::WriteBack),
        (1, MemoryType::WriteCombining),
        (2, MemoryType::Uncached),
    ];
    for (index, expected) in rows {
        let machine = machine(entry(DATA, PAGE) | index << 2);
        assert_eq!(machine.on(CPU).memory_type(ADDRESS), Some(expected));
    }
}
