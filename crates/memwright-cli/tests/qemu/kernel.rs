//! The kernel's tests of itself, and the reports of its failures.

use crate::guest::{Ending, Guest};
use crate::prepare;
use libtest_mimic::{Failed, Trial};
use std::path::Path;

pub fn trials() -> Vec<Trial> {
    vec![
        Trial::test("kernel::tests_itself", || tests_itself(false)),
        Trial::test("kernel::tests_itself_as_embedded", || tests_itself(true)),
        Trial::test("kernel::panic_is_reported", || {
            report(
                "panic",
                "Memwright's kernel panicked: asked for by an option",
            )
        }),
        Trial::test("kernel::fault_is_reported", || {
            report("fault", "its protection forbids it")
        }),
        Trial::test("kernel::stack_overflow_is_reported", || {
            report("overflow", "Memwright's kernel overflowed its stack")
        }),
        Trial::test("kernel::timeout_shows_where_it_stands", timeout),
    ]
}

/// A run in which the kernel does `what` instead of running a program.
fn run(what: &str, embedded: bool, options: &[(&str, &str)]) -> Result<Ending, Failed> {
    let mut guest = Guest::new(prepare::busybox(), &["true"]).option("--selftest", what);
    for (name, value) in options {
        guest = guest.option(name, value);
    }
    if embedded {
        guest = guest.embedded_kernel();
    }
    guest
        .verbose()
        .run_once(Path::new(env!("CARGO_BIN_EXE_memwright")))
}

fn tests_itself(embedded: bool) -> Result<(), Failed> {
    let ending = run("1", embedded, &[])?;
    ending.expect_code(0)?;
    ending.expect_line(&["selftest:", "passed, 0 failed"])
}

/// The report says why, shows registers, and names the function that was asked to fail.
fn report(what: &str, why: &str) -> Result<(), Failed> {
    let ending = run(what, false, &[])?;
    ending.expect_code(125)?;
    ending.expect_line(&[why])?;
    ending
        .expect_line(&["rsp ", "rbp "])
        .or_else(|_| ending.expect_line(&["rip ", "rsp "]))?;
    ending.expect_line(&["locks held"])?;
    ending.expect_line(&["at 0x", "selftest"])?;
    ending.expect_line(&["last events of CPU 0"])
}

fn timeout() -> Result<(), Failed> {
    let ending = run("spin", false, &[("--timeout", "5")])?;
    ending.expect_code(124)?;
    ending.expect_line(&["CPU 0 in user mode"])?;
    ending.expect_line(&["rip 0000000000400000"])
}
