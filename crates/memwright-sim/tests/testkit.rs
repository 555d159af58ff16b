//! The test kit on the simulated machine: `run` passes, and it fails on a machine with a mistake. The machine that has a
//! mistake shows the kit no more than hardware would: the kit cannot see what its CPUs have cached.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError};

use memwright::Access;
use memwright_sim::{MachineOptions, Mistake, SimulatedMachine};
use memwright_table::sync::Threads;
use memwright_table::table::{PageAccess, Translation};
use memwright_table::{
    CpuId, CpuSet, Frame, FrameRange, Invalidation, Page, PageSize, Region, Table, VirtAddr,
};
use memwright_testkit::{Failure, Options, TestMachine, Trap, run};

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

/// The number of frames, the first of which is not the kit's.
const FRAMES: u32 = 513;

/// The number of frames on which the scripts for huge pages run.
const FRAMES_FOR_HUGE: u32 = 16_384;

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
    let regions = memory(FRAMES_FOR_HUGE);
    let report = run(machine(FRAMES_FOR_HUGE), &regions, &Options::default());
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
fn each_mistake_is_found_by_a_script() {
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
        let options = Options {
            preflight: false,
            ..Options::default()
        };
        let report = run(machine, &memory(FRAMES), &options);
        let failure = report.expect_err("a mistake that is not found");
        println!("{mistake:?}: {failure}");
        assert!(failure.script.0.len() < 12, "{mistake:?}: {failure}");
    }
}

#[test]
fn an_ignored_stride_is_found_by_a_saved_script() {
    let machine = Opaque {
        machine: machine(FRAMES_FOR_HUGE),
    };
    machine.machine.set_mistake(Some(Mistake::NoStride));
    let report = run(machine, &memory(FRAMES_FOR_HUGE), &Options::default());
    let failure = report.expect_err("a mistake that is not found");
    println!("{failure}");
    assert!(failure.name.contains("huge-pages"), "{failure}");
}

#[test]
fn the_checks_before_the_scripts_name_the_method() {
    for (mistake, method) in [
        (Mistake::NoLocal, "invalidate_local"),
        (Mistake::NoRemote, "invalidate_remote"),
        (Mistake::HalfCopy, "copy_frame"),
        (Mistake::WritesAnywhere, "store"),
    ] {
        let machine = Opaque {
            machine: machine(FRAMES),
        };
        machine.machine.set_mistake(Some(mistake));
        let report = run(machine, &memory(FRAMES), &Options::default());
        let failure = report.expect_err("a mistake that is not found");
        println!("{mistake:?}: {failure}");
        assert_eq!(
            failure.name,
            format!("before the scripts, {method}"),
            "{failure}"
        );
    }
}

#[test]
fn too_little_is_refused_or_reported() {
    let few = |frames, cpus| {
        let options = Options {
            programs: 2,
            cpus,
            ..Options::default()
        };
        run(machine(FRAMES), &memory(frames), &options)
    };
    let refusal = |frames, cpus| few(frames, cpus).expect_err("too little").to_string();
    assert!(refusal(FRAMES - 1, 1).contains("511 frames, where at least 512 are needed"));
    assert!(refusal(FRAMES, 0).contains("0 CPUs, where 1 to 2 are possible"));
    assert!(refusal(FRAMES, 5).contains("5 CPUs, where 1 to 2 are possible"));
    let report = few(FRAMES, 1).unwrap_or_else(|failure| panic!("{failure}"));
    let text = report.to_string();
    assert!(
        text.contains("skipped the scripts for huge pages"),
        "{text}"
    );
    assert!(
        text.contains("skipped invalidations on other CPUs"),
        "{text}"
    );
}

/// A mistake of an emulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slip {
    /// `clear_frame` does nothing.
    NoClear,
    /// `load_root` keeps the translations.
    NoSwitch,
    /// Each translation of an invalidation is taken to map a page of 4 KiB.
    NoStride,
    /// A store uses a cached translation that forbids stores.
    StoresAnywhere,
    /// `invalidate_remote` waits for a thread that acts as the target.
    Waits,
    /// `act_as` does nothing.
    OneCpu,
    /// A CPU keeps one translation, which `check_cpu` reports.
    Keeps,
}

/// The TLBs of the CPUs of an emulator. Each translation is of a page of 4 KiB, as in `examples/emulator`.
#[derive(Clone)]
struct Tlbs {
    machine: SimulatedMachine,
    cached: Arc<[Mutex<HashMap<Page, Translation>>; 2]>,
    slip: Option<Slip>,
}

impl Deref for Tlbs {
    type Target = SimulatedMachine;

    fn deref(&self) -> &SimulatedMachine {
        &self.machine
    }
}

impl Tlbs {
    fn with<T>(&self, cpu: CpuId, act: impl FnOnce(&mut HashMap<Page, Translation>) -> T) -> T {
        let tlb = self.cached[cpu.index()].lock();
        act(&mut tlb.unwrap_or_else(PoisonError::into_inner))
    }

    fn invalidate(&self, cpu: CpuId, what: &Invalidation) {
        self.with(cpu, |tlb| match *what {
            Invalidation::Pages {
                first,
                count,
                stride,
            } => {
                let stride = match self.slip {
                    Some(Slip::NoStride) => PageSize::Size4K,
                    _ => stride,
                };
                let end = first.add(u64::from(count) * stride.pages());
                tlb.retain(|page, _| *page < first || *page >= end);
            }
            Invalidation::All | Invalidation::AllAndTables => tlb.clear(),
        });
    }

    fn load_root(&self, _: Frame) {
        if self.slip != Some(Slip::NoSwitch) {
            self.with(SimulatedMachine::cpu(), HashMap::clear);
        }
    }

    fn invalidate_local(&self, what: &Invalidation) {
        self.invalidate(SimulatedMachine::cpu(), what);
    }

    fn invalidate_remote(&self, targets: CpuSet, _: Frame, what: &[Invalidation]) {
        while self.slip == Some(Slip::Waits) {
            std::thread::park();
        }
        for cpu in targets.iter() {
            for one in what {
                self.invalidate(cpu, one);
            }
        }
    }

    fn clear_frame(&self, frame: Frame) {
        if self.slip != Some(Slip::NoClear) {
            memwright_table::Machine::clear_frame(&self.machine, frame);
        }
    }
}

/// An emulator with software TLBs.
#[derive(Clone)]
struct Emulator {
    machine: Tlbs,
}

memwright_sim::machine_around!(Emulator, SimulatedMachine);

impl Emulator {
    fn new(frames: u32, slip: Option<Slip>) -> Self {
        let machine = Tlbs {
            machine: machine(frames),
            cached: Arc::default(),
            slip,
        };
        Self { machine }
    }

    fn access(
        &self,
        table: &Table<Self>,
        (address, kind): (VirtAddr, PageAccess),
        act: impl FnOnce(Frame),
    ) -> Result<(), Trap> {
        let access = match kind {
            PageAccess::Load => Access::READ,
            PageAccess::Store => Access::WRITE,
            PageAccess::Fetch => Access::FETCH,
        };
        let careless = self.machine.slip == Some(Slip::StoresAnywhere);
        self.machine.with(SimulatedMachine::cpu(), |tlb| {
            let page = address.page();
            let cached = tlb.get(&page).copied().filter(|found| match kind {
                PageAccess::Load => true,
                PageAccess::Store => found.stores || careless,
                PageAccess::Fetch => found.fetches,
            });
            let found = cached.or_else(|| table.translate(page, kind));
            let found = found.ok_or(Trap { address, access })?;
            tlb.insert(page, found);
            act(found.frame);
            Ok(())
        })
    }
}

impl TestMachine for Emulator {
    type Acting = Option<<SimulatedMachine as TestMachine>::Acting>;

    fn act_as(&self, cpu: CpuId) -> Self::Acting {
        (self.machine.slip != Some(Slip::OneCpu)).then(|| self.machine.run_on(cpu))
    }

    fn load(&self, table: &Table<Self>, at: VirtAddr, into: &mut [u8]) -> Result<(), Trap> {
        self.access(table, (at, PageAccess::Load), |frame| {
            table.frames().read(frame, at.offset(), into);
        })
    }

    fn store(&self, table: &Table<Self>, at: VirtAddr, from: &[u8]) -> Result<(), Trap> {
        self.access(table, (at, PageAccess::Store), |frame| {
            table.frames().write(frame, at.offset(), from);
        })
    }

    fn fetch(&self, table: &Table<Self>, at: VirtAddr) -> Result<u8, Trap> {
        let mut byte = [0];
        self.access(table, (at, PageAccess::Fetch), |frame| {
            table.frames().read(frame, at.offset(), &mut byte);
        })?;
        Ok(byte[0])
    }

    /// Checks that the table contains each cached translation. Checks nothing on an emulator whose mistake the kit must
    /// find without this check.
    fn check_cpu(&self, cpu: CpuId, table: &Table<Self>) -> Result<(), String> {
        if !matches!(self.machine.slip, None | Some(Slip::Keeps)) {
            return Ok(());
        }
        let cached: Vec<_> = self.machine.with(cpu, |tlb| tlb.drain().collect());
        let mut entries = HashMap::new();
        self.translations(table, &mut |page, frame, rights| {
            entries.insert(page, (frame, rights));
        });
        let keeps = self.machine.slip == Some(Slip::Keeps) && cpu.index() == 1;
        for (page, found) in cached {
            match entries.get(&page) {
                Some(&(frame, rights)) if frame == found.frame && !keeps => {
                    if found.stores && !rights.write {
                        return Err(format!("{cpu:?} can store to {page:?}"));
                    }
                    self.machine.with(cpu, |tlb| tlb.insert(page, found));
                }
                _ => return Err(format!("{cpu:?} has cached {page:?}")),
            }
        }
        Ok(())
    }
}

/// Returns the failure of an emulator with a mistake.
fn failure_of(slip: Slip, frames: u32, preflight: bool) -> Failure {
    let machine = Emulator::new(frames, Some(slip));
    let options = Options {
        preflight,
        ..Options::default()
    };
    let report = run(machine, &memory(frames), &options);
    let failure = report.expect_err("a mistake that is not found");
    println!("{slip:?}: {failure}");
    failure
}

#[test]
fn an_emulator_passes() {
    let report = run(
        Emulator::new(FRAMES_FOR_HUGE, None),
        &memory(FRAMES_FOR_HUGE),
        &Options::default(),
    );
    println!("{}", report.unwrap_or_else(|failure| panic!("{failure}")));
}

#[test]
fn a_mistake_of_an_emulator_is_named() {
    for (slip, method) in [
        (Slip::NoClear, "clear_frame"),
        (Slip::NoSwitch, "load_root"),
        (Slip::StoresAnywhere, "store"),
        (Slip::Waits, "invalidate_remote"),
        (Slip::OneCpu, "act_as"),
    ] {
        let failure = failure_of(slip, FRAMES, true);
        assert_eq!(
            failure.name,
            format!("before the scripts, {method}"),
            "{failure}"
        );
    }
}

#[test]
fn an_emulator_that_ignores_a_stride_fails_a_saved_script() {
    let failure = failure_of(Slip::NoStride, FRAMES_FOR_HUGE, true);
    assert!(failure.name.contains("huge-pages"), "{failure}");
}

#[test]
fn a_check_of_a_cpu_fails_a_script() {
    let failure = failure_of(Slip::Keeps, FRAMES, true);
    assert!(failure.difference.contains("has cached"), "{failure}");
}

#[test]
fn a_store_to_the_frame_of_zeroes_is_reported_at_its_step() {
    let failure = failure_of(Slip::StoresAnywhere, FRAMES, false);
    assert!(
        failure.difference.contains("the frame of zeroes"),
        "{failure}"
    );
    assert!(failure.difference.starts_with("step"), "{failure}");
}

/// On AArch64 and RISC-V, the CPUs also use stale entries that point to tables, and find reserved bits before they read
/// other contents.
#[cfg_attr(
    any(simulated = "aarch64", simulated = "riscv64"),
    ignore = "the first symptom is an entry with a reserved bit"
)]
#[test]
fn a_failure_names_the_page_the_cpu_and_the_bytes() {
    let machine = Opaque {
        machine: machine(FRAMES),
    };
    machine.machine.set_mistake(Some(Mistake::NoLocal));
    let options = Options {
        preflight: false,
        ..Options::default()
    };
    let failure = run(machine, &memory(FRAMES), &options).expect_err("a mistake");
    for part in [
        "reads on CPU 0: page 20 (0xc0004) has the bytes [",
        "] in the model",
        "a stale translation?",
    ] {
        assert!(failure.difference.contains(part), "{part}: {failure}");
    }
}

#[test]
fn a_script_that_fails_has_the_cpus_and_the_processes_that_it_uses() {
    let failure = failure_of(Slip::Keeps, FRAMES, true);
    let steps = &failure.script.0;
    assert!(
        steps.iter().all(|step| step.cpu < 2 && step.process < 4),
        "{failure}"
    );
    assert!(steps.iter().any(|step| step.cpu == 1), "{failure}");
}
