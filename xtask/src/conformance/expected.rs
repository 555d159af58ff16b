//! What is expected of each subtest, and what Linux itself made of it.

use super::tap::{Ending, Subtest};
use anyhow::{Context, Result, bail};

/// The list, in the folder of the lists.
pub const FILE: &str = "expected.tsv";

/// What may come of a subtest. Each reason is a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It passes.
    Pass,
    /// It needs something that Memwright does not have, for this reason.
    Unsupported(String),
    /// It is skipped here and on the reference, for this reason.
    Skipped(String),
    /// It differs on purpose.
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
    /// Each of them, in the order of their numbers.
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

    /// What the protocol makes of it: an expected failure counts as passed.
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

    /// `pass`, or `KIND: SENTENCE`, where the kind is `unsupported`, `skipped`, `deliberate` or `deliberate unless POLICY`.
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

    /// What is expected where these policies are in force.
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

    /// How the list says it.
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

    /// What to say of a subtest that ended like this; `None` is one that did not get its turn.
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

/// Whether a reason begins with a capital, or the name of a file or setting, and ends with a full stop.
fn is_sentence(reason: &str) -> bool {
    let begins = |first: char| first.is_uppercase() || matches!(first, '/' | '`');
    reason.starts_with(begins) && reason.ends_with('.') && reason.contains(' ')
}

/// How a subtest compares with its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The line is right.
    AsExpected,
    /// Memwright is at fault.
    Worse,
    /// The line is: it asks for too little.
    Better,
}

/// One line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    test: String,
    /// The number on the reference.
    pub number: u32,
    /// How it ended on the reference.
    pub reference: Reference,
    /// What is expected here.
    pub expectation: Expectation,
    /// The name on the reference.
    pub name: String,
}

/// The whole list.
pub struct Expected(Vec<Line>);

impl Expected {
    /// Reads the list: one line each behind the heading, columns between tabs.
    ///
    /// # Errors
    /// For a line that does not have its columns, or whose expectation is none.
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

    /// What is expected where these policies are in force.
    pub fn under(mut self, policies: &[String]) -> Self {
        for line in &mut self.0 {
            line.expectation = line.expectation.clone().under(policies);
        }
        self
    }

    /// The lines of one test, in their order.
    pub fn of(&self, test: &str) -> Vec<&Line> {
        self.0.iter().filter(|line| line.test == test).collect()
    }

    /// Whether something is expected of the test: it is run without being named.
    pub fn runs(&self, test: &str) -> bool {
        let mut lines = self.0.iter().filter(|line| line.test == test);
        lines.any(|line| line.expectation == Expectation::Pass)
    }

    /// Test and line of each subtest.
    #[cfg(test)]
    pub fn lines(&self) -> impl Iterator<Item = (&str, &Line)> {
        self.0.iter().map(|line| (line.test.as_str(), line))
    }
}

/// Which of the subtests that were seen answers which line: the one of the same number where both have the same
/// count, else the one of the same name; a name that occurs again counts up, and no name answers nothing.
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
