//! The kernel's tests of itself, on the machine it runs on: the option `selftest=1` runs them in
//! place of a program. Each prints a line to the log; the result is code 0 if all passed.

mod catch;
mod memory;
mod time;
mod user;

pub use catch::caught;

use memwright_linux::channel::{Channel, Outcome};
use memwright_linux::cpio::CpioArchive;

use crate::host::power_off;
use crate::{console, log};

/// What a test found wrong, if anything.
type Outcomes = Result<(), &'static str>;

/// What must hold, and the function that finds out.
type Test = (&'static str, fn() -> Outcomes);

const TESTS: [Test; 16] = [
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
    (
        "a deadline ends a loop in user mode",
        user::deadline_interrupts,
    ),
    (
        "extended state is saved and restored",
        user::extended_state_survives,
    ),
];

/// Whether the archive's options ask for the tests.
pub fn wanted(archive: CpioArchive<'static>) -> bool {
    archive
        .into_iter()
        .find(|entry| entry.name == b".memwright/options")
        .is_some_and(|entry| {
            entry
                .data
                .split(|&byte| byte == b'\n')
                .any(|line| line == b"selftest=1")
        })
}

/// Runs every test and ends the machine.
pub fn run() -> ! {
    let mut failed = 0;
    for (name, test) in TESTS {
        match test() {
            Ok(()) => log!("selftest: {name}: ok"),
            Err(why) => {
                log!("selftest: {name}: FAILED: {why}");
                failed += 1;
            }
        }
    }
    log!("selftest: {} passed, {failed} failed", TESTS.len() - failed);
    console::frame(
        Channel::Result,
        &Outcome::Exited(i32::from(failed > 0)).encode(),
    );
    power_off(0)
}

/// An error unless `condition` holds.
fn check(condition: bool, otherwise: &'static str) -> Outcomes {
    if condition { Ok(()) } else { Err(otherwise) }
}
