//! Prints the results of a run: one line for each test, with the counts on Memwright and on the reference, and after it
//! the subtests of the test with unexpected results.

use super::column::Column;
use super::expected::{Expectation, Line, Verdict};
use super::list::Test;
use super::matching::{self, Label};
use super::run::Output;
use super::settings::VERSION;
use super::tally::Tally;
use super::tap::{self, Ending};
use std::collections::BTreeMap;

/// The numbers of subtests, by result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// The number of subtests that passed.
    pub passed: u64,
    /// The number of subtests that ended worse than expected.
    pub failed: u64,
    /// The number of subtests that were skipped or are not expected to pass.
    pub skipped: u64,
    /// The number of subtests that passed unexpectedly. They are also part of `passed`.
    pub better: u64,
    /// The numbers of passed subtests and of all subtests, for each result on the reference.
    pub tally: Tally,
}

impl Totals {
    /// Adds the counts of another test.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.better += other.better;
        self.tally.add(other.tally);
    }

    /// Returns the closing line.
    pub fn line(self) -> String {
        let Self {
            passed,
            failed,
            skipped,
            better: _,
            tally: _,
        } = self;
        format!("{passed} passed; {failed} failed; {skipped} skipped")
    }

    /// Returns a sentence about the results, on the reference, of the subtests that passed.
    pub fn passes(self) -> String {
        format!("passed: {}", self.tally.sentence())
    }

    /// Returns an error message if subtests ended worse or better than expected. If they ended worse, Memwright must be
    /// fixed. If they ended better, the list must be updated.
    pub fn complaint(self) -> Option<String> {
        let parts = [
            (self.failed, "did worse than expected"),
            (self.better, "did better: their lines are out of date"),
        ];
        let parts: Vec<String> = parts
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
        (!parts.is_empty()).then(|| parts.join("; "))
    }
}

/// The numbers of passed, skipped and failed subtests, as the program reports them.
#[derive(Default)]
struct Counts([u64; 3]);

impl Counts {
    fn of(endings: impl Iterator<Item = Ending>) -> Self {
        let mut counts = Self::default();
        for ending in endings {
            let at = match ending {
                Ending::Passed | Ending::FailedAsExpected => 0,
                Ending::Skipped => 1,
                Ending::Failed => 2,
            };
            counts.0[at] += 1;
        }
        counts
    }

    fn columns(&self) -> String {
        let [passed, skipped, failed] = self.0;
        format!("{passed:>7} {skipped:>7} {failed:>7}")
    }
}

/// Prints the heading of the table.
pub fn heading() {
    let columns = " passed skipped  failed";
    println!(
        "{:<26} {:>23}   {:>23}",
        "",
        "Memwright",
        format!("Linux {VERSION}")
    );
    println!("{:<26} {columns}   {columns}", "test");
}

/// Prints the line of a test and its unexpected results. Returns the counts of its subtests.
pub fn test(test: &Test, lines: &[&Line], reference: &Column, output: &Output) -> Totals {
    let seen = tap::read(&output.text, output.code);
    let ours = Counts::of(seen.iter().map(|subtest| subtest.ending)).columns();
    let theirs = reference.of(&test.name).into_iter();
    let theirs = Counts::of(theirs.map(|subtest| subtest.ending)).columns();
    println!("{:<26} {ours}   {theirs}", test.name);
    if let Some(end) = &output.bad_end {
        println!("    {end}");
    }
    let mut totals = Totals::default();
    let mut left_out: BTreeMap<String, u64> = BTreeMap::new();
    let labels: Vec<Label<'_>> = lines.iter().map(|line| line.label()).collect();
    let others: Vec<Label<'_>> = seen.iter().map(|subtest| subtest.label()).collect();
    let found = matching::matches(&labels, &others);
    let theirs = reference.endings(&test.name, &labels);
    for ((line, at), theirs) in lines.iter().zip(found).zip(theirs) {
        let ending = at.map(|at| seen[at].ending);
        let word = ending.map_or("not run", Ending::word);
        let passes = ending.is_some_and(Ending::passes);
        totals.tally.count(theirs, passes);
        let (number, name) = (line.number, &line.name);
        match line.expectation.judge(ending) {
            Verdict::Worse => {
                totals.failed += 1;
                println!("    WORSE: {number} {name}: {word}");
            }
            Verdict::Better => {
                totals.passed += 1;
                totals.better += 1;
                let expected = line.expectation.words();
                println!("    BETTER: {number} {name}: {word}, but expected: {expected}");
            }
            Verdict::AsExpected if passes => totals.passed += 1,
            Verdict::AsExpected => {
                totals.skipped += 1;
                let expected = line.expectation.words();
                match (&line.expectation, ending) {
                    (Expectation::Skipped(_), _) => {}
                    (_, None) => *left_out.entry(expected).or_default() += 1,
                    (_, Some(_)) => println!("    {number} {name}: {word}, {expected}"),
                }
            }
        }
    }
    for (expected, count) in left_out {
        println!("    {count} not run, {expected}");
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::expected::Expected;

    #[test]
    fn worse_ones_fail_later_ones_are_skipped_and_better_ones_are_told() {
        let list = Expected::read(
            "h\nt\t1\tpass\ta\nt\t2\tpass\tb\nt\t3\tunsupported: There is no swap.\tc\nt\t4\tskipped: There is no hook.\t\n",
        )
        .unwrap();
        let reference = Column::read(
            "# Linux 7.3\ntest\tnumber\tresult\tname\n\
             t\t1\tpass\ta\nt\t2\tpass\tb\nt\t3\tpass\tc\nt\t4\tskip\t\n",
        )
        .unwrap();
        let tests = Test::read("h\nt\tt\t-\t0\t3G\t1\t60\tci\t-\n").unwrap();
        let output = |text: &str| Output {
            text: text.to_owned(),
            code: Some(1),
            bad_end: None,
        };
        let run = output("ok 1 a\nnot ok 2 b\nnot ok 3 c\nok 4 # SKIP\n");
        let totals = test(&tests[0], &list.of("t"), &reference, &run);
        assert_eq!(totals.line(), "1 passed; 1 failed; 2 skipped");
        assert_eq!(
            totals.passes(),
            "passed: 1 of the 3 subtests that Linux passes, 0 of its 0 expected failures, and 0 of the 1 that Linux \
             skipped or failed"
        );
        assert_eq!(
            totals.complaint().as_deref(),
            Some("1 did worse than expected")
        );
        let totals = test(&tests[0], &list.of("t"), &reference, &output("Bail out!\n"));
        assert_eq!(totals.line(), "0 passed; 2 failed; 2 skipped");
        let run = output("ok 1 a\nok 2 b\nok 3 c\nok 4\n");
        let totals = test(&tests[0], &list.of("t"), &reference, &run);
        assert_eq!(totals.line(), "4 passed; 0 failed; 0 skipped");
        assert_eq!(
            totals.complaint().as_deref(),
            Some("2 did better: their lines are out of date")
        );
        let run = output("ok 1 a\nok 2 b\nok 3 # SKIP c\nok 4 # SKIP\n");
        let totals = test(&tests[0], &list.of("t"), &reference, &run);
        assert_eq!(totals.line(), "2 passed; 0 failed; 2 skipped");
        assert_eq!(totals.complaint(), None);
    }
}
