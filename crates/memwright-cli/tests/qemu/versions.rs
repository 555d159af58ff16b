//! Checks that the QEMU in PATH and the later QEMU of Debian's backports give runs with the same output and account.

use crate::guest::Guest;
use crate::prepare;
use libtest_mimic::{Completion, Failed, Trial};

/// Scripts with forks, signals, pipes, timers, faults during copies by the kernel, and vector registers.
const SCRIPTS: &[(&str, &str)] = &[
    (
        "pipeline",
        "seq 1 2000 | grep 7 | sort -rn | tail -3; (exit 3); echo $?",
    ),
    (
        "signals",
        "trap 'echo caught' USR1; kill -USR1 $$; sleep 100 & kill $!; wait $!; echo $?; kill -SEGV $$",
    ),
    (
        "background",
        "for i in 1 2 3; do (sleep 0.$i; echo $i; md5sum /proc/self/exe) & done; wait",
    ),
];

/// Returns one test for each script.
pub fn trials() -> Vec<Trial> {
    SCRIPTS
        .iter()
        .map(|&(name, script)| {
            Trial::ignorable_test(format!("versions::{name}"), move || compare(script))
        })
        .collect()
}

fn compare(script: &str) -> Result<Completion, Failed> {
    if !prepare::later_qemu() {
        return Ok(Completion::ignored_with("no later QEMU"));
    }
    let guest = Guest::shell(script);
    guest
        .run_beside(&guest.clone().qemu("backports"))
        .map(|_| Completion::Completed)
}
