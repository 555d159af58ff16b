//! Every test of the workspace, with one closing line for all.

use crate::{guest, install, shell};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

/// How many tests ended in which way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub passed: u64,
    pub failed: u64,
    pub ignored: u64,
}

impl Totals {
    /// Reads the line that closes the output of one test binary.
    fn parse(line: &str) -> Option<Totals> {
        let rest = line.strip_prefix("test result: ")?;
        let (_, counts) = rest.split_once(". ")?;
        let mut totals = Totals::default();
        for part in counts.split(';') {
            let Some((count, what)) = part.trim().split_once(' ') else {
                continue;
            };
            let Ok(count) = count.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => totals.passed = count,
                "failed" => totals.failed = count,
                "ignored" => totals.ignored = count,
                // "measured", "filtered out", "finished in"
                _ => {}
            }
        }
        Some(totals)
    }

    fn add(&mut self, other: Totals) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }

    /// The closing line.
    pub fn line(self) -> String {
        let Totals {
            passed,
            failed,
            ignored,
        } = self;
        let verdict = if failed == 0 { "ok" } else { "FAILED" };
        format!("test result: {verdict}. {passed} passed; {failed} failed; {ignored} ignored")
    }
}

/// Installs what is missing, runs every test, and prints the closing line.
///
/// # Errors
/// When a test fails, or tests cannot be built.
pub fn run() -> Result<()> {
    install::install()?;
    let totals = run_tests()?;
    println!("{}", totals.line());
    if totals.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

/// Builds what the guests run, and runs the tests of the default members (unit, integration, QEMU and documentation
/// tests) and of the kernel's part that needs no hardware.
///
/// # Errors
/// When nothing could be run; failed tests are in the totals.
pub fn run_tests() -> Result<Totals> {
    guest::build()?;
    let mut totals = run_cargo(&["test", "--no-fail-fast"])?;
    totals.add(run_cargo(&["test", "-p", "memwright-kernel", "--lib"])?);
    if totals.failed == 0 && totals.passed == 0 {
        bail!("no test ran");
    }
    Ok(totals)
}

fn run_cargo(arguments: &[&str]) -> Result<Totals> {
    let mut command: Command = shell::cargo(arguments);
    shell::step(&shell::line(&command));
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start cargo")?;
    let mut totals = Totals::default();
    let reader = BufReader::new(child.stdout.take().context("cargo has no output")?);
    let mut output = std::io::stdout().lock();
    for line in reader.split(b'\n') {
        let line = String::from_utf8_lossy(&line?).into_owned();
        if let Some(part) = Totals::parse(&line) {
            totals.add(part);
            // The words of the closing line appear once, in the closing line.
            writeln!(
                output,
                "{}",
                line.replacen("test result:", "    subtotal:", 1)
            )?;
        } else {
            writeln!(output, "{line}")?;
        }
        output.flush()?;
    }
    let status = child.wait()?;
    if !status.success() && totals.failed == 0 {
        // A test that does not build, or a test binary that died before its last line.
        totals.failed = 1;
    }
    Ok(totals)
}

#[cfg(test)]
mod tests {
    use super::Totals;

    #[test]
    fn reads_the_closing_line_of_libtest() {
        let line = "test result: ok. 12 passed; 0 failed; 3 ignored; 0 measured; 1 filtered out; finished in 0.02s";
        assert_eq!(
            Totals::parse(line),
            Some(Totals {
                passed: 12,
                failed: 0,
                ignored: 3
            })
        );
        let line = "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out";
        assert_eq!(
            Totals::parse(line),
            Some(Totals {
                passed: 1,
                failed: 2,
                ignored: 0
            })
        );
        assert_eq!(Totals::parse("test a_test ... ok"), None);
    }

    #[test]
    fn one_failure_makes_the_whole_fail() {
        let mut totals = Totals {
            passed: 3,
            failed: 0,
            ignored: 1,
        };
        assert_eq!(
            totals.line(),
            "test result: ok. 3 passed; 0 failed; 1 ignored"
        );
        totals.add(Totals {
            passed: 1,
            failed: 1,
            ignored: 0,
        });
        assert_eq!(
            totals.line(),
            "test result: FAILED. 4 passed; 1 failed; 1 ignored"
        );
    }
}
