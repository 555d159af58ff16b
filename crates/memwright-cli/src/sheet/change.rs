//! How the columns of a sheet differ from the first, and the table of the rows that changed.

use std::cmp::Ordering;

use crate::sheet::{Row, Section, Sheet, Value};

/// How a value differs from the value of the first column.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Difference {
    /// Whether the value is less than the first.
    is_less: bool,
    /// The absolute value of the difference.
    size: Value,
    /// The difference relative to the first value.
    share: Share,
}

/// A difference relative to the first value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Share {
    /// The first value is 0.
    FromZero,
    /// Both values are counts.
    OfCount {
        /// The absolute value of the difference.
        difference: u64,
        /// The first value, which is not 0.
        first: u64,
    },
    /// One of the values is a statistic.
    Real(f64),
}

impl Difference {
    /// Returns how `other` differs from `first`, or `None` if they are equal.
    fn of(other: Value, first: Value) -> Option<Self> {
        let is_less = match other.order(first) {
            Ordering::Equal => return None,
            Ordering::Less => true,
            Ordering::Greater => false,
        };
        let size = match (other, first) {
            (Value::Count(other), Value::Count(first)) => Value::Count(other.abs_diff(first)),
            (Value::Count(_) | Value::Statistic(_), _) => {
                Value::Statistic((other.approximate() - first.approximate()).abs())
            }
        };
        Some(Self {
            is_less,
            size,
            share: Share::of(size, first),
        })
    }

    fn sign(&self) -> char {
        if self.is_less { '-' } else { '+' }
    }

    /// Formats the difference with its sign.
    fn text(&self) -> String {
        format!("{}{}", self.sign(), self.size.text())
    }

    /// Formats the difference relative to the first value as a signed percentage. It has one decimal or, below 0.1 %,
    /// two significant digits. A change from 0 is formatted as "from 0".
    fn percent_text(&self) -> String {
        let sign = self.sign();
        let percent = match self.share {
            Share::FromZero => return "from 0".to_owned(),
            Share::OfCount { .. } | Share::Real(_) => self.share.percent(),
        };
        if percent >= 0.1 {
            return format!("{sign}{percent:.1} %");
        }
        // Two significant digits: the first nonzero decimal and one more.
        let digits = (-percent.log10()).ceil().clamp(1.0, 20.0) as usize + 1;
        format!("{sign}{percent:.digits$} %")
    }
}

impl Share {
    /// Returns a difference of this size relative to `first`.
    fn of(size: Value, first: Value) -> Self {
        match (size, first) {
            (_, Value::Count(0)) => Self::FromZero,
            (Value::Count(difference), Value::Count(first)) => Self::OfCount { difference, first },
            (size, first) => match first.approximate().abs() {
                0.0 => Self::FromZero,
                first => Self::Real(size.approximate() / first),
            },
        }
    }

    /// Returns the share in percent; infinite if the first value is 0.
    fn percent(self) -> f64 {
        match self {
            Self::FromZero => f64::INFINITY,
            Self::OfCount { difference, first } => 100.0 * difference as f64 / first as f64,
            Self::Real(share) => 100.0 * share,
        }
    }

    /// Compares two shares. Shares of counts are compared exactly, and others as floating-point numbers.
    fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (
                Self::OfCount { difference, first },
                Self::OfCount {
                    difference: others,
                    first: from,
                },
            ) => {
                // The fractions are compared by cross-multiplication. The product of two `u64` fits in a `u128`.
                let product = |one: u64, other: u64| u128::from(one) * u128::from(other);
                product(difference, from).cmp(&product(others, first))
            }
            (Self::FromZero | Self::OfCount { .. } | Self::Real(_), _) => {
                self.percent().total_cmp(&other.percent())
            }
        }
    }
}

impl Row {
    /// Returns the values of the first column and of `column`, if both were measured.
    fn pair(&self, column: usize) -> Option<(Value, Value)> {
        let cell = |column: usize| self.cells.get(column).copied().flatten();
        cell(0).zip(cell(column))
    }

    /// Returns how a column differs from the first. Returns `None` if the column does not differ, or if the column or
    /// the first was not measured.
    fn difference(&self, column: usize) -> Option<Difference> {
        let (first, other) = self.pair(column)?;
        Difference::of(other, first)
    }

    /// Returns whether the value in any column differs from the first.
    pub fn differs(&self) -> bool {
        self.largest_share().is_some()
    }

    /// Returns the largest relative change from the first column in any other column; `None` if no column differs.
    fn largest_share(&self) -> Option<Share> {
        let columns = 1..self.cells.len();
        let differences = columns.filter_map(|column| self.difference(column));
        let shares = differences.map(|difference| difference.share);
        shares.max_by(|one, other| one.order(*other))
    }

    /// Formats the difference of a column from the first: "=" if there is no difference, empty if the column or the
    /// first was not measured.
    pub fn delta(&self, column: usize) -> String {
        match (self.pair(column), self.difference(column)) {
            (None, _) => String::new(),
            (Some(_), None) => "=".to_owned(),
            (Some(_), Some(difference)) => difference.text(),
        }
    }

    /// Formats by how many percent a column differs from the first; empty if it does not differ.
    fn percent(&self, column: usize) -> String {
        let difference = self.difference(column);
        difference.map_or_else(String::new, |difference| difference.percent_text())
    }

    /// Returns the texts of the row's cells in a table of changes, in the order of [`Changes::headings`].
    fn change_texts(&self) -> Vec<String> {
        let mut texts = vec![self.unit.clone()];
        for (column, cell) in self.cells.iter().enumerate() {
            texts.push(self.cell_text(*cell));
            if column > 0 {
                texts.extend([self.delta(column), self.percent(column)]);
            }
        }
        texts
    }
}

impl Section {
    /// Returns a row's label for use outside its group. If another row of the section has the same label, the group
    /// precedes it.
    pub fn label(&self, row: &Row) -> String {
        let label = row.label();
        let same = self.rows.iter().filter(|other| other.label() == label);
        if same.count() > 1 {
            format!("{}: {label}", row.group)
        } else {
            label
        }
    }

    /// Returns a row's label for use outside the section.
    fn label_outside(&self, row: &Row) -> String {
        let label = self.label(row);
        match self.title.as_str() {
            "" => label,
            section => format!("{section}: {label}"),
        }
    }
}

/// The table of the rows that changed.
#[derive(Debug)]
pub struct Changes<'a> {
    /// One line with the number of changed rows, the number of all rows, and the number of rows that at least one
    /// column did not measure.
    pub summary: String,
    /// The headings of the columns that follow the column of labels: the unit, then each column of the sheet. A
    /// compared column is followed by its difference and its relative change.
    pub headings: Vec<String>,
    /// The rows that changed, sorted by relative change, the largest first. Rows with equal changes are in the order of
    /// the sheet.
    pub rows: Vec<Changed<'a>>,
}

/// A row in which at least one column differs from the first.
#[derive(Debug)]
pub struct Changed<'a> {
    /// The row that changed.
    pub row: &'a Row,
    /// The label of the row, for use outside its section.
    pub label: String,
    /// The texts of the cells, in the order of the headings.
    pub texts: Vec<String>,
}

impl Changed<'_> {
    /// Returns the label followed by the unit.
    pub fn label_with_unit(&self) -> String {
        with_unit(&self.label, &self.row.unit)
    }
}

/// Appends the unit to a label, unless the label contains it.
pub fn with_unit(label: &str, unit: &str) -> String {
    if label.contains(unit) {
        return label.to_owned();
    }
    format!("{label} ({unit})")
}

impl Sheet {
    /// Returns whether any row has a column that differs from the first.
    pub fn differs(&self) -> bool {
        let mut rows = self.sections.iter().flat_map(|section| &section.rows);
        rows.any(Row::differs)
    }

    /// Returns the table of the rows with a column that differs from the first. Ranked sections are omitted.
    pub fn changes(&self) -> Changes<'_> {
        let sections = self.sections.iter().filter(|section| !section.is_ranked);
        let (mut changed, mut all, mut unmeasured) = (Vec::new(), 0, 0);
        for section in sections {
            all += section.rows.len();
            for row in &section.rows {
                unmeasured += usize::from(row.cells.iter().any(Option::is_none));
                changed.extend(row.largest_share().map(|share| (share, section, row)));
            }
        }
        changed.sort_by(|(one, ..), (other, ..)| other.order(*one));
        let summary = change_summary(changed.len(), all, unmeasured);
        let rows = changed.into_iter().map(|(_, section, row)| Changed {
            row,
            label: section.label_outside(row),
            texts: row.change_texts(),
        });
        Changes {
            summary,
            headings: self.change_headings(),
            rows: rows.collect(),
        }
    }

    fn change_headings(&self) -> Vec<String> {
        let mut headings = vec!["unit".to_owned()];
        for (index, name) in self.columns.iter().enumerate() {
            headings.push(name.clone());
            if index > 0 {
                headings.extend(["delta".to_owned(), "change".to_owned()]);
            }
        }
        headings
    }
}

fn change_summary(changed: usize, all: usize, unmeasured: usize) -> String {
    let changed = match changed {
        0 => format!("none of {all} rows changed"),
        1 => format!("1 of {all} rows changed"),
        some => format!("{some} of {all} rows changed, the largest relative change first"),
    };
    match unmeasured {
        0 => changed,
        some => format!("{changed}; {some} not measured in every column"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{counts, example};

    const LARGE: u64 = 1 << 60;

    #[test]
    fn the_largest_relative_change_comes_first() {
        let mut sheet = example();
        sheet.sections[1].rows = vec![
            counts("a", "one more of many", &[Some(1_000_000), Some(1_000_001)]),
            counts("b", "the same", &[Some(5), Some(5)]),
            counts("c", "from zero", &[Some(0), Some(1)]),
            counts("d", "doubled", &[Some(10), Some(20)]),
            counts("e", "not measured", &[None, Some(20)]),
        ];
        let changes = sheet.changes();
        let lines: Vec<String> = changes
            .rows
            .iter()
            .map(|one| format!("{} {}", one.label, one.texts.join(" ")))
            .collect();
        assert_eq!(
            lines,
            [
                "region 1: from zero faults 0 1 +1 from 0",
                "run: user, write-protect faults 256 0 -256 -100.0 %",
                "region 1: doubled faults 10 20 +10 +100.0 %",
                "region 1: one more of many faults 1,000,000 1,000,001 +1 +0.00010 %",
            ]
        );
        assert_eq!(
            changes.summary,
            "4 of 8 rows changed, the largest relative change first; 2 not measured in every column"
        );
        assert_eq!(
            changes.headings,
            ["unit", "before", "after", "delta", "change"]
        );
    }

    #[test]
    fn differences_are_exact() {
        let count = Value::Count;
        let real = Value::Statistic;
        for (first, other, expected) in [
            (count(1), count(1), "="),
            (count(1), count(2001), "+2,000"),
            (count(LARGE + 1), count(LARGE), "-1"),
            (count(LARGE), count(LARGE + 1), "+1"),
            (count(0), count(u64::MAX), "+18,446,744,073,709,551,615"),
            (count(u64::MAX), count(0), "-18,446,744,073,709,551,615"),
            (real(3.0), real(1.5), "-1.5"),
            (real(3.0), real(3.25), "+0.25"),
            (count(3), real(3.0), "="),
        ] {
            let difference = Difference::of(other, first);
            let text = difference.map_or("=".to_owned(), |difference| difference.text());
            assert_eq!(text, expected, "{first:?} {other:?}");
        }
    }

    #[test]
    fn percentages_keep_their_first_digits() {
        for (first, other, expected) in [
            (256, 0, "-100.0 %"),
            (1000, 1015, "+1.5 %"),
            (8, 256, "+3100.0 %"),
            (1_000_000, 1_000_012, "+0.0012 %"),
            (10_000_000, 10_000_001, "+0.000010 %"),
            (u64::MAX, u64::MAX - 1, "-0.0000000000000000054 %"),
            (0, 3, "from 0"),
        ] {
            let (first, other) = (Value::Count(first), Value::Count(other));
            let text = Difference::of(other, first).unwrap().percent_text();
            assert_eq!(text, expected, "{first:?} {other:?}");
        }
    }

    #[test]
    fn shares_are_ordered_exactly() {
        let share = |first, other| {
            let (first, other) = (Value::Count(first), Value::Count(other));
            Difference::of(other, first).unwrap().share
        };
        for (one, other, expected) in [
            (share(0, 1), share(1, 100), Ordering::Greater),
            (share(2, 1), share(4, 2), Ordering::Equal),
            // The exact shares are 1 + 2^-60 and 1. As floating-point numbers, both shares would be 1.
            (
                share(LARGE, 2 * LARGE + 1),
                share(LARGE, 2 * LARGE),
                Ordering::Greater,
            ),
            (share(10, 9), share(10, 20), Ordering::Less),
        ] {
            assert_eq!(one.order(other), expected, "{one:?} {other:?}");
        }
        assert_eq!(Share::Real(0.5).order(share(2, 1)), Ordering::Equal);
    }

    #[test]
    fn a_row_differs_where_its_values_do() {
        for (cells, delta, differs) in [
            ([Some(1), Some(1)], "=", false),
            ([Some(1), Some(2001)], "+2,000", true),
            ([Some(LARGE), Some(LARGE + 1)], "+1", true),
            ([Some(3), None], "", false),
            ([None, Some(1)], "", false),
        ] {
            let row = counts("", "", &cells);
            assert_eq!(row.delta(1), delta);
            assert_eq!(row.differs(), differs, "{cells:?}");
        }
        assert!(example().differs());
    }

    #[test]
    fn an_ambiguous_title_has_its_group() {
        let mut sheet = example();
        let mut twin = counts("x", "user, write-protect", &[Some(1), Some(2)]);
        twin.group = "Page tables".to_owned();
        sheet.sections[0].rows.push(twin);
        let labels: Vec<String> = sheet
            .changes()
            .rows
            .into_iter()
            .map(|one| one.label)
            .collect();
        assert!(labels.contains(&"run: Page faults: user, write-protect".to_owned()));
        assert!(labels.contains(&"run: Page tables: user, write-protect".to_owned()));
        assert!(labels.contains(&"region 1: user, \"odd\"".to_owned()));
    }

    #[test]
    fn a_unit_is_said_once() {
        for (label, unit, expected) in [
            (
                "run: user, write-protect",
                "faults",
                "run: user, write-protect (faults)",
            ),
            (
                "run: instructions, user",
                "instructions",
                "run: instructions, user",
            ),
            ("forks", "", "forks"),
        ] {
            assert_eq!(with_unit(label, unit), expected);
        }
    }

    #[test]
    fn nothing_changed_is_said() {
        let mut sheet = example();
        for section in &mut sheet.sections {
            section.rows.retain(|row| !row.differs());
        }
        assert_eq!(
            sheet.changes().summary,
            "none of 2 rows changed; 1 not measured in every column"
        );
    }
}
