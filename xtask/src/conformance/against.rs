//! `--against A,B`: compares two columns, without running tests.

use super::column::Column;
use super::expected::{self, Expectation, Expected};
use super::matching::{self, Label};
use super::tap::Ending;
use super::{column, read};
use anyhow::Result;

/// The name that `--against` uses for the expected results on Memwright.
const MEMWRIGHT: &str = "memwright";

/// A subtest in a column.
struct Row {
    test: String,
    number: u32,
    name: String,
    ending: Ending,
    /// The reason why the subtest does not pass; empty if none is known.
    reason: String,
}

impl Row {
    fn label(&self) -> Label<'_> {
        (self.number, &self.name)
    }
}

/// The result of comparing two columns.
#[derive(Debug, Default, PartialEq, Eq)]
struct Comparison {
    /// One line of text for each difference.
    lines: Vec<String>,
    differ: usize,
    only_left: usize,
    only_right: usize,
    same: usize,
}

/// Prints the differences between two columns, and their number.
///
/// # Errors
/// If there is no column of the name `left` or `right`.
pub fn run(left: &str, right: &str) -> Result<()> {
    let (rows, others) = (rows(left)?, rows(right)?);
    // The expected results on Memwright do not distinguish an expected failure (XFAIL) from a pass.
    let exact = left != MEMWRIGHT && right != MEMWRIGHT;
    let compared = compare(&rows, &others, exact);
    println!("{:<26} {:>6} {left:>9} {right:>9}  name", "test", "number");
    for line in &compared.lines {
        println!("{line}");
    }
    println!("{}", compared.closing(left, right));
    Ok(())
}

/// Reads a column: the expectations for `memwright`, or the file of a kernel series.
fn rows(name: &str) -> Result<Vec<Row>> {
    if name == MEMWRIGHT {
        return Ok(of_expectations(&Expected::read(&read(expected::FILE)?)?));
    }
    Ok(of_column(column(name)?))
}

fn of_column(column: Column) -> Vec<Row> {
    let entries = column.entries.into_iter();
    let rows = entries.map(|(test, subtest)| Row {
        test,
        number: subtest.number,
        name: subtest.name,
        ending: subtest.ending,
        reason: String::new(),
    });
    rows.collect()
}

fn of_expectations(expected: &Expected) -> Vec<Row> {
    let tests = expected.tests().into_iter();
    let lines = tests.flat_map(|test| expected.of(test).into_iter().map(move |line| (test, line)));
    let rows = lines.map(|(test, line)| {
        let (ending, reason) = match &line.expectation {
            Expectation::Pass => (Ending::Passed, ""),
            Expectation::Skipped(reason) => (Ending::Skipped, reason.as_str()),
            Expectation::Unsupported(reason) => (Ending::Failed, reason.as_str()),
            Expectation::Deliberate { rule, .. } => (Ending::Failed, rule.as_str()),
        };
        Row {
            test: test.to_owned(),
            number: line.number,
            name: line.name.clone(),
            ending,
            reason: reason.to_owned(),
        }
    });
    rows.collect()
}

/// Compares two columns. Unless `exact`, an expected failure is equal to a pass.
fn compare(left: &[Row], right: &[Row], exact: bool) -> Comparison {
    let mut compared = Comparison::default();
    let mut tests: Vec<&str> = Vec::new();
    for row in left.iter().chain(right) {
        if !tests.contains(&row.test.as_str()) {
            tests.push(&row.test);
        }
    }
    for test in tests {
        let [left, right] = [left, right]
            .map(|rows| -> Vec<&Row> { rows.iter().filter(|row| row.test == test).collect() });
        compared.add(&left, &right, exact);
    }
    compared
}

impl Comparison {
    /// Compares the rows of one test.
    fn add(&mut self, left: &[&Row], right: &[&Row], exact: bool) {
        let [labels, others] = [left, right]
            .map(|rows| -> Vec<Label<'_>> { rows.iter().map(|row| row.label()).collect() });
        let found = matching::matches(&labels, &others);
        for (row, at) in left.iter().zip(&found) {
            match at.map(|at| right[at]) {
                Some(other) if is_same(row.ending, other.ending, exact) => self.same += 1,
                Some(other) => {
                    self.differ += 1;
                    self.lines.push(line(Some(row), Some(other)));
                }
                None => {
                    self.only_left += 1;
                    self.lines.push(line(Some(row), None));
                }
            }
        }
        for (at, row) in right.iter().enumerate() {
            if !found.contains(&Some(at)) {
                self.only_right += 1;
                self.lines.push(line(None, Some(row)));
            }
        }
    }

    /// Returns the closing line with the counts.
    fn closing(&self, left: &str, right: &str) -> String {
        let Self {
            lines: _,
            differ,
            only_left,
            only_right,
            same,
        } = self;
        format!(
            "{differ} differ; {only_left} only in {left}; {only_right} only in {right}; {same} the same"
        )
    }
}

fn is_same(one: Ending, other: Ending, exact: bool) -> bool {
    one == other || !exact && one.passes() && other.passes()
}

/// Returns the line of output for a subtest whose results differ, or that is in only one column.
fn line(left: Option<&Row>, right: Option<&Row>) -> String {
    let word = |row: Option<&Row>| row.map_or("-", |row| row.ending.word());
    let rows = [right, left];
    let row = rows.iter().flatten().next();
    let (test, number, name) = row.map_or(("", 0, ""), |row| (&row.test, row.number, &row.name));
    let reasons = rows.iter().flatten().map(|row| row.reason.as_str());
    let reason = reasons.filter(|reason| !reason.is_empty());
    let reason: String = reason.map(|reason| format!(" ({reason})")).collect();
    let (left, right) = (word(left), word(right));
    let line = format!("{test:<26} {number:>6} {left:>9} {right:>9}  {name}{reason}");
    line.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &str) -> Vec<Row> {
        let text = format!("# Linux 7.3\ntest\tnumber\tresult\tname\n{lines}");
        of_column(Column::read(&text).unwrap())
    }

    #[test]
    fn differences_are_listed_and_counted() {
        let left =
            of("a\t1\tpass\tone\na\t2\tfail\ttwo\nb\t1\tpass\tx\nb\t2\tpass\ty\nc\t1\tskip\t\n");
        let right = of("a\t1\tpass\tone\na\t2\txfail\ttwo\nb\t1\tpass\ty\nd\t1\tpass\tz\n");
        let compared = compare(&left, &right, true);
        let lines = [
            "a                               2      fail     xfail  two",
            "b                               1      pass         -  x",
            "c                               1      skip         -",
            "d                               1         -      pass  z",
        ];
        assert_eq!(compared.lines, lines);
        let closing = "1 differ; 2 only in 7.2; 1 only in 7.3; 2 the same";
        assert_eq!(compared.closing("7.2", "7.3"), closing);
    }

    #[test]
    fn an_expectation_gives_its_reason_and_passes_where_a_failure_is_expected() {
        let expected = "h\nt\t1\tpass\ta\nt\t2\tunsupported: There is no swap.\tb\nt\t3\tskipped: There is no hook.\tc\n";
        let ours = of_expectations(&Expected::read(expected).unwrap());
        let theirs = of("t\t1\txfail\ta\nt\t2\tpass\tb\nt\t3\tskip\tc\n");
        let compared = compare(&theirs, &ours, false);
        let line = "t                               2      pass      fail  b (There is no swap.)";
        assert_eq!(compared.lines, [line]);
        assert_eq!((compared.differ, compared.same), (1, 2));
        assert_eq!(compare(&theirs, &ours, true).differ, 2);
    }
}
