//! Runs the test kit on the emulated machine.

#[allow(dead_code, reason = "the kit needs a part of the machine")]
#[path = "../src/machine.rs"]
mod machine;

use memwright::Access;
use memwright_table::sync::Threads;
use memwright_table::table::PageAccess;
use memwright_table::{CpuId, Frame, FrameRange, Region, Table, VirtAddr};
use memwright_testkit::{Options, TestMachine, Trap, run};

use machine::{Emulator, FRAMES};

/// The CPU that the thread emulated before.
pub struct Before(CpuId);

impl Drop for Before {
    fn drop(&mut self) {
        Emulator::run_as(self.0);
    }
}

impl TestMachine for &'static Emulator {
    type Acting = Before;

    fn act_as(&self, cpu: CpuId) -> Before {
        let before = Before(Emulator::cpu());
        Emulator::run_as(cpu);
        before
    }

    fn load(&self, table: &Table<Self>, address: VirtAddr, into: &mut [u8]) -> Result<(), Trap> {
        let read = |frame, offset| table.frames().read(frame, offset, into);
        trap(
            address,
            Access::READ,
            self.access(table, address, PageAccess::Load, read),
        )
    }

    fn store(&self, table: &Table<Self>, address: VirtAddr, from: &[u8]) -> Result<(), Trap> {
        let write = |frame, offset| table.frames().write(frame, offset, from);
        trap(
            address,
            Access::WRITE,
            self.access(table, address, PageAccess::Store, write),
        )
    }

    fn fetch(&self, table: &Table<Self>, address: VirtAddr) -> Result<u8, Trap> {
        let mut byte = [0];
        let read = |frame, offset| table.frames().read(frame, offset, &mut byte);
        trap(
            address,
            Access::FETCH,
            self.access(table, address, PageAccess::Fetch, read),
        )?;
        Ok(byte[0])
    }
}

/// Returns the page fault of an access that was not performed.
fn trap(address: VirtAddr, access: Access, performed: bool) -> Result<(), Trap> {
    match performed {
        true => Ok(()),
        false => Err(Trap { address, access }),
    }
}

/// The memory of the emulator.
fn memory() -> [Region; 1] {
    let range = FrameRange {
        start: Frame::new(0),
        count: FRAMES,
    };
    [Region { range, node: 0 }]
}

#[test]
fn the_emulator_passes() {
    let report = run(Emulator::new(), &memory(), &Options::default());
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
}
