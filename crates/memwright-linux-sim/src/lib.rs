//! The Linux personality on the simulated machine. Its system calls and its loader run in a host process, for tests and
//! fuzzers.
//!
//! Instead of instructions, a program has [operations](program::Operation): system calls and memory accesses, decoded
//! from arbitrary bytes. Memory and its translation are those of [`memwright_sim`], so a run also detects a missing TLB
//! invalidation: the kernel fills a frame that a CPU can still reach by an old translation. Kernel stacks are host
//! threads, only one of which runs at a time. The clock counts operations, so the same bytes always give the same run.
//! The run ends when all threads sleep and no timer is set.

#![deny(missing_docs)]

mod archive;
pub mod calls;
mod contexts;
mod host;
pub mod program;
mod user;

use std::cell::Cell;
use std::mem::{forget, take};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memwright::Policy;
use memwright_linux::boot;
use memwright_linux_abi::channel::Channel;
use memwright_linux_abi::host::Host;
use memwright_linux_vfs::cpio::CpioArchive;
use memwright_linux_vfs::manifest::{Manifest, SwapKind, SwapRequest};

use memwright_table::{Frame, FrameKind, FrameRange, Frames, Machine as _, Region};

use calls::Calls;
use contexts::Contexts;
use host::{CPU, Simulated, Surroundings};
use memwright_sim::locked::locked;
use memwright_sim::machine::{MachineOptions, SimulatedMachine};

/// The result of a run.
#[derive(Debug)]
pub struct Ended {
    /// Whether the program exited and the machine powered off. If false, the run ended because all threads slept
    /// without a timer, because the CPU idled too often, or by a panic.
    pub powered_off: bool,
    /// The bytes that the program wrote to standard output.
    pub stdout: Vec<u8>,
    /// The report of the run ([`Channel::Account`]): a line `name value` for each figure. Empty if the machine did not
    /// power off.
    pub account: String,
    /// The number of operations that all programs performed. The exit of a program and the return of a signal handler
    /// count as operations.
    pub performed: u64,
    /// The system calls that the programs made, and how often.
    pub calls: Calls,
    /// The errors that were found: findings of the audit, violations of the machine, and a panic.
    pub findings: Vec<String>,
}

/// What forks do with page tables: the policy `fork`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forks {
    /// Forks copy every page table.
    Copy,
    /// Forks share every page table that they can, even a single one.
    Share,
}

impl Forks {
    /// Both policies.
    pub const ALL: [Self; 2] = [Self::Copy, Self::Share];

    /// Returns the policy under which fuzzing runs an input. It depends only on the length, so that a finding can be
    /// repeated from its input.
    #[must_use]
    pub fn of_input(input: &[u8]) -> Self {
        Self::ALL[input.len() % 2]
    }
}

/// Boots a machine and runs the program that consists of `operations`.
#[must_use]
pub fn run_operations(operations: Vec<program::Operation>, forks: Forks) -> Ended {
    run(&archive::own_program(), operations, forks, false)
}

/// Boots a machine and executes a program whose file has the contents `file`. The program exits before its first
/// instruction.
#[must_use]
pub fn run_file(file: &[u8]) -> Ended {
    run(file, Vec::new(), Forks::Copy, false)
}

/// The number of frames of the machine. Each of its two NUMA nodes has one half of them.
const FRAMES: u32 = 4096;

/// The size of the machine's swap device in bytes.
const SWAP: u64 = 1 << 20;

thread_local! {
    /// The machine of the last run. It is reused, because the allocation of its memory takes most of the time of a run.
    static SPARE: Cell<Option<SimulatedMachine>> = const { Cell::new(None) };
}

/// Returns a new machine, or the machine of the last run reset to the state of a new one.
fn fresh_machine() -> SimulatedMachine {
    let Some(machine) = SPARE.take() else {
        return SimulatedMachine::new(MachineOptions {
            frames: FRAMES,
            cpus: 1,
            ..MachineOptions::default()
        });
    };
    for frame in (0..FRAMES).map(Frame::new) {
        for index in 0..512 {
            let word = machine.memory().word(frame, index);
            word.store(0, Ordering::Relaxed);
        }
    }
    let _running = machine.run_on(CPU);
    machine.load_root(Frame::new(0));
    drop(machine.take_violations());
    machine
}

/// Boots a machine and runs a program. If `leaks` is true, the kernel leaks a frame and a commit charge when the
/// program starts.
///
/// The kernel's own state is never freed after the run, because the kernel has no code that frees it.
fn run(file: &[u8], operations: Vec<program::Operation>, forks: Forks, leaks: bool) -> Ended {
    let machine = fresh_machine();
    let contexts: &'static Contexts = Box::leak(Box::default());
    let host: &'static Simulated = Box::leak(Box::new(Simulated {
        machine: machine.clone(),
        more: Surroundings::new(contexts, operations),
    }));
    let _running = machine.run_on(CPU);
    let files = Box::leak(archive::archive(file).into_boxed_slice());
    contexts.run_first(|| run_machine(host, files, forks, leaks));
    let panic = contexts.end_all();
    let powered_off = locked(&host.more.code).is_some();
    let mut findings: Vec<String> = panic.into_iter().collect();
    findings.extend(machine.take_violations());
    SPARE.set(Some(machine));
    let (mut stdout, mut account) = (Vec::new(), Vec::new());
    for (channel, bytes) in locked(&host.more.output).drain(..) {
        match channel {
            Channel::Stdout => stdout.extend(bytes),
            Channel::Account => account.extend(bytes),
            Channel::Panic => findings.push(String::from_utf8_lossy(&bytes).into_owned()),
            Channel::Stderr
            | Channel::Log
            | Channel::Trace
            | Channel::SystemCalls
            | Channel::InputRequest
            | Channel::LowerRequest
            | Channel::Result => {}
        }
    }
    Ended {
        powered_off,
        stdout,
        account: String::from_utf8_lossy(&account).into_owned(),
        performed: host.more.performed.load(Ordering::Relaxed),
        calls: take(&mut *locked(&host.more.calls)),
        findings,
    }
}

fn run_machine(host: &'static Simulated, files: &'static [u8], forks: Forks, leaks: bool) {
    let machine: &'static dyn Host = host;
    let half = host.machine.memory().frames() / 2;
    let region = |node, start, count| Region {
        range: FrameRange {
            start: Frame::new(start),
            count,
        },
        node,
    };
    let regions = [region(0, 1, half - 1), region(1, half, half)];
    let frames = Frames::new(machine, &regions).expect("room for the metadata of the frames");
    let memory = memwright::Memory::new(Arc::new(frames), Policy::default());
    let memory = Arc::new(memory.expect("room for the zero frame"));
    match forks {
        Forks::Copy => {}
        Forks::Share => memory.policy().set("fork", "1").expect("a known policy"),
    }
    if leaks {
        let memory = memory.clone();
        *locked(&host.more.begins) = Some(Box::new(move || {
            let frame = memory.frames().allocate(0, FrameKind::Anonymous);
            forget(frame.expect("a free frame"));
            let promised = memory.commit().charge(CPU, 3);
            promised.expect("room to promise pages");
        }));
    }
    let archive = CpioArchive::new(files);
    let mut manifest = Manifest::parse(archive);
    manifest.program = b"/program".to_vec();
    manifest.arguments = vec![b"program".to_vec()];
    manifest.huge_pages = 1;
    manifest.swap.push(SwapRequest {
        kind: SwapKind::Zram,
        size: SWAP,
    });
    boot::start(host, memory, manifest, archive)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::program::{ARENA, Argument, NAME_ROOM, NAMES, Operation};

    fn call(number: u16, arguments: [u64; 6]) -> Operation {
        Operation::Call(number, arguments.map(Argument::Value))
    }

    /// Returns the address of a name in the data of the program.
    fn name(wanted: &str) -> u64 {
        let place = NAMES.iter().position(|name| *name == wanted);
        program::DATA + place.expect("a name") as u64 * NAME_ROOM
    }

    fn run_clean(operations: Vec<Operation>) -> Ended {
        let ended = run_operations(operations, Forks::Copy);
        assert!(ended.powered_off && ended.findings.is_empty(), "{ended:?}");
        ended
    }

    #[test]
    fn a_program_of_no_operations_ends() {
        assert_eq!(run_clean(Vec::new()).performed, 1);
    }

    #[test]
    fn calls_and_accesses_come_to_what_they_should() {
        const MAP: [u64; 6] = [ARENA, 0x4000, 3, 0x32, u64::MAX, 0];
        let ended = run_clean(vec![
            call(9, MAP),
            Operation::Store(Argument::Result(0), u64::from_le_bytes(*b"written\n")),
            // fork, wait4. The parent and the child both write the value that the parent has stored before the fork.
            call(57, [0; 6]),
            call(61, [u64::MAX, 0, 0, 0, 0, 0]),
            call(1, [1, ARENA, 8, 0, 0, 0]),
            // open and write to a file.
            call(2, [name("/tmp/a"), 0o102, 0o600, 0, 0, 0]),
            Operation::Call(
                1,
                [
                    Argument::Result(0),
                    Argument::Value(ARENA),
                    Argument::Value(5000),
                    Argument::Value(0),
                    Argument::Value(0),
                    Argument::Value(0),
                ],
            ),
        ]);
        assert_eq!(ended.stdout, b"written\nwritten\n");
    }

    #[test]
    fn a_refused_access_ends_the_program_and_a_sleep_the_machine() {
        let refused = vec![Operation::Load(Argument::Value(8)), call(34, [0; 6])];
        assert_eq!(run_clean(refused).performed, 1);
        // Call pause: the only thread sleeps for ever, which ends the run.
        let asleep = run_operations(vec![call(34, [0; 6])], Forks::Copy);
        assert!(
            !asleep.powered_off && asleep.findings.is_empty(),
            "{asleep:?}"
        );
    }

    #[test]
    fn a_handler_runs_and_returns() {
        // The addresses of the handler and of its restorer, in an executable page.
        let action = program::DATA + 0x8000;
        let ended = run_clean(vec![
            call(9, [ARENA, 0x1000, 7, 0x32, u64::MAX, 0]),
            Operation::Store(Argument::Value(action), ARENA + 64),
            // SA_RESTORER
            Operation::Store(Argument::Value(action + 8), 0x0400_0000),
            Operation::Store(Argument::Value(action + 16), ARENA + 128),
            call(13, [10, action, 0, 8, 0, 0]),
            // kill(getpid(), SIGUSR1)
            call(39, [0; 6]),
            Operation::Call(
                62,
                [
                    Argument::Result(0),
                    Argument::Value(10),
                    Argument::Value(0),
                    Argument::Value(0),
                    Argument::Value(0),
                    Argument::Value(0),
                ],
            ),
            call(1, [1, name("a"), 1, 0, 0, 0]),
        ]);
        assert_eq!(ended.stdout, b"a");
    }

    #[test]
    fn a_file_that_is_no_program_is_refused_and_one_that_is_runs() {
        assert!(run_file(b"no program").findings.is_empty());
        let ended = run_file(&archive::own_program());
        assert!(ended.powered_off && ended.findings.is_empty(), "{ended:?}");
        assert_eq!(ended.performed, 1);
    }

    /// Checks that the audit reports and counts each leak once: a frame, and a commit charge.
    #[test]
    fn the_audit_finds_what_a_run_lost() {
        let clean = run_clean(Vec::new());
        assert!(clean.account.contains("\naudit_findings 0\n"), "{clean:?}");
        let leaked = run(&archive::own_program(), Vec::new(), Forks::Copy, true);
        assert!(
            leaked.account.contains("\naudit_findings 2\n"),
            "{leaked:?}"
        );
        let [frames, promised] = &leaked.findings[..] else {
            panic!("{leaked:?}");
        };
        assert!(frames.contains("Anonymous frames: 0 before the run, 1 after"));
        assert!(promised.contains("promised pages: 0 before the run, 3 after"));
    }

    #[test]
    fn the_same_program_runs_the_same() {
        let bytes: Vec<u8> = (0..400u32)
            .map(|number| (number * 151 % 251) as u8)
            .collect();
        let run = || {
            format!(
                "{:?}",
                run_operations(program::decode(&bytes), Forks::Share)
            )
        };
        assert_eq!(run(), run());
    }
}
