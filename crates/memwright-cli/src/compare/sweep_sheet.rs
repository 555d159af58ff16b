//! Renders a sweep as a sheet. Each row of the runs becomes a group with one row per kernel, and each point of the
//! sweep becomes a column.

use std::collections::{BTreeMap, BTreeSet};

use crate::compare::side_by_side;
use crate::model::parameter::title;
use crate::model::sweep::Document;
use crate::sheet::{Cell, Row, Section, Sheet, UnknownRow, Value};

/// Returns the results of a sweep. Each point of the sweep is a column; each row of the runs becomes a group with one
/// row per kernel. Unless `all` is set, a group is omitted if its values are equal at every point and on every kernel.
///
/// # Errors
/// If a pattern matches no row.
pub fn sheet(document: &Document, patterns: &[String], all: bool) -> Result<Sheet, UnknownRow> {
    let points = document.points.iter();
    let sheets = points.map(|point| side_by_side::comparison(&point.columns).select(patterns));
    let sheets: Vec<Sheet> = sheets.collect::<Result<_, _>>()?;
    let mut sections: Vec<Section> = Vec::new();
    let kernels: Vec<&str> = document.points.first().map_or_else(Vec::new, |point| {
        point.columns.iter().map(|one| &*one.kernel.name).collect()
    });
    let by_name: Vec<_> = sheets.iter().map(by_name).collect();
    for (section, row) in rows(&sheets) {
        let cells = |kernel: usize| -> Vec<Cell> {
            let cell = |rows: &BTreeMap<&str, &Row>| {
                let row = rows.get(&*row.name)?;
                row.cells.get(kernel).copied().flatten()
            };
            by_name.iter().map(cell).collect()
        };
        let rows = kernels.iter().enumerate().map(|(index, kernel)| Row {
            group: group(row),
            title: (*kernel).to_owned(),
            statistic: None,
            cells: cells(index),
            ..row.clone()
        });
        let rows: Vec<Row> = rows.collect();
        if all || is_worth_showing(&rows) {
            match sections.last_mut() {
                Some(last) if last.title == section => last.rows.extend(rows),
                Some(_) | None => sections.push(Section {
                    title: section.to_owned(),
                    remark: String::new(),
                    is_ranked: false,
                    rows,
                }),
            }
        }
    }
    let points = document.points.iter();
    let columns = points.map(|point| match document.parameters.as_slice() {
        [] => "count".to_owned(),
        parameters => title(parameters, &point.values),
    });
    Ok(Sheet {
        heading: document.command.join(" "),
        columns: columns.collect(),
        compares: false,
        sections,
        notes: notes(document, &sheets),
        commands: Vec::new(),
        kernels: sheets
            .first()
            .map_or_else(Vec::new, |sheet| sheet.kernels.clone()),
        verdict: None,
    })
}

/// Returns the title of a group: that of the run's row and, for page tables, the mark at which they were read.
fn group(row: &Row) -> String {
    let mut places = side_by_side::PLACES.iter();
    match places.any(|(place, ..)| *place == row.group) {
        true => format!("{}: {}", row.group, row.label()),
        false => row.label(),
    }
}

/// Returns whether the cells of `rows` differ or, if there is only one cell, whether it is not 0.
fn is_worth_showing(rows: &[Row]) -> bool {
    let cells: Vec<Cell> = rows.iter().flat_map(|row| row.cells.clone()).collect();
    match cells.as_slice() {
        [one] => one.is_some_and(|value| value != Value::Count(0)),
        some => some.iter().any(|cell| *cell != some[0]),
    }
}

/// Returns every row that at least one point has, with the title of its section. Each row is returned once, in the
/// order of the first point that has it.
fn rows(sheets: &[Sheet]) -> Vec<(&str, &Row)> {
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let mut all: Vec<(&str, &Row)> = Vec::new();
    for section in sheets.iter().flat_map(|sheet| &sheet.sections) {
        let new = section.rows.iter().filter(|row| known.insert(&row.name));
        all.extend(new.map(|row| (&*section.title, row)));
    }
    all
}

/// Returns the rows of a sheet by name.
fn by_name(sheet: &Sheet) -> BTreeMap<&str, &Row> {
    let rows = sheet.sections.iter().flat_map(|section| &section.rows);
    rows.map(|row| (&*row.name, row)).collect()
}

/// Returns notes about runs that do not repeat, and about the programs and kernels.
fn notes(document: &Document, sheets: &[Sheet]) -> Vec<String> {
    let mut notes: Vec<String> = Vec::new();
    for (point, sheet) in document.points.iter().zip(sheets) {
        let place = title(&document.parameters, &point.values);
        for line in &sheet.notes {
            if line.starts_with("NOT THE SAME STATE") {
                notes.push(format!("{place}: {line}"));
            }
        }
        for one in &point.columns {
            if one.repeats == Some(false) {
                let what = one.differs.join(", ");
                let name = &one.kernel.name;
                notes.push(format!("{place}: {name} DOES NOT REPEAT: {what}"));
            }
        }
    }
    let columns = || document.points.iter().flat_map(|point| &point.columns);
    if document.repeats() && columns().all(|one| one.repeats.is_some()) {
        notes.push("repeats: no second run was another".to_owned());
    }
    let first = document.points.first();
    for one in first.iter().flat_map(|point| &point.columns) {
        let kernel = &one.kernel;
        notes.push(format!(
            "{}: {} (sha256 {})",
            kernel.name, kernel.version, kernel.sha256
        ));
    }
    if let Some(one) = first.and_then(|point| point.columns.first()) {
        notes.push(format!("QEMU {}", one.qemu.version));
        let program = one.program.iter();
        notes.extend(program.map(|file| format!("{} sha256 {}", file.path, file.sha256)));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::document as run;
    use crate::model::parameter::Parameter;
    use crate::model::schema::{faults, published};
    use crate::model::sweep::{KIND, Point, SCHEMA};
    use crate::sheet::cell_text;

    fn sweep() -> Document {
        let point = |value: &str, extra: u64| {
            let column = |name: &str, more: u64| {
                let mut one = run();
                one.kernel.name = name.to_owned();
                one.repeats = Some(true);
                one.run.as_mut().unwrap().user_faults.write += extra + more;
                one
            };
            Point {
                values: vec![value.to_owned()],
                columns: vec![column("a", 0), column("b", 100)],
            }
        };
        Document {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            command: vec!["./x".to_owned(), "{pages}".to_owned()],
            parameters: vec!["pages=1,16".parse::<Parameter>().unwrap()],
            points: vec![point("1", 0), point("16", 15)],
        }
    }

    #[test]
    fn points_are_columns_and_kernels_are_rows() {
        let sweep = sweep();
        let first = run().run.unwrap().user_faults.write;
        let sheet = sheet(&sweep, &[], false).unwrap();
        assert_eq!(sheet.columns, ["pages=1", "pages=16"]);
        assert_eq!(sheet.sections.len(), 1);
        let rows: Vec<String> = sheet.sections[0]
            .rows
            .iter()
            .map(|row| {
                let cells: Vec<String> = row.cells.iter().map(|cell| cell_text(*cell)).collect();
                format!("{} {} {}", row.name, row.title, cells.join(" "))
            })
            .collect();
        assert_eq!(
            rows,
            [
                format!("run.user_faults.write a {first} {}", first + 15),
                format!("run.user_faults.write b {} {}", first + 100, first + 115),
            ]
        );
        let all = super::sheet(&sweep, &["run.*".to_owned()], true).unwrap();
        assert_eq!(all.sections[0].rows.len(), 2 * crate::model::counts::ROWS);
        assert!(super::sheet(&sweep, &["run.speed".to_owned()], true).is_err());
    }

    #[test]
    fn what_is_written_is_what_is_published() {
        let mut sweep = sweep();
        let whole = serde_json::to_value(&sweep).unwrap();
        assert_eq!(faults("sweep.json", &whole), Vec::<String>::new());
        for name in published("sweep.json")["properties"]
            .as_object()
            .unwrap()
            .keys()
        {
            assert!(whole.get(name).is_some(), "{name}");
        }
        let read: Document = serde_json::from_value(whole.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), whole);
        sweep.points[1].columns[0].repeats = Some(false);
        assert!(!sweep.repeats());
        let notes = sheet(&sweep, &[], false).unwrap().notes;
        assert!(
            notes[0].starts_with("pages=16: a DOES NOT REPEAT"),
            "{notes:?}"
        );
    }
}
