//! `cargo xtask mutants`: checks, for every mistake, that the test that is assigned to it notices it.
//!
//! The source contains no mistakes. Edits plant them in a copy of the tree, where each can be enabled at run time. The
//! tests of `memwright-sim` and `memwright` are built there once. Each assigned test first runs without the mistake,
//! and must pass. It then runs with the mistake, and an assertion must fail.

mod edit;
mod list;
mod tokens;
mod tree;
mod verdict;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::list::{List, Mistake};
use self::verdict::{Ending, Exit, judge};
use crate::{architectures, parallel, shell};

/// The simulated machine of a build that names none.
const DEFAULT_MACHINE: &str = "x86_64";

/// The time limit of a test. A test that exceeds it has not noticed the mistake. The limit is far above what any test
/// takes on a busy machine: it only ends tests that a mistake makes run without end.
const LIMIT: Duration = Duration::from_secs(600);

/// The built tests of the copy of the tree with the mistakes.
struct Tests {
    tree: PathBuf,
    /// The path of each binary, by its name.
    binaries: BTreeMap<String, PathBuf>,
}

impl Tests {
    /// Returns the tests of `binaries` that are not ignored, each as a binary and a name.
    fn runs(&self, binaries: &BTreeSet<&str>) -> Result<BTreeSet<(String, String)>> {
        let mut runs = BTreeSet::new();
        let named = self.binaries.iter();
        for (binary, path) in named.filter(|(name, _)| binaries.contains(name.as_str())) {
            let list = |more: &[&str]| {
                let mut command = Command::new(path);
                command.args(["--list", "--format", "terse"]).args(more);
                let text = shell::output(&mut command);
                text.with_context(|| format!("{} lists no tests", path.display()))
            };
            let (all, ignored) = (list(&[])?, list(&["--ignored"])?);
            let names = |text: &str| -> BTreeSet<String> {
                let lines = text.lines();
                lines
                    .filter_map(|line| line.strip_suffix(": test"))
                    .map(str::to_owned)
                    .collect()
            };
            let ignored = names(&ignored);
            let run = names(&all).into_iter();
            let run = run.filter(|name| !ignored.contains(name));
            runs.extend(run.map(|name| (binary.clone(), name)));
        }
        Ok(runs)
    }
}

/// Returns the names of all mistakes.
///
/// # Errors
/// If a list cannot be read.
#[cfg(test)]
pub fn names() -> Result<Vec<String>> {
    let list = List::read()?;
    Ok(list
        .mistakes
        .into_iter()
        .map(|mistake| mistake.name)
        .collect())
}

/// Returns the tests, each as a binary and a name, that must notice the mistakes planted in files of a folder.
///
/// # Errors
/// If a list cannot be read.
pub fn tests_of(folder: &str) -> Result<BTreeSet<(String, String)>> {
    let list = List::read()?;
    let edits = list.edits.iter();
    let planted: BTreeSet<&str> = edits
        .filter(|edit| Path::new(&edit.file).starts_with(folder))
        .flat_map(|edit| edit.switches())
        .collect();
    let mistakes = list.mistakes.iter();
    let noticed = mistakes.filter(|mistake| planted.contains(mistake.name.as_str()));
    Ok(noticed
        .map(|mistake| mistake.test())
        .map(|(binary, test)| (binary.to_owned(), test.to_owned()))
        .collect())
}

/// Returns the table of mistakes for the documentation.
///
/// # Errors
/// If a list cannot be read.
pub fn markdown() -> Result<String> {
    Ok(List::read()?.table())
}

/// Enables every mistake, or the named ones, one at a time, and prints the test that noticed each.
///
/// # Errors
/// If a test does not notice its mistake or fails in another way than by an assertion, if a test fails without the
/// mistake, if an edit does not apply, or if the build fails.
pub fn run(arguments: &[&str]) -> Result<()> {
    let list = List::read()?;
    match arguments {
        ["--list"] => {
            print!("{}", list.table());
            Ok(())
        }
        ["--check"] => {
            let files = list.edited(&shell::root())?.len();
            let (edits, mistakes) = (list.edits.len(), list.mistakes.len());
            println!("{edits} edits of {files} files plant {mistakes} mistakes");
            Ok(())
        }
        ["--simulated", architecture, names @ ..] => plant(&list, names, Some(architecture)),
        names => plant(&list, names, None),
    }
}

/// Enables the mistakes with these names one at a time, or all if `names` is empty. Uses the simulated machine with the
/// name `simulated`, or that of x86-64 if it is `None`. Skips the mistakes whose tests that machine does not run.
fn plant(list: &List, names: &[&str], simulated: Option<&str>) -> Result<()> {
    let mut chosen = Vec::new();
    for name in names {
        let mistake = list.mistake(name);
        chosen.push(mistake.with_context(|| format!("no mistake is named {name}"))?);
    }
    if names.is_empty() {
        chosen.extend(&list.mistakes);
    }
    let tests = build(tree::copy(list)?, simulated)?;
    let all = chosen.len();
    let machine = simulated.unwrap_or(DEFAULT_MACHINE);
    chosen.retain(|mistake| {
        let needed = mistake.simulated.as_deref();
        needed.is_none_or(|needed| needed == machine)
    });
    if simulated.is_some() {
        let binaries = chosen.iter().map(|mistake| mistake.test().0).collect();
        let runs = tests.runs(&binaries)?;
        chosen.retain(|mistake| {
            let (binary, test) = mistake.test();
            runs.contains(&(binary.to_owned(), test.to_owned()))
        });
    }
    check_unmodified(&tests, &chosen)?;
    let unnoticed = count_unnoticed(&tests, &chosen)?;
    println!(
        "{} mistakes, {} noticed",
        chosen.len(),
        chosen.len() - unnoticed
    );
    if all > chosen.len() {
        let skipped = all - chosen.len();
        println!("{skipped} more are for other simulated machines");
    }
    if unnoticed > 0 {
        bail!("{unnoticed} mistakes were noticed by no assertion");
    }
    Ok(())
}

/// Runs the test of each of the mistakes `chosen`, without a mistake.
///
/// # Errors
/// If a test fails.
fn check_unmodified(tests: &Tests, chosen: &[&Mistake]) -> Result<()> {
    let named: BTreeSet<(&str, &str)> = chosen.iter().map(|mistake| mistake.test()).collect();
    let named: Vec<(&str, &str)> = named.into_iter().collect();
    let run = |test: &(&str, &str)| play(tests, *test, None);
    parallel::each(&named, run, |(binary, test), ending| {
        let ending = ending?;
        ensure!(
            ending == Ending::Passed,
            "{binary}::{test} without a mistake: {ending:?}",
        );
        Ok(())
    })
}

/// Runs the test of each of the mistakes `chosen`, with the mistake, and prints how it ended. Returns the number of
/// mistakes that no assertion noticed.
fn count_unnoticed(tests: &Tests, chosen: &[&Mistake]) -> Result<usize> {
    let mut unnoticed = 0;
    println!("{:<24} {:<60} noticed", "mistake", "test");
    let run = |mistake: &&Mistake| play(tests, mistake.test(), Some(mistake));
    parallel::each(chosen, run, |mistake, ending| {
        let ending = ending?;
        let (binary, test) = mistake.test();
        unnoticed += usize::from(!matches!(ending, Ending::Asserted(_)));
        let test = format!("{binary}::{test}");
        println!("{:<24} {test:<60} {ending}", mistake.name);
        Ok(())
    })?;
    Ok(unnoticed)
}

/// Builds the tests of the copy. The target folder is separate, because the packages of the copy have the same names as
/// those of the source.
fn build(tree: PathBuf, simulated: Option<&str>) -> Result<Tests> {
    let mut command = shell::cargo([
        "test",
        "-q",
        "-p",
        "memwright-sim",
        "-p",
        "memwright",
        "--no-run",
        "--message-format=json",
    ]);
    let mut folder = String::from("build");
    if let Some(architecture) = simulated {
        architectures::simulate(&mut command, architecture)?;
        folder = format!("build-{architecture}");
    }
    command
        .current_dir(&tree)
        .env("CARGO_TARGET_DIR", tree.with_file_name(folder));
    shell::step(&shell::line(&command));
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    ensure!(
        output.status.success(),
        "the tests do not build in {}",
        tree.display()
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let binaries: BTreeMap<String, PathBuf> = text.lines().filter_map(executable).collect();
    ensure!(!binaries.is_empty(), "cargo built no tests");
    Ok(Tests { tree, binaries })
}

/// Returns the name and the executable of a test binary, if a line of cargo's messages names them.
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

/// Runs one test, with the mistake enabled or without a mistake.
fn play(tests: &Tests, (binary, test): (&str, &str), mistake: Option<&Mistake>) -> Result<Ending> {
    let path = tests
        .binaries
        .get(binary)
        .with_context(|| format!("there is no test binary {binary}"))?;
    let mut command = Command::new(path);
    command
        .args([test, "--exact", "--nocapture"])
        .current_dir(tests.tree.join("crates/memwright-sim"))
        .env("RUST_BACKTRACE", "0")
        .env_remove("MEMWRIGHT_MISTAKE")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if let Some(mistake) = mistake {
        command.env("MEMWRIGHT_MISTAKE", &mistake.name);
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
    let source = |file: &Path| std::fs::read_to_string(tests.tree.join(file)).ok();
    Ok(judge(exit, &stdout, &stderr, source))
}

/// A thread that reads the output of a process.
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
