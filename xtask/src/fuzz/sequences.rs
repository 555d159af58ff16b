//! Long sequences of system calls on live objects: `programs/sequences.c` on Memwright under QEMU.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::{programs, shell};

/// Host seconds for a run.
const LIMIT: &str = "7200";
/// Successes per million calls that each counted call must reach.
const LEAST_OF_A_MILLION: u64 = 1000;
/// KiB that the lists of free frames and the kernel's heap may keep after the first half of a run.
const KEPT_KIB: i64 = 512;
/// The maximum number of instructions that the kernel may run between two scheduling points.
const LONGEST_STRETCH: u64 = 2_000_000;

/// The machine that the sequences run on, and their length.
pub struct Guest {
    /// CPUs.
    pub cpus: u8,
    /// Memory, as `memwright run --memory` takes it.
    pub memory: String,
    /// Approximate number of calls.
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

/// Runs the sequences of a seed, prints the table of calls, and judges it.
///
/// # Errors
/// A panic, a hang, a leak, a call that succeeded too rarely, or a failed build.
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
    // With several CPUs, a count that is the same on every run is marked with `=`.
    match count.map(|count| count.trim_end_matches('=')) {
        Some("0") => judge(&text, &std::fs::read_to_string(account)?),
        _ => bail!("the run ended without a clean audit:\n{errors}"),
    }
}

/// Parses the longest run of kernel instructions without a scheduling point from the account. With several CPUs the
/// account has no such count, because QEMU does not count the instructions of each CPU.
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

/// Checks that every call succeeded often enough, that memory is free again, and that no stretch was too long.
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

/// The output of the program.
#[derive(Debug)]
struct Report {
    made: u64,
    /// For each call that the kernel has, how often it succeeded.
    succeeded: BTreeMap<String, u64>,
    /// KiB that were free after the first half and are not at the end.
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
                // Other output, and missing calls.
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
