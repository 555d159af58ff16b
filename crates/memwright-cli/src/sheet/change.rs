//! The rows that changed, largest relative change first.

use std::cmp::Ordering;

use crate::sheet::value::{Share, percent_text};
use crate::sheet::{Row, Section, Sheet};

/// A row in which at least one column differs from the first.
#[derive(Debug, Clone, Copy)]
pub struct Changed<'a> {
    /// The section that contains the row.
    pub section: &'a Section,
    /// The row that changed.
    pub row: &'a Row,
}

impl Changed<'_> {
    /// Returns the largest relative change from the first column among the other columns; `None` if no column differs.
    fn share(&self) -> Option<Share> {
        let share = |column: usize| {
            let (first, _) = self.row.pair(column)?;
            Some(self.row.difference(column)?.share(first))
        };
        let columns = 1..self.row.cells.len();
        columns
            .filter_map(share)
            .max_by(|one, other| one.order(*other))
    }

    /// Returns the row's label for a table of changes, outside its section.
    pub fn label(&self) -> String {
        let title = self.section.label(self.row);
        match self.section.title.as_str() {
            "" => title,
            section => format!("{section}: {title}"),
        }
    }

    /// Returns the label followed by the unit.
    pub fn label_with_unit(&self) -> String {
        with_unit(&self.label(), &self.row.unit)
    }

    /// Returns the texts of the row's cells, in the order of [`Sheet::change_headings`].
    pub fn texts(&self) -> Vec<String> {
        let mut texts = vec![self.row.unit.clone()];
        for (column, cell) in self.row.cells.iter().enumerate() {
            texts.push(self.row.cell_text(*cell));
            if column > 0 {
                texts.push(self.row.delta(column));
                texts.push(self.percent(column));
            }
        }
        texts
    }

    /// Formats by how many percent a column differs from the first; empty if it does not differ.
    pub fn percent(&self, column: usize) -> String {
        let pair = self.row.pair(column).zip(self.row.difference(column));
        pair.map_or_else(String::new, |((first, _), difference)| {
            percent_text(&difference, first)
        })
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
}

/// Appends the unit to a label, unless the label contains it.
pub fn with_unit(label: &str, unit: &str) -> String {
    if label.contains(unit) {
        return label.to_owned();
    }
    format!("{label} ({unit})")
}

impl Sheet {
    fn unranked(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| !section.is_ranked)
    }

    /// Returns the rows with a column that differs from the first, largest relative change first, and equal changes in
    /// the order of the sheet. Ranked sections are omitted.
    pub fn changed(&self) -> Vec<Changed<'_>> {
        let rows = self
            .unranked()
            .flat_map(|section| section.rows.iter().map(move |row| Changed { section, row }));
        let mut changed: Vec<_> = rows
            .filter(|changed| changed.row.differs())
            .map(|changed| (changed.share(), changed))
            .collect();
        changed.sort_by(|(one, _), (other, _)| match (one, other) {
            (Some(one), Some(other)) => other.order(*one),
            // A row that differs always has a relative change, so this case does not occur.
            (None, _) | (_, None) => Ordering::Equal,
        });
        changed.into_iter().map(|(_, changed)| changed).collect()
    }

    /// Returns one line with the number of changed rows, the number of all rows, and the number of rows that at least
    /// one column did not measure. Ranked sections are omitted.
    pub fn change_summary(&self) -> String {
        let rows = || self.unranked().flat_map(|section| &section.rows);
        let changed = match (self.changed().len(), rows().count()) {
            (0, all) => format!("none of {all} rows changed"),
            (1, all) => format!("1 of {all} rows changed"),
            (some, all) => {
                format!("{some} of {all} rows changed, the largest relative change first")
            }
        };
        let unmeasured = rows().filter(|row| row.cells.iter().any(Option::is_none));
        match unmeasured.count() {
            0 => changed,
            some => format!("{changed}; {some} not measured in every column"),
        }
    }

    /// Returns the headings of a table of changes after the heading of the label: the unit, then each column. A
    /// compared column is followed by its difference and its relative change.
    pub fn change_headings(&self) -> Vec<String> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{counts, example};

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
        let changed = sheet.changed();
        let lines: Vec<String> = changed
            .iter()
            .map(|one| format!("{} {}", one.label(), one.texts().join(" ")))
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
            sheet.change_summary(),
            "4 of 8 rows changed, the largest relative change first; 2 not measured in every column"
        );
        assert_eq!(
            sheet.change_headings(),
            ["unit", "before", "after", "delta", "change"]
        );
    }

    #[test]
    fn an_ambiguous_title_has_its_group() {
        let mut sheet = example();
        let mut twin = counts("x", "user, write-protect", &[Some(1), Some(2)]);
        twin.group = "Page tables".to_owned();
        sheet.sections[0].rows.push(twin);
        let labels: Vec<String> = sheet.changed().iter().map(Changed::label).collect();
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
            sheet.change_summary(),
            "none of 2 rows changed; 1 not measured in every column"
        );
    }
}
