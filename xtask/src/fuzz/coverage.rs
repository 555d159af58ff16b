//! Coverage-guided fuzzing of the system calls and of the ELF loader on the simulated machine. The targets are in
//! `fuzz/`, and are built by a nightly compiler with libFuzzer.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{MINUTES, Settings};
use crate::shell;

/// The names of the targets.
const TARGETS: [&str; 2] = ["syscalls", "elf"];

/// The flags that libFuzzer needs. They are those of `cargo fuzz`, which therefore need not be installed.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares --cfg fuzzing";
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// The number of new inputs that one process runs before a new process replaces it. The number is limited, because a
/// run never frees the memory of its simulated kernel.
const RUNS: u32 = 2000;

/// How the fuzzing ended.
pub enum Outcome {
    /// No input made a target fail.
    Clean,
    /// The targets could not be built, for this reason.
    Skipped(&'static str),
}

/// Fuzzes one target for the time in the settings, starting from the corpus in the tree. Saves new inputs in the folder
/// of the settings, and prints a report at the end. If there is no nightly compiler, only prints a message.
///
/// # Errors
/// If an input makes the target fail, or if the build fails. The input is saved.
pub(super) fn run(settings: &Settings, target: &str) -> Result<()> {
    if !TARGETS.contains(&target) {
        bail!("--target syscalls|elf, not {target}");
    }
    let built = match build()? {
        Built::At(built) => built,
        Built::Lacking(what) => {
            println!("skipped: {what}");
            return Ok(());
        }
    };
    let found = settings.folder.join(target);
    std::fs::create_dir_all(&found)?;
    let start = Instant::now();
    let end = start + Duration::from_secs_f64(settings.minutes.unwrap_or(MINUTES) * 60.0);
    loop {
        let left = end.saturating_duration_since(Instant::now()).as_secs();
        if left == 0 {
            break;
        }
        let mut command = fuzzer(&built, target, &settings.folder, RUNS);
        command.arg(format!("-max_total_time={left}"));
        command.arg(&found).arg(corpus(target));
        shell::run(&mut command)?;
    }
    println!(
        "{target}: {:.0} seconds, {} inputs with new coverage",
        start.elapsed().as_secs_f64(),
        files(&found)? + files(&corpus(target))?
    );
    match target {
        "syscalls" => report(&built, &settings.folder, &[&found, &corpus(target)]),
        _ => Ok(()),
    }
}

/// Runs every target on the corpus in the tree, without searching for new inputs. CI checks a commit with this function
/// and not with [`run`], because the result of a search depends on the compiler, the machine and chance.
///
/// # Errors
/// If an input makes a target fail, or if the build fails. The input is saved in `folder`.
pub fn run_kept(folder: &Path) -> Result<Outcome> {
    let built = match build()? {
        Built::At(built) => built,
        Built::Lacking(what) => return Ok(Outcome::Skipped(what)),
    };
    std::fs::create_dir_all(folder)?;
    for target in TARGETS {
        shell::run(fuzzer(&built, target, folder, 0).arg(corpus(target)))?;
    }
    Ok(Outcome::Clean)
}

/// The result of building the targets.
enum Built {
    /// The targets are in this folder.
    At(PathBuf),
    /// The targets cannot be built here, for this reason.
    Lacking(&'static str),
}

/// Builds the targets, if the compilers that they need are installed.
fn build() -> Result<Built> {
    let mut nightly = Command::new("rustc");
    nightly.args(["+nightly", "--version"]);
    if !shell::succeeds(&mut nightly) {
        return Ok(Built::Lacking("no nightly compiler"));
    }
    if shell::which("c++").is_none() {
        return Ok(Built::Lacking("no C++ compiler for libFuzzer"));
    }
    let root = shell::root();
    let built = root.join("target/coverage");
    shell::run(
        Command::new("cargo")
            .args(["+nightly", "build", "-q", "--release", "--target", TRIPLE])
            .current_dir(root.join("fuzz"))
            .env("RUSTFLAGS", FLAGS)
            .env("CARGO_TARGET_DIR", &built)
            .env_remove("CARGO")
            .env_remove("RUSTC")
            .env_remove("RUSTUP_TOOLCHAIN"),
    )?;
    Ok(Built::At(built.join(TRIPLE).join("release")))
}

/// Returns the command that fuzzes a target. It runs the existing inputs, and then `runs` new ones.
fn fuzzer(built: &Path, target: &str, folder: &Path, runs: u32) -> Command {
    let mut command = Command::new(built.join(target));
    command
        .args(["-detect_leaks=0", "-rss_limit_mb=4096", "-timeout=120"])
        .arg(format!("-runs={runs}"))
        .arg(format!("-artifact_prefix={}/", folder.display()));
    command
}

/// Returns the folder of the corpus in the tree.
fn corpus(target: &str) -> PathBuf {
    shell::root().join("fuzz/corpus").join(target)
}

fn files(folder: &Path) -> Result<usize> {
    Ok(std::fs::read_dir(folder)?.count())
}

/// Runs all inputs once more, and prints the system calls that their programs made and the number of successful ones.
fn report(built: &Path, folder: &Path, folders: &[&Path]) -> Result<()> {
    let mut command = fuzzer(built, "syscalls", folder, 0);
    command.args(folders).env("MEMWRIGHT_CALLS", "1");
    let output = shell::output(&mut command).context("the inputs do not run again")?;
    let counts = count(&output);
    let succeeded = counts.values().filter(|count| count.1 > 0).count();
    println!(
        "{} calls, commands and kinds of advice, {succeeded} of them successful",
        counts.len()
    );
    for (name, (made, succeeded)) in counts {
        println!("  {name:<28} {made:>8} {succeeded:>8}");
    }
    Ok(())
}

/// Sums the numbers of calls and of successful calls for each name. Each line contains a name and these two numbers.
fn count(output: &str) -> BTreeMap<&str, (u64, u64)> {
    let mut counts: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for line in output.lines() {
        let mut words = line.split(' ');
        let (Some(name), Some(made), Some(succeeded), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        if let (Ok(made), Ok(succeeded)) = (made.parse::<u64>(), succeeded.parse::<u64>()) {
            let sum = counts.entry(name).or_default();
            *sum = (sum.0 + made, sum.1 + succeeded);
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_asked_for_is_summed() {
        let counts = count("mmap 2 1\nnoise\nmmap 3 3\nbrk 1 0\na b c\n");
        let expected = [("brk", (1, 0)), ("mmap", (5, 4))];
        assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
    }
}
