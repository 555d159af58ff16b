//! Runs Linux's own mm selftests, unmodified, on Memwright, and compares with their results on Linux.
//!
//! The sources are Debian's package, fetched into a cache outside the tree. The tree contains only the names of the
//! subtests.

mod build;
mod expected;
mod list;
mod page;
mod report;
mod run;
mod settings;
mod source;
mod tally;
mod tap;

use crate::block::Block;
use crate::command::{self, Profile};
use crate::shell;
use crate::tier::Tier;
use anyhow::{Result, bail};
use std::path::PathBuf;

use expected::Expected;
use list::Test;
use report::Totals;
use settings::Settings;

/// The folder of the lists in the tree.
const FOLDER: &str = "conformance";

/// The outcome of a run.
pub enum Outcome {
    /// The sources are not available, for this reason.
    NoSource(String),
    /// The tests ran; counts of the subtests.
    Ran(Totals),
}

/// `cargo xtask conformance [OPTION]... [TEST]...`: runs the named tests, or all that are expected to run.
///
/// # Errors
/// Unknown options, a failed build, and a subtest that does worse, or better, than expected.
pub fn run(arguments: &[&str]) -> Result<()> {
    let settings = Settings::parse(arguments, |name| std::env::var(name).ok())?;
    match run_with(&settings)? {
        Outcome::NoSource(why) => {
            eprintln!("{why}");
            println!("skipped: no source");
            Ok(())
        }
        Outcome::Ran(totals) => {
            let complaint = totals.complaint();
            if let Some(complaint) = &complaint {
                println!("{FOLDER}/{}: {complaint}", expected::FILE);
            }
            println!("{}", totals.passes());
            println!("{}", totals.line());
            if complaint.is_some() {
                std::process::exit(1);
            }
            Ok(())
        }
    }
}

/// Runs the tests of a tier with these policies: in the full tier all that are expected to run, else a part.
///
/// # Errors
/// Like [`run()`], except that unexpected results are in the totals.
pub fn run_in(tier: Tier, policies: &[&str]) -> Result<Outcome> {
    let policies = policies.iter().flat_map(|policy| ["--policy", policy]);
    let slice = match tier {
        Tier::Test | Tier::Ci => Some("--slice"),
        Tier::Full => None,
    };
    let arguments: Vec<&str> = slice.into_iter().chain(policies).collect();
    let settings = Settings::parse(&arguments, |name| std::env::var(name).ok())?;
    run_with(&settings)
}

/// Returns the parts of pages that the lists decide.
///
/// # Errors
/// A list that cannot be read.
pub fn blocks() -> Result<Vec<Block>> {
    let tests = Test::read(&read(list::FILE)?)?;
    let expected = Expected::read(&read(expected::FILE)?)?;
    Ok(page::blocks(&tests, &expected))
}

fn run_with(settings: &Settings) -> Result<Outcome> {
    let tests = Test::read(&read(list::FILE)?)?;
    let expected = Expected::read(&read(expected::FILE)?)?.under(&settings.policies);
    let chosen = choose(&tests, &expected, settings)?;
    let source = match source::obtain(settings) {
        Ok(source) => source,
        Err(error) => return Ok(Outcome::NoSource(format!("{error:#}"))),
    };
    println!("Linux's mm selftests, version {}", source.version);
    let programs = build::build(&source, &chosen)?;
    // A few tests are over before an optimised command would be built.
    let are_few = settings.slice || !settings.tests.is_empty();
    let command = command::built(match are_few {
        true => Profile::Dev,
        false => Profile::Release,
    })?;
    report::heading();
    let mut totals = Totals::default();
    for test in &chosen {
        let output = run::run(&command, test, &programs, &settings.policies)?;
        if settings.verbose {
            print!("{}", output.text);
        }
        totals.add(report::test(test, &expected.of(&test.name), &output));
    }
    Ok(Outcome::Ran(totals))
}

/// Returns the named tests, in order, or without names those with an expected result.
fn choose<'a>(
    tests: &'a [Test],
    expected: &Expected,
    settings: &Settings,
) -> Result<Vec<&'a Test>> {
    if settings.tests.is_empty() {
        let wanted = |test: &&Test| expected.runs(&test.name) && (test.slice || !settings.slice);
        return Ok(tests.iter().filter(wanted).collect());
    }
    let mut chosen = Vec::new();
    for name in &settings.tests {
        match tests.iter().find(|test| test.name == *name) {
            Some(test) => chosen.push(test),
            None => bail!("{FOLDER}/{} lists no test {name}", list::FILE),
        }
    }
    Ok(chosen)
}

fn folder() -> PathBuf {
    shell::root().join(FOLDER)
}

fn read(name: &str) -> Result<String> {
    use anyhow::Context as _;
    let path = folder().join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expected::{Expectation, Reference};
    use std::collections::BTreeSet;

    fn lists() -> (Vec<Test>, Expected) {
        (
            Test::read(&read(list::FILE).unwrap()).unwrap(),
            Expected::read(&read(expected::FILE).unwrap()).unwrap(),
        )
    }

    #[test]
    fn the_lists_name_the_same_tests() {
        let (tests, expected) = lists();
        let names: BTreeSet<&str> = expected.lines().map(|(test, _)| test).collect();
        for test in &tests {
            // This test did not finish on the reference, so its subtests are not known.
            let known = test.name != "folio_split_race_test";
            assert_eq!(names.contains(test.name.as_str()), known, "{}", test.name);
        }
        for name in names {
            assert!(tests.iter().any(|test| test.name == name), "{name}");
        }
    }

    #[test]
    fn every_subtest_of_the_reference_has_one_line() {
        let (_, expected) = lists();
        let numbers: BTreeSet<_> = expected
            .lines()
            .map(|(test, line)| (test, line.number))
            .collect();
        let count = |reference| {
            let lines = expected.lines();
            lines
                .filter(|(_, line)| line.reference == reference)
                .count()
        };
        assert_eq!(Reference::ALL.map(count), [1314, 7, 405, 5]);
        assert_eq!(numbers.len(), 1731);
    }

    #[test]
    fn only_what_linux_skipped_is_expected_to_be_skipped() {
        let (_, expected) = lists();
        for (test, line) in expected.lines() {
            let skipped_here = matches!(line.expectation, Expectation::Skipped(_));
            let skipped = line.reference == Reference::Skipped;
            // Where this machine has what the reference lacked, the subtest passes.
            let passes = line.expectation == Expectation::Pass;
            assert_eq!(skipped_here, skipped && !passes, "{test} {}", line.number);
        }
    }

    #[test]
    fn the_first_ten_are_expected_to_pass_and_are_the_slice() {
        let (tests, expected) = lists();
        for (name, subtests, later) in [
            ("map_fixed_noreplace", 9, 0),
            ("mremap_dontunmap", 5, 0),
            ("on-fault-limit", 1, 0),
            ("mlock2-tests", 15, 0),
            ("mlock-random-test", 2, 0),
            ("map_populate", 2, 0),
            ("mrelease_test", 1, 0),
            ("mdwe_test", 36, 4),
            ("mremap_test", 26, 0),
            ("droppable", 1, 0),
        ] {
            let lines = expected.of(name);
            let passing = lines.iter();
            let passing = passing.filter(|line| line.expectation == Expectation::Pass);
            assert_eq!(
                (lines.len(), passing.count()),
                (subtests, subtests - later),
                "{name}"
            );
            assert!(
                tests.iter().any(|test| test.name == name && test.slice),
                "{name}"
            );
        }
    }

    #[test]
    fn a_name_chooses_a_test_and_a_wrong_one_is_refused() {
        let (tests, expected) = lists();
        let settings = |words: &[&str]| Settings::parse(words, |_| None).unwrap();
        let chosen = choose(&tests, &expected, &settings(&["cow"])).unwrap();
        assert_eq!(chosen.len(), 1);
        assert!(choose(&tests, &expected, &settings(&["cows"])).is_err());
        let all = choose(&tests, &expected, &settings(&[])).unwrap();
        let slice = choose(&tests, &expected, &settings(&["--slice"])).unwrap();
        assert!(!slice.is_empty() && slice.len() <= all.len() && all.len() < tests.len());
    }
}
