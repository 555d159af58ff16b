//! A table that two simulated CPUs have loaded.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use memwright_sim::{MachineOptions, PageFault, SimulatedMachine};
use memwright_table::{CpuId, Frame, FrameKind, Frames, Loaded, Table, VirtAddr};

pub const FIRST: CpuId = CpuId::new(0);
pub const SECOND: CpuId = CpuId::new(1);

/// A machine with two CPUs, and a table that both have loaded.
pub struct Bench {
    pub machine: SimulatedMachine,
    pub frames: Arc<Frames<SimulatedMachine>>,
    pub table: Arc<Table<SimulatedMachine>>,
    /// For each CPU, the table that it has loaded.
    loaded: Vec<Loaded<Arc<Table<SimulatedMachine>>>>,
}

impl Bench {
    pub fn new() -> Self {
        let machine = SimulatedMachine::new(MachineOptions::default());
        let frames = machine.frames();
        let table = Table::new(Arc::clone(&frames)).expect("a table");
        let table = Arc::new(table);
        let load = |cpu| {
            let _running = machine.run_on(cpu);
            Loaded::new(Arc::clone(&table))
        };
        let loaded = [FIRST, SECOND].map(load).into();
        Self {
            machine,
            frames,
            table,
            loaded,
        }
    }

    /// Allocates 2^`order` frames, whose first byte is `value`.
    pub fn block(&self, order: u8, value: u8) -> Frame {
        let block = self.frames.allocate_zeroed(order, FrameKind::Anonymous);
        let frame = block.expect("a free block").into_raw();
        self.frames.write(frame, 0, &[value]);
        frame
    }

    /// Frees a block that `block` has allocated. No CPU may use it any more.
    pub fn free(&self, frame: Frame) {
        drop(self.frames.adopt(frame));
    }

    /// Allocates all frames, and returns them.
    pub fn exhaust(&self) -> Vec<Frame> {
        let next = || self.frames.allocate(0, FrameKind::Kernel).ok();
        std::iter::from_fn(next)
            .map(|block| block.into_raw())
            .collect()
    }

    pub fn load(&self, cpu: CpuId, address: u64) -> Result<u8, PageFault> {
        let mut byte = [0];
        let read = self.machine.on(cpu).read(VirtAddr::new(address), &mut byte);
        read.map(|()| byte[0])
    }

    pub fn store(&self, cpu: CpuId, address: u64, value: u8) -> Result<(), PageFault> {
        self.machine.on(cpu).write(VirtAddr::new(address), &[value])
    }

    pub fn fetch(&self, cpu: CpuId, address: u64) -> Result<u8, PageFault> {
        self.machine.on(cpu).fetch(VirtAddr::new(address))
    }

    /// Returns how many interrupts the second CPU has received.
    pub fn interrupts(&self) -> u64 {
        self.machine.cost(SECOND).interrupts_taken
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for (cpu, loaded) in [FIRST, SECOND].into_iter().zip(self.loaded.drain(..)) {
            let _running = self.machine.run_on(cpu);
            loaded.stop();
        }
        if !std::thread::panicking() {
            assert_eq!(self.machine.take_violations(), Vec::<String>::new());
        }
    }
}
