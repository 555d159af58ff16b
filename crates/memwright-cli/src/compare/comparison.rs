//! What `compare` writes as JSON.

use serde::Serialize;

use crate::compare::verdict::{self, Kind};
use crate::compare::{account_sheet, again, side_by_side};
use crate::model::kernel_run::{self, SCHEMA};
use crate::model::memwright_run;
use crate::model::saved::Saved;
use crate::sheet::Sheet;

/// What says that a document is one of these.
pub const KIND: &str = "comparison";

/// The document.
#[derive(Debug, Serialize)]
pub struct Comparison<'a> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// [`KIND`].
    pub kind: &'static str,
    /// Whether any count differs from the first kernel's.
    pub differs: bool,
    /// Whether no kernel's second run was another; also where there was none.
    pub repeats: bool,
    /// Every kind of difference that was found, the weightiest last: the exit code is that one's.
    pub kinds: Vec<Kind>,
    /// How page tables differ at marks: where they do, the kernels did not do the same work.
    pub state_differs: Vec<String>,
    /// How the program ended otherwise, or printed something else.
    pub program_differs: Vec<String>,
    /// What each kernel gave.
    pub columns: Vec<&'a Saved>,
}

impl<'a> Comparison<'a> {
    /// The comparison of these documents, in the rows of the sheet.
    pub fn new(columns: &[(String, &'a Saved)], sheet: &Sheet) -> Self {
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
}

/// The command that makes a comparison of runs on kernel images again, with these rows; `None` for other runs.
pub fn commands(columns: &[(String, &Saved)], rows: &[String]) -> Option<Vec<String>> {
    let documents = kernel_runs(columns)?;
    Some(again::on_kernels(&documents, rows).into_iter().collect())
}

/// The documents under the names of their columns; `None` where one is no run on a kernel image.
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

/// Documents of one kind side by side under these names; `None` where they are of both kinds.
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
