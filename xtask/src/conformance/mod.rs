//! Runs Linux's mm selftests, unmodified, on Memwright or on Linux in the same virtual machine, and compares the
//! results.
//!
//! The sources are from a package of Debian, in a cache outside of the tree. The tree contains only the names and
//! results of the subtests.

mod against;
mod build;
mod column;
mod expected;
mod list;
mod matching;
mod page;
mod reference;
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
use anyhow::{Context, Result, bail};
use std::path::PathBuf;

use column::Column;
use expected::Expected;
use list::Test;
use report::Totals;
use run::Kernel;
use settings::{Settings, VERSION};

/// The kernel series whose column was recorded by hand, before `--reference` existed.
const RECORDED: &str = "7.2";

/// The folder with the lists of tests and of expected results and with the columns, relative to the root of the
/// workspace.
const FOLDER: &str = "conformance";

/// The outcome of a run.
pub enum Outcome {
    /// The sources are not available, for this reason.
    NoSource(String),
    /// The tests ran, with these counts of subtests.
    Ran(Totals),
}

/// `cargo xtask conformance [OPTION]... [TEST]...`: runs the named tests, or all that are expected to pass. With
/// `--reference`, writes a column instead; with `--against`, compares two.
///
/// # Errors
/// If an option is unknown, if the build fails, or if a subtest ends worse or better than expected.
pub fn run(arguments: &[&str]) -> Result<()> {
    let settings = Settings::parse(arguments, |name| std::env::var(name).ok())?;
    if let Some((left, right)) = &settings.against {
        return against::run(left, right);
    }
    if let Some(kernel) = &settings.reference {
        let tests = Test::read(&read(list::FILE)?)?;
        let command = command::built(Profile::Dev)?;
        return reference::run(&command, kernel, &tests, &settings);
    }
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

/// Runs the tests of `tier` that are expected to pass, on Memwright with `policies`.
///
/// # Errors
/// As for [`run()`], except that unexpected results are part of the totals.
pub fn run_in(tier: Tier, policies: &[&str]) -> Result<Outcome> {
    let policies = policies.iter().flat_map(|policy| ["--policy", policy]);
    let arguments: Vec<&str> = policies.collect();
    let settings = Settings::parse(&arguments, |name| std::env::var(name).ok())?;
    run_with(&Settings { tier, ..settings })
}

/// Returns the generated blocks of pages that depend on the lists.
///
/// # Errors
/// If a list cannot be read.
pub fn blocks() -> Result<Vec<Block>> {
    let tests = Test::read(&read(list::FILE)?)?;
    let expected = Expected::read(&read(expected::FILE)?)?;
    Ok(page::blocks(
        &tests,
        &expected,
        &column(VERSION)?,
        &column(RECORDED)?,
    ))
}

fn run_with(settings: &Settings) -> Result<Outcome> {
    let tests = Test::read(&read(list::FILE)?)?;
    let expected = Expected::read(&read(expected::FILE)?)?.under(&settings.policies);
    let reference = column(VERSION)?;
    let chosen = choose(&tests, &expected, settings)?;
    let source = match source::obtain(settings) {
        Ok(source) => source,
        Err(error) => return Ok(Outcome::NoSource(format!("{error:#}"))),
    };
    println!("Linux's mm selftests, version {}", source.version);
    let programs = build::build(&source, &chosen)?;
    // If only a few tests run, they take less time than the build of an optimised command.
    let are_few = settings.tier < Tier::Full || !settings.tests.is_empty();
    let command = command::built(match are_few {
        true => Profile::Dev,
        false => Profile::Release,
    })?;
    report::heading();
    let mut totals = Totals::default();
    let kernel = Kernel::Memwright(&settings.policies);
    run::all(&command, &chosen, &programs, kernel, |test, output| {
        if settings.verbose {
            print!("{}", output.text);
        }
        let lines = expected.of(&test.name);
        totals.add(report::test(test, &lines, &reference, &output));
    })?;
    Ok(Outcome::Ran(totals))
}

/// Returns the named tests, in the given order. If no test is named, returns the tests of the tier that run by default.
fn choose<'a>(
    tests: &'a [Test],
    expected: &Expected,
    settings: &Settings,
) -> Result<Vec<&'a Test>> {
    if settings.tests.is_empty() {
        let wanted = |test: &&Test| expected.runs(&test.name) && test.tier <= settings.tier;
        return Ok(tests.iter().filter(wanted).collect());
    }
    named(tests, &settings.tests)
}

/// Returns the tests with these names, in the given order.
fn named<'a>(tests: &'a [Test], names: &[String]) -> Result<Vec<&'a Test>> {
    let mut chosen = Vec::new();
    for name in names {
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

/// Reads the column of a kernel series.
fn column(series: &str) -> Result<Column> {
    let file = column::file(series);
    Column::read(&read(&file)?).with_context(|| format!("{FOLDER}/{file}"))
}

fn read(name: &str) -> Result<String> {
    let path = folder().join(name);
    std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expected::Expectation;
    use std::collections::BTreeSet;
    use tap::Ending;

    fn lists() -> (Vec<Test>, Expected) {
        (
            Test::read(&read(list::FILE).unwrap()).unwrap(),
            Expected::read(&read(expected::FILE).unwrap()).unwrap(),
        )
    }

    /// The tests that are not in the column of the reference, because they take too long on the instruction clock.
    const NOT_RUN: [&str; 3] = ["transhuge-stress", "folio_split_race_test", "migration"];

    #[test]
    fn the_lists_name_the_same_tests() {
        let (tests, expected) = lists();
        let names = tests.iter().map(|test| test.name.as_str());
        // This test never ended on Linux, so its subtests are unknown.
        let known = names.filter(|name| *name != "folio_split_race_test");
        assert_eq!(expected.tests(), known.collect::<Vec<&str>>());
    }

    /// Returns the number of subtests in a column for each ending.
    fn counts(series: &str) -> [usize; 4] {
        let column = column(series).unwrap();
        let labels = column
            .entries
            .iter()
            .map(|(test, one)| (test.as_str(), one.number));
        let unique: BTreeSet<_> = labels.collect();
        assert_eq!(unique.len(), column.entries.len(), "{series}");
        let of = |ending| {
            column
                .entries
                .iter()
                .filter(move |(_, one)| one.ending == ending)
        };
        Ending::ALL.map(|ending| of(ending).count())
    }

    #[test]
    fn every_subtest_of_a_column_has_one_line() {
        assert_eq!(counts(RECORDED), [1314, 7, 405, 5]);
        assert_eq!(counts(VERSION), [1762, 7, 393, 13]);
    }

    #[test]
    fn the_expectations_are_of_the_subtests_of_the_reference() {
        let (tests, expected) = lists();
        let reference = column(VERSION).unwrap();
        for test in &tests {
            let lines = expected.of(&test.name);
            let labels: Vec<_> = lines.iter().map(|line| line.label()).collect();
            let theirs = reference.of(&test.name);
            let theirs: Vec<_> = theirs.iter().map(|subtest| subtest.label()).collect();
            match NOT_RUN.contains(&test.name.as_str()) {
                true => assert_eq!(theirs, [], "{}", test.name),
                false => assert_eq!(labels, theirs, "{}", test.name),
            }
        }
    }

    #[test]
    fn only_what_linux_skipped_is_expected_to_be_skipped() {
        let (tests, expected) = lists();
        let reference = column(VERSION).unwrap();
        for test in &tests {
            for (line, theirs) in expected.of(&test.name).iter().zip(reference.of(&test.name)) {
                let skipped_here = matches!(line.expectation, Expectation::Skipped(_));
                let skipped = theirs.ending == Ending::Skipped;
                // A subtest that was skipped on Linux, because the machine lacked a feature, may pass on Memwright,
                // whose machine has that feature.
                let passes = line.expectation == Expectation::Pass;
                let place = (&test.name, line.number);
                assert_eq!(skipped_here, skipped && !passes, "{place:?}");
            }
        }
    }

    #[test]
    fn the_first_ten_are_expected_to_pass_and_are_in_the_first_tier() {
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
                tests
                    .iter()
                    .any(|test| test.name == name && test.tier == Tier::Test),
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
