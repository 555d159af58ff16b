//! The verdict of a check, as a part of its sheet.

use crate::sheet::Row;

/// The verdict on the last column of a sheet.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The verdict itself.
    pub kind: VerdictKind,
    /// The reasons for the verdict, one line each; none if the check passed.
    pub reasons: Vec<String>,
    /// The rows that have a limit. The sheet may lack some of these rows.
    pub limited: Vec<Limited>,
}

/// Whether a run passed a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictKind {
    /// It passed.
    Passed,
    /// A count, the program or its state is not as the check requires.
    Failed,
    /// No claim is possible.
    Unknown,
}

/// A row with a limit.
#[derive(Debug, Clone, PartialEq)]
pub struct Limited {
    /// The row's name, as the user gives it.
    pub given: String,
    /// The limit, as the user gives it: `12` or `+5%`.
    pub limit: String,
    /// The judgement in a word.
    pub word: &'static str,
    /// The row; `None` if there is no such row.
    pub row: Option<Row>,
}

impl VerdictKind {
    /// Returns the word that a report begins with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Passed => "PASSED",
            Self::Failed => "FAILED",
            Self::Unknown => "NO VERDICT",
        }
    }
}

impl Verdict {
    /// Returns the limit of the row with this name; `None` if the row has no limit.
    pub fn limit_of(&self, name: &str) -> Option<&str> {
        let mut limited = self.limited.iter();
        let limited = limited.find(|one| one.row.as_ref().is_some_and(|row| row.name == name));
        limited.map(|one| one.limit.as_str())
    }
}
