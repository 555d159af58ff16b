//! Generates the blocks of the documentation that depend on the lists.

use super::column::Column;
use super::expected::{Expectation, Expected};
use super::list::Test;
use super::tally::Tally;
use super::tap::Ending;
use crate::block::Block;
use crate::number::grouped;
use crate::tier::Tier;

/// The maximum number of characters of a line.
const COLUMNS: usize = 120;

/// Returns every block of the pages that is generated from the lists. `recorded` is the column of an earlier kernel
/// series.
pub fn blocks(
    tests: &[Test],
    expected: &Expected,
    reference: &Column,
    recorded: &Column,
) -> Vec<Block> {
    let tally = Tally::expected(expected, reference);
    let (passes, sentence) = (grouped(tally.passed()), tally.sentence());
    let short = format!(
        "Of [Linux's own mm selftests](conformance.md), {passes} subtests are expected to pass: {sentence}."
    );
    let all = grouped(
        expected
            .tests()
            .iter()
            .map(|test| expected.of(test).len() as u64)
            .sum(),
    );
    let counts = format!(
        "Of the {all} subtests of `conformance/{}`, {passes} are expected to pass on Memwright: {sentence}.",
        super::expected::FILE
    );
    let of = |tier: Tier| {
        let chosen: Vec<&Test> = tests.iter().filter(|test| test.tier <= tier).collect();
        let lines = chosen.iter().flat_map(|test| expected.of(&test.name));
        let passing = lines.filter(|line| line.expectation == Expectation::Pass);
        (chosen.len(), grouped(passing.count() as u64))
    };
    let ((first, first_passing), (second, second_passing)) = (of(Tier::Test), of(Tier::Ci));
    let slice = format!(
        "The column `tier` of `conformance/tests.tsv` is the first tier that runs a test: `cargo xtask test` runs \
         {first} tests, in which {first_passing} subtests are expected to pass, and `cargo xtask ci` {second} tests, \
         with {second_passing} subtests.",
    );
    let block = |page, name, text| Block { page, name, text };
    vec![
        block("docs/correctness.md", "conformance-passes", wrapped(&short)),
        block(
            "docs/conformance.md",
            "conformance-reference",
            format!("{}\n{}", columns(&[recorded, reference]), wrapped(&counts)),
        ),
        block("docs/conformance.md", "conformance-slice", wrapped(&slice)),
        block(
            "docs/conformance.md",
            "conformance-differences",
            differences(tests, expected),
        ),
        block(
            "docs/conformance.md",
            "conformance-skipped",
            skipped(tests, expected),
        ),
    ]
}

/// Returns a table with the number of subtests on each kernel, by ending.
fn columns(columns: &[&Column]) -> String {
    let mut text =
        "| Kernel and tests | subtests | pass | xfail | skip | fail |\n|---|--:|--:|--:|--:|--:|\n"
            .to_owned();
    for column in columns {
        let all = grouped(column.entries.len() as u64);
        text.push_str(&format!("| {} | {all} |", column.kernel));
        for ending in Ending::ALL {
            let of = column.entries.iter();
            let count = of.filter(|(_, subtest)| subtest.ending == ending).count();
            text.push_str(&format!(" {} |", grouped(count as u64)));
        }
        text.push('\n');
    }
    text
}

/// Returns a table of the subtests that are not expected to pass, except those that are also skipped on the reference.
fn differences(tests: &[Test], expected: &Expected) -> String {
    let reason = |expectation: &Expectation| match expectation {
        Expectation::Pass | Expectation::Skipped(_) => None,
        Expectation::Unsupported(reason) => Some(reason.clone()),
        Expectation::Deliberate { rule, unless: None } => Some(format!("On purpose: {rule}")),
        Expectation::Deliberate {
            rule,
            unless: Some(policy),
        } => Some(format!("On purpose, unless `{policy}`: {rule}")),
    };
    table("that do not pass", tests, expected, reason)
}

/// Returns a table of the subtests that are skipped both here and on the reference.
fn skipped(tests: &[Test], expected: &Expected) -> String {
    let reason = |expectation: &Expectation| match expectation {
        Expectation::Skipped(reason) => Some(reason.clone()),
        Expectation::Pass | Expectation::Unsupported(_) | Expectation::Deliberate { .. } => None,
    };
    table("that are skipped", tests, expected, reason)
}

/// Returns a table with the number of subtests for each pair of a test and a reason.
fn table(
    what: &str,
    tests: &[Test],
    expected: &Expected,
    reason: impl Fn(&Expectation) -> Option<String>,
) -> String {
    let mut text = format!("| Test | Subtests {what} | Reason |\n|---|--:|---|\n");
    for test in tests {
        let lines = expected.of(&test.name);
        let mut rows: Vec<(String, usize)> = Vec::new();
        for reason in lines.iter().filter_map(|line| reason(&line.expectation)) {
            match rows.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, count)) => *count += 1,
                None => rows.push((reason, 1)),
            }
        }
        for (reason, count) in rows {
            let (name, all) = (&test.name, lines.len());
            text.push_str(&format!("| `{name}` | {count} of {all} | {reason} |\n"));
        }
    }
    text
}

/// Wraps a text into lines of at most [`COLUMNS`] characters.
fn wrapped(words: &str) -> String {
    let mut text = String::new();
    let mut column = 0;
    for word in words.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > COLUMNS {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_counts_each_reason_of_a_test() {
        let tests = Test::read("h\nt\tt\t-\t0\t3G\t1\t60\tci\t-\n").unwrap();
        let list = "h\n\
            t\t1\tpass\ta\n\
            t\t2\tunsupported: There is no swap.\tb\n\
            t\t3\tdeliberate unless a=b: Stores take no fault.\tc\n\
            t\t4\tunsupported: There is no swap.\td\n\
            t\t5\tskipped: There is no hook.\te\n";
        let expected = Expected::read(list).unwrap();
        let heading = "| Test | Subtests that do not pass | Reason |\n|---|--:|---|\n";
        assert_eq!(
            differences(&tests, &expected),
            format!(
                "{heading}| `t` | 2 of 5 | There is no swap. |\n\
                 | `t` | 1 of 5 | On purpose, unless `a=b`: Stores take no fault. |\n"
            )
        );
        assert!(skipped(&tests, &expected).ends_with("| `t` | 1 of 5 | There is no hook. |\n"));
    }

    #[test]
    fn a_column_is_a_row_of_counts() {
        let column = "# Linux 7.3\ntest\tnumber\tresult\tname\nt\t1\tpass\ta\nt\t2\tskip\tb\nt\t3\tpass\tc\n";
        let column = Column::read(column).unwrap();
        assert!(columns(&[&column]).ends_with("\n| Linux 7.3 | 3 | 2 | 0 | 1 | 0 |\n"));
    }

    #[test]
    fn lines_are_no_longer_than_the_page() {
        let text = wrapped(&"word ".repeat(60));
        assert!(text.lines().count() == 3 && text.lines().all(|line| line.len() <= COLUMNS));
    }
}
