//! Runs programs on several CPUs that take turns under the instruction clock.

use crate::guest::Guest;
use crate::prepare::later_qemu;
use crate::shared::{Boot, interleaved};
use libtest_mimic::{Completion, Failed, Trial};

/// Programs whose output does not depend on the number of CPUs.
const PROGRAMS: &[&str] = &[
    "hello",
    "fork_protect",
    "cow",
    "huge",
    "huge_shared",
    "split",
    "map",
    "advise",
    "seal",
    "keys",
    "trace",
    "trace_calls",
    "trace_events",
    "trace_seize",
    "trace_ends",
    "watchpoints",
    "probes",
    "merge",
    "lend",
    "rings",
    "limits",
    "remote",
    "faults",
    "signals",
    "wait",
    "privileges",
    "personality",
    "threads",
    "rseq",
    "exec_thread",
    "signals_threads",
    "group_exit",
    "pipes",
    "posix_timers",
    "file_signals",
    "semaphores",
    "loopback",
    "loopback_datagrams",
    "files",
    "xattrs",
    "mount",
    "proc",
    "memory_files",
    "fpu",
    "badptr --every",
    "many_processes",
];

/// Programs that measure times, which are exact only under the instruction clock.
const TIMED: &[&str] = &["cpu_timers", "nice"];

pub fn trials() -> Vec<Trial> {
    let mut trials = interleaved(vec![
        Boot::of("cpus", "musl-static", PROGRAMS).cpus(2),
        Boot::of("cpus", "glibc-static", PROGRAMS)
            .cpus(4)
            .option("--policy", "apic=xapic"),
        Boot::of("cpus", "musl-static", PROGRAMS).parallel(4),
        Boot::of("cpus", "musl-static", TIMED).cpus(4),
    ]);
    trials.push(Trial::ignorable_test(
        "cpus::input_for_the_second",
        input_for_the_second,
    ));
    trials
}

/// Checks that input wakes the second CPU, on which the reader of standard input sleeps.
fn input_for_the_second() -> Result<Completion, Failed> {
    if !later_qemu() {
        return Ok(Completion::ignored_with("no later QEMU"));
    }
    let input = b"one\ntwo\n".repeat(1000);
    let ending = Guest::shell("exec taskset 2 cat")
        .cpus(2)
        .pipe(&input)
        .run()?;
    ending.expect_code(0)?;
    ending.expect_output(&input)?;
    Ok(Completion::Completed)
}
