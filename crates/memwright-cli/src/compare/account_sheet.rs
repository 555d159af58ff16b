//! Renders accounts of runs on Memwright as a sheet with one column per run.

use crate::compare::{again, faults, rows};
use crate::model::account::Value;
use crate::model::memwright_run::Document;
use crate::model::size::in_mebibytes;
use crate::model::words;
use crate::sheet::{self, MeasuredKernel, NOT_MEASURED, Row, Section, Sheet};

/// The name of the column of a run on Memwright.
pub const COLUMN: &str = "memwright";

/// Returns a sheet with one column per document. The heading of a column is the name that `columns` gives the document.
/// The other columns are compared with the first.
pub fn sheet(columns: &[(String, &Document)]) -> Sheet {
    let faults: Vec<_> = columns.iter().map(|(_, one)| one.faults.as_ref()).collect();
    let heading = columns.last().map(|(_, one)| one.arguments.join(" "));
    Sheet {
        heading: heading.unwrap_or_default(),
        columns: columns.iter().map(|(name, _)| name.clone()).collect(),
        compares: columns.len() > 1,
        sections: [Section {
            title: String::new(),
            remark: String::new(),
            is_ranked: false,
            rows: rows(columns),
        }]
        .into_iter()
        .chain(faults::section(&faults))
        .collect(),
        notes: columns
            .iter()
            .flat_map(|(name, document)| notes(name, document))
            .collect(),
        commands: columns
            .iter()
            .map(|(_, document)| again::on_memwright(document))
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect(),
        kernels: columns
            .iter()
            .map(|(name, document)| MeasuredKernel {
                name: name.clone(),
                sha256: document.kernel_sha256.clone(),
            })
            .collect(),
        verdict: None,
    }
}

/// Returns one row for each name that occurs in any of the documents, with its group as the heading.
fn rows(columns: &[(String, &Document)]) -> Vec<Row> {
    let mut names: Vec<&str> = Vec::new();
    for (_, document) in columns {
        for (name, _) in &document.account {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
    }
    let groups = rows::groups();
    let in_order = groups.flat_map(|group| {
        let of_group = names.iter().filter(move |name| rows::group(name) == group);
        of_group.copied()
    });
    let cell = |document: &Document, name: &str| {
        let mut rows = document.account.iter();
        let (_, value) = rows.find(|(known, _)| known == name)?;
        match value {
            Value::Count(count) => Some(sheet::Value::Count(*count)),
            Value::Unobservable => None,
        }
    };
    in_order
        .map(|name| Row {
            name: name.to_owned(),
            group: rows::group(name).to_owned(),
            title: rows::title(name).to_owned(),
            unit: rows::unit(name).to_owned(),
            statistic: None,
            is_state: false,
            absent: NOT_MEASURED,
            cells: columns
                .iter()
                .map(|(_, document)| cell(document, name))
                .collect(),
        })
        .collect()
}

fn notes(name: &str, document: &Document) -> Vec<String> {
    let repeats = match &document.not_repeatable {
        Some(reason) => format!("not repeatable: {reason}"),
        None => "repeatable".to_owned(),
    };
    let policies = match document.policies.as_slice() {
        [] => "default".to_owned(),
        policies => policies.join(","),
    };
    let mut lines = vec![
        format!("{name}: {}; {repeats}", words::ending(document.outcome)),
        format!(
            "{name}: {} of memory, {}, policy {policies}, kernel (sha256 {})",
            in_mebibytes(document.memory),
            words::cpus(document.cpus),
            document.kernel_sha256
        ),
    ];
    let files = std::iter::once(&document.program).chain(&document.companions);
    lines.extend(files.map(|file| format!("{name}: sha256 {} {}", file.sha256, file.path)));
    lines
}
