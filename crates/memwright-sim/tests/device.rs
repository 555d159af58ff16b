//! Random programs with device memory, on two CPUs that keep stale translations, compared with a model after each step.
//!
//! The model records for each page whether it maps device memory or private memory. Device memory is one array of bytes
//! for all processes.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;

use memwright::{MapRequest, Placement, ProtectError, RemapRequest, Rights};
use memwright_sim::programs::{self, Host, Process};
use memwright_sim::{MachineOptions, MemoryType};
use memwright_table::{CacheMode, CpuId, PhysAddr};
use memwright_testkit::process::Signal;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::{FIRST, READ, READ_WRITE, SECOND, assert_coherent, at, bytes};

/// The frames of ordinary memory. Device memory begins after them, aligned to 2 MiB.
const FRAMES: u32 = 2048;
/// The pages of device memory.
const DEVICE: u64 = 2048;

#[derive(Clone, Copy, Debug)]
struct Range {
    at: u64,
    pages: u64,
}

#[derive(Clone, Debug)]
enum Action {
    MapDevice(Range, u64, CacheMode, Rights),
    MapMemory(Range),
    Unmap(Range),
    Protect(Range, Rights),
    /// `mremap(MREMAP_FIXED)` of device memory.
    Move(Range, u64),
    Fork,
    Exit,
    Write(u64, u8),
    Read(u64),
}

/// A mapped page of the model.
#[derive(Clone, Copy, Debug)]
struct Shown {
    /// The page of device memory with its cache mode, or the byte in private memory.
    what: Result<(u64, CacheMode), u8>,
    rights: Rights,
}

#[derive(Default)]
struct Model {
    device: BTreeMap<u64, u8>,
    pages: Vec<BTreeMap<u64, Shown>>,
}

/// Generates positions near the edges of page tables, which are at page 2 and every 512 pages from there on.
fn position() -> impl Strategy<Value = u64> {
    (select(vec![0u64, 2, 514, 1026]), 0..6u64).prop_map(|(edge, more)| edge + more)
}

fn range() -> impl Strategy<Value = Range> {
    let pages = prop_oneof![3 => 1..8u64, 2 => 508..516u64, 1 => Just(1024u64)];
    (prop_oneof![2 => position(), 1 => Just(2u64)], pages)
        .prop_map(|(at, pages)| Range { at, pages })
}

fn rights() -> impl Strategy<Value = Rights> {
    select(vec![READ, READ_WRITE, READ_WRITE, Rights::empty()])
}

fn action() -> impl Strategy<Value = Action> {
    let mode = select(CacheMode::ALL.to_vec());
    let first = prop_oneof![2 => Just(0u64), 1 => Just(512u64), 1 => 0..9u64];
    prop_oneof![
        5 => (range(), first, mode, rights())
            .prop_map(|(range, first, mode, rights)| Action::MapDevice(range, first, mode, rights)),
        1 => range().prop_map(Action::MapMemory),
        3 => range().prop_map(Action::Unmap),
        4 => (range(), rights()).prop_map(|(range, rights)| Action::Protect(range, rights)),
        3 => (range(), position()).prop_map(|(range, to)| Action::Move(range, to + 2048)),
        2 => Just(Action::Fork),
        1 => Just(Action::Exit),
        8 => (position(), 1..=255u8).prop_map(|(page, value)| Action::Write(page, value)),
        4 => position().prop_map(Action::Read),
    ]
}

/// Returns the device pages in `range` if all of the range maps consecutive pages of device memory.
fn run_of(pages: &BTreeMap<u64, Shown>, range: Range) -> Option<u64> {
    let index = |page| match pages.get(&page)?.what {
        Ok((index, _)) => Some(index),
        Err(_) => None,
    };
    let first = index(range.at)?;
    (0..range.pages)
        .all(|more| index(range.at + more) == Some(first + more))
        .then_some(first)
}

struct Run {
    host: Arc<Host>,
    processes: Vec<Process>,
    model: Model,
}

impl Run {
    fn new() -> Self {
        let host = programs::boot(MachineOptions {
            frames: FRAMES,
            device: DEVICE as u32,
            ..MachineOptions::default()
        });
        Self {
            processes: vec![Process::new(&host)],
            host,
            model: Model {
                device: BTreeMap::new(),
                pages: vec![BTreeMap::new()],
            },
        }
    }

    /// Performs the action in the last process, on `cpu`.
    fn step(&mut self, action: &Action, cpu: CpuId) {
        let process = self.processes.last().expect("a process");
        let pages = self.model.pages.last_mut().expect("a process");
        match *action {
            Action::MapDevice(range, first, mode, rights) => {
                let start = PhysAddr::new(bytes(u64::from(FRAMES) + first));
                let request = MapRequest::physical(start, bytes(range.pages), rights, mode)
                    .at(Placement::Fixed(at(range.at)));
                assert_eq!(
                    process.on(cpu, |space| space.map(&request)),
                    Ok(at(range.at))
                );
                for more in 0..range.pages {
                    let what = Ok((first + more, mode));
                    pages.insert(range.at + more, Shown { what, rights });
                }
            }
            Action::MapMemory(range) => {
                let request = MapRequest::anonymous(bytes(range.pages), READ_WRITE)
                    .at(Placement::Fixed(at(range.at)));
                assert_eq!(
                    process.on(cpu, |space| space.map(&request)),
                    Ok(at(range.at))
                );
                for page in range.at..range.at + range.pages {
                    let (what, rights) = (Err(0), READ_WRITE);
                    pages.insert(page, Shown { what, rights });
                }
            }
            Action::Unmap(range) => {
                let (start, length) = (at(range.at), bytes(range.pages));
                assert_eq!(process.on(cpu, |space| space.unmap(start, length)), Ok(()));
                pages.retain(|page, _| !(range.at..range.at + range.pages).contains(page));
            }
            Action::Protect(range, rights) => {
                let (start, length) = (at(range.at), bytes(range.pages));
                let done = process.on(cpu, |space| space.protect(start, length, rights));
                let mut expected = Ok(());
                for page in range.at..range.at + range.pages {
                    let Some(shown) = pages.get_mut(&page) else {
                        expected = Err(ProtectError::Hole(at(page)));
                        break;
                    };
                    shown.rights = rights;
                }
                assert_eq!(done, expected);
            }
            Action::Move(range, to) => {
                if run_of(pages, range).is_none() {
                    return;
                }
                let request = RemapRequest {
                    old: at(range.at),
                    old_length: bytes(range.pages),
                    new_length: bytes(range.pages),
                    may_move: true,
                    fixed: Some(at(to)),
                    dont_unmap: false,
                };
                assert_eq!(process.on(cpu, |space| space.remap(request)), Ok(at(to)));
                for more in 0..range.pages {
                    let moved = pages.remove(&(range.at + more)).expect("checked");
                    pages.insert(to + more, moved);
                }
            }
            Action::Fork if self.processes.len() < 3 => {
                let (child, copy) = (process.fork(cpu).expect("memory"), pages.clone());
                self.processes.push(child);
                self.model.pages.push(copy);
            }
            Action::Exit if self.processes.len() > 1 => {
                self.processes.pop();
                self.model.pages.pop();
            }
            Action::Fork | Action::Exit => {}
            Action::Write(page, value) => self.write(cpu, page, value),
            Action::Read(page) => self.read(cpu, page),
        }
    }

    /// Stores to a page of the last process.
    fn write(&mut self, cpu: CpuId, page: u64, value: u8) {
        let process = self.processes.last().expect("a process");
        let pages = self.model.pages.last_mut().expect("a process");
        let expected = match pages.get_mut(&page) {
            None => Err(Signal::Unmapped),
            Some(shown) if !shown.rights.contains(Rights::WRITE) => Err(Signal::Forbidden),
            Some(shown) => {
                match &mut shown.what {
                    Ok((index, _)) => drop(self.model.device.insert(*index, value)),
                    Err(byte) => *byte = value,
                }
                Ok(())
            }
        };
        assert_eq!(support::write(process, cpu, page, value), expected);
    }

    /// Loads from a page of the last process.
    fn read(&self, cpu: CpuId, page: u64) {
        let process = self.processes.last().expect("a process");
        let pages = self.model.pages.last().expect("a process");
        let expected = match pages.get(&page) {
            None => Err(Signal::Unmapped),
            Some(shown) if shown.rights.is_none() => Err(Signal::Forbidden),
            Some(shown) => Ok(match shown.what {
                Ok((index, _)) => self.model.device.get(&index).copied().unwrap_or(0),
                Err(byte) => byte,
            }),
        };
        assert_eq!(support::read(process, cpu, page), expected);
    }

    /// Compares every entry with the model, and audits the address spaces and the machine.
    fn check(&self) {
        for (process, pages) in self.processes.iter().zip(&self.model.pages) {
            process.on(FIRST, |space| assert_eq!(space.audit(), Ok(())));
            for (&page, shown) in pages {
                let Ok((index, mode)) = shown.what else {
                    continue;
                };
                let entry = process.space().entry(at(page)).present();
                let present = entry.expect("device memory is always mapped");
                let frame = present.frame_of(at(page).page());
                assert_eq!(u64::from(frame.number()), u64::from(FRAMES) + index);
                assert_eq!(present.bits.cache(), Some(mode));
                if !shown.rights.is_none() && page % 64 < 2 {
                    let expected = match mode {
                        CacheMode::WriteBack => MemoryType::WriteBack,
                        CacheMode::WriteCombining => MemoryType::WriteCombining,
                        CacheMode::Uncached => MemoryType::Uncached,
                    };
                    let found = process.on(FIRST, |_| {
                        self.host.machine().on(FIRST).memory_type(at(page))
                    });
                    assert_eq!(found, Some(expected));
                }
            }
        }
        assert_coherent(&self.host);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(1),
        ..ProptestConfig::default()
    })]

    #[test]
    fn programs_with_device_memory_do_what_the_model_does(
        steps in vec((action(), any::<bool>()), 1..30),
    ) {
        let mut run = Run::new();
        let used = run.host.frames().used();
        for (action, second) in &steps {
            run.step(action, if *second { SECOND } else { FIRST });
            run.check();
        }
        run.processes.clear();
        run.processes.push(Process::new(&run.host));
        assert_coherent(&run.host);
        prop_assert_eq!(run.host.frames().used(), used);
    }
}
