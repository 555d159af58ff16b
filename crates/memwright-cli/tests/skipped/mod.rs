//! Reports tests that cannot run on this machine.

use std::io::Write;
use std::thread;

/// Reports that the current test cannot run because of `why`. `cargo xtask` reads the line and counts the test as
/// skipped. The line is written directly to standard error, because libtest hides what a passing test prints.
pub fn skipped(why: &str) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("main");
    // The reason ends at the end of the line, so it must not contain line breaks.
    let why = why.trim().replace('\n', "; ");
    // It is not a failure of the test if standard error has no reader.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}
