//! Renders sheets as the JSON that the GitHub action `github-action-benchmark` reads for its tool
//! `customSmallerIsBetter`, which draws the values of successive commits.

use serde::Serialize;
use serde_json::Number;

use crate::sheet::{MeasuredKernel, Row, Section, Sheet, Value, VerdictKind};

/// A value of the chart. The action identifies the line to which the value belongs by its name.
#[derive(Debug, Serialize, PartialEq)]
pub struct Entry {
    name: String,
    unit: String,
    value: Number,
    /// The lines of text that the chart displays with the value.
    extra: String,
}

/// Returns one entry for each measured value of the sheets. For a sheet with a verdict, only the last column has
/// entries, because it is the run that was judged. If no verdict is possible, the sheet has no entries. Ranked sections
/// have no entries.
pub fn benchmark(sheets: &[Sheet]) -> Vec<Entry> {
    sheets.iter().flat_map(entries).collect()
}

fn entries(sheet: &Sheet) -> Vec<Entry> {
    let first = match &sheet.verdict {
        Some(verdict) if verdict.kind == VerdictKind::Unknown => return Vec::new(),
        Some(_) => sheet.columns.len().saturating_sub(1),
        None => 0,
    };
    let is_single = sheet.verdict.is_some() || sheet.kernels.len() == 1;
    let mut all = Vec::new();
    for section in sheet.sections.iter().filter(|section| !section.is_ranked) {
        for row in &section.rows {
            for (column, cell) in sheet.columns.iter().zip(&row.cells).skip(first) {
                let Some(value) = cell.and_then(number) else {
                    continue;
                };
                let kernel = kernel(sheet, column, row);
                let mut name = identifier(sheet, section, row);
                if let Some(kernel) = kernel.filter(|_| !is_single) {
                    name = format!("{}: {name}", kernel.name);
                }
                if kernel.is_some_and(|kernel| kernel.name != *column) {
                    name = format!("{name}: {column}");
                }
                all.push(Entry {
                    name,
                    unit: row.unit.clone(),
                    value,
                    extra: extra(sheet, row, kernel),
                });
            }
        }
    }
    all
}

/// Returns the kernel of a cell. This is the kernel of the column or, in a sheet with a row for each kernel, that of
/// the row.
fn kernel<'a>(sheet: &'a Sheet, column: &str, row: &Row) -> Option<&'a MeasuredKernel> {
    let named = |name: &str| sheet.kernels.iter().find(|kernel| kernel.name == name);
    named(column).or_else(|| named(&row.title))
}

/// Returns the text that identifies a row. A row of an experiment has no name, and is identified by the experiment and
/// the row's labels. Other rows are identified by their name.
fn identifier(sheet: &Sheet, section: &Section, row: &Row) -> String {
    if !row.name.is_empty() {
        return row.name.clone();
    }
    let heading = sheet.heading.as_str();
    let experiment = heading.split_once(": ").map_or(heading, |(name, _)| name);
    let statistic = row.statistic.map_or("", |statistic| statistic.name());
    let parts = [
        experiment,
        &section.title,
        &row.group,
        &row.title,
        statistic,
    ];
    let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join(": ")
}

/// Returns the lines about a value: the kernel's hash, the version of this command and the row's limit.
fn extra(sheet: &Sheet, row: &Row, kernel: Option<&MeasuredKernel>) -> String {
    let kernel = kernel.map(|kernel| format!("kernel sha256 {}", kernel.sha256));
    let version = format!("memwright {}", env!("CARGO_PKG_VERSION"));
    let limit = sheet.verdict.as_ref();
    let limit = limit.and_then(|verdict| verdict.limit_of(&row.name));
    let limit = limit.map(|limit| format!("limit {limit}"));
    let lines = kernel.into_iter().chain([version]).chain(limit);
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the value as a JSON number; `None` for a statistic that is infinite or not a number.
fn number(value: Value) -> Option<Number> {
    match value {
        Value::Count(count) => Some(count.into()),
        Value::Statistic(value) => Number::from_f64(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{counts, example, with_figures};
    use crate::sheet::{Limited, Verdict};
    use serde_json::json;

    const VERSION: &str = concat!("memwright ", env!("CARGO_PKG_VERSION"));

    fn judged(kind: VerdictKind) -> Sheet {
        let mut sheet = example();
        let row = sheet.sections[1].rows[0].clone();
        sheet.verdict = Some(Verdict {
            kind,
            reasons: Vec::new(),
            limited: vec![Limited {
                given: "region.odd.odd".to_owned(),
                limit: "+5%".to_owned(),
                word: "good",
                row: Some(row),
            }],
        });
        sheet
    }

    #[test]
    fn a_check_has_the_values_that_it_judged() {
        let entries = serde_json::to_value(benchmark(&[judged(VerdictKind::Failed)])).unwrap();
        let extra = format!("kernel sha256 22\n{VERSION}");
        assert_eq!(
            entries,
            json!([
                {"name": "run.write_protect", "unit": "faults", "value": 0, "extra": extra},
                {"name": "run.read", "unit": "faults", "value": 1000, "extra": extra},
                // `run.refused` was not measured, so the list has no entry for the row, rather than an entry with the
                // value 0.
                {"name": "region.1.odd", "unit": "faults", "value": 12345, "extra": format!("{extra}\nlimit +5%")},
            ])
        );
        assert_eq!(benchmark(&[judged(VerdictKind::Unknown)]), []);
    }

    #[test]
    fn every_value_has_a_name_of_its_own() {
        let names = |sheet: &Sheet| -> Vec<String> {
            let entries = benchmark(std::slice::from_ref(sheet)).into_iter();
            entries.map(|entry| entry.name).collect()
        };
        assert_eq!(
            names(&example()),
            [
                "before: run.write_protect",
                "after: run.write_protect",
                "before: run.read",
                "after: run.read",
                "before: run.refused",
                "before: region.1.odd",
                "after: region.1.odd",
            ]
        );
        assert_eq!(
            names(&with_figures())[..3],
            [
                "memwright: basics: fault: first write: minimum",
                "linux: basics: fault: first write: minimum",
                "memwright: basics: fault: first write: median",
            ]
        );
        let mut sweep = example();
        sweep.columns = vec!["pages=1".to_owned(), "pages=2".to_owned()];
        let row = |title: &str| counts("run.read", title, &[Some(1), Some(2)]);
        sweep.sections[0].rows = vec![row("before"), row("after")];
        sweep.sections.truncate(1);
        assert_eq!(
            names(&sweep),
            [
                "before: run.read: pages=1",
                "before: run.read: pages=2",
                "after: run.read: pages=1",
                "after: run.read: pages=2",
            ]
        );
    }

    #[test]
    fn large_counts_stay_exact() {
        assert_eq!(number(Value::Count(u64::MAX)), Some(u64::MAX.into()));
        assert_eq!(number(Value::Statistic(f64::NAN)), None);
    }
}
