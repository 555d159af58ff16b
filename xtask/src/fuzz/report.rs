//! Parses the reports that the interpreter prints, and compares two of them.

use super::older;
use super::rules::Rule;

/// The results of one script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// One entry for each executed line of the script, continuation lines included.
    pub results: Vec<String>,
    /// Whether the kernel was a Linux that is older than the one that Memwright follows.
    pub older: bool,
}

impl Outcome {
    /// Returns whether the script reached its end. If it did not, its alarm has killed it.
    pub fn has_ended(&self) -> bool {
        self.results.last().is_some_and(|last| last == "end 0")
    }
}

/// Splits a report at the titles of the scripts. If a script did not end, its results do not contain the line `end`.
pub fn parse(report: &str) -> Vec<Outcome> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for line in report.lines() {
        if line.starts_with("script ") {
            outcomes.push(Outcome {
                results: Vec::new(),
                older: false,
            });
        } else if let Some(outcome) = outcomes.last_mut() {
            match outcome.results.last_mut() {
                Some(last) if line.starts_with("  ") => {
                    last.push('\n');
                    last.push_str(line);
                }
                Some(_) | None => outcome.results.push(line.to_owned()),
            }
        }
    }
    outcomes
}

/// The comparison of the two results of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The results are equal.
    Same,
    /// The results differ as this rule predicts.
    Stated(Rule),
    /// The results differ in another way.
    Different,
}

/// Compares the referee's result `index` with the guest's result.
pub fn compare(referee: &Outcome, index: usize, guest: &str) -> Verdict {
    let (before, result) = (&referee.results[..index], &referee.results[index]);
    if result == guest {
        return Verdict::Same;
    }
    let of_older = || {
        let rule = older::rule(before, result, guest);
        rule.filter(|_| referee.older)
    };
    let rule = Rule::of(before, result, guest).or_else(of_older);
    rule.map_or(Verdict::Different, Verdict::Stated)
}

/// Returns the first difference of two outcomes: the referee's result, and the guest's.
pub fn first_difference<'a>(
    referee: &'a Outcome,
    guest: &'a Outcome,
) -> Option<(Option<&'a str>, Option<&'a str>)> {
    let length = referee.results.len().max(guest.results.len());
    for index in 0..length {
        let one = referee.results.get(index).map(String::as_str);
        let other = guest.results.get(index).map(String::as_str);
        let verdict = match (one, other) {
            (Some(_), Some(other)) => compare(referee, index, other),
            (_, _) => Verdict::Different,
        };
        match verdict {
            Verdict::Stated(rule) if rule.ends() => return None,
            Verdict::Same | Verdict::Stated(_) => {}
            Verdict::Different => return Some((one, other)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_compared_line_by_line() {
        let referee =
            parse("script 0\nP write 1 2: px done faults 1\nP maps:\n  0-1 rw-p 0 \nend 0\n");
        assert_eq!(referee[0].results.len(), 3);
        let fewer = "script 0\nP write 1 2: px done faults 0\nP maps:\n  0-2 rw-p 0 \nend 0\n";
        let guest = parse(fewer);
        let verdict = compare(&referee[0], 0, &guest[0].results[0]);
        assert_eq!(verdict, Verdict::Stated(Rule::RightsAtOnce));
        let (one, other) = first_difference(&referee[0], &guest[0]).unwrap();
        assert!(one.unwrap().contains("0-1") && other.unwrap().contains("0-2"));
        assert_eq!(first_difference(&referee[0], &referee[0]), None);
        let moved = |told: &str| {
            let lines = ["P advise 3 4 102: 0", "P remap 3 3 3 9: page 9"];
            let report = format!("script 0\n{}\n{}{told}\n", lines[0], lines[1]);
            parse(&format!(
                "{report}P write 4 1: . done faults {}\nend 0\n",
                told.len()
            ))
        };
        let (one, other) = (moved("\n  told e unmap 3 3"), moved(""));
        assert_eq!(
            first_difference(&one[0], &other[0]),
            None,
            "nor what follows"
        );
        assert!(first_difference(&other[0], &one[0]).is_some());
        let cut = parse("script 0\nP write 1 2: px done faults 1\n");
        assert!(first_difference(&referee[0], &cut[0]).unwrap().1.is_none());
    }
}
