//! Counts the subtests that passed, separately for each result on the reference.

use super::column::Column;
use super::expected::{Expectation, Expected};
use super::matching::Label;
use super::tap::Ending;
use crate::number::grouped;

/// The number of possible results on the reference: one for each ending, and one for a subtest that did not run.
const RESULTS: usize = Ending::ALL.len() + 1;

/// The numbers of passed subtests and of all subtests, for each result on the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    passed: [u64; RESULTS],
    all: [u64; RESULTS],
}

impl Tally {
    /// Counts the lines of the list. Lines that are expected to pass count as passed.
    pub fn expected(expected: &Expected, reference: &Column) -> Self {
        let mut tally = Self::default();
        for test in expected.tests() {
            let lines = expected.of(test);
            let labels: Vec<Label<'_>> = lines.iter().map(|line| line.label()).collect();
            for (line, ending) in lines.iter().zip(reference.endings(test, &labels)) {
                tally.count(ending, line.expectation == Expectation::Pass);
            }
        }
        tally
    }

    /// Counts a subtest. `reference` is its ending on the reference, or `None` if it did not run there.
    pub fn count(&mut self, reference: Option<Ending>, passes: bool) {
        let at = place(reference);
        self.all[at] += 1;
        self.passed[at] += u64::from(passes);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Self) {
        for at in 0..RESULTS {
            self.passed[at] += other.passed[at];
            self.all[at] += other.all[at];
        }
    }

    /// Returns the total number of passed subtests.
    pub fn passed(&self) -> u64 {
        self.passed.iter().sum()
    }

    /// Returns a sentence about the results, on the reference, of the subtests that passed.
    pub fn sentence(&self) -> String {
        let of = |results: &[Option<Ending>]| {
            let sum = |counts: &[u64]| results.iter().map(|one| counts[place(*one)]).sum();
            [grouped(sum(&self.passed)), grouped(sum(&self.all))]
        };
        let [passes, all] = of(&[Some(Ending::Passed)]);
        let [fails, failures] = of(&[Some(Ending::FailedAsExpected)]);
        let [more, rest] = of(&[Some(Ending::Skipped), Some(Ending::Failed)]);
        let [alone, here] = of(&[None]);
        let not_run = match self.all[place(None)] {
            0 => String::new(),
            _ => format!(", and {alone} of the {here} that Linux did not run"),
        };
        let and = if not_run.is_empty() { "and " } else { "" };
        format!(
            "{passes} of the {all} subtests that Linux passes, {fails} of its {failures} expected failures, \
             {and}{more} of the {rest} that Linux skipped or failed{not_run}"
        )
    }
}

/// Returns the index, in the counts, of a result on the reference.
fn place(reference: Option<Ending>) -> usize {
    reference.map_or(Ending::ALL.len(), |ending| ending as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_split_by_the_reference() {
        let list = "h\n\
            t\t1\tpass\ta\n\
            t\t2\tunsupported: There is no swap.\tb\n\
            t\t3\tpass\tc\n\
            t\t4\tpass\td\n\
            t\t5\tpass\te\n\
            t\t6\tskipped: There is no hook.\tf\n";
        let column = "# Linux 7.3\ntest\tnumber\tresult\tname\n\
            t\t1\tpass\ta\n\
            t\t2\tpass\tb\n\
            t\t3\txfail\tc\n\
            t\t4\tskip\td\n\
            t\t5\tfail\te\n\
            t\t6\tskip\tf\n";
        let expected = |more: &str| Expected::read(&format!("{list}{more}")).unwrap();
        let column = Column::read(column).unwrap();
        let mut tally = Tally::expected(&expected(""), &column);
        let sentence = "1 of the 2 subtests that Linux passes, 1 of its 1 expected failures, and 2 of the 3 that \
            Linux skipped or failed";
        assert_eq!((tally.passed(), tally.sentence().as_str()), (4, sentence));
        tally.add(tally);
        assert_eq!(tally.passed(), 8);
        let more = expected("u\t1\tpass\t\nu\t2\tunsupported: There is no swap.\t\n");
        let tally = Tally::expected(&more, &column);
        let sentence = "1 of the 2 subtests that Linux passes, 1 of its 1 expected failures, 2 of the 3 that Linux \
            skipped or failed, and 1 of the 2 that Linux did not run";
        assert_eq!(tally.sentence(), sentence);
    }
}
