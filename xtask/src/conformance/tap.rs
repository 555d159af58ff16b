//! Parses the output of a test, which is in the Test Anything Protocol as Linux's selftests use it. A test without such
//! output has only an exit code.

use super::matching::Label;

/// How a subtest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The subtest passed.
    Passed,
    /// The subtest failed, and is marked as an expected failure (XFAIL).
    FailedAsExpected,
    /// The subtest was skipped.
    Skipped,
    /// The subtest failed.
    Failed,
}

impl Ending {
    /// All endings. The position of an ending is its index in counts by ending.
    pub const ALL: [Self; 4] = [
        Self::Passed,
        Self::FailedAsExpected,
        Self::Skipped,
        Self::Failed,
    ];

    /// Returns the ending for its [word](Self::word).
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|ending| ending.word() == word)
    }

    /// Returns the word that stands for the ending in the file of a column.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "pass",
            Self::FailedAsExpected => "xfail",
            Self::Skipped => "skip",
            Self::Failed => "fail",
        }
    }

    /// Returns whether the subtest counts as passed, which includes an expected failure.
    pub const fn passes(self) -> bool {
        matches!(self, Self::Passed | Self::FailedAsExpected)
    }
}

/// A subtest and its ending.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subtest {
    /// The number, as printed.
    pub number: u32,
    /// The name; empty if the program prints only a reason for skipping the subtest.
    pub name: String,
    /// The ending.
    pub ending: Ending,
}

impl Subtest {
    /// Returns the key by which the subtest is matched.
    pub fn label(&self) -> Label<'_> {
        (self.number, &self.name)
    }
}

/// Parses the subtests of a run. A program that prints no subtest counts as one subtest, whose ending depends on the
/// exit code.
pub fn read(text: &str, code: Option<i32>) -> Vec<Subtest> {
    let subtests = printed(text);
    if !subtests.is_empty() {
        return subtests;
    }
    // The exit codes KSFT_PASS and KSFT_SKIP of kselftest.h. A program that prints "1..0 # SKIP" has no subtest to run.
    let ending = match code {
        Some(0) => Ending::Passed,
        Some(4) => Ending::Skipped,
        Some(_) | None => Ending::Failed,
    };
    vec![Subtest {
        number: 1,
        name: String::new(),
        ending,
    }]
}

/// Parses the subtests in the output of a run.
pub fn printed(text: &str) -> Vec<Subtest> {
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<Subtest> {
    let (rest, ok) = match line.strip_prefix("not ok ") {
        Some(rest) => (rest, false),
        None => (line.strip_prefix("ok ")?, true),
    };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let number = rest[..digits].parse().ok()?;
    let (name, directive) = match rest[digits..].split_once('#') {
        Some((name, directive)) => (name, directive.trim_start()),
        None => (&rest[digits..], ""),
    };
    let ending = if directive.starts_with("SKIP") {
        Ending::Skipped
    } else if directive.starts_with("XFAIL") {
        Ending::FailedAsExpected
    } else if ok {
        Ending::Passed
    } else {
        Ending::Failed
    };
    Some(Subtest {
        number,
        name: name.trim().to_owned(),
        ending,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_protocol() {
        for (text, expected) in [
            ("ok 1 a b", Some((1, "a b", Ending::Passed))),
            ("not ok 2 a", Some((2, "a", Ending::Failed))),
            ("ok 3 # SKIP not here", Some((3, "", Ending::Skipped))),
            ("ok 4 a # SKIP not here", Some((4, "a", Ending::Skipped))),
            ("ok 5 # XFAIL", Some((5, "", Ending::FailedAsExpected))),
            (
                "not ok 6 a # XFAIL",
                Some((6, "a", Ending::FailedAsExpected)),
            ),
            ("#  OK  a", None),
            ("ok", None),
            ("ok then", None),
            ("1..9", None),
        ] {
            let seen = line(text);
            let seen = seen
                .as_ref()
                .map(|seen| (seen.number, seen.name.as_str(), seen.ending));
            assert_eq!(seen, expected, "{text}");
        }
    }

    #[test]
    fn a_silent_program_is_one_subtest() {
        for (code, ending) in [
            (Some(0), Ending::Passed),
            (Some(4), Ending::Skipped),
            (Some(1), Ending::Failed),
            (None, Ending::Failed),
        ] {
            let subtests = read("TAP version 13\n1..0 # SKIP\n", code);
            assert_eq!(subtests.len(), 1);
            assert_eq!(subtests[0].ending, ending);
        }
    }
}
