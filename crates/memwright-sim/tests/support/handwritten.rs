//! Page tables that a test writes by hand, on a simulated machine, for tests of the CPUs alone.

use std::sync::atomic::Ordering;

use memwright_sim::{Arch, FaultCode, MachineOptions, SimulatedMachine};
use memwright_table::{Architecture, CpuId, Frame, Invalidation, Machine, VirtAddr};

pub const CPU: CpuId = CpuId::new(0);
/// The tables from the root of four levels down. With three levels, the second is the root.
pub const TABLES: [Frame; 4] = [Frame::new(1), Frame::new(2), Frame::new(3), Frame::new(4)];
const ROOT: Frame = TABLES[4 - Arch::LEVELS as usize];
pub const LOWEST: Frame = TABLES[3];
pub const DATA: Frame = Frame::new(8);
pub const OTHER: Frame = Frame::new(9);
/// The address whose walk uses slot 5 of the lowest table and slot 0 of each table above it.
pub const ADDRESS: VirtAddr = VirtAddr::new(5 * 4096);

pub fn set(machine: &SimulatedMachine, table: Frame, slot: usize, value: u64) {
    let word = machine.memory().word(table, slot);
    word.store(value, Ordering::SeqCst);
}

pub fn get(machine: &SimulatedMachine, table: Frame, slot: usize) -> u64 {
    machine.memory().word(table, slot).load(Ordering::SeqCst)
}

/// The options of a machine with room for a huge page.
pub fn options() -> MachineOptions {
    MachineOptions {
        frames: 2048,
        ..MachineOptions::default()
    }
}

/// Creates a machine whose CPUs have loaded a root with the leaf `leaf` for `ADDRESS`. `pointer` returns the entry that
/// points to a table.
pub fn machine(
    options: MachineOptions,
    pointer: impl Fn(Frame) -> u64,
    leaf: u64,
) -> SimulatedMachine {
    let machine = SimulatedMachine::new(options);
    for tables in TABLES.windows(2) {
        set(&machine, tables[0], 0, pointer(tables[1]));
    }
    set(&machine, LOWEST, 5, leaf);
    machine.memory().store(DATA, 0, b"data");
    machine.memory().store(OTHER, 0, b"else");
    for cpu in machine.cpus() {
        let _running = machine.run_on(cpu);
        machine.load_root(ROOT);
    }
    machine
}

pub fn load(machine: &SimulatedMachine, cpu: CpuId) -> Result<[u8; 4], FaultCode> {
    let mut bytes = [0; 4];
    let read = machine.on(cpu).read(ADDRESS, &mut bytes);
    read.map(|()| bytes).map_err(|fault| fault.code)
}

/// Stores a byte on `CPU`.
pub fn store(machine: &SimulatedMachine) -> Result<(), FaultCode> {
    let written = machine.on(CPU).write(ADDRESS, b"x");
    written.map_err(|fault| fault.code)
}

pub fn invalidate(machine: &SimulatedMachine, cpu: CpuId) {
    let _running = machine.run_on(cpu);
    machine.invalidate_local(&Invalidation::page(ADDRESS.page()));
}
