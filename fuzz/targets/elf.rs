//! Executes arbitrary bytes as a file: the file runs or is refused, nothing panics, and nothing leaks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memwright_linux_sim::run_file;

fuzz_target!(|bytes: &[u8]| {
    let ended = run_file(bytes);
    assert!(ended.findings.is_empty(), "{:?}", ended.findings);
});
