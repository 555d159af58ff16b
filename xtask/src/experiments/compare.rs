//! Compares the values of the cells of measured figures with published ones.

use anyhow::Result;

use super::figures::{Figures, Name, Row, Table};

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// The number of published cells that were measured again.
    pub cells: usize,
    /// A line of text for each cell whose value differs.
    pub differences: Vec<String>,
}

/// Compares the values in the columns with these names.
///
/// # Errors
/// If a cell is not a number.
pub fn compare(published: &Figures, measured: &Figures, columns: &[&str]) -> Result<Compared> {
    let mut compared = Compared::default();
    let empty = Table::default();
    let titles = published
        .tables
        .iter()
        .chain(&measured.tables)
        .map(|table| table.title.as_str());
    let mut seen: Vec<&str> = Vec::new();
    for title in titles {
        if seen.contains(&title) {
            continue;
        }
        seen.push(title);
        let of = |figures: &Figures| {
            let mut tables = figures.tables.iter();
            tables.find(|table| table.title == title).cloned()
        };
        let sides = [published, measured].map(|side| of(side).unwrap_or_else(|| empty.clone()));
        for column in columns {
            compared.column(&sides, title, column)?;
        }
    }
    Ok(compared)
}

impl Compared {
    fn column(
        &mut self,
        [published, measured]: &[Table; 2],
        title: &str,
        column: &str,
    ) -> Result<()> {
        let new = measured
            .rows
            .iter()
            .filter(|row| published.row(&row.name).is_none());
        for row in published.rows.iter().chain(new) {
            let sides = [published, measured].map(|table| value(table, &row.name, column));
            let [old, now] = sides;
            let (old, now) = (old?, now?);
            self.cells += usize::from(old.is_some());
            if old != now {
                self.differences
                    .push(difference(title, row, column, [old, now]));
            }
        }
        Ok(())
    }
}

/// Returns the value of a cell, or `None` if it was not measured or if the row or column does not exist.
fn value(table: &Table, name: &Name, column: &str) -> Result<Option<f64>> {
    match (table.row(name), table.column(column)) {
        (Some(row), Some(column)) => row.value(column),
        (None, _) | (_, None) => Ok(None),
    }
}

fn difference(title: &str, row: &Row, column: &str, values: [Option<f64>; 2]) -> String {
    let [old, now] = values.map(|value| match value {
        Some(value) => value.to_string(),
        None => "nothing".to_owned(),
    });
    let Name {
        measure,
        unit,
        statistic,
    } = &row.name;
    let place = if title.is_empty() {
        String::new()
    } else {
        format!("{title}: ")
    };
    let which = match statistic.as_str() {
        "value" => String::new(),
        statistic => format!(", {statistic}"),
    };
    format!("{column}: {place}{measure}{which} ({unit}): published {old}, measured {now}")
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::EXAMPLE;
    use super::*;

    const OURS: [&str; 2] = ["memwright", "memwright tlb=gather"];

    fn compared(measured: &str) -> Compared {
        let parse = |text| Figures::parse(text).unwrap();
        compare(&parse(EXAMPLE), &parse(measured), &OURS).unwrap()
    }

    #[test]
    fn equal_figures_are_counted() {
        let same = compared(EXAMPLE);
        assert_eq!((same.cells, same.differences.len()), (10, 0));
        // Cells with different texts for the same value count as equal. Columns that are not named are not compared.
        let other = EXAMPLE
            .replace("1,012.25", "1012.250")
            .replace("| 20 |", "| 21 |");
        assert_eq!(compared(&other), same);
    }

    #[test]
    fn a_difference_names_its_cell() {
        for (old, new, line) in [
            (
                "1,010",
                "1,009",
                "memwright: one: write\\|read: call, minimum (instructions): published 1010, measured 1009",
            ),
            (
                "12.5 ",
                "12.51 ",
                "memwright tlb=gather: one: write\\|read: call, mean (instructions): published 12.5, measured 12.51",
            ),
            (
                "value | 2 |",
                "value | not measured |",
                "memwright: one: write\\|read: flushes (flushes per round): published 2, measured nothing",
            ),
            (
                "value | not measured | not measured | 5 |",
                "value | 7 | not measured | 5 |",
                "memwright: one: write\\|read: tables (frames): published nothing, measured 7",
            ),
        ] {
            let measured = EXAMPLE.replacen(old, new, 1);
            assert_ne!(measured, EXAMPLE);
            assert_eq!(compared(&measured).differences, [line]);
        }
    }

    #[test]
    fn what_is_missing_or_new_differs() {
        let row = "| other: faults | faults | value | 1 | 1 | 1 |\n";
        let gone = EXAMPLE.replace(row, "");
        assert_eq!(compared(&gone).differences.len(), 2);
        let more = EXAMPLE.replace(
            row,
            &format!("{row}{}", row.replace("faults |", "copies |")),
        );
        assert_eq!(compared(&more).differences.len(), 2);
        // If no cell was measured, all published cells differ.
        let nothing = compared("### x: What does it cost?\n");
        assert_eq!(nothing.differences.len(), 10);
        let renamed = EXAMPLE.replace("**two**", "**three**");
        assert_eq!(compared(&renamed).differences.len(), 4);
    }
}
