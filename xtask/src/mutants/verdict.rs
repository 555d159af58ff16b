//! Determines from the result of a test whether the test noticed a mistake or failed for another reason.
//!
//! A test notices a mistake by an assertion. An assertion is a macro of the `assert` family in any file, or `panic!` in
//! the code of the tests, where a checker uses it to report an error. An `unwrap` of an error, an index out of range,
//! an abort and a hang do not count: the mistake can have caused them, but no test checks for them.

use std::fmt;
use std::path::{Path, PathBuf};

/// The macros whose panics count as assertions in any file.
const ASSERTIONS: [&str; 6] = [
    "assert",
    "assert_eq",
    "assert_ne",
    "debug_assert",
    "debug_assert_eq",
    "debug_assert_ne",
];
/// The prefixes of the default messages of these macros.
const MESSAGES: [&str; 2] = ["assertion failed: ", "assertion `"];
/// The macro that counts as an assertion only in the folders `CHECKERS`.
const REPORT: &str = "panic";
const CHECKERS: [&str; 3] = [
    "crates/memwright-testkit/",
    "crates/memwright-sim/",
    "crates/memwright/tests/",
];

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The process exited with this code.
    Code(i32),
    /// A signal ended the process.
    Signal,
    /// The process was killed at the time limit.
    Late,
}

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The test passed.
    Passed,
    /// An assertion failed.
    Asserted(Panic),
    /// The test panicked, but not by an assertion.
    Panicked(Panic),
    /// The test failed without a panic.
    Failed,
    /// The process ended before the test had a result.
    Crashed,
    /// The test did not end before the time limit.
    Hung,
    /// There is no such test.
    Missing,
}

/// A panic that a test printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Panic {
    /// The path of the file, as passed to the compiler.
    pub file: PathBuf,
    /// The line and the column, from 1.
    pub place: (usize, usize),
    /// The first line of the message.
    pub message: String,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            file,
            place: (line, column),
            message,
        } = self;
        write!(f, "{}:{line}:{column}: {message}", file.display())
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("NO: the test passed"),
            Self::Asserted(_) => f.write_str("yes"),
            Self::Panicked(panic) => write!(f, "NO: a panic that is no assertion: {panic}"),
            Self::Failed => f.write_str("NO: the test failed without a panic"),
            Self::Crashed => f.write_str("NO: the test's process ended before the test"),
            Self::Hung => f.write_str("NO: the test had no end"),
            Self::Missing => f.write_str("NO: there is no such test"),
        }
    }
}

/// Returns how a test ended, from the exit and the output of a process that ran only this test, with `--nocapture`.
/// `source` returns the text of a file of the tree that was built.
///
/// Only the first panic is evaluated, because it can cause later ones, for example in a thread that joins the failed
/// thread.
pub fn judge(
    exit: Exit,
    stdout: &str,
    stderr: &str,
    source: impl Fn(&Path) -> Option<String>,
) -> Ending {
    if exit == Exit::Late {
        return Ending::Hung;
    }
    if !stdout.contains("running 1 test") {
        return Ending::Missing;
    }
    let is_failed = stdout.contains("test result: FAILED. 0 passed; 1 failed");
    match exit {
        Exit::Code(0) => return Ending::Passed,
        Exit::Code(_) if is_failed => {}
        Exit::Code(_) | Exit::Signal | Exit::Late => return Ending::Crashed,
    }
    let Some(panic) = panics(stderr).into_iter().next() else {
        return Ending::Failed;
    };
    if is_assertion(&panic, source) {
        Ending::Asserted(panic)
    } else {
        Ending::Panicked(panic)
    }
}

/// Returns the panics that the panic hook of the standard library printed.
fn panics(stderr: &str) -> Vec<Panic> {
    let lines: Vec<&str> = stderr.lines().collect();
    let panic = |(index, line): (usize, &&str)| {
        let (_, place) = line.split_once(" panicked at ")?;
        let mut parts = place.strip_suffix(':')?.rsplitn(3, ':');
        let column = parts.next()?.parse().ok()?;
        let line = parts.next()?.parse().ok()?;
        Some(Panic {
            file: parts.next()?.into(),
            place: (line, column),
            message: (*lines.get(index + 1).unwrap_or(&"")).to_owned(),
        })
    };
    let starts = |(_, line): &(usize, &&str)| line.contains("thread '");
    lines
        .iter()
        .enumerate()
        .filter(starts)
        .filter_map(panic)
        .collect()
}

fn is_assertion(panic: &Panic, source: impl Fn(&Path) -> Option<String>) -> bool {
    if MESSAGES
        .iter()
        .any(|begin| panic.message.starts_with(begin))
    {
        return true;
    }
    let text = source(&panic.file);
    let Some(name) = text.as_deref().and_then(|text| macro_at(text, panic.place)) else {
        return false;
    };
    let is_checker = CHECKERS.iter().any(|folder| panic.file.starts_with(folder));
    ASSERTIONS.contains(&name) || (name == REPORT && is_checker)
}

/// Returns the name of the macro that is called at this line and column, if any.
fn macro_at(text: &str, (line, column): (usize, usize)) -> Option<&str> {
    let line = text.lines().nth(line.checked_sub(1)?)?;
    // The compiler counts columns in characters.
    let start = line.char_indices().nth(column.checked_sub(1)?)?.0;
    let (name, _) = line[start..].split_once('!')?;
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    name.chars()
        .all(is_name)
        .then(|| name.rsplit(':').next().unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: &str = "\nrunning 1 test\ntest a ... FAILED\n\nfailures:\n\ntest result: FAILED. 0 passed; 1 failed; 0 ignored\n";
    const FILE: &str = "crates/memwright-sim/tests/cow.rs";
    const SOURCE: &str = "\
fn a() {
    assert!(one, \"said otherwise\");
    let x = found.unwrap();
    other => panic!(\"{other:?}\"),
    /* \u{e4} */ std::assert_eq!(1, 2, \"words\");
    list[7];
}
";

    fn panicked(file: &str, line: usize, column: usize, message: &str) -> String {
        format!(
            "noise\n\nthread 'a' (17) panicked at {file}:{line}:{column}:\n{message}\nnote: run with\n"
        )
    }

    fn ending(exit: Exit, stdout: &str, stderr: &str) -> Ending {
        judge(exit, stdout, stderr, |_| Some(SOURCE.to_owned()))
    }

    fn noticed(stderr: &str) -> bool {
        match ending(Exit::Code(101), FAILED, stderr) {
            Ending::Asserted(_) => true,
            Ending::Panicked(_) => false,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn an_assertion_notices() {
        for (file, line, column, message) in [
            (FILE, 2, 5, "said otherwise"),
            ("crates/memwright/src/fault/mod.rs", 2, 5, "said otherwise"),
            (FILE, 5, 13, "words"),
            (FILE, 4, 14, "Denied"),
            (FILE, 99, 1, "assertion `left == right` failed: cow"),
            (FILE, 99, 1, "assertion failed: entry.is_writable()"),
        ] {
            assert!(noticed(&panicked(file, line, column, message)), "{message}");
        }
    }

    #[test]
    fn another_panic_does_not() {
        for (file, line, column, message) in [
            (FILE, 3, 19, "called `Option::unwrap()` on a `None` value"),
            (
                FILE,
                6,
                5,
                "index out of bounds: the len is 3 but the index is 7",
            ),
            // `panic!` counts only in a folder of checkers.
            ("crates/memwright/src/fault/mod.rs", 4, 14, "Denied"),
            (FILE, 99, 1, "attempt to subtract with overflow"),
        ] {
            assert!(
                !noticed(&panicked(file, line, column, message)),
                "{message}"
            );
        }
    }

    #[test]
    fn the_first_panic_counts() {
        let unwrap = panicked(FILE, 3, 19, "called `Option::unwrap()` on a `None` value");
        let assertion = panicked(FILE, 2, 5, "said otherwise");
        assert!(!noticed(&format!("{unwrap}{assertion}")));
        assert!(noticed(&format!("{assertion}{unwrap}")));
    }

    #[test]
    fn what_is_no_result_notices_nothing() {
        let begun = "\nrunning 1 test\n";
        let passed = "\nrunning 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed\n";
        let none = "\nrunning 0 tests\n\ntest result: ok. 0 passed; 0 failed\n";
        let assertion = panicked(FILE, 2, 5, "said otherwise");
        for (exit, stdout, expected) in [
            (Exit::Code(0), passed, Ending::Passed),
            (Exit::Code(0), none, Ending::Missing),
            (Exit::Code(101), begun, Ending::Crashed),
            (Exit::Signal, begun, Ending::Crashed),
            (Exit::Late, begun, Ending::Hung),
        ] {
            assert_eq!(ending(exit, stdout, &assertion), expected);
        }
        assert_eq!(
            ending(Exit::Code(101), FAILED, "Error: no\n"),
            Ending::Failed
        );
        for ending in [
            Ending::Passed,
            Ending::Failed,
            Ending::Crashed,
            Ending::Hung,
        ] {
            assert!(ending.to_string().starts_with("NO"));
        }
    }
}
