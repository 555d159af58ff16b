//! The figures of a page: tables in the format of `memwright bench --md`, followed by notes on kernels and programs.

use anyhow::{Context, Result, bail, ensure};

/// The text of a cell whose kernel was not measured.
pub const NOT_MEASURED: &str = "not measured";

/// The first cells in the heading of a table. The names of the kernels follow them.
const WORDS: [&str; 3] = ["", "unit", "statistic"];

/// All tables and notes of a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The name of the experiment and its question.
    pub heading: String,
    /// One table for each run.
    pub tables: Vec<Table>,
    /// The notes below the tables: whether the runs repeat, the kernels, QEMU, and the program.
    pub notes: Vec<String>,
}

/// The table of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// The label of the run; empty if the experiment has one run.
    pub title: String,
    /// The names of the kernels.
    pub columns: Vec<String>,
    /// The rows, in the order of the table.
    pub rows: Vec<Row>,
}

/// A row: one statistic of a measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The key of the row.
    pub name: Name,
    /// One cell for each column.
    pub cells: Vec<String>,
}

/// The key of a row. It is unique in a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name of the measure, with its case.
    pub measure: String,
    /// The unit of the measure.
    pub unit: String,
    /// The statistic of the measured values, such as the median.
    pub statistic: String,
}

impl Table {
    /// Returns the index of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column == name)
    }

    /// Returns the row with that name.
    pub fn row(&self, name: &Name) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == *name)
    }
}

impl Row {
    /// Returns the value of a column, or `None` if it was not measured.
    ///
    /// # Errors
    /// If the cell is not a number.
    pub fn value(&self, column: usize) -> Result<Option<f64>> {
        let cell = self.cells.get(column).context("a row is too short")?;
        value(cell).with_context(|| self.name.measure.clone())
    }
}

/// Parses a cell.
fn value(cell: &str) -> Result<Option<f64>> {
    if cell == NOT_MEASURED {
        return Ok(None);
    }
    let digits = cell.replace(',', "");
    let value = digits.parse().ok().filter(|value: &f64| value.is_finite());
    value
        .map(Some)
        .with_context(|| format!("{cell:?} is no number"))
}

impl Figures {
    /// Parses the output of `memwright bench --md`.
    ///
    /// # Errors
    /// If a line is unknown, if a cell is not a number, or if two rows have the same name.
    pub fn parse(text: &str) -> Result<Self> {
        let mut found = Self::default();
        let mut title = String::new();
        let mut lines = text.lines().filter(|line| !line.is_empty()).peekable();
        while let Some(line) = lines.next() {
            if let Some(heading) = line.strip_prefix("### ") {
                ensure!(found.heading.is_empty(), "two headings: {line:?}");
                heading.clone_into(&mut found.heading);
            } else if let Some(text) = line.strip_prefix("- ") {
                found.notes.push(text.to_owned());
            } else if let Some(text) = line.strip_prefix("**") {
                title = text.trim_end_matches("**").to_owned();
            } else {
                let mut table = Table {
                    title: std::mem::take(&mut title),
                    columns: heading(line)?,
                    rows: Vec::new(),
                };
                let rule = lines.next().unwrap_or_default();
                ensure!(rule.starts_with("|---|"), "no table: {line:?}");
                while let Some(line) = lines.next_if(|line| line.starts_with('|')) {
                    table.add(line)?;
                }
                found.tables.push(table);
            }
        }
        Ok(found)
    }

    /// Formats the figures as Markdown.
    pub fn markdown(&self) -> String {
        let mut out = format!("### {}\n", self.heading);
        for table in &self.tables {
            if !table.title.is_empty() {
                out.push_str(&format!("\n**{}**\n", table.title));
            }
            out.push('\n');
            let words = WORDS.map(str::to_owned);
            out.push_str(&line(words.iter().chain(&table.columns)));
            out.push_str(&"|---".repeat(WORDS.len()));
            out.push_str(&"|---:".repeat(table.columns.len()));
            out.push_str("|\n");
            for row in &table.rows {
                let Name {
                    measure,
                    unit,
                    statistic,
                } = &row.name;
                out.push_str(&line(
                    [measure, unit, statistic].into_iter().chain(&row.cells),
                ));
            }
        }
        if !self.notes.is_empty() {
            out.push('\n');
        }
        for note in &self.notes {
            out.push_str(&format!("- {note}\n"));
        }
        out
    }

    /// Returns the names of the columns of all tables, each once.
    pub fn columns(&self) -> Vec<&str> {
        let mut found: Vec<&str> = Vec::new();
        for column in self.tables.iter().flat_map(|table| &table.columns) {
            if !found.contains(&column.as_str()) {
                found.push(column);
            }
        }
        found
    }

    /// Returns the figures with only those tables that have these titles.
    #[must_use]
    pub fn restricted(&self, titles: &[&str]) -> Self {
        let is_wanted = |table: &&Table| titles.contains(&table.title.as_str());
        Self {
            tables: self.tables.iter().filter(is_wanted).cloned().collect(),
            ..self.clone()
        }
    }

    /// Returns, for each note that begins with `beginning`, the rest of the note.
    pub fn notes_of(&self, beginning: &str) -> Vec<&str> {
        let notes = self.notes.iter();
        notes
            .filter_map(|note| note.strip_prefix(beginning))
            .collect()
    }
}

impl Table {
    fn add(&mut self, line: &str) -> Result<()> {
        let cells = cells(line)?;
        ensure!(
            cells.len() == WORDS.len() + self.columns.len(),
            "other columns than the heading: {line:?}"
        );
        let mut cells = cells.into_iter();
        let name = Name {
            measure: cells.next().unwrap_or_default(),
            unit: cells.next().unwrap_or_default(),
            statistic: cells.next().unwrap_or_default(),
        };
        ensure!(self.row(&name).is_none(), "twice: {line:?}");
        let cells: Vec<String> = cells.collect();
        for cell in &cells {
            value(cell).with_context(|| name.measure.clone())?;
        }
        self.rows.push(Row { name, cells });
        Ok(())
    }
}

/// Parses the heading of a table. Returns the names of the kernels.
fn heading(line: &str) -> Result<Vec<String>> {
    let cells = cells(line)?;
    let Some(columns) = cells.strip_prefix(&WORDS.map(str::to_owned)) else {
        bail!("no heading with unit and statistic: {line:?}");
    };
    Ok(columns.to_vec())
}

/// Splits a line of a table into cells. A bar inside a cell is escaped by a backslash.
fn cells(line: &str) -> Result<Vec<String>> {
    let inner = line
        .strip_prefix('|')
        .and_then(|line| line.strip_suffix('|'))
        .with_context(|| format!("no row of a table: {line:?}"))?;
    let mut found = vec![String::new()];
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        if letter == '|' {
            found.push(String::new());
            continue;
        }
        let last = found.last_mut().context("a cell")?;
        last.push(letter);
        if letter == '\\' {
            last.extend(letters.next());
        }
    }
    Ok(found.iter().map(|cell| cell.trim().to_owned()).collect())
}

fn line<'a>(cells: impl Iterator<Item = &'a String>) -> String {
    let mut out = String::from("|");
    for cell in cells {
        // An empty cell is written as one blank, like in the output of the bench.
        if !cell.is_empty() {
            out.push(' ');
            out.push_str(cell);
        }
        out.push_str(" |");
    }
    out.push('\n');
    out
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// The output of a bench with two runs on three kernels.
    pub const EXAMPLE: &str = "\
### x: What does it cost?

**one**

| | unit | statistic | memwright | memwright tlb=gather | debian:trixie |
|---|---|---|---:|---:|---:|
| write\\|read: call | instructions | minimum | 1,010 | 10 | 20 |
| write\\|read: call | instructions | median | 1,011 | 11 | 20 |
| write\\|read: call | instructions | mean | 1,012.25 | 12.5 | 20 |
| write\\|read: tables | frames | value | not measured | not measured | 5 |
| write\\|read: flushes | flushes per round | value | 2 | 0 | not measured |

**two**

| | unit | statistic | memwright | memwright tlb=gather | debian:trixie |
|---|---|---|---:|---:|---:|
| other: faults | faults | value | 1 | 1 | 1 |

- one: repeats: second runs gave the same figures
- two: DOES NOT REPEAT: debian:trixie: other: faults: 1 and 2
- memwright: memwright 0.1.0 (sha256 aa)
- memwright tlb=gather: memwright 0.1.0 (sha256 aa)
- debian:trixie: 6.12 (sha256 bb)
- QEMU 7.2.22 (sha256 cc)
- program (sha256 dd)
";

    #[test]
    fn what_the_bench_writes_is_read_and_written_again() {
        let figures = Figures::parse(EXAMPLE).unwrap();
        assert_eq!(figures.markdown(), EXAMPLE);
        assert_eq!(
            figures.columns(),
            ["memwright", "memwright tlb=gather", "debian:trixie"]
        );
        let [one, two] = figures.tables.as_slice() else {
            panic!("{figures:?}");
        };
        assert_eq!((one.title.as_str(), two.title.as_str()), ("one", "two"));
        assert_eq!(one.rows[0].name.measure, "write\\|read: call");
        let values: Vec<Option<f64>> = one.rows.iter().map(|row| row.value(0).unwrap()).collect();
        assert_eq!(
            values,
            [Some(1010.0), Some(1011.0), Some(1012.25), None, Some(2.0)]
        );
        assert_eq!(figures.notes_of("program "), ["(sha256 dd)"]);
    }

    #[test]
    fn what_it_does_not_write_is_refused() {
        for (old, new) in [
            ("| unit | statistic |", "|"),
            ("1,010", "1,010 (average 5)"),
            ("1,010", "none"),
            ("| 1,010 ", ""),
            ("| median ", "| minimum "),
            ("### x", "### x\n### x"),
            ("**two**", "two"),
        ] {
            let text = EXAMPLE.replacen(old, new, 1);
            assert_ne!(text, EXAMPLE);
            assert!(Figures::parse(&text).is_err(), "{new:?}");
        }
    }
}
