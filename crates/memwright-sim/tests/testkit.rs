//! The test kit on the simulated machine: `run` passes, and it fails on a machine with a mistake. The machine that has a
//! mistake shows the kit no more than hardware would: the kit cannot see what its CPUs have cached.

use memwright_sim::{MachineOptions, Mistake, SimulatedMachine};
use memwright_table::{CpuId, Frame, FrameRange, Region, Table, VirtAddr};
use memwright_testkit::{Options, TestMachine, Trap, run};

/// A simulated machine with the required methods of a [`TestMachine`] only.
#[derive(Clone)]
struct Opaque {
    machine: SimulatedMachine,
}

memwright_sim::machine_around!(Opaque, SimulatedMachine);

impl TestMachine for Opaque {
    type Acting = <SimulatedMachine as TestMachine>::Acting;

    fn act_as(&self, cpu: CpuId) -> Self::Acting {
        self.machine.run_on(cpu)
    }

    fn load(&self, _: &Table<Self>, address: VirtAddr, into: &mut [u8]) -> Result<(), Trap> {
        self.machine.here().read(address, into).map_err(Trap::from)
    }

    fn store(&self, _: &Table<Self>, address: VirtAddr, from: &[u8]) -> Result<(), Trap> {
        self.machine.here().write(address, from).map_err(Trap::from)
    }

    fn fetch(&self, _: &Table<Self>, address: VirtAddr) -> Result<u8, Trap> {
        self.machine.here().fetch(address).map_err(Trap::from)
    }
}

const FRAMES: u32 = 512;

fn memory(frames: u32) -> [Region; 1] {
    let range = FrameRange {
        start: Frame::new(1),
        count: frames - 1,
    };
    [Region { range, node: 0 }]
}

fn machine(frames: u32) -> SimulatedMachine {
    SimulatedMachine::new(MachineOptions {
        frames,
        ..MachineOptions::default()
    })
}

#[test]
fn the_simulated_machine_passes() {
    const ENOUGH_FOR_HUGE: u32 = 16_384;
    let regions = memory(ENOUGH_FOR_HUGE);
    let report = run(machine(ENOUGH_FOR_HUGE), &regions, &Options::default());
    let report = report.unwrap_or_else(|failure| panic!("{failure}"));
    println!("{report}");
    println!("{:?}", report.successes);
    assert!(report.successes["collapse"] > 0);
}

#[test]
fn a_machine_that_shows_nothing_passes() {
    let machine = Opaque {
        machine: machine(FRAMES),
    };
    let report = run(machine, &memory(FRAMES), &Options::default());
    println!("{}", report.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn each_mistake_is_found() {
    let mistakes = [
        Mistake::NoLocal,
        Mistake::NoRemote,
        Mistake::OneCpuShort,
        Mistake::OnePageShort,
        Mistake::HalfCopy,
        Mistake::WritesAnywhere,
    ];
    for mistake in mistakes {
        let machine = Opaque {
            machine: machine(FRAMES),
        };
        machine.machine.set_mistake(Some(mistake));
        let report = run(machine, &memory(FRAMES), &Options::default());
        let failure = report.expect_err("a mistake that is not found");
        println!("{mistake:?}: {failure}");
        assert!(failure.script.0.len() < 12, "{mistake:?}: {failure}");
    }
}
