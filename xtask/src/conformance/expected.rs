//! What is expected of each subtest, and what Linux itself made of it.

use super::tap::{Ending, Subtest};
use anyhow::{Context, Result, bail};

/// The list, in the folder of the lists.
pub const FILE: &str = "expected.tsv";

/// What may come of a subtest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expectation {
    /// It passes.
    Pass,
    /// It needs something that is yet to come.
    ComesWith(String),
    /// Linux was built without what it needs, too; skipping it is right.
    HookAbsent,
    /// It differs on purpose.
    Deliberate {
        /// By this rule.
        rule: String,
        /// The policy under which it does not.
        unless: Option<String>,
    },
}

impl Expectation {
    fn parse(text: &str) -> Result<Self> {
        let some = |what: &str| (!what.is_empty()).then(|| what.to_owned());
        let read = match text {
            "pass" => Some(Self::Pass),
            "hook absent on the reference" => Some(Self::HookAbsent),
            _ => match text.split_once("comes with ") {
                Some(("", capability)) => some(capability).map(Self::ComesWith),
                _ => Self::parse_rule(text),
            },
        };
        match read {
            Some(read) => Ok(read),
            None => bail!("no expectation: {text}"),
        }
    }

    /// `deliberate: RULE`, or `deliberate unless POLICY: RULE`.
    fn parse_rule(text: &str) -> Option<Self> {
        let (policy, rule) = text.strip_prefix("deliberate")?.split_once(": ")?;
        let unless = match policy {
            "" => None,
            _ => Some(policy.strip_prefix(" unless ")?.to_owned()),
        };
        let rule = (!rule.is_empty()).then(|| rule.to_owned())?;
        Some(Self::Deliberate { rule, unless })
    }

    /// What is expected where these policies are in force.
    fn under(self, policies: &[String]) -> Self {
        match self {
            Self::Deliberate {
                unless: Some(policy),
                ..
            } if policies.contains(&policy) => Self::Pass,
            other @ (Self::Pass
            | Self::ComesWith(_)
            | Self::HookAbsent
            | Self::Deliberate { .. }) => other,
        }
    }

    /// How the list says it.
    pub fn words(&self) -> String {
        match self {
            Self::Pass => "pass".to_owned(),
            Self::ComesWith(capability) => format!("comes with {capability}"),
            Self::HookAbsent => "hook absent on the reference".to_owned(),
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
            (Self::Pass, _) | (Self::HookAbsent, Some(Ending::Failed)) => Verdict::Worse,
            (_, Some(Ending::Passed)) => Verdict::Better,
            (Self::HookAbsent | Self::ComesWith(_) | Self::Deliberate { .. }, _) => {
                Verdict::AsExpected
            }
        }
    }
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
    pub reference: Ending,
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
            let reference = match reference {
                "pass" | "xfail" => Ending::Passed,
                "skip" => Ending::Skipped,
                "fail" => Ending::Failed,
                other => bail!("{FILE}: no result: {other}"),
            };
            Ok(Line {
                test: test.to_owned(),
                number: number.parse().with_context(|| format!("{FILE}: {line}"))?,
                reference,
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
                "hook absent on the reference",
                [Better, AsExpected, Worse, AsExpected],
            ),
            (
                "comes with swap",
                [Better, AsExpected, AsExpected, AsExpected],
            ),
            (
                "deliberate: rule 12",
                [Better, AsExpected, AsExpected, AsExpected],
            ),
            (
                "deliberate unless track=fault: rule 12",
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
            "comes with ",
            "deliberate: ",
            "deliberate unless track=fault",
            "deliberately: rule 12",
            "it comes with swap",
        ] {
            assert!(Expectation::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_rule_may_end_where_a_policy_is_in_force() {
        let list =
            "h\nt\t1\tpass\tdeliberate unless a=b: rule\tx\nt\t2\tpass\tdeliberate: rule\ty\n";
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
