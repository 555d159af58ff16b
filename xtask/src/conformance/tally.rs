//! Counts of passed subtests, by their result on the reference.

use super::expected::{Expectation, Expected, Reference};
use crate::number::grouped;

/// Counts of subtests, by their result on the reference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    passed: [u64; Reference::ALL.len()],
    all: [u64; Reference::ALL.len()],
}

impl Tally {
    /// Counts the lines of the list; those that are expected to pass count as passed.
    pub fn expected(expected: &Expected) -> Self {
        let mut tally = Self::default();
        for (_, line) in expected.lines() {
            tally.count(line.reference, line.expectation == Expectation::Pass);
        }
        tally
    }

    /// Counts one subtest.
    pub fn count(&mut self, reference: Reference, passes: bool) {
        self.all[reference as usize] += 1;
        self.passed[reference as usize] += u64::from(passes);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: Self) {
        for reference in Reference::ALL {
            let at = reference as usize;
            self.passed[at] += other.passed[at];
            self.all[at] += other.all[at];
        }
    }

    /// Returns the number of passed subtests.
    pub fn passed(&self) -> u64 {
        self.passed.iter().sum()
    }

    /// Returns the number of subtests with this result on the reference.
    pub fn on_reference(&self, reference: Reference) -> u64 {
        self.all[reference as usize]
    }

    /// Returns a sentence on how the passed subtests ended on the reference.
    pub fn sentence(&self) -> String {
        let of = |references: &[Reference]| {
            let sum = |counts: &[u64]| references.iter().map(|one| counts[*one as usize]).sum();
            [grouped(sum(&self.passed)), grouped(sum(&self.all))]
        };
        let [passes, all] = of(&[Reference::Passed]);
        let [fails, failures] = of(&[Reference::FailedAsExpected]);
        let [more, rest] = of(&[Reference::Skipped, Reference::Failed]);
        format!(
            "{passes} of the {all} subtests that Linux passes, {fails} of its {failures} expected failures, \
             and {more} of the {rest} that Linux skipped or failed"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_are_split_by_the_reference() {
        let list = "h\n\
            t\t1\tpass\tpass\ta\n\
            t\t2\tpass\tunsupported: There is no swap.\tb\n\
            t\t3\txfail\tpass\tc\n\
            t\t4\tskip\tpass\td\n\
            t\t5\tfail\tpass\te\n\
            t\t6\tskip\tskipped: There is no hook.\tf\n";
        let mut tally = Tally::expected(&Expected::read(list).unwrap());
        let sentence = "1 of the 2 subtests that Linux passes, 1 of its 1 expected failures, and 2 of the 3 that \
            Linux skipped or failed";
        assert_eq!((tally.passed(), tally.sentence().as_str()), (4, sentence));
        tally.add(tally);
        assert_eq!(tally.passed(), 8);
        assert_eq!(tally.on_reference(Reference::Skipped), 4);
    }
}
