//! Long sequences of system calls on existing objects: runs `programs/sequences.c` on Memwright under QEMU.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{programs, shell};

/// The time limit of a run, in seconds on the host.
const LIMIT: &str = "7200";
/// The minimum number of successes of each counted call, per million calls in total.
const LEAST_OF_A_MILLION: u64 = 1000;
/// The maximum amount, in KiB, by which free memory may shrink in the second half of a run, because the kernel's heap
/// and its lists of free frames can grow.
const KEPT_KIB: i64 = 512;
/// The maximum number of kernel instructions between two scheduling points.
const LONGEST_STRETCH: u64 = 2_000_000;

/// The guest on which the sequences run, and their length.
pub struct Guest {
    /// The number of CPUs.
    pub cpus: u8,
    /// The memory, in the format of `memwright run --memory`.
    pub memory: String,
    /// The approximate number of calls.
    pub calls: u64,
}

impl Default for Guest {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory: "256M".to_owned(),
            calls: 100_000,
        }
    }
}

/// Runs the sequences of a seed, prints the table of calls, and checks it.
///
/// # Errors
/// If there is a panic, a hang or a leak, if a call succeeded too rarely, or if the build fails.
pub fn run(guest: &Guest, seed: u64) -> Result<()> {
    programs::build_all()?;
    shell::run(Command::new("cargo").args(["build", "-q", "--release", "-p", "memwright-cli"]))?;
    let program = shell::root().join("programs/build/musl-static/sequences");
    let account = shell::target_folder().join("sequences.json");
    let mut command = Command::new(shell::target_folder().join("release/memwright"));
    command
        .args(["run", "--full", "--timeout", LIMIT, "--swap", "zram:32M"])
        .args(["--cpus", &guest.cpus.to_string()])
        .args(["--memory", &guest.memory, "--json"])
        .arg(&account)
        .arg(program)
        .args([guest.calls.to_string(), seed.to_string()])
        .stdin(Stdio::null());
    let output = command.output().context("cannot start memwright")?;
    let (text, errors) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    print!("{text}");
    ensure!(output.status.success(), "the guest failed:\n{errors}");
    let findings = errors.lines().find(|line| line.ends_with("audit findings"));
    let count = findings.and_then(|line| line.split_whitespace().next());
    // With several CPUs, the account appends `=` to a count that is the same in every run.
    match count.map(|count| count.trim_end_matches('=')) {
        Some("0") => judge(&text, &std::fs::read_to_string(account)?),
        _ => bail!("the run ended without a clean audit:\n{errors}"),
    }
}

/// Returns the maximum number of kernel instructions without a scheduling point, from the account of the run. `None`
/// with several CPUs, because QEMU does not count instructions per CPU.
fn longest_stretch(account: &str) -> Result<Option<u64>> {
    let (_, after) = account
        .split_once("\"instructions_stretch\":")
        .context("the account has no longest stretch")?;
    let end = after.find([',', '}']).context("the account has no end")?;
    let value = after[..end].trim();
    if value.starts_with('"') {
        return Ok(None);
    }
    Ok(Some(value.parse()?))
}

/// Checks that every call succeeded often enough, that memory was freed, and that no stretch of kernel instructions
/// without a scheduling point was too long.
fn judge(text: &str, account: &str) -> Result<()> {
    let longest = longest_stretch(account)?;
    if let Some(longest) = longest {
        ensure!(
            longest <= LONGEST_STRETCH,
            "{longest} instructions without a scheduling point, of {LONGEST_STRETCH}"
        );
        println!("{longest} instructions at most without a scheduling point");
    }
    let report = Report::parse(text)?;
    let least = report.made * LEAST_OF_A_MILLION / 1_000_000;
    let rare: Vec<String> = report
        .succeeded
        .iter()
        .filter(|(_, succeeded)| **succeeded < least)
        .map(|(name, succeeded)| format!("{name} {succeeded}"))
        .collect();
    ensure!(
        rare.is_empty(),
        "successes of fewer than {least}: {}",
        rare.join(", ")
    );
    ensure!(
        report.kept_kib <= KEPT_KIB,
        "{} KiB were not freed",
        report.kept_kib
    );
    println!(
        "{} calls, {} kinds of them, each with {least} successes or more, {} KiB kept",
        report.made,
        report.succeeded.len(),
        report.kept_kib
    );
    Ok(())
}

/// The results in the output of the program.
#[derive(Debug)]
struct Report {
    made: u64,
    /// The number of successes of each call that the kernel implements, by name.
    succeeded: BTreeMap<String, u64>,
    /// The memory, in KiB, that was free after the first half of the run but not at the end.
    kept_kib: i64,
}

impl Report {
    fn parse(text: &str) -> Result<Self> {
        let mut succeeded = BTreeMap::new();
        let mut totals = None;
        for line in text.lines() {
            let words: Vec<&str> = line
                .split([' ', ','])
                .filter(|word| !word.is_empty())
                .collect();
            match words[..] {
                ["call", name, "tried", _, "succeeded", count] => {
                    succeeded.insert(name.to_owned(), count.parse()?);
                }
                [
                    made,
                    "calls",
                    "of",
                    _,
                    "workers",
                    "KiB",
                    "free:",
                    before,
                    ..,
                ] => {
                    let after = words.iter().rev().nth(3).context("no memory at the end")?;
                    totals = Some((
                        made.parse()?,
                        before.parse::<i64>()? - after.parse::<i64>()?,
                    ));
                }
                // Skip other output, and calls that the kernel does not implement.
                _ => {}
            }
        }
        let (made, kept_kib) = totals.context("the program printed no totals")?;
        Ok(Self {
            made,
            succeeded,
            kept_kib,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(successes: u64, after: u64) -> String {
        format!(
            "call bind tried 12 succeeded {successes}\ncall tee tried 9 succeeded 0 missing\n\
             10000 calls of 3 workers, KiB free: 2000 after the first half, {after} at the end\nok sequences\n"
        )
    }

    #[test]
    fn a_rare_call_lost_memory_and_a_long_stretch_fail() {
        let account = |stretch: u64| {
            format!("{{\"account\":{{\"instructions_stretch\": {stretch},\"x\":1}}}}")
        };
        for (successes, after, stretch, passes) in [
            (10, 2000, 0, true),
            (9, 2000, 0, false),
            (10, 2000 - 512, 2_000_000, true),
            (10, 2000 - 513, 0, false),
            (10, 9000, 0, true),
            (10, 2000, 2_000_001, false),
        ] {
            let judged = judge(&report(successes, after), &account(stretch));
            assert_eq!(judged.is_ok(), passes, "{successes} {after} {judged:?}");
        }
        assert!(judge("call bind tried 1 succeeded 1\n", &account(0)).is_err());
        assert!(judge(&report(10, 2000), "{}").is_err());
        let unknown = "{\"instructions_stretch\": \"not observable under TCG\"}";
        assert!(judge(&report(10, 2000), unknown).is_ok());
    }
}
