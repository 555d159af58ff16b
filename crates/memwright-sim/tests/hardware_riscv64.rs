//! Tests of the simulated CPUs of RISC-V on handwritten page tables: what the format of entries means, and that a CPU
//! keeps what it has cached after a fault, including that an entry is invalid.

#![cfg(simulated = "riscv64")]

use std::sync::atomic::Ordering;

use memwright_sim::{FaultCode, MachineOptions, MemoryType, SimulatedMachine};
use memwright_table::{CpuId, Frame, Invalidation, Machine, PageSize, VirtAddr};

const VALID: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const GLOBAL: u64 = 1 << 5;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const OPEN: u64 = VALID | READ | WRITE | USER;

const CPU: CpuId = CpuId::new(0);
const TABLES: [Frame; 4] = [Frame::new(1), Frame::new(2), Frame::new(3), Frame::new(4)];
const LOWEST: Frame = TABLES[3];
const DATA: Frame = Frame::new(8);
const OTHER: Frame = Frame::new(9);
/// The address whose walk uses slot 0 of each upper table and slot 5 of the lowest one.
const ADDRESS: VirtAddr = VirtAddr::new(5 * 4096);

fn entry(frame: Frame, bits: u64) -> u64 {
    u64::from(frame.number()) << 10 | bits
}

fn set(machine: &SimulatedMachine, table: Frame, slot: usize, value: u64) {
    let word = machine.memory().word(table, slot);
    word.store(value, Ordering::SeqCst);
}

fn get(machine: &SimulatedMachine, table: Frame, slot: usize) -> u64 {
    machine.memory().word(table, slot).load(Ordering::SeqCst)
}

/// Creates a machine whose CPU has loaded a root with the leaf `leaf` for `ADDRESS`.
fn machine(leaf: u64) -> SimulatedMachine {
    let machine = SimulatedMachine::new(MachineOptions {
        frames: 2048,
        ..MachineOptions::default()
    });
    for tables in TABLES.windows(2) {
        set(&machine, tables[0], 0, entry(tables[1], VALID));
    }
    set(&machine, LOWEST, 5, leaf);
    machine.memory().store(DATA, 0, b"data");
    machine.memory().store(OTHER, 0, b"else");
    let running = machine.run_on(CPU);
    machine.load_root(TABLES[0]);
    drop(running);
    machine
}

fn load(machine: &SimulatedMachine) -> Result<[u8; 4], FaultCode> {
    let mut bytes = [0; 4];
    let read = machine.on(CPU).read(ADDRESS, &mut bytes);
    read.map(|()| bytes).map_err(|fault| fault.code)
}

fn store(machine: &SimulatedMachine) -> Result<(), FaultCode> {
    let written = machine.on(CPU).write(ADDRESS, b"x");
    written.map_err(|fault| fault.code)
}

fn invalidate(machine: &SimulatedMachine) {
    let _running = machine.run_on(CPU);
    machine.invalidate_local(&Invalidation::Pages {
        first: ADDRESS.page(),
        count: 1,
        stride: PageSize::Size4K,
    });
}

#[test]
fn an_invalid_entry_stays_cached_until_it_is_invalidated() {
    let machine = machine(0);
    assert!(!load(&machine).unwrap_err().present);
    set(&machine, LOWEST, 5, entry(DATA, OPEN));
    assert!(!load(&machine).unwrap_err().present);
    invalidate(&machine);
    assert_eq!(load(&machine), Ok(*b"data"));
}

#[test]
fn a_fault_keeps_the_stale_rights() {
    let machine = machine(entry(DATA, VALID | READ | USER));
    assert_eq!(load(&machine), Ok(*b"data"));
    set(&machine, LOWEST, 5, entry(DATA, OPEN));
    for _ in 0..3 {
        assert!(store(&machine).unwrap_err().present);
    }
    invalidate(&machine);
    assert_eq!(store(&machine), Ok(()));
}

#[test]
fn a_walk_sets_accessed_and_dirty_in_the_leaf_only() {
    let machine = machine(entry(DATA, OPEN));
    let upper = || [0, 1, 2].map(|table| get(&machine, TABLES[table], 0));
    let before = upper();
    assert_eq!(load(&machine), Ok(*b"data"));
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
    assert!(load(&machine(entry(DATA, VALID | READ))).is_err());
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
        let code = load(&machine(leaf)).unwrap_err();
        assert!(code.reserved, "{leaf:#x}");
    }
    for bits in [WRITE, USER, ACCESSED, DIRTY] {
        let machine = machine(entry(DATA, OPEN));
        set(&machine, TABLES[2], 0, entry(LOWEST, VALID | bits));
        assert!(load(&machine).unwrap_err().reserved, "{bits:#x}");
    }
    // A 2 MiB page whose first frame is not aligned.
    let machine = machine(0);
    set(&machine, TABLES[2], 0, entry(DATA, OPEN));
    assert!(load(&machine).unwrap_err().reserved);
}

#[test]
fn a_huge_leaf_translates_all_of_its_pages() {
    let machine = machine(0);
    set(&machine, TABLES[2], 0, entry(Frame::new(512), OPEN));
    machine.memory().store(Frame::new(512 + 5), 0, b"huge");
    assert_eq!(load(&machine), Ok(*b"huge"));
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
