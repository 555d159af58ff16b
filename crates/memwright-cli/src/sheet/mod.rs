//! A result as a sheet: measures down, columns across, in sections. Written as text, Markdown, CSV or a page.

#[cfg(test)]
mod browser;
mod csv;
mod html;
mod markdown;
mod text;

pub use csv::csv;
pub use html::html;
pub use markdown::markdown;
pub use text::text;

/// What nothing could count.
pub const NOT_MEASURED: &str = "not measured";

/// A whole result.
#[derive(Debug, Clone, PartialEq)]
pub struct Sheet {
    /// What it is about, in one line.
    pub heading: String,
    /// What the columns are called.
    pub columns: Vec<String>,
    /// Whether the columns are to be compared with the first.
    pub compares: bool,
    /// Its parts.
    pub sections: Vec<Section>,
    /// What is to be said below, one line each.
    pub notes: Vec<String>,
}

/// A part of a sheet.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// What it is about; may be empty.
    pub title: String,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// One measure.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// What it stands under, with the rows before and after it that say the same.
    pub group: String,
    /// What was measured.
    pub title: String,
    /// One cell for each column.
    pub cells: Vec<Cell>,
}

/// One value.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// The value; `None` where nothing measured it.
    pub value: Option<f64>,
    /// How people read it.
    pub text: String,
    /// What it is a figure of, where the row does not say it; equal in all cells of a row.
    pub figure: Option<Figure>,
}

/// What a number is: its unit, and which statistic of the measured values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figure {
    /// What is counted.
    pub unit: String,
    /// Which of the statistics.
    pub statistic: Statistic,
}

/// What a figure says of the values that were measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Statistic {
    /// The only value.
    Value,
    /// The least of several.
    Minimum,
    /// The middle one.
    Median,
    /// The arithmetic mean.
    Mean,
}

impl Statistic {
    /// Its name in tables and exports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Value => "value",
            Self::Minimum => "minimum",
            Self::Median => "median",
            Self::Mean => "mean",
        }
    }

    /// Whether a chart draws it: one bar stands for a series.
    fn is_drawn(self) -> bool {
        match self {
            Self::Value | Self::Median => true,
            Self::Minimum | Self::Mean => false,
        }
    }
}

impl Cell {
    /// A count.
    pub fn count(count: Option<u64>) -> Self {
        Self {
            value: count.map(|count| count as f64),
            text: count.map_or_else(|| NOT_MEASURED.to_owned(), crate::table::grouped),
            figure: None,
        }
    }
}

impl Row {
    /// What the row's numbers are, where they say it.
    pub fn figure(&self) -> Option<&Figure> {
        self.cells.iter().find_map(|cell| cell.figure.as_ref())
    }

    /// What a column has more than the first, with its sign; "=" where they are the same, nothing where one is missing.
    pub fn delta(&self, column: usize) -> String {
        let value = |column: usize| self.cells.get(column).and_then(|cell| cell.value);
        match (value(0), value(column)) {
            (Some(first), Some(other)) if first == other => "=".to_owned(),
            (Some(first), Some(other)) => {
                let difference = other - first;
                let sign = if difference < 0.0 { '-' } else { '+' };
                let size = difference.abs();
                if size.fract() == 0.0 {
                    format!("{sign}{}", crate::table::grouped(size as u64))
                } else {
                    format!("{sign}{size:.2}")
                }
            }
            (None, None) | (None, Some(_)) | (Some(_), None) => String::new(),
        }
    }

    /// Whether a column has another value than the first.
    pub fn differs(&self) -> bool {
        (1..self.cells.len()).any(|column| !matches!(self.delta(column).as_str(), "=" | ""))
    }
}

impl Sheet {
    /// Whether any column has another value than the first.
    pub fn differs(&self) -> bool {
        self.sections
            .iter()
            .any(|section| section.rows.iter().any(Row::differs))
    }

    /// Whether its numbers say what they are: then tables have a column for the unit and one for the statistic.
    fn has_figures(&self) -> bool {
        let mut rows = self.sections.iter().flat_map(|section| &section.rows);
        rows.any(|row| row.figure().is_some())
    }

    /// How many of [`Sheet::headings`] are of words, not of numbers.
    fn words(&self) -> usize {
        if self.has_figures() { 2 } else { 0 }
    }

    /// The headings of the columns: unit and statistic where the numbers have them, then the kernels, with one for the
    /// difference after each but the first where they are compared.
    fn headings(&self) -> Vec<String> {
        let mut headings = Vec::new();
        if self.has_figures() {
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

    /// The texts of a row under [`Sheet::headings`].
    fn texts(&self, row: &Row) -> Vec<String> {
        let mut texts = Vec::new();
        if self.has_figures() {
            let figure = row.figure();
            texts.push(figure.map_or_else(String::new, |figure| figure.unit.clone()));
            texts
                .push(figure.map_or_else(String::new, |figure| figure.statistic.name().to_owned()));
        }
        for (index, cell) in row.cells.iter().enumerate() {
            texts.push(cell.text.clone());
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

    /// A sheet with everything that a sheet can have.
    pub fn example() -> Sheet {
        let row = |title: &str, cells: [Option<u64>; 2]| Row {
            group: "Page faults".to_owned(),
            title: title.to_owned(),
            cells: cells.map(Cell::count).to_vec(),
        };
        Sheet {
            heading: "./prog <1> & 2".to_owned(),
            columns: vec!["before".to_owned(), "after".to_owned()],
            compares: true,
            sections: vec![
                Section {
                    title: "run".to_owned(),
                    rows: vec![
                        row("user, write-protect", [Some(256), Some(0)]),
                        row("user, not present, read", [Some(1000), Some(1000)]),
                        row("user, refused", [Some(1), None]),
                    ],
                },
                Section {
                    title: "region 1".to_owned(),
                    rows: vec![row("user, \"odd\"", [Some(1), Some(12345)])],
                },
            ],
            notes: vec!["both repeat".to_owned()],
        }
    }

    /// A sheet whose numbers have units: a series of two kernels, and a count that one of them lacks.
    pub fn with_figures() -> Sheet {
        let row = |title: &str, unit: &str, statistic, values: [Option<f64>; 2]| Row {
            group: "fault".to_owned(),
            title: title.to_owned(),
            cells: values
                .map(|value| Cell {
                    value,
                    text: value.map_or_else(|| NOT_MEASURED.to_owned(), |value| value.to_string()),
                    figure: Some(Figure {
                        unit: unit.to_owned(),
                        statistic,
                    }),
                })
                .to_vec(),
        };
        let write = |statistic, values| row("first write", "instructions", statistic, values);
        Sheet {
            heading: "basics".to_owned(),
            columns: vec!["memwright".to_owned(), "linux".to_owned()],
            compares: false,
            sections: vec![Section {
                title: String::new(),
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
        }
    }

    #[test]
    fn differences_have_signs() {
        let row = |values: [Option<f64>; 2]| Row {
            group: String::new(),
            title: String::new(),
            cells: values
                .map(|value| Cell {
                    value,
                    text: String::new(),
                    figure: None,
                })
                .to_vec(),
        };
        for (values, delta, differs) in [
            ([Some(1.0), Some(1.0)], "=", false),
            ([Some(1.0), Some(2001.0)], "+2,000", true),
            ([Some(3.0), Some(1.5)], "-1.50", true),
            ([Some(3.0), None], "", false),
            ([None, Some(1.0)], "", false),
        ] {
            assert_eq!(row(values).delta(1), delta);
            assert_eq!(row(values).differs(), differs, "{values:?}");
        }
        assert!(example().differs());
    }
}
