//! A result as a sheet in sections, with one row per measure and one column per kernel or run.

pub mod change;
pub mod select;
pub mod value;
pub mod verdict;

pub use select::{UnknownRow, check as check_pattern};
pub use value::Value;
pub use verdict::{Limited, Verdict, VerdictKind};

use crate::model::statistic::{Pass, Statistic};

/// The text of a cell that was not measured.
pub const NOT_MEASURED: &str = "not measured";

/// The text of a cell of a row that no tool can measure on this kernel.
pub const NOT_OBSERVABLE: &str = "not observable";

/// A value; `None` if it was not measured.
pub type Cell = Option<Value>;

/// A complete result.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    /// The subject of the result, in one line.
    pub heading: String,
    /// The names of the columns.
    pub columns: Vec<String>,
    /// Whether the columns are compared with the first.
    pub compares: bool,
    /// The sections of the sheet, in order.
    pub sections: Vec<Section>,
    /// Notes, versions and hashes, one line each.
    pub notes: Vec<String>,
    /// The commands that reproduce the result.
    pub commands: Vec<String>,
    /// The kernels on which the counts were made. The name of a kernel is that of a column or, in a sheet with a row
    /// for each kernel, the title of a row.
    pub kernels: Vec<MeasuredKernel>,
    /// The verdict on the last column; `None` if the sheet is not that of a check.
    pub verdict: Option<Verdict>,
}

/// A kernel on which counts were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeasuredKernel {
    /// The name that the sheet gives the kernel.
    pub name: String,
    /// SHA-256 of the kernel's image.
    pub sha256: String,
}

/// A part of a sheet.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The subject of the section; may be empty.
    pub title: String,
    /// A remark about the title; may be empty.
    pub remark: String,
    /// Whether the rows are ranked, as the functions of a profile are. A ranked section is always printed completely,
    /// and the tables of changed rows omit it.
    pub is_ranked: bool,
    /// The rows of the section, in order.
    pub rows: Vec<Row>,
}

/// One measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The identifier of the row in JSON, in CSV and in the patterns of `--rows`. It does not change between versions.
    pub name: String,
    /// The heading of the row's group. Adjacent rows with equal headings form one group.
    pub group: String,
    /// What was measured.
    pub title: String,
    /// The unit of the row's values.
    pub unit: String,
    /// Which statistic the row's values are; `None` if they are not statistics.
    pub statistic: Option<Statistic>,
    /// Whether the row counts work of the program, and not work of the kernel. If such a row differs, the columns did
    /// not do the same work.
    pub is_state: bool,
    /// The text that is printed for a cell without a value, such as [`NOT_MEASURED`]. It states why there is no value.
    pub absent: &'static str,
    /// One cell for each column.
    pub cells: Vec<Cell>,
}

/// Formats a cell.
pub fn cell_text(cell: Cell) -> String {
    cell.map_or_else(|| NOT_MEASURED.to_owned(), Value::text)
}

impl Section {
    /// Returns the title followed by the remark.
    pub fn heading(&self) -> String {
        match self.remark.as_str() {
            "" => self.title.clone(),
            remark => format!("{}, {remark}", self.title),
        }
    }
}

impl Row {
    /// Returns the label of the row within its group: the title, followed by the pass statistic if the row contains
    /// one.
    pub fn label(&self) -> String {
        let suffix = self.pass().map(|pass| format!(", {}", pass.suffix()));
        format!("{}{}", self.title, suffix.unwrap_or_default())
    }

    /// Returns which statistic over a region's passes the row contains, or `None` if it contains none.
    pub fn pass(&self) -> Option<Pass> {
        self.statistic.and_then(Statistic::pass)
    }

    /// Formats a cell of the row.
    pub fn cell_text(&self, cell: Cell) -> String {
        cell.map_or_else(|| self.absent.to_owned(), Value::text)
    }

    /// Returns whether the value is 0 in every column.
    pub fn is_idle(&self) -> bool {
        let is_zero = |cell: &Cell| match cell {
            Some(Value::Count(count)) => *count == 0,
            Some(Value::Statistic(_)) | None => false,
        };
        self.cells.iter().all(is_zero)
    }
}

impl Sheet {
    /// Returns whether tables have columns for the unit and the statistic.
    pub fn has_statistics(&self) -> bool {
        let mut rows = self.sections.iter().flat_map(|section| &section.rows);
        rows.any(|row| row.statistic.is_some_and(Statistic::has_column))
    }

    /// Returns how many of the first [`Sheet::headings`] belong to columns of text: 2 if there are columns for the unit
    /// and the statistic, otherwise 0.
    pub fn words(&self) -> usize {
        if self.has_statistics() { 2 } else { 0 }
    }

    /// Returns the headings of the columns: unit and statistic if the rows have them, then the kernels. In a
    /// comparison, the heading of each kernel after the first is followed by the heading of its difference.
    pub fn headings(&self) -> Vec<String> {
        let mut headings = Vec::new();
        if self.has_statistics() {
            headings.extend(["unit".to_owned(), "statistic".to_owned()]);
        }
        for (index, name) in self.columns.iter().enumerate() {
            headings.push(name.clone());
            if self.compares && index > 0 {
                headings.push("delta".to_owned());
            }
        }
        headings
    }

    /// Returns the texts of a row's cells, in the order of [`Sheet::headings`].
    pub fn texts(&self, row: &Row) -> Vec<String> {
        let mut texts = Vec::new();
        if self.has_statistics() {
            texts.push(row.unit.clone());
            let statistic = row.statistic.map_or("", Statistic::name);
            texts.push(statistic.to_owned());
        }
        for (index, cell) in row.cells.iter().enumerate() {
            texts.push(row.cell_text(*cell));
            if self.compares && index > 0 {
                texts.push(row.delta(index));
            }
        }
        texts
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a row of counts.
    pub fn counts(name: &str, title: &str, cells: &[Option<u64>]) -> Row {
        Row {
            name: name.to_owned(),
            group: "Page faults".to_owned(),
            title: title.to_owned(),
            unit: "faults".to_owned(),
            statistic: None,
            is_state: false,
            absent: NOT_MEASURED,
            cells: cells.iter().map(|cell| cell.map(Value::Count)).collect(),
        }
    }

    /// Returns a sheet with two sections, notes, a command and the kernels, but without a verdict.
    pub fn example() -> Sheet {
        let section = |title: &str, rows| Section {
            title: title.to_owned(),
            remark: String::new(),
            is_ranked: false,
            rows,
        };
        Sheet {
            heading: "./prog <1> & 2".to_owned(),
            columns: vec!["before".to_owned(), "after".to_owned()],
            compares: true,
            sections: vec![
                section(
                    "run",
                    vec![
                        counts(
                            "run.write_protect",
                            "user, write-protect",
                            &[Some(256), Some(0)],
                        ),
                        counts(
                            "run.read",
                            "user, not present, read",
                            &[Some(1000), Some(1000)],
                        ),
                        counts("run.refused", "user, refused", &[Some(1), None]),
                    ],
                ),
                section(
                    "region 1",
                    vec![counts(
                        "region.1.odd",
                        "user, \"odd\"",
                        &[Some(1), Some(12345)],
                    )],
                ),
            ],
            notes: vec!["both repeat".to_owned()],
            commands: vec!["memwright compare ./prog".to_owned()],
            kernels: kernels(["before", "after"]),
            verdict: None,
        }
    }

    /// Returns a sheet whose rows are statistics: a series on two kernels, and a count that one of the kernels did not
    /// measure.
    pub fn with_figures() -> Sheet {
        let row = |title: &str, unit: &str, statistic, values: [Option<f64>; 2]| Row {
            name: String::new(),
            group: "fault".to_owned(),
            title: title.to_owned(),
            unit: unit.to_owned(),
            statistic: Some(statistic),
            is_state: false,
            absent: NOT_MEASURED,
            cells: values.map(|value| value.map(Value::Statistic)).to_vec(),
        };
        let write = |statistic, values| row("first write", "instructions", statistic, values);
        Sheet {
            heading: "basics".to_owned(),
            columns: vec!["memwright".to_owned(), "linux".to_owned()],
            compares: false,
            sections: vec![Section {
                title: String::new(),
                remark: String::new(),
                is_ranked: false,
                rows: vec![
                    write(Statistic::Minimum, [Some(538.0), Some(1000.0)]),
                    write(Statistic::Median, [Some(540.0), Some(1001.0)]),
                    write(Statistic::Mean, [Some(541.25), Some(1200.5)]),
                    row(
                        "flushes",
                        "flushes per round",
                        Statistic::Value,
                        [Some(2.0), None],
                    ),
                ],
            }],
            notes: Vec::new(),
            commands: Vec::new(),
            kernels: kernels(["memwright", "linux"]),
            verdict: None,
        }
    }

    /// Returns kernels with these names, whose hashes are 11 and 22.
    fn kernels(names: [&str; 2]) -> Vec<MeasuredKernel> {
        let kernel = |(name, sha256): (&str, &str)| MeasuredKernel {
            name: name.to_owned(),
            sha256: sha256.to_owned(),
        };
        names.into_iter().zip(["11", "22"]).map(kernel).collect()
    }
}
