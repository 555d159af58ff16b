//! How a test says that it cannot be run here.

use std::io::Write;
use std::thread;

/// Says that the current test cannot be run for this reason. `cargo xtask` reads the line and counts the test as skipped;
/// written past libtest, which keeps what passed tests print, it is also seen under `cargo test`.
pub fn skipped(why: &str) {
    let thread = thread::current();
    let name = thread.name().unwrap_or("main");
    // Several lines would end the reason at the first.
    let why = why.trim().replace('\n', "; ");
    // A standard error that nothing reads is no failure of the test.
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {why}");
}
