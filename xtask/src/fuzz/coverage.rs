//! Coverage-guided fuzzing of the system calls and of the loader, on the simulated machine: the targets of `fuzz/`, built
//! by a nightly compiler with libFuzzer.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::Settings;
use crate::shell;

/// What libFuzzer needs of the compiler, as `cargo fuzz` asks for it.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// Runs of one process: what a run's kernel takes is never freed.
const RUNS: &str = "-runs=2000";

/// Fuzzes one target for as long as the settings say, from what the corpus in the tree has; what is new goes to the
/// folder of the settings. Without a nightly compiler nothing is done, and that is said.
///
/// # Errors
/// An input that makes the target fail, which is kept; a build.
pub fn run(settings: &Settings, target: &str) -> Result<()> {
    if !matches!(target, "syscalls" | "elf") {
        bail!("--target syscalls|elf, not {target}");
    }
    let nightly = Command::new("rustc")
        .args(["+nightly", "--version"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !nightly.is_ok_and(|status| status.success()) {
        println!("skipped: there is no nightly compiler");
        return Ok(());
    }
    let root = shell::root();
    let built = root.join("target/coverage");
    shell::run(
        Command::new("cargo")
            .args(["+nightly", "build", "-q", "--release", "--target", TRIPLE])
            .current_dir(root.join("fuzz"))
            .env("RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_DIR", &built),
    )?;
    let found = settings.folder.join(target);
    std::fs::create_dir_all(&found)?;
    let end = Instant::now() + Duration::from_secs_f64(settings.minutes * 60.0);
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            return Ok(());
        }
        shell::run(
            Command::new(built.join(TRIPLE).join("release").join(target))
                .args([RUNS, "-detect_leaks=0", "-rss_limit_mb=4096"])
                .arg(format!("-max_total_time={left}"))
                .arg(format!("-artifact_prefix={}/", settings.folder.display()))
                .arg(&found)
                .arg(root.join("fuzz/corpus").join(target)),
        )?;
    }
}
