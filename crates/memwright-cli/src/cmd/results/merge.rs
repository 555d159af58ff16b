//! Collects the results of a plan from folders of results.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context;

use crate::host::results::{Listing, Results};
use crate::model::cell_plan::{Cell, CellPlan};
use crate::model::cell_result::{CellResult, Found};

/// The results of a plan that folders contain, and what is wrong with them.
#[derive(Debug, Default)]
pub struct Merged {
    results: BTreeMap<String, Found>,
    /// The cells for which no folder has a result.
    pub missing: Vec<String>,
    /// The cells for which several folders have the same result.
    pub repeated: Vec<String>,
    /// The cells with different results.
    pub contradictory: Vec<String>,
    /// The files that cannot be read, or were cut short.
    pub damaged: Vec<String>,
    /// The number of results that belong to no cell of the plan.
    pub foreign: usize,
}

impl Merged {
    /// Returns why the results are not those of the complete bench; `None` if they are.
    pub fn refusal(&self) -> Option<String> {
        match (self.missing.len(), self.contradictory.len()) {
            (0, 0) => None,
            (missing, 0) => Some(format!("not complete: {missing} runs are missing")),
            (0, wrong) => Some(format!(
                "no claim is possible: {wrong} runs have different results"
            )),
            (missing, wrong) => Some(format!(
                "no claim is possible: {wrong} runs have different results, and {missing} are missing"
            )),
        }
    }

    /// Returns the result of a cell.
    pub fn take(&mut self, cell: &Cell) -> Option<Found> {
        self.results.get(&cell.address).cloned()
    }
}

/// Collects the results of every cell of a plan, each once.
pub fn merge(plan: &CellPlan, folders: &[(Results, Listing)]) -> Merged {
    let cells = plan.cells();
    let mut merged = Merged::default();
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for cell in &cells {
        // Two columns with the same kernel and options share their results.
        if seen.insert(&cell.address) {
            add(&mut merged, cell, folders);
        }
    }
    let found: BTreeSet<(&String, &String)> = folders
        .iter()
        .flat_map(|(_, listing)| &listing.results)
        .flat_map(|(address, hashes)| hashes.iter().map(move |hash| (address, hash)))
        .collect();
    let foreign = found
        .into_iter()
        .filter(|(address, _)| !seen.contains(address.as_str()));
    merged.foreign = foreign.count();
    merged
}

fn add(merged: &mut Merged, cell: &Cell, folders: &[(Results, Listing)]) {
    let mut whole: BTreeMap<&String, (Found, usize)> = BTreeMap::new();
    for (folder, listing) in folders {
        for hash in listing.results.get(&cell.address).into_iter().flatten() {
            match of_cell(folder, &cell.address, hash) {
                Ok(found) => whole.entry(hash).or_insert((found, 0)).1 += 1,
                Err(error) => merged.damaged.push(format!("{}: {error:#}", cell.title)),
            }
        }
    }
    let title = cell.title.clone();
    let mut whole = whole.into_values();
    match (whole.next(), whole.next()) {
        (None, _) => merged.missing.push(title),
        (Some(_), Some(_)) => merged.contradictory.push(title),
        (Some((found, copies)), None) => {
            if copies > 1 {
                merged.repeated.push(title);
            }
            merged.results.insert(cell.address.clone(), found);
        }
    }
}

/// Reads a result of the cell with this address.
///
/// # Errors
/// If the file cannot be read, was cut short, or is no result of this cell.
pub fn of_cell(folder: &Results, address: &str, hash: &str) -> anyhow::Result<Found> {
    let text = folder.read_result(address, hash)?;
    let result = CellResult::parse(address, &text);
    let path = || folder.result_path(address, hash).display().to_string();
    Ok(result.with_context(path)?.found)
}
