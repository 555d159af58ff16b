//! Programs on several CPUs, which take turns by the instruction clock.

use crate::shared::{Boot, interleaved};
use libtest_mimic::Trial;

/// Programs that ask nothing of one CPU, and give the same there and on several.
const PROGRAMS: &[&str] = &[
    "hello",
    "fork_protect",
    "cow",
    "map",
    "advise",
    "limits",
    "remote",
    "faults",
    "signals",
    "wait",
    "threads",
    "exec_thread",
    "signals_threads",
    "group_exit",
    "pipes",
    "files",
    "proc",
    "memory_files",
    "fpu",
    "badptr --every",
    "many_processes",
];

pub fn trials() -> Vec<Trial> {
    interleaved(vec![
        Boot::of("cpus", "musl-static", PROGRAMS).cpus(2),
        Boot::of("cpus", "glibc-static", PROGRAMS)
            .cpus(4)
            .option("--policy", "apic=xapic"),
        Boot::of("cpus", "musl-static", PROGRAMS).parallel(4),
    ])
}
