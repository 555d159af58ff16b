//! Renders each experiment as a sheet, with one row per measure and one column per kernel.

use crate::model::bench::{Kernel, Measured, MeasuredRun};
use crate::model::records::Record;
use crate::model::statistic::Statistic;
use crate::sheet::{MeasuredKernel, NOT_MEASURED, Row, Section, Sheet, Value};

/// Returns the results of an experiment as a sheet, with a section for each run.
pub fn sheet(measured: &Measured, columns: &[Kernel]) -> Sheet {
    Sheet {
        heading: format!("{}: {}", measured.experiment, measured.question),
        columns: columns.iter().map(|one| one.name.clone()).collect(),
        compares: false,
        sections: measured.runs.iter().map(section).collect(),
        notes: measured.runs.iter().flat_map(repetition).collect(),
        commands: Vec::new(),
        kernels: columns.iter().map(measured_kernel).collect(),
        verdict: None,
    }
}

fn measured_kernel(kernel: &Kernel) -> MeasuredKernel {
    MeasuredKernel {
        name: kernel.name.clone(),
        sha256: kernel.sha256.clone(),
    }
}

/// Returns lines with the hashes of each kernel, each QEMU and the program, for a table that is printed without the
/// JSON document.
pub fn origins(measured: &Measured, columns: &[Kernel]) -> Vec<String> {
    let kernel = |one: &Kernel| format!("{}: {} (sha256 {})", one.name, one.version, one.sha256);
    let mut lines: Vec<String> = columns.iter().map(kernel).collect();
    for run in &measured.runs {
        let line = format!("QEMU {} (sha256 {})", run.qemu.version, run.qemu.sha256);
        if !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.push(format!("program (sha256 {})", measured.program_sha256));
    lines
}

/// Returns lines that state whether a second run gave the same figures. Returns no lines if there was no second run.
fn repetition(run: &MeasuredRun) -> Vec<String> {
    let place = match run.label.as_str() {
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
    let row = |(record, statistic): (&Record, Statistic)| {
        let cell = |(_, records): &(String, Vec<Record>)| {
            let same = records.iter().find(|one| is_same(one, record));
            let value = same.and_then(|one| one.found.get(statistic));
            value.map(Value::Statistic)
        };
        Row {
            // The records of an experiment are identified by case, measure and statistic instead of a name.
            name: String::new(),
            group: record.case.clone(),
            title: record.measure.clone(),
            unit: record.unit.clone(),
            statistic: Some(statistic),
            is_state: false,
            absent: NOT_MEASURED,
            cells: run.records.iter().map(cell).collect(),
        }
    };
    let statistics = |record| {
        let record: &Record = record;
        let statistics = record.found.statistics().iter();
        statistics.map(move |statistic| (record, *statistic))
    };
    Section {
        title: run.label.clone(),
        remark: String::new(),
        is_ranked: false,
        rows: measures(run)
            .into_iter()
            .flat_map(statistics)
            .map(row)
            .collect(),
    }
}

/// Returns whether both records have the same case, measure and unit.
fn is_same(one: &Record, other: &Record) -> bool {
    one.case == other.case && one.measure == other.measure && one.unit == other.unit
}

/// Returns every measure that at least one kernel has, each once, in the order of the first kernel that has it.
fn measures(run: &MeasuredRun) -> Vec<&Record> {
    let mut order: Vec<&Record> = Vec::new();
    for (_, records) in &run.records {
        for record in records {
            if !order.iter().any(|other| is_same(other, record)) {
                let place = order.iter().rposition(|other| other.case == record.case);
                order.insert(place.map_or(order.len(), |place| place + 1), record);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::kernel_run::Qemu;
    use crate::model::records::Found;
    use crate::sheet::cell_text;

    fn value(case: &str, measure: &str, value: f64) -> Record {
        record(case, measure, Found::Value { value })
    }

    fn series(case: &str, measure: &str, [minimum, median, mean]: [f64; 3]) -> Record {
        let maximum = 2.0 * mean;
        let found = Found::Series {
            minimum,
            median,
            mean,
            maximum,
        };
        record(case, measure, found)
    }

    fn record(case: &str, measure: &str, found: Found) -> Record {
        Record {
            case: case.into(),
            measure: measure.into(),
            unit: "instructions".into(),
            found,
        }
    }

    fn run(records: Vec<(String, Vec<Record>)>) -> MeasuredRun {
        MeasuredRun {
            label: String::new(),
            arguments: Vec::new(),
            cpus: 1,
            nodes: 1,
            memory: 0,
            swap: String::new(),
            qemu: Qemu {
                version: "7.2.22".into(),
                sha256: "22".into(),
            },
            repeats: None,
            differs: Vec::new(),
            records,
        }
    }

    #[test]
    fn each_statistic_is_a_row_and_what_a_kernel_lacks_is_said_to_be_missing() {
        let one = vec![
            series("a", "one", [10.0, 11.0, 12.5]),
            value("b", "one", 1.0),
        ];
        let other = vec![
            series("a", "one", [20.0, 20.0, 20.0]),
            value("a", "two", 5.0),
        ];
        let run = run(vec![("memwright".into(), one), ("linux".into(), other)]);
        let lines: Vec<String> = section(&run)
            .rows
            .iter()
            .map(|row| {
                let cells: Vec<String> = row.cells.iter().map(|cell| cell_text(*cell)).collect();
                let statistic = row.statistic.unwrap().name();
                format!(
                    "{} {} {statistic}: {}",
                    row.group,
                    row.title,
                    cells.join(", ")
                )
            })
            .collect();
        assert_eq!(
            lines,
            [
                "a one minimum: 10, 20",
                "a one median: 11, 20",
                "a one mean: 12.5, 20",
                "a two value: not measured, 5",
                "b one value: 1, not measured",
            ]
        );
    }

    #[test]
    fn a_table_says_what_it_is_of() {
        let measured = Measured {
            experiment: "x".into(),
            question: "?".into(),
            program_sha256: "33".into(),
            runs: vec![run(Vec::new()), run(Vec::new())],
        };
        let kernel = Kernel {
            name: "linux".into(),
            sha256: "11".into(),
            version: "6.1.176".into(),
            append: String::new(),
            config_sha256: None,
        };
        assert_eq!(
            origins(&measured, &[kernel]),
            [
                "linux: 6.1.176 (sha256 11)",
                "QEMU 7.2.22 (sha256 22)",
                "program (sha256 33)",
            ]
        );
    }
}
