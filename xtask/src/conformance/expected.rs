//! The expected result of each subtest, and its result on Linux.

use super::tap::{Ending, Subtest};
use anyhow::{Context, Result, bail};

/// The file in the folder of the lists.
pub const FILE: &str = "expected.tsv";

/// The expected result of a subtest. Each reason is a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It passes.
    Pass,
    /// It needs something that Memwright does not support, for this reason.
    Unsupported(String),
    /// It is skipped here and on the reference, for this reason.
    Skipped(String),
    /// It deliberately differs.
    Deliberate {
        /// The reason.
        rule: String,
        /// The policy under which it passes.
        unless: Option<String>,
    },
}

/// How a subtest ended on the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// It passed.
    Passed,
    /// It failed, as its author says that it must (XFAIL).
    FailedAsExpected,
    /// It was skipped.
    Skipped,
    /// It failed.
    Failed,
}

impl Reference {
    /// All results, in the order of their numbers.
    pub const ALL: [Self; 4] = [
        Self::Passed,
        Self::FailedAsExpected,
        Self::Skipped,
        Self::Failed,
    ];

    fn parse(text: &str) -> Result<Self> {
        Ok(match text {
            "pass" => Self::Passed,
            "xfail" => Self::FailedAsExpected,
            "skip" => Self::Skipped,
            "fail" => Self::Failed,
            other => bail!("{FILE}: no result: {other}"),
        })
    }

    /// Returns the ending in the TAP protocol: an expected failure counts as passed.
    pub const fn ending(self) -> Ending {
        match self {
            Self::Passed | Self::FailedAsExpected => Ending::Passed,
            Self::Skipped => Ending::Skipped,
            Self::Failed => Ending::Failed,
        }
    }
}

impl Expectation {
    fn parse(text: &str) -> Result<Self> {
        match Self::read(text) {
            Some(read) => Ok(read),
            None => bail!("no expectation: {text}"),
        }
    }

    /// Parses `pass`, or `KIND: SENTENCE`, where the kind is `unsupported`, `skipped`, `deliberate` or
    /// `deliberate unless POLICY`.
    fn read(text: &str) -> Option<Self> {
        if text == "pass" {
            return Some(Self::Pass);
        }
        let (kind, reason) = text.split_once(": ")?;
        if !is_sentence(reason) {
            return None;
        }
        let reason = reason.to_owned();
        match kind {
            "unsupported" => Some(Self::Unsupported(reason)),
            "skipped" => Some(Self::Skipped(reason)),
            _ => {
                let policy = kind.strip_prefix("deliberate")?;
                let unless = match policy {
                    "" => None,
                    _ => Some(policy.strip_prefix(" unless ")?.to_owned()),
                };
                let rule = reason;
                Some(Self::Deliberate { rule, unless })
            }
        }
    }

    /// Returns the expectation when these policies are set.
    fn under(self, policies: &[String]) -> Self {
        match self {
            Self::Deliberate {
                unless: Some(policy),
                ..
            } if policies.contains(&policy) => Self::Pass,
            other @ (Self::Pass
            | Self::Unsupported(_)
            | Self::Skipped(_)
            | Self::Deliberate { .. }) => other,
        }
    }

    /// Returns the text of the expectation in the list.
    pub fn words(&self) -> String {
        match self {
            Self::Pass => "pass".to_owned(),
            Self::Unsupported(reason) => format!("unsupported: {reason}"),
            Self::Skipped(reason) => format!("skipped: {reason}"),
            Self::Deliberate { rule, unless: None } => format!("deliberate: {rule}"),
            Self::Deliberate {
                rule,
                unless: Some(policy),
            } => format!("deliberate unless {policy}: {rule}"),
        }
    }

    /// Judges a subtest that ended like this; `None` if it did not run.
    pub fn judge(&self, seen: Option<Ending>) -> Verdict {
        match (self, seen) {
            (Self::Pass, Some(Ending::Passed)) => Verdict::AsExpected,
            (Self::Pass, _) | (Self::Skipped(_), Some(Ending::Failed)) => Verdict::Worse,
            (_, Some(Ending::Passed)) => Verdict::Better,
            (Self::Skipped(_) | Self::Unsupported(_) | Self::Deliberate { .. }, _) => {
                Verdict::AsExpected
            }
        }
    }
}

/// Returns whether a reason begins with a capital letter, or the name of a file or setting, and ends with a full stop.
fn is_sentence(reason: &str) -> bool {
    let begins = |first: char| first.is_uppercase() || matches!(first, '/' | '`');
    reason.starts_with(begins) && reason.ends_with('.') && reason.contains(' ')
}

/// The comparison of a subtest with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The subtest ended as its line says.
    AsExpected,
    /// The subtest did worse: Memwright must be fixed.
    Worse,
    /// The subtest did better: the line must be updated.
    Better,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    test: String,
    /// The number on the reference.
    pub number: u32,
    /// The result on the reference.
    pub reference: Reference,
    /// The expected result on Memwright.
    pub expectation: Expectation,
    /// The name on the reference.
    pub name: String,
}

/// The complete list.
pub struct Expected(Vec<Line>);

impl Expected {
    /// Parses the list: one line each after the heading, columns separated by tabs.
    ///
    /// # Errors
    /// A line with a wrong number of columns, or with an invalid expectation.
    pub fn read(text: &str) -> Result<Self> {
        let lines = text.lines().skip(1).map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [test, number, reference, expectation, name] = columns[..] else {
                bail!("{FILE}: {} columns, not 5: {line}", columns.len());
            };
            Ok(Line {
                test: test.to_owned(),
                number: number.parse().with_context(|| format!("{FILE}: {line}"))?,
                reference: Reference::parse(reference)?,
                expectation: Expectation::parse(expectation)?,
                name: name.to_owned(),
            })
        });
        lines.collect::<Result<_>>().map(Self)
    }

    /// Applies these policies to the expectations.
    pub fn under(mut self, policies: &[String]) -> Self {
        for line in &mut self.0 {
            line.expectation = line.expectation.clone().under(policies);
        }
        self
    }

    /// Returns the lines of one test, in order.
    pub fn of(&self, test: &str) -> Vec<&Line> {
        self.0.iter().filter(|line| line.test == test).collect()
    }

    /// Returns whether a result is expected of the test, so that it runs by default.
    pub fn runs(&self, test: &str) -> bool {
        let mut lines = self.0.iter().filter(|line| line.test == test);
        lines.any(|line| line.expectation == Expectation::Pass)
    }

    /// Returns the test and the line of each subtest.
    pub fn lines(&self) -> impl Iterator<Item = (&str, &Line)> {
        self.0.iter().map(|line| (line.test.as_str(), line))
    }
}

/// Returns, for each line, the index of the subtest that matches it: the one with the same number where both lists have
/// the same length, else the one with the same name. Repeated names match in order, and an empty name matches nothing.
pub fn answers(lines: &[&Line], seen: &[Subtest]) -> Vec<Option<usize>> {
    let by_number = lines.len() == seen.len();
    let mut taken = vec![false; seen.len()];
    let mut find = |line: &Line| {
        let answers = |subtest: &Subtest| {
            if by_number {
                subtest.number == line.number
            } else {
                !line.name.is_empty() && subtest.name == line.name
            }
        };
        let found = (0..seen.len()).find(|at| !taken[*at] && answers(&seen[*at]));
        if let Some(at) = found {
            taken[at] = true;
        }
        found
    };
    lines.iter().map(|line| find(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expectation_against_every_ending() {
        use Ending::{Failed, Passed, Skipped};
        use Verdict::{AsExpected, Better, Worse};
        for (text, verdicts) in [
            ("pass", [AsExpected, Worse, Worse, Worse]),
            (
                "skipped: There is no hook.",
                [Better, AsExpected, Worse, AsExpected],
            ),
            (
                "unsupported: There is no swap.",
                [Better, AsExpected, AsExpected, AsExpected],
            ),
            (
                "deliberate: Stores take no fault.",
                [Better, AsExpected, AsExpected, AsExpected],
            ),
            (
                "deliberate unless track=fault: Stores take no fault.",
                [Better, AsExpected, AsExpected, AsExpected],
            ),
        ] {
            let expectation = Expectation::parse(text).unwrap();
            let seen = [Some(Passed), Some(Skipped), Some(Failed), None];
            assert_eq!(seen.map(|seen| expectation.judge(seen)), verdicts, "{text}");
            assert_eq!(expectation.words(), text);
        }
        for text in [
            "",
            "passes",
            "skipped",
            "unsupported: ",
            "unsupported: swap",
            "unsupported: no swap.",
            "unsupported: There is no swap",
            "deliberate: ",
            "deliberate unless track=fault",
            "deliberately: Stores take no fault.",
            "It is unsupported: There is no swap.",
        ] {
            assert!(Expectation::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rule_may_end_where_a_policy_is_in_force() {
        let list = "h\nt\t1\tpass\tdeliberate unless a=b: A rule.\tx\nt\t2\tpass\tdeliberate: A rule.\ty\n";
        let under = |policies: &[&str]| {
            let policies: Vec<String> = policies.iter().map(|&policy| policy.to_owned()).collect();
            let list = Expected::read(list).unwrap().under(&policies);
            let passes = |line: &Line| line.expectation == Expectation::Pass;
            list.0.iter().map(passes).collect::<Vec<_>>()
        };
        assert_eq!(under(&[]), [false, false]);
        assert_eq!(under(&["a=c"]), [false, false]);
        assert_eq!(under(&["c=d", "a=b"]), [true, false]);
    }

    #[test]
    fn subtests_answer_by_number_or_else_by_name() {
        let list =
            Expected::read("h\nt\t1\tpass\tpass\ta\nt\t2\tskip\tpass\t\nt\t3\tpass\tpass\ta\n")
                .unwrap();
        let subtest = |number, name: &str| Subtest {
            number,
            name: name.to_owned(),
            ending: Ending::Passed,
        };
        let seen = [subtest(1, "x"), subtest(2, "a"), subtest(3, "z")];
        assert_eq!(answers(&list.of("t"), &seen), [Some(0), Some(1), Some(2)]);
        let seen = [subtest(1, "b"), subtest(2, "a")];
        assert_eq!(answers(&list.of("t"), &seen), [Some(1), None, None]);
        let nameless = [subtest(1, ""), subtest(2, "")];
        for seen in [&nameless[..], &[]] {
            assert!(answers(&list.of("t"), seen).iter().all(Option::is_none));
        }
    }
}
