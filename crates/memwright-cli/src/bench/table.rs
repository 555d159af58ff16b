//! One table for each experiment: measures down, kernels across.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::column::Column;
use super::document::{Measured, MeasuredRun};
use super::records::Record;

/// A measure that a kernel does not have.
const NOT_MEASURED: &str = "not measured";

/// The tables of an experiment, as text.
pub fn render(measured: &Measured, columns: &[Column]) -> String {
    let mut text = format!("\n{}: {}\n", measured.experiment, measured.question);
    for run in &measured.runs {
        if !run.label.is_empty() {
            text.push_str(&format!("\n{}\n", run.label));
        }
        text.push_str(&table(run, columns));
    }
    text
}

fn table(run: &MeasuredRun, columns: &[Column]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let mut header = vec![Cell::new("")];
    header.extend(columns.iter().map(|column| right(&column.title())));
    table.set_header(header);
    let mut previous = None;
    for (case, measure, unit) in measures(run) {
        if previous != Some(case) {
            table.add_row([Cell::new(case)]);
            previous = Some(case);
        }
        let name = if unit == "instructions" || measure.ends_with(unit) {
            format!("  {measure}")
        } else {
            format!("  {measure} ({unit})")
        };
        let mut row = vec![Cell::new(name)];
        for (_, records) in &run.records {
            let found = records
                .iter()
                .find(|one| one.case == case && one.measure == measure);
            row.push(right(&found.map_or(NOT_MEASURED.to_owned(), cell)));
        }
        table.add_row(row);
    }
    let mut text: String = table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    text.insert(0, '\n');
    text
}

/// Every measure that any kernel has, in the order of the first one that has it.
fn measures(run: &MeasuredRun) -> Vec<(&str, &str, &str)> {
    let mut order: Vec<(&str, &str, &str)> = Vec::new();
    for (_, records) in &run.records {
        for record in records {
            let measure = (
                record.case.as_str(),
                record.measure.as_str(),
                record.unit.as_str(),
            );
            if !order.contains(&measure) {
                let place = order.iter().rposition(|(case, _, _)| *case == record.case);
                order.insert(place.map_or(order.len(), |place| place + 1), measure);
            }
        }
    }
    order
}

/// The least value, and the average where it is another.
fn cell(record: &Record) -> String {
    let average = number(record.average);
    match record.minimum.map(|least| number(least as f64)) {
        Some(least) if least != average => format!("{least} (average {average})"),
        Some(_) | None => average,
    }
}

/// With thousands set apart; two decimals below ten, none from there on.
fn number(value: f64) -> String {
    if value < 10.0 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (1.5, "1.5"),
            (4.017, "4.02"),
            (10.4, "10"),
            (999.6, "1,000"),
            (3_644_799.0, "3,644,799"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    fn record(case: &str, measure: &str, minimum: Option<u64>, average: f64) -> Record {
        Record {
            case: case.into(),
            measure: measure.into(),
            unit: "instructions".into(),
            minimum,
            average,
            maximum: None,
        }
    }

    #[test]
    fn a_measure_that_one_kernel_lacks_is_said_to_be_missing() {
        let columns = [
            Column::Memwright {
                policies: String::new(),
            },
            Column::Linux {
                name: "linux".into(),
                image: "x".into(),
            },
        ];
        let run = MeasuredRun {
            label: "",
            arguments: &[],
            cpus: 1,
            memory: 0,
            records: vec![
                (
                    "memwright".into(),
                    vec![
                        record("a", "one", Some(10), 12.0),
                        record("b", "one", None, 1.0),
                    ],
                ),
                (
                    "linux".into(),
                    vec![
                        record("a", "one", Some(20), 20.0),
                        record("a", "two", None, 5.0),
                    ],
                ),
            ],
        };
        let text = table(&run, &columns);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(lines.contains(&vec!["one", "10", "(average", "12)", "20"]));
        assert!(lines.contains(&vec!["two", "not", "measured", "5"]));
        assert!(lines.contains(&vec!["one", "1", "not", "measured"]));
    }
}
