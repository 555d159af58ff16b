//! Compares the documents of runs: the sheet, and the document that `compare` writes as JSON.

use anyhow::{Context, anyhow};
use serde::Serialize;

use crate::compare::verdict::{self, Kind};
use crate::compare::{account_sheet, again, side_by_side};
use crate::model::kernel_run::{self, SCHEMA};
use crate::model::memwright_run;
use crate::model::saved::Saved;
use crate::sheet::{Section, Sheet};

/// The value of `kind` in this document.
pub const KIND: &str = "comparison";

/// The document of a comparison.
#[derive(Debug, Serialize)]
pub struct Comparison<'a> {
    /// The version of the document's format: [`SCHEMA`].
    pub schema: u32,
    /// The kind of the document: [`KIND`].
    pub kind: &'static str,
    /// Whether any count differs from the first kernel's.
    pub differs: bool,
    /// Whether every second run gave the same results as the first. Also true if there were no second runs.
    pub repeats: bool,
    /// The kinds of difference that were found, in ascending order of weight. The exit code is that of the last kind.
    pub kinds: Vec<Kind>,
    /// One line for each difference between the kernels in their marks, or in the program's page tables at a mark. If
    /// there is any such line, the kernels did not do the same work.
    pub state_differs: Vec<String>,
    /// One line for each difference between the kernels in how the program ended or in what it printed.
    pub program_differs: Vec<String>,
    /// The document of the run on each kernel, in the order of the columns.
    pub columns: Vec<&'a Saved>,
}

impl<'a> Comparison<'a> {
    /// Returns the comparison of these documents. Counts, marks and page tables are compared only in the rows of the
    /// sheet.
    fn new(columns: &[(String, &'a Saved)], sheet: &Sheet) -> Self {
        let kinds = verdict::kinds(sheet, columns);
        Self {
            schema: SCHEMA,
            kind: KIND,
            differs: sheet.differs(),
            repeats: !kinds.contains(&Kind::Repetition),
            kinds,
            state_differs: side_by_side::differing_states(sheet),
            program_differs: verdict::other_programs(columns),
            columns: columns.iter().map(|(_, saved)| *saved).collect(),
        }
    }

    /// Returns the exit code of the weightiest kind of difference, or 0 if there is none.
    pub fn exit_code(&self) -> u8 {
        verdict::code(&self.kinds)
    }
}

/// Compares runs in the rows that match the patterns, and in additional sections. Returns the sheet, and the document
/// that is written as JSON.
///
/// # Errors
/// If the documents are of two kinds, or if a pattern matches no row.
pub fn compared<'a>(
    columns: &[(String, &'a Saved)],
    patterns: &[String],
    sections: Vec<Section>,
) -> anyhow::Result<(Sheet, Comparison<'a>)> {
    let sheet = sheet(columns).context("runs on Memwright and on kernel images have other rows")?;
    let unknown = |unknown| anyhow!("--rows: {unknown}");
    let mut sheet = sheet.select(patterns).map_err(unknown)?;
    sheet.commands = commands(columns, patterns).unwrap_or(sheet.commands);
    sheet.sections.extend(sections);
    let document = Comparison::new(columns, &sheet);
    let differing = document.program_differs.iter().cloned();
    sheet.notes.splice(0..0, differing);
    Ok((sheet, document))
}

/// Returns the commands that reproduce a comparison of runs on kernel images, with these rows; `None` for other runs.
fn commands(columns: &[(String, &Saved)], rows: &[String]) -> Option<Vec<String>> {
    let documents = kernel_runs(columns)?;
    Some(again::on_kernels(&documents, rows).into_iter().collect())
}

/// Returns the documents, each with its column's name as the name of the kernel. Returns `None` if a run is not on a
/// kernel image.
fn kernel_runs(columns: &[(String, &Saved)]) -> Option<Vec<kernel_run::Document>> {
    let document = |(name, saved): &(String, &Saved)| match saved {
        Saved::Kernel(document) => {
            let mut document = (**document).clone();
            document.kernel.name.clone_from(name);
            Some(document)
        }
        Saved::Memwright(_) => None,
    };
    columns.iter().map(document).collect()
}

/// Returns a sheet of documents of one kind under these names; `None` if they are of different kinds.
pub fn sheet(columns: &[(String, &Saved)]) -> Option<Sheet> {
    if let Some(documents) = kernel_runs(columns) {
        return Some(side_by_side::comparison(&documents));
    }
    let accounts: Option<Vec<&memwright_run::Document>> = columns
        .iter()
        .map(|(_, saved)| match saved {
            Saved::Memwright(document) => Some(&**document),
            Saved::Kernel(_) => None,
        })
        .collect();
    let names = columns.iter().map(|(name, _)| name.clone());
    let columns: Vec<_> = names.zip(accounts?).collect();
    Some(account_sheet::sheet(&columns))
}
