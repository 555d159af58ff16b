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

/// The result of a cell. It depends on nothing but what the cell's address covers: every worker that runs the cell writes
/// the same bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct CellResult {
    /// The version of the document's format: [`SCHEMA`].
    pub schema: u32,
    /// The kind of the document: [`KIND`].
    pub kind: String,
    /// The address of the cell.
    pub address: String,
    /// The result.
    pub found: Found,
}

/// What a cell found.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Found {
    /// The figures of an experiment.
    Figures(Figures),
    /// The counts of a program.
    Counts(Box<kernel_run::Document>),
}

impl CellResult {
    /// Returns the document of a result. Removes from the result what depends on the host, and the names that the bench
    /// gives the kernel.
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
    /// Of experiments.
    Experiments(bench::Document),
    /// Of a program or of workloads.
    Program(sweep::Document),
}

/// Returns the document that a bench without shards would have written. `result` returns the result of a cell.
///
/// # Errors
/// The errors of `result`, and an error if a result is of another kind than the bench.
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
