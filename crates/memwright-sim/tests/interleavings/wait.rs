//! Tests of CPUs that halt until a writer releases a lock: every halted CPU is woken, whatever the order in which the
//! CPUs began to wait.

use memwright_sim::schedule::{self, Case};
use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::CpuId;
use memwright_table::sync::{Rank, SpreadLock, Step, step};

use crate::support::{FIRST, SECOND};
use crate::world::THIRD;

/// A machine, and a lock that guards two counts. The counts are equal whenever no writer holds the lock.
struct Shared {
    machine: SimulatedMachine,
    lock: SpreadLock<(u32, u32), SimulatedMachine>,
}

impl Shared {
    fn new() -> Self {
        let machine = SimulatedMachine::new(MachineOptions {
            cpus: 3,
            ..MachineOptions::default()
        });
        let lock = SpreadLock::try_new(Rank::Space, 3, (0, 0)).expect("heap");
        Self { machine, lock }
    }

    /// Increments both counts on `cpu`, and lets other threads run in between.
    fn write(&self, cpu: CpuId) {
        let _on = self.machine.run_on(cpu);
        let mut counts = self.lock.write();
        counts.0 += 1;
        step::<SimulatedMachine>(Step::Entry);
        counts.1 += 1;
    }

    fn read(&self, cpu: CpuId) {
        let _on = self.machine.run_on(cpu);
        let counts = self.lock.read(cpu);
        let first = counts.0;
        step::<SimulatedMachine>(Step::Entry);
        assert_eq!(first, counts.1);
    }
}

fn explore(threads: &[fn(&Shared)], check: fn(Shared) -> Result<(), String>) {
    let case = Case {
        begin: &Shared::new,
        threads,
        hardware: |_| (),
        check,
    };
    // With three CPUs the bound is one deviation lower, as in the other tests.
    let bound = if threads.len() > 2 { 1 } else { 2 };
    match schedule::explore(&case, bound) {
        Ok(explored) => assert!(explored.schedules > 20, "{explored:?}"),
        Err(failure) => panic!("{failure}"),
    }
}

/// Checks that `WRITERS` writers have incremented both counts.
#[expect(
    clippy::needless_pass_by_value,
    reason = "a case gives its state to its check"
)]
fn counted<const WRITERS: u32>(shared: Shared) -> Result<(), String> {
    let counts = *shared.lock.read(FIRST);
    if counts == (WRITERS, WRITERS) {
        Ok(())
    } else {
        Err(format!("{counts:?} after {WRITERS} writers"))
    }
}

#[test]
fn a_writer_wakes_the_next() {
    explore(
        &[|shared| shared.write(FIRST), |shared| shared.write(SECOND)],
        counted::<2>,
    );
}

#[test]
fn a_writer_wakes_a_reader() {
    explore(
        &[|shared| shared.write(FIRST), |shared| shared.read(SECOND)],
        counted::<1>,
    );
}

#[test]
fn a_writer_wakes_all_that_wait() {
    explore(
        &[
            |shared| shared.write(FIRST),
            |shared| shared.read(SECOND),
            |shared| shared.write(THIRD),
        ],
        counted::<2>,
    );
}

/// A CPU that was woken halts again for the next writer.
#[test]
fn a_cpu_is_woken_twice() {
    explore(
        &[
            |shared| {
                shared.write(FIRST);
                shared.write(FIRST);
            },
            |shared| {
                shared.read(SECOND);
                shared.write(SECOND);
            },
        ],
        counted::<3>,
    );
}
