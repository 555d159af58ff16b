//! `cargo xtask mutants`: every mistake that can be planted is noticed by the test that is named for it.
//!
//! The tests of `memwright-sim` and `memwright` are built once with the feature `mistakes`. Each runs without a mistake, and must
//! pass; then with the mistake, and an assertion must fail.

mod list;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::list::{MUTANTS, Mutant};
use self::verdict::{Ending, Exit, judge};
use crate::shell;

/// What one test may take. One that hangs has not noticed the mistake.
const LIMIT: Duration = Duration::from_secs(120);

/// Plants every mistake in turn, or those that are named, and prints which test noticed.
///
/// # Errors
/// A mistake that goes unnoticed, or that its test notices by another failure than an assertion's; a test that fails
/// without one; a build.
pub fn run(arguments: &[&str]) -> Result<()> {
    if arguments == ["--list"] {
        print!("{}", list::table());
        return Ok(());
    }
    let chosen: Vec<&Mutant> = MUTANTS
        .iter()
        .filter(|mutant| arguments.is_empty() || arguments.contains(&mutant.name))
        .collect();
    if let Some(unknown) = arguments
        .iter()
        .find(|name| !MUTANTS.iter().any(|mutant| mutant.name == **name))
    {
        bail!("no mistake is named {unknown}");
    }
    let binaries = build()?;
    let tests: BTreeSet<(&str, &str)> = chosen
        .iter()
        .map(|mutant| (mutant.binary, mutant.test))
        .collect();
    for (binary, test) in tests {
        let ending = play(&binaries, binary, test, None)?;
        ensure!(
            ending == Ending::Passed,
            "{binary}::{test} without a mistake: {ending:?}",
        );
    }
    let mut unnoticed = 0;
    println!("{:<24} {:<60} noticed", "mistake", "test");
    for mutant in &chosen {
        let ending = play(&binaries, mutant.binary, mutant.test, Some(mutant.name))?;
        if !matches!(ending, Ending::Asserted(_)) {
            unnoticed += 1;
        }
        let test = format!("{}::{}", mutant.binary, mutant.test);
        println!("{:<24} {test:<60} {ending}", mutant.name);
    }
    println!(
        "{} mistakes, {} noticed",
        chosen.len(),
        chosen.len() - unnoticed
    );
    if unnoticed > 0 {
        bail!("{unnoticed} mistakes were noticed by no assertion");
    }
    Ok(())
}

/// Builds the tests and returns where each binary is.
fn build() -> Result<BTreeMap<String, PathBuf>> {
    let mut command = shell::cargo([
        "test",
        "-q",
        "-p",
        "memwright-sim",
        "-p",
        "memwright",
        "--features",
        "memwright-sim/mistakes",
        "--no-run",
        "--message-format=json",
    ]);
    shell::step(&shell::line(&command));
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(output.status.success(), "the tests do not build");
    let text = String::from_utf8_lossy(&output.stdout);
    let binaries: BTreeMap<String, PathBuf> = text.lines().filter_map(executable).collect();
    ensure!(!binaries.is_empty(), "cargo built no tests");
    Ok(binaries)
}

/// The name and the executable of a test that a line of cargo's messages tells of.
fn executable(line: &str) -> Option<(String, PathBuf)> {
    let value = |key: &str| {
        let start = line.rfind(key)? + key.len();
        line[start..].split('"').next()
    };
    let executable = value("\"executable\":\"")?;
    let target = line.split("\"target\":{").nth(1)?;
    let name = target.split("\"name\":\"").nth(1)?.split('"').next()?;
    Some((name.to_owned(), executable.into()))
}

/// Runs one test, with a mistake or without.
fn play(
    binaries: &BTreeMap<String, PathBuf>,
    binary: &str,
    test: &str,
    mistake: Option<&str>,
) -> Result<Ending> {
    let path = binaries
        .get(binary)
        .with_context(|| format!("there is no test binary {binary}"))?;
    let mut command = Command::new(path);
    command
        .args([test, "--exact", "--nocapture"])
        .current_dir(shell::root().join("crates/memwright-sim"))
        .env("RUST_BACKTRACE", "0")
        .env_remove("MEMWRIGHT_MISTAKE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(name) = mistake {
        command.env("MEMWRIGHT_MISTAKE", name);
    }
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot start {}", path.display()))?;
    let stdout = reader(child.stdout.take().context("the test has no output")?);
    let stderr = reader(child.stderr.take().context("the test has no errors")?);
    let deadline = Instant::now() + LIMIT;
    let exit = loop {
        if let Some(status) = child.try_wait()? {
            break status.code().map_or(Exit::Signal, Exit::Code);
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            break Exit::Late;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let text = |reader: Reader| {
        reader
            .join()
            .ok()
            .context("cannot read what the test wrote")?
    };
    let (stdout, stderr) = (text(stdout)?, text(stderr)?);
    Ok(judge(exit, &stdout, &stderr, |file| {
        std::fs::read_to_string(shell::root().join(file)).ok()
    }))
}

/// A thread that reads all that a process writes.
type Reader = std::thread::JoinHandle<Result<String>>;

fn reader(mut from: impl std::io::Read + Send + 'static) -> Reader {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        from.read_to_end(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_tells_where_a_test_is() {
        let line = r#"{"reason":"compiler-artifact","target":{"kind":["test"],"name":"cow","src_path":"/x/cow.rs"},"filenames":["/t/cow-1"],"executable":"/t/cow-1","fresh":true}"#;
        assert_eq!(
            executable(line),
            Some(("cow".to_owned(), "/t/cow-1".into()))
        );
        assert_eq!(
            executable(&line.replace("\"/t/cow-1\",\"fresh", "null,\"fresh")),
            None
        );
    }
}
