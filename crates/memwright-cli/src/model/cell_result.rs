//! The result of a cell, as a document.

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};

use crate::model::bench::{Figures, MeasuredRun};
use crate::model::cell_plan::{Cell, CellPlan, Work};
use crate::model::kernel_run::{self, Host};
use crate::model::sweep::Point;
use crate::model::{bench, sweep};

/// The version of the document's format. It increases when a name in the JSON is removed or changes its meaning, but
/// not when one is added.
pub const SCHEMA: u32 = 1;
/// The value of `kind` in the document.
pub const KIND: &str = "cell-result";

/// The result of a cell. It depends only on what the cell's address covers, so all workers that run the cell write
/// identical files.
#[derive(Debug, Serialize, Deserialize)]
pub struct CellResult {
    /// The version of the document's format: [`SCHEMA`].
    pub schema: u32,
    /// The kind of the document: [`KIND`].
    pub kind: String,
    /// The address of the cell.
    pub address: String,
    /// The figures or counts that the run of the cell gave.
    pub found: Found,
}

/// The values that the run of a cell gave.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// The figures of an experiment.
    Figures(Figures),
    /// The counts of a program.
    Counts(Box<kernel_run::Document>),
}

impl CellResult {
    /// Returns the document of a result. Clears the values that depend on the host, and the kernel's name and
    /// configuration, which the bench adds again.
    pub fn of(address: &str, mut found: Found) -> Self {
        if let Found::Counts(document) = &mut found {
            document.host = Host {
                image: String::new(),
                command: String::new(),
            };
            document.kernel.name = String::new();
            document.kernel.config_sha256 = None;
        }
        Self {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            address: address.to_owned(),
            found,
        }
    }

    /// Parses the document of the cell with this address.
    ///
    /// # Errors
    /// If the bytes are not such a document.
    pub fn parse(address: &str, text: &[u8]) -> anyhow::Result<Self> {
        let result: Self = serde_json::from_slice(text).context("no result of a cell")?;
        ensure!(
            result.kind == KIND && result.schema == SCHEMA,
            "no result of a cell, or of another version"
        );
        ensure!(result.address == address, "the result of another cell");
        Ok(result)
    }
}

/// The results of a complete bench.
pub enum Whole {
    /// The results of experiments.
    Experiments(bench::Document),
    /// The results of a program or of workloads.
    Program(sweep::Document),
}

/// Returns the document that a bench without shards would have written. `result` returns the result of a cell.
///
/// # Errors
/// The errors of `result`, and an error if a result is not of the kind that the bench has.
pub fn whole(
    plan: &CellPlan,
    result: &mut dyn FnMut(&Cell) -> anyhow::Result<Found>,
) -> anyhow::Result<Whole> {
    let cells = plan.cells();
    match &plan.work {
        Work::Experiments(work) => {
            let mut document = work.document.clone();
            let kernels = &work.document.columns;
            let runs = document.experiments.iter_mut();
            let mut runs: Vec<&mut MeasuredRun> = runs.flat_map(|one| &mut one.runs).collect();
            for cell in &cells {
                let Found::Figures(figures) = result(cell)? else {
                    bail!("{}: the result is not of an experiment", cell.title);
                };
                runs[cell.run].add(&kernels[cell.column].name, figures);
            }
            Ok(Whole::Experiments(document))
        }
        Work::Program(work) => {
            let mut document = work.document.clone();
            let points = work.points().into_iter().map(|values| Point {
                values,
                columns: Vec::new(),
            });
            document.points = points.collect();
            for cell in &cells {
                let Found::Counts(mut counts) = result(cell)? else {
                    bail!("{}: the result is not of a program", cell.title);
                };
                let column = &work.columns[cell.column];
                counts.kernel.name.clone_from(&column.name);
                counts
                    .kernel
                    .config_sha256
                    .clone_from(&column.config_sha256);
                document.points[cell.run].columns.push(*counts);
            }
            Ok(Whole::Program(document))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::cell_plan::tests::experiments;
    use crate::model::records::{self, Record};

    /// Values that decimal digits do not represent exactly are read back with the value that was written.
    #[test]
    fn results_make_the_document_of_the_bench() {
        let plan = experiments();
        let figures = |cell: &Cell| Figures {
            records: vec![Record {
                case: cell.title.clone(),
                measure: "m".to_owned(),
                unit: "u".to_owned(),
                found: records::Found::Value {
                    value: 1.0 / (3.0 + cell.run as f64 + cell.column as f64 / 7.0),
                },
            }],
            differs: Some(match cell.title.as_str() {
                "two (y) on b" => vec!["m: 1 and 2".to_owned()],
                _ => Vec::new(),
            }),
        };
        let mut through_a_file = |cell: &Cell| {
            let result = CellResult::of(&cell.address, Found::Figures(figures(cell)));
            let text = serde_json::to_vec(&result)?;
            Ok(CellResult::parse(&cell.address, &text)?.found)
        };
        let Whole::Experiments(document) = whole(&plan, &mut through_a_file).unwrap() else {
            panic!("another kind");
        };
        let runs: Vec<&MeasuredRun> = document
            .experiments
            .iter()
            .flat_map(|one| &one.runs)
            .collect();
        let mut cells = plan.cells().into_iter();
        for run in &runs {
            for (column, kernel) in ["a", "b"].iter().enumerate() {
                let records = figures(&cells.next().unwrap()).records;
                assert_eq!(run.records[column], ((*kernel).to_owned(), records));
            }
        }
        let repeats = runs.iter().map(|run| run.repeats);
        assert_eq!(
            repeats.collect::<Vec<_>>(),
            [Some(true), Some(true), Some(false)]
        );
        assert_eq!(runs[2].differs, ["b: m: 1 and 2"]);
    }

    #[test]
    fn a_result_of_another_cell_is_refused() {
        let figures = || {
            Found::Figures(Figures {
                records: Vec::new(),
                differs: None,
            })
        };
        let text = serde_json::to_vec(&CellResult::of("a", figures())).unwrap();
        assert!(CellResult::parse("a", &text).is_ok());
        for (address, text) in [("b", &*text), ("a", b"{}"), ("a", &text[..9])] {
            assert!(CellResult::parse(address, text).is_err());
        }
        let other = CellResult {
            schema: 9,
            ..CellResult::of("a", figures())
        };
        let other = serde_json::to_vec(&other).unwrap();
        assert!(CellResult::parse("a", &other).is_err());
    }
}
