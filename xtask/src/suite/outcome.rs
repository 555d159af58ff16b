//! The outcomes of tests, and the closing lines of a run.

use std::collections::BTreeMap;

use crate::tier::Tier;

/// How a test ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    Failed,
    /// The test needs an image, a tool or a network that is missing, or is marked as ignored. Contains the reason.
    Skipped(String),
    /// The test did not run, because this later tier is the first tier that runs it.
    Later(Tier),
}

impl Outcome {
    /// Returns the text for the outcome at the end of the test's line.
    pub fn words(&self) -> String {
        match self {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Skipped(why) => format!("SKIPPED: {why}"),
            Outcome::Later(tier) => format!("skipped, {} runs it", tier.command()),
        }
    }
}

/// The prefix of the line that a test prints if it cannot run here. Its name, a colon and the reason follow.
const MARK: &str = "SKIPPED ";

/// Parses a line that reports the outcome of a test. Returns the name of the test and the outcome.
pub fn line(line: &str) -> Option<(&str, Outcome)> {
    let (name, ending) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let name = name.trim_end();
    let name = name.strip_prefix("[boot] ").unwrap_or(name).trim_start();
    // libtest appends this suffix to the name of a test that is expected to panic.
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    let outcome = match ending.strip_prefix("ignored") {
        // libtest prints a comma before the reason; libtest-mimic prints the reason in parentheses.
        Some(why) => {
            let why = why.trim_start_matches([',', ' ']);
            let inside = why.strip_prefix('(').and_then(|why| why.strip_suffix(')'));
            Outcome::Skipped(match inside.unwrap_or(why) {
                "" => "marked to be ignored".to_owned(),
                why => why.to_owned(),
            })
        }
        None if ending == "ok" => Outcome::Passed,
        None => Outcome::Failed,
    };
    Some((name, outcome))
}

/// Returns the outcome of each of the tests `names`, from the output of their process. A test without a line has
/// failed.
pub fn read(printed: &str, names: &[&str]) -> Vec<Outcome> {
    let mut seen: BTreeMap<&str, Outcome> = printed.lines().filter_map(line).collect();
    let marked = printed.lines().find_map(|line| line.strip_prefix(MARK));
    let skipped = marked.map(|rest| rest.split_once(": ").map_or(rest, |(_, why)| why));
    names
        .iter()
        .map(|name| match (seen.remove(name), skipped) {
            // The mark is evaluated only for a process with one test. Processes with several tests report skipped tests
            // in another way.
            (Some(Outcome::Passed), Some(why)) if names.len() == 1 => {
                Outcome::Skipped(why.to_owned())
            }
            (Some(outcome), _) => outcome,
            (None, _) => Outcome::Failed,
        })
        .collect()
}

/// The number of tests for each outcome, and the list of the skipped tests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub passed: u64,
    pub failed: u64,
    /// The names of the skipped tests, each with the reason.
    pub skipped: Vec<(String, String)>,
    /// The number of tests that did not run because `ci` is the first tier that runs them. `full` is the number of
    /// those whose first tier is the full one.
    ci: u64,
    full: u64,
}

impl Totals {
    /// Counts a test with this outcome.
    pub fn add(&mut self, name: &str, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed => self.failed += 1,
            Outcome::Skipped(why) => self.skipped.push((name.to_owned(), why.clone())),
            Outcome::Later(Tier::Full) => self.full += 1,
            Outcome::Later(Tier::Test | Tier::Ci) => self.ci += 1,
        }
    }

    /// Returns the closing lines: the skipped tests by name, the numbers of tests that later tiers run, and the counts.
    pub fn lines(&self) -> String {
        let Totals {
            passed,
            failed,
            skipped,
            ci,
            full,
        } = self;
        let mut text = String::new();
        for (name, why) in skipped {
            text.push_str(&format!("SKIPPED {name}: {why}\n"));
        }
        for (count, tier) in [(ci, Tier::Ci), (full, Tier::Full)] {
            if *count > 0 {
                text.push_str(&format!("{count} tests are left to `{}`\n", tier.command()));
            }
        }
        let verdict = if *failed == 0 { "ok" } else { "FAILED" };
        let all = skipped.len() as u64 + ci + full;
        text.push_str(&format!(
            "test result: {verdict}. {passed} passed; {failed} failed; {all} skipped\n\
             {passed} passed, {failed} failed, {all} skipped\n"
        ));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skipped(why: &str) -> Outcome {
        Outcome::Skipped(why.to_owned())
    }

    #[test]
    fn the_lines_of_both_harnesses_are_read() {
        let printed = "\nrunning 1 test\ntest a::b ... ok\n\ntest result: ok. 1 passed\n";
        assert_eq!(read(printed, &["a::b"]), [Outcome::Passed]);
        let printed = "test [boot] a::b    ... ok\ntest [boot] a::long ... FAILED\ntest        c           ... ignored (no later QEMU)\n";
        assert_eq!(
            read(printed, &["a::long", "a::b", "c", "none"]),
            [
                Outcome::Failed,
                Outcome::Passed,
                skipped("no later QEMU"),
                Outcome::Failed
            ]
        );
        let printed = "test c ... ignored, takes as long as it is told to\n";
        assert_eq!(
            read(printed, &["c"]),
            [skipped("takes as long as it is told to")]
        );
        let printed = "test d - should panic ... ok\n";
        assert_eq!(read(printed, &["d"]), [Outcome::Passed]);
    }

    #[test]
    fn a_test_that_says_it_was_skipped_has_not_passed() {
        let printed = "test a ... ok\nSKIPPED a: no image: run it\n";
        assert_eq!(read(printed, &["a"]), [skipped("no image: run it")]);
        let printed = "SKIPPED a: no image\ntest a ... FAILED\n";
        assert_eq!(read(printed, &["a"]), [Outcome::Failed]);
    }

    #[test]
    fn the_closing_lines_name_what_was_skipped() {
        let mut totals = Totals::default();
        for (name, outcome) in [
            ("one", Outcome::Passed),
            ("two", Outcome::Passed),
            ("three", skipped("no image")),
            ("four", Outcome::Later(Tier::Full)),
        ] {
            totals.add(name, &outcome);
        }
        assert_eq!(
            totals.lines(),
            "SKIPPED three: no image\n\
             1 tests are left to `cargo xtask test --full`\n\
             test result: ok. 2 passed; 0 failed; 2 skipped\n\
             2 passed, 0 failed, 2 skipped\n"
        );
        totals.add("five", &Outcome::Failed);
        assert!(
            totals
                .lines()
                .contains("test result: FAILED. 2 passed; 1 failed; 2 skipped")
        );
    }
}
