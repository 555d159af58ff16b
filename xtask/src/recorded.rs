//! Figures that another machine recorded: the same kernel, QEMU and programs must give the same ones here.

use crate::command::{self, Profile};
use crate::{install, shell};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Experiments with one CPU and with several, on one node and on two; less than a minute together.
const EXPERIMENTS: [&str; 2] = ["write-after-protect", "autonuma"];

/// How what was measured and what was recorded compare.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Byte for byte the same.
    Same,
    /// Nothing can be said: the hashes that differ are of another kernel, QEMU or program.
    Elsewhere,
    /// The hashes are the same, and the figures are not.
    Different,
}

/// Measures, and compares with what is recorded, or records it.
///
/// # Errors
/// The bench fails, or the figures are different although all that they are of is the same.
pub fn run(record: bool) -> Result<Outcome> {
    install::install()?;
    let memwright = command::built(Profile::Dev)?;
    let measured = shell::target_folder().join("recorded.json");
    let mut bench = Command::new(memwright);
    bench.arg("bench").args(EXPERIMENTS);
    bench.arg("--json").arg(&measured);
    shell::run(bench.stdin(Stdio::null()).stdout(Stdio::null()))?;
    let measured = read(&measured)?;
    for (what, hash) in hashes(&measured) {
        println!("{what:<16} {hash}");
    }
    let kept = kept();
    if record {
        fs::write(&kept, &measured).with_context(|| kept.display().to_string())?;
        return Ok(Outcome::Same);
    }
    let outcome = compare(&measured, &read(&kept)?);
    println!(
        "{}",
        match outcome {
            Outcome::Same => "the same figures as on the machine that recorded them",
            Outcome::Elsewhere => "recorded with another kernel, QEMU or program",
            Outcome::Different => "other figures than on the machine that recorded them",
        }
    );
    Ok(outcome)
}

fn kept() -> PathBuf {
    shell::root().join("docs/recorded.json")
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn compare(measured: &str, recorded: &str) -> Outcome {
    if measured == recorded {
        Outcome::Same
    } else if hashes(measured) == hashes(recorded) {
        Outcome::Different
    } else {
        Outcome::Elsewhere
    }
}

/// What the figures are of: each name that ends with `sha256`, and its value, once.
fn hashes(json: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut words = json.split('"').skip(1).step_by(2);
    while let Some(word) = words.next() {
        if word.ends_with("sha256")
            && let Some(hash) = words.next()
            && !found.contains(&(word, hash))
        {
            found.push((word, hash));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str =
        r#"{"columns": [{"sha256": "aa"}], "program_sha256": "bb", "figure": 1, "sha256": "aa"}"#;

    #[test]
    fn what_figures_are_of_is_found() {
        assert_eq!(hashes(ONE), [("sha256", "aa"), ("program_sha256", "bb")]);
        assert_eq!(hashes("{}"), []);
    }

    #[test]
    fn figures_of_the_same_must_be_the_same() {
        assert_eq!(compare(ONE, ONE), Outcome::Same);
        let other = ONE.replace("1", "2");
        assert_eq!(compare(&other, ONE), Outcome::Different);
        assert_eq!(compare(&other.replace("bb", "cc"), ONE), Outcome::Elsewhere);
    }

    #[test]
    fn what_is_recorded_names_what_it_is_of() {
        let recorded = read(&kept()).unwrap();
        for name in ["sha256", "program_sha256"] {
            assert!(hashes(&recorded).iter().any(|(found, _)| *found == name));
        }
    }
}
