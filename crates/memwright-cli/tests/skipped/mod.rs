//! Reports tests that cannot run on this machine.

use std::io::Write;
use std::thread;

/// Reports that the current test cannot run for this reason. `cargo xtask` reads the line and counts the test as
/// skipped. The line is not written through libtest, which captures the output of tests that pass, so `cargo test`
/// prints it too.
pub fn skipped(why: &str) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("main");
    // A line break would end the reason, so none may be left.
    let why = why.trim().replace('\n', "; ");
    // It is not a failure of the test if standard error has no reader.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}
