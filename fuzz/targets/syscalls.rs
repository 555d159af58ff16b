//! Any bytes are a program of system calls and accesses: nothing panics, nothing leaks, nothing stays reachable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memwright_sim::personality::{program, run_operations};

fuzz_target!(|bytes: &[u8]| {
    let ended = run_operations(program::decode(bytes));
    assert!(ended.findings.is_empty(), "{:?}", ended.findings);
});
