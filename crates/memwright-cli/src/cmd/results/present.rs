//! Prints the results of a complete bench.

use anyhow::anyhow;

use crate::compare::{bench_sheet, growth, sweep_sheet};
use crate::host::output::print;
use crate::model::bench::{Document as Experiments, Kernel, Measured};
use crate::model::failure::{DIFFERENCE, Failure};
use crate::model::region_names::{self, RegionNames};
use crate::model::sweep::Document as Program;
use crate::render;
use crate::render::outputs::{Outputs, Shown};
use crate::sheet::Sheet;

/// The title of pages with the results.
const TITLE: &str = "memwright bench";

/// The results of a complete bench.
pub enum Bench {
    /// The results of experiments.
    Experiments(Experiments),
    /// The results of a program or of workloads.
    Program(Program),
}

/// Prints the results of a complete bench, and writes them in the other formats. Returns the exit code.
///
/// # Errors
/// If a pattern matches no row, if options select rows of experiments, or I/O errors of writing.
pub fn whole(bench: Bench, shown: &Shown, outputs: &Outputs) -> Result<u8, Failure> {
    match bench {
        Bench::Experiments(document) => {
            refuse_rows(shown)?;
            let measured = document.experiments.iter();
            let sheets = measured.map(|one| experiment(one, &document.columns, outputs));
            let sheets: Vec<Sheet> = sheets.collect::<anyhow::Result<_>>()?;
            experiments(&document, &sheets, outputs)
        }
        Bench::Program(document) => {
            let names = names(&document);
            let rows = region_names::all_numbered(&shown.rows, &names)
                .map_err(|unknown| Failure::Usage(anyhow!("--rows: {unknown}")))?;
            program(&document, &rows, shown.all, outputs)
        }
    }
}

/// Refuses the options that select rows, because the results of an experiment are always printed completely.
///
/// # Errors
/// If there is such an option.
pub fn refuse_rows(shown: &Shown) -> Result<(), Failure> {
    if shown.all || !shown.rows.is_empty() {
        return Err(Failure::Usage(anyhow!(
            "--all and --rows select rows of a workload or of a program, not of an experiment"
        )));
    }
    Ok(())
}

/// Prints the table of an experiment. Returns the sheet for the other formats.
///
/// # Errors
/// I/O errors of writing.
pub fn experiment(
    measured: &Measured,
    columns: &[Kernel],
    outputs: &Outputs,
) -> anyhow::Result<Sheet> {
    let mut sheet = bench_sheet::sheet(measured, columns);
    if !outputs.on_output() {
        let mut text = render::text(&sheet, true);
        let marks = measured.runs.iter().map(|run| growth::marks(&run.records));
        for mark in marks.flatten() {
            text.push_str(&format!("  {mark}\n"));
        }
        print(text.as_bytes())?;
    }
    sheet.notes.extend(bench_sheet::origins(measured, columns));
    Ok(sheet)
}

/// Writes the results of experiments in the other formats. Returns the exit code.
///
/// # Errors
/// I/O errors of writing.
pub fn experiments(
    document: &Experiments,
    sheets: &[Sheet],
    outputs: &Outputs,
) -> Result<u8, Failure> {
    outputs.write(TITLE, sheets, true, document)?;
    Ok(if document.differs() { DIFFERENCE } else { 0 })
}

/// Prints the table of a program or of workloads, and writes it in the other formats. Returns the exit code.
///
/// # Errors
/// If a pattern matches no row, or I/O errors of writing.
pub fn program(
    document: &Program,
    patterns: &[String],
    all: bool,
    outputs: &Outputs,
) -> Result<u8, Failure> {
    let unknown = |unknown| Failure::Usage(anyhow!("--rows: {unknown}"));
    let shown = sweep_sheet::sheet(document, patterns, all).map_err(unknown)?;
    outputs.present(TITLE, &shown, true, document)?;
    Ok(match document.repeats() {
        true => 0,
        false => DIFFERENCE,
    })
}

/// Returns the names of the regions in each run.
fn names(document: &Program) -> Vec<RegionNames> {
    let columns = document.points.iter().flat_map(|point| &point.columns);
    let names = columns.map(|one| RegionNames::of_regions(one.regions.iter().flatten()));
    names.collect()
}
