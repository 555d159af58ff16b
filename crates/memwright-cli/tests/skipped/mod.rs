//! Reports tests that cannot be run on this machine.

use std::io::Write;
use std::thread;

/// Reports that the current test cannot be run for this reason. `cargo xtask` reads the line and counts the test as
/// skipped. The line bypasses libtest, which captures the output of passed tests, so it also appears under
/// `cargo test`.
pub fn skipped(why: &str) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("main");
    // A line break would end the reason.
    let why = why.trim().replace('\n', "; ");
    // A standard error without a reader is not a failure of the test.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}
