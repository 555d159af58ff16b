//! Interprets arbitrary bytes as a program of system calls and accesses: nothing panics, nothing leaks, and nothing
//! stays reachable.
//!
//! If `MEMWRIGHT_CALLS` is set in the environment, the target prints the system calls that each program makes.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use memwright_linux_sim::{Forks, program, run_operations};

static SAYS: LazyLock<bool> = LazyLock::new(|| std::env::var_os("MEMWRIGHT_CALLS").is_some());

fuzz_target!(|bytes: &[u8]| {
    let ended = run_operations(program::decode(bytes), Forks::of_input(bytes));
    if *SAYS {
        print!("{}", ended.calls);
    }
    assert!(ended.findings.is_empty(), "{:?}", ended.findings);
});
