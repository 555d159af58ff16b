//! The kernel's self-tests, which run on the target machine. The option `selftest=1` runs them instead of a program.
//! Each test writes a line to the log, and the exit code is 0 if all tests pass. Other values of the option provoke
//! failures. The tests of the command check the reports of these failures.

mod cpus;
mod memory;
mod time;
mod user;

pub use cpus::secondary;

use memwright_linux_abi::channel::{Channel, Outcome};
use memwright_linux_vfs::cpio::CpioArchive;

use crate::arch::power_off;
use crate::report::console;
use crate::{clock, log, percpu};

/// The result of a test: `Ok`, or a description of the failure.
type Outcomes = Result<(), &'static str>;

/// The property that a test checks, and the function that checks it.
type Test = (&'static str, fn() -> Outcomes);

const TESTS: [Test; 18] = [
    (
        "no page is writable and executable",
        memory::write_xor_execute,
    ),
    (
        "text and constants cannot be written",
        memory::image_is_protected,
    ),
    ("data cannot be executed", memory::data_does_not_execute),
    (
        "user memory is out of reach but for user copies",
        memory::user_memory_is_guarded,
    ),
    (
        "user memory is not executed",
        memory::user_memory_does_not_execute,
    ),
    (
        "a stack overflow meets the guard page",
        memory::stack_overflow_is_caught,
    ),
    (
        "user copies stop at the byte that faults",
        memory::copies_report_the_fault,
    ),
    ("the heap refuses what it cannot hold", memory::heap_refuses),
    (
        "the CPU that allocates grows the heap",
        memory::heap_grows_where_memory_was_allocated,
    ),
    ("the timer fires at its deadline", time::timer_fires),
    (
        "a pause leaves the clock where it was",
        time::pause_takes_no_time,
    ),
    ("user mode keeps its registers", user::registers_survive),
    (
        "user mode's traps are told apart",
        user::traps_are_told_apart,
    ),
    (
        "user mode's instructions are counted",
        user::instructions_are_counted,
    ),
    (
        "the way into user mode and back is short",
        user::round_trip_is_short,
    ),
    ("the longest stretch is told", time::longest_stretch_is_told),
    (
        "a deadline ends a loop in user mode",
        user::deadline_interrupts,
    ),
    (
        "extended state is saved and restored",
        user::extended_state_survives,
    ),
];

/// Tests for machines with several CPUs. The first one starts the CPUs.
const CPU_TESTS: [Test; 7] = [
    ("every CPU starts", cpus::all_start),
    ("a kick wakes an idle CPU", cpus::kicks_arrive),
    ("a kick ends user mode", cpus::kicks_end_user_mode),
    (
        "nobody writes to a page that was taken away",
        cpus::pages_are_taken_away,
    ),
    (
        "CPUs that make each other forget all come through",
        cpus::shootdowns_cross,
    ),
    (
        "a long wait for an answer halts, and is counted once",
        cpus::long_wait_is_counted,
    ),
    (
        "a CPU can make the others stand still",
        cpus::others_stand_still,
    ),
];

/// The values of the option `selftest=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// `1`: run all tests, then power off.
    Tests,
    /// `panic`: panic, to test the report of a panic.
    Panic,
    /// `fault`: write to the kernel's text, to test the report of the fault.
    Fault,
    /// `overflow`: overflow the stack, to test the report of the overflow.
    Overflow,
    /// `echo`: copy standard input to standard output, then write the clock to the log.
    Echo,
    /// `spin`: stay in user mode forever, to test backtraces on request.
    Spin,
}

/// Returns the self-test that the archive's options request.
pub fn wanted(archive: CpioArchive<'static>) -> Option<Wanted> {
    let options = archive
        .into_iter()
        .find(|entry| entry.name == b".memwright/options")?;
    let mut lines = options.data.split(|&byte| byte == b'\n');
    match lines.find_map(|line| line.strip_prefix(b"selftest="))? {
        b"1" => Some(Wanted::Tests),
        b"panic" => Some(Wanted::Panic),
        b"fault" => Some(Wanted::Fault),
        b"overflow" => Some(Wanted::Overflow),
        b"echo" => Some(Wanted::Echo),
        b"spin" => Some(Wanted::Spin),
        _ => None,
    }
}

/// Runs the self-test `wanted`, and powers the machine off.
pub fn run(wanted: Wanted) -> ! {
    if wanted != Wanted::Tests {
        cpus::occupy();
    }
    match wanted {
        Wanted::Tests => tests(),
        Wanted::Panic => panic!("asked for by an option"),
        Wanted::Fault => memory::write_to_text(),
        Wanted::Overflow => memory::overflow_stack(),
        Wanted::Echo => time::echo(),
        Wanted::Spin => user::spin(),
    }
    panic!("a self-test that should not return did");
}

/// Runs all tests and powers the machine off.
fn tests() -> ! {
    let (mut passed, mut failed) = (0, 0);
    let of_several: &[Test] = if percpu::count() > 1 { &CPU_TESTS } else { &[] };
    for &(name, test) in TESTS.iter().chain(of_several) {
        let outcome = test();
        // Clear the deadline, which the test may have set: it would interrupt user mode in a later test.
        clock::set_deadline(None);
        match outcome {
            Ok(()) => {
                log!("selftest: {name}: ok");
                passed += 1;
            }
            Err(why) => {
                log!("selftest: {name}: FAILED: {why}");
                failed += 1;
            }
        }
    }
    log!("selftest: {passed} passed, {failed} failed");
    end(i32::from(failed > 0))
}

/// Powers the machine off with the exit code `code`, like the exit of a program.
fn end(code: i32) -> ! {
    console::frame(Channel::Result, &Outcome::Exited(code).encode());
    power_off(0)
}

/// Returns the error `otherwise` unless `condition` holds.
fn check(condition: bool, otherwise: &'static str) -> Outcomes {
    if condition { Ok(()) } else { Err(otherwise) }
}

/// Returns the error `otherwise` unless `condition` holds. Checks nothing if the clock does not count instructions,
/// because times are then not exact.
fn check_time(condition: bool, otherwise: &'static str) -> Outcomes {
    check(condition || !clock::counts_nanoseconds(), otherwise)
}
