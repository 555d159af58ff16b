//! The list of the results that the subtests are expected to have on Memwright.

use super::matching::Label;
use super::tap::Ending;
use anyhow::{Context, Result, bail};

/// The file name of the list, in the folder `conformance`.
pub const FILE: &str = "expected.tsv";

/// The expected result of a subtest. Each reason is a complete sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// The subtest passes.
    Pass,
    /// The subtest needs a feature that Memwright does not support, for this reason.
    Unsupported(String),
    /// The subtest is skipped both on Memwright and on the reference, for this reason.
    Skipped(String),
    /// The subtest does not pass because Memwright deliberately differs from Linux.
    Deliberate {
        /// The reason for the difference.
        rule: String,
        /// The policy under which the subtest passes; `None` if it passes under no policy.
        unless: Option<String>,
    },
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

    /// Returns the expectation for a run with `policies`: `Pass` for a `Deliberate` expectation whose policy is among
    /// them, otherwise `self`.
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

    /// Compares the expectation with the ending `seen` of the subtest; `None` if the subtest did not run.
    pub fn judge(&self, seen: Option<Ending>) -> Verdict {
        let passes = seen.is_some_and(Ending::passes);
        match (self, seen) {
            (Self::Pass, _) if passes => Verdict::AsExpected,
            (Self::Pass, _) | (Self::Skipped(_), Some(Ending::Failed)) => Verdict::Worse,
            (Self::Skipped(_) | Self::Unsupported(_) | Self::Deliberate { .. }, _) => {
                match passes {
                    true => Verdict::Better,
                    false => Verdict::AsExpected,
                }
            }
        }
    }
}

/// Returns whether a reason is a complete sentence: it begins with a capital letter, or the name of a file or setting,
/// and ends with a full stop.
fn is_sentence(reason: &str) -> bool {
    let begins = |first: char| first.is_uppercase() || matches!(first, '/' | '`');
    reason.starts_with(begins) && reason.ends_with('.') && reason.contains(' ')
}

/// The result of comparing the ending of a subtest with its line in the list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The subtest ended as expected.
    AsExpected,
    /// The subtest ended worse than expected: Memwright must be fixed.
    Worse,
    /// The subtest ended better than expected: the line must be updated.
    Better,
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    test: String,
    /// The number of the subtest, as the test prints it.
    pub number: u32,
    /// The expected result.
    pub expectation: Expectation,
    /// The name of the subtest, as the test prints it.
    pub name: String,
}

impl Line {
    /// Returns the key by which the subtest is matched.
    pub fn label(&self) -> Label<'_> {
        (self.number, &self.name)
    }
}

/// The complete list.
pub struct Expected(Vec<Line>);

impl Expected {
    /// Parses the list: a heading, then one line for each subtest, with columns separated by tabs.
    ///
    /// # Errors
    /// If a line has a wrong number of columns or an invalid expectation.
    pub fn read(text: &str) -> Result<Self> {
        let lines = text.lines().skip(1).map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            let [test, number, expectation, name] = columns[..] else {
                bail!("{FILE}: {} columns, not 4: {line}", columns.len());
            };
            Ok(Line {
                test: test.to_owned(),
                number: number.parse().with_context(|| format!("{FILE}: {line}"))?,
                expectation: Expectation::parse(expectation)?,
                name: name.to_owned(),
            })
        });
        lines.collect::<Result<_>>().map(Self)
    }

    /// Returns the expectations for a run with `policies`.
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

    /// Returns whether the test runs by default: it does if at least one of its subtests is expected to pass.
    pub fn runs(&self, test: &str) -> bool {
        let mut lines = self.0.iter().filter(|line| line.test == test);
        lines.any(|line| line.expectation == Expectation::Pass)
    }

    /// Returns the names of the tests, in order.
    pub fn tests(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.iter().map(|line| line.test.as_str()).collect();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_expectation_against_every_ending() {
        use Ending::{Failed, FailedAsExpected, Passed, Skipped};
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
            assert_eq!(
                expectation.judge(Some(FailedAsExpected)),
                verdicts[0],
                "{text}"
            );
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
        let list = "h\nt\t1\tdeliberate unless a=b: A rule.\tx\nt\t2\tdeliberate: A rule.\ty\n";
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
}
