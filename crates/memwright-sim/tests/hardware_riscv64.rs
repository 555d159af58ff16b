//! Tests of the simulated CPUs of RISC-V on handwritten page tables: the meaning of each entry, and that a CPU keeps
//! everything that it has cached after a fault, including the fact that an entry is invalid.

#![cfg(simulated = "riscv64")]

#[path = "support/handwritten.rs"]
mod handwritten;

use handwritten::{ADDRESS, CPU, DATA, LOWEST, TABLES, get, invalidate, load, set, store};
use memwright_sim::{MemoryType, SimulatedMachine};
use memwright_table::Frame;

const VALID: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const GLOBAL: u64 = 1 << 5;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const OPEN: u64 = VALID | READ | WRITE | USER;

fn entry(frame: Frame, bits: u64) -> u64 {
    u64::from(frame.number()) << 10 | bits
}

fn machine(leaf: u64) -> SimulatedMachine {
    handwritten::machine(handwritten::options(), |table| entry(table, VALID), leaf)
}

#[test]
fn an_invalid_entry_stays_cached_until_it_is_invalidated() {
    let machine = machine(0);
    assert!(!load(&machine, CPU).unwrap_err().present);
    set(&machine, LOWEST, 5, entry(DATA, OPEN));
    assert!(!load(&machine, CPU).unwrap_err().present);
    invalidate(&machine, CPU);
    assert_eq!(load(&machine, CPU), Ok(*b"data"));
}

#[test]
fn a_fault_keeps_the_stale_rights() {
    let machine = machine(entry(DATA, VALID | READ | USER));
    assert_eq!(load(&machine, CPU), Ok(*b"data"));
    set(&machine, LOWEST, 5, entry(DATA, OPEN));
    for _ in 0..3 {
        assert!(store(&machine).unwrap_err().present);
    }
    invalidate(&machine, CPU);
    assert_eq!(store(&machine), Ok(()));
}

#[test]
fn a_walk_sets_accessed_and_dirty_in_the_leaf_only() {
    let machine = machine(entry(DATA, OPEN));
    let upper = || [0, 1, 2].map(|table| get(&machine, TABLES[table], 0));
    let before = upper();
    assert_eq!(load(&machine, CPU), Ok(*b"data"));
    assert_eq!(get(&machine, LOWEST, 5), entry(DATA, OPEN | ACCESSED));
    assert_eq!(store(&machine), Ok(()));
    let written = entry(DATA, OPEN | ACCESSED | DIRTY);
    assert_eq!(get(&machine, LOWEST, 5), written);
    assert_eq!(upper(), before);
}

#[test]
fn rights_are_those_of_the_leaf() {
    let readable = machine(entry(DATA, VALID | READ | USER));
    assert!(store(&readable).unwrap_err().present);
    assert!(readable.on(CPU).fetch(ADDRESS).is_err());
    assert!(load(&machine(entry(DATA, VALID | READ)), CPU).is_err());
    let executable = machine(entry(DATA, VALID | READ | EXECUTE | USER));
    assert!(executable.on(CPU).fetch(ADDRESS).is_ok());
}

#[test]
fn reserved_encodings_fault() {
    let leaves = [
        entry(DATA, VALID | WRITE | USER | READ | GLOBAL),
        // W without R.
        entry(DATA, VALID | WRITE | EXECUTE | USER),
        entry(DATA, OPEN) | 1 << 54,
        entry(DATA, OPEN) | 1 << 63,
        entry(DATA, OPEN) | 3 << 61,
    ];
    for leaf in leaves {
        let code = load(&machine(leaf), CPU).unwrap_err();
        assert!(code.reserved, "{leaf:#x}");
    }
    for bits in [WRITE, USER, ACCESSED, DIRTY] {
        let machine = machine(entry(DATA, OPEN));
        set(&machine, TABLES[2], 0, entry(LOWEST, VALID | bits));
        assert!(load(&machine, CPU).unwrap_err().reserved, "{bits:#x}");
    }
    // A 2 MiB page whose first frame is not aligned.
    let machine = machine(0);
    set(&machine, TABLES[2], 0, entry(DATA, OPEN));
    assert!(load(&machine, CPU).unwrap_err().reserved);
}

#[test]
fn a_huge_leaf_translates_all_of_its_pages() {
    let machine = machine(0);
    set(&machine, TABLES[2], 0, entry(Frame::new(512), OPEN));
    machine.memory().store(Frame::new(512 + 5), 0, b"huge");
    assert_eq!(load(&machine, CPU), Ok(*b"huge"));
}

#[test]
fn svpbmt_selects_the_memory_type() {
    let rows = [
        (0, MemoryType::WriteBack),
        (1, MemoryType::WriteCombining),
        (2, MemoryType::Uncached),
    ];
    for (bits, expected) in rows {
        let machine = machine(entry(DATA, OPEN) | bits << 61);
        assert_eq!(machine.on(CPU).memory_type(ADDRESS), Some(expected));
    }
}
