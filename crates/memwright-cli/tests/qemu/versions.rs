//! The same numbers on another QEMU: the one in PATH beside the later one of Debian's backports.

use crate::guest::Guest;
use crate::prepare;
use libtest_mimic::{Failed, Trial};
use std::process::{Command, Stdio};

/// Takes forks, signals, pipes, timers, faults while the kernel copies, and vector registers across versions.
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

/// One test per script. Where the other QEMU cannot be had they are ignored, and the reason is printed.
pub fn trials(list: bool) -> Vec<Trial> {
    let there = list || available();
    SCRIPTS
        .iter()
        .map(|&(name, script)| {
            Trial::test(format!("versions::{name}"), move || compare(script))
                .with_ignored_flag(!there)
        })
        .collect()
}

/// Whether the QEMU of backports can be had.
fn available() -> bool {
    let output = Command::new(env!("CARGO_BIN_EXE_memwright"))
        .args(["run", "--dry-run"])
        .arg(prepare::busybox())
        .env("MEMWRIGHT_QEMU", "backports")
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => true,
        Ok(output) => {
            eprintln!(
                "no second QEMU: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
            false
        }
        Err(error) => {
            eprintln!("no second QEMU: {error}");
            false
        }
    }
}

fn compare(script: &str) -> Result<(), Failed> {
    let guest = Guest::shell(script);
    guest
        .run_beside(&guest.clone().qemu("backports"))
        .map(|_| ())
}
