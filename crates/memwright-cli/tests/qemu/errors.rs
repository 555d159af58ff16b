//! Compares Memwright's errors with Linux's, for each memory call, each cause of failure and each pair of causes.

use crate::{guest::Guest, prepare};
use libtest_mimic::{Failed, Trial};
use std::{collections::HashMap, fs};

/// Returns the tests of this file.
pub fn trials() -> Vec<Trial> {
    vec![Trial::test("errors::as_linux", as_linux)]
}

/// Checks that every line printed by `errors.c` is the same as on Linux, or is in `errors.differs` with a reason.
fn as_linux() -> Result<(), Failed> {
    let read = |name: &str| fs::read_to_string(prepare::workspace().join("programs").join(name));
    let expected = expected(&read("errors.linux")?, &read("errors.differs")?)?;
    let program = prepare::program("musl-static", "errors");
    let ending = Guest::new(program, &[])
        .option("--swap", "zram:16M")
        .untraced()
        .run()?;
    ending.expect_code(0)?;
    ending.expect_output(expected.as_bytes())
}

/// Returns Linux's results, with the rows of `errors.differs` replaced.
///
/// # Errors
/// If a row of `errors.differs` is missing in Linux's results, or has the same result there.
fn expected(linux: &str, differs: &str) -> Result<String, Failed> {
    let row_of = |line: &str| line.rsplit_once(": ").map(|(row, _)| row.to_owned());
    let mut ours = HashMap::new();
    let rows = differs
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    for line in rows {
        let row = row_of(line).ok_or_else(|| format!("errors.differs: no answer in {line:?}"))?;
        ours.insert(row, line);
    }
    let mut text = String::new();
    for line in linux.lines() {
        let row = row_of(line).ok_or_else(|| format!("errors.linux: no answer in {line:?}"))?;
        let answer = ours.remove(&row);
        if answer == Some(line) {
            return Err(format!("errors.differs: {line:?} is what Linux answers").into());
        }
        text.push_str(answer.unwrap_or(line));
        text.push('\n');
    }
    match ours.keys().next() {
        Some(row) => Err(format!("errors.differs: errors.linux has no row {row:?}").into()),
        None => Ok(text),
    }
}
