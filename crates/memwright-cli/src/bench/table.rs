//! One sheet for each experiment: measures down, kernels across.

use super::column::Column;
use super::document::{Kernel, Measured, MeasuredRun};
use super::records::Record;
use crate::sheet::{Cell, Row, Section, Sheet};
use crate::table::grouped;

/// What an experiment found, as a sheet: a section for each run.
pub fn sheet(measured: &Measured, columns: &[Column]) -> Sheet {
    Sheet {
        heading: format!("{}: {}", measured.experiment, measured.question),
        columns: columns.iter().map(Column::title).collect(),
        compares: false,
        sections: measured.runs.iter().map(section).collect(),
        notes: measured.runs.iter().flat_map(notes).collect(),
    }
}

/// What ran in each column: a line each, for tables that leave this machine.
pub fn kernels(columns: &[Kernel]) -> Vec<String> {
    let line = |one: &Kernel| format!("{}: {} (sha256 {})", one.name, one.version, one.sha256);
    columns.iter().map(line).collect()
}

/// Whether a run repeats; nothing where that was not looked at.
fn notes(run: &MeasuredRun) -> Vec<String> {
    let place = match run.label {
        "" => String::new(),
        label => format!("{label}: "),
    };
    match run.repeats {
        None => Vec::new(),
        Some(true) => vec![format!("{place}repeats: second runs gave the same figures")],
        Some(false) => {
            let lines = run.differs.iter();
            lines
                .map(|line| format!("{place}DOES NOT REPEAT: {line}"))
                .collect()
        }
    }
}

fn section(run: &MeasuredRun) -> Section {
    let row = |(case, measure, unit): (&str, &str, &str)| {
        let title = if unit == "instructions" || measure.ends_with(unit) {
            measure.to_owned()
        } else {
            format!("{measure} ({unit})")
        };
        let cell = |(_, records): &(String, Vec<Record>)| {
            let mut records = records.iter();
            cell(records.find(|one| one.case == case && one.measure == measure))
        };
        Row {
            group: case.to_owned(),
            title,
            cells: run.records.iter().map(cell).collect(),
        }
    };
    Section {
        title: run.label.to_owned(),
        rows: measures(run).into_iter().map(row).collect(),
    }
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

/// The least value, and the average where it is another; by value the average.
fn cell(record: Option<&Record>) -> Cell {
    let Some(record) = record else {
        return Cell::count(None);
    };
    let average = number(record.average);
    let text = match record.minimum.map(|least| number(least as f64)) {
        Some(least) if least != average => format!("{least} (average {average})"),
        Some(_) | None => average,
    };
    Cell {
        value: Some(record.average),
        text,
    }
}

/// With thousands set apart; two decimals below ten, none from there on.
fn number(value: f64) -> String {
    if value < 10.0 {
        let text = format!("{value:.2}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    grouped(value.round_ties_even() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::document::Qemu;

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
        let run = MeasuredRun {
            label: "",
            arguments: &[],
            cpus: 1,
            nodes: 1,
            memory: 0,
            swap: "",
            qemu: Qemu {
                version: String::new(),
                sha256: String::new(),
            },
            repeats: None,
            differs: Vec::new(),
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
        let rows = section(&run).rows;
        let texts = |row: &Row| -> Vec<String> {
            let cells = row.cells.iter().map(|cell| cell.text.clone());
            [row.group.clone(), row.title.clone()]
                .into_iter()
                .chain(cells)
                .collect()
        };
        let lines: Vec<Vec<String>> = rows.iter().map(texts).collect();
        assert_eq!(lines[0], ["a", "one", "10 (average 12)", "20"]);
        assert_eq!(lines[1], ["a", "two", "not measured", "5"]);
        assert_eq!(lines[2], ["b", "one", "1", "not measured"]);
    }
}
