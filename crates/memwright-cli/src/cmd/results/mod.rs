//! The results of benches: merges folders of results that several workers wrote, and prints the result of the complete
//! bench.

pub mod merge;
pub mod present;
pub mod versions;

use anyhow::anyhow;

use self::merge::Merged;
use crate::cmd::results::present::Bench;
use crate::host::output::say;
use crate::host::results::{Listing, Results};
use crate::model::cell_plan::CellPlan;
use crate::model::cell_result::{self, Whole};
use crate::model::failure::Failure;
use crate::render::outputs::{Outputs, Shown};

/// The maximum number of cells or files that a message lists.
const MOST_LISTED: usize = 10;

/// Merges the results of a plan and prints the tables and documents of the complete bench, exactly as a bench that ran
/// every cell itself. Returns its exit code.
///
/// # Errors
/// [`Failure::Skipped`] if a result is missing, or if there are two different results of one cell.
pub fn conclude(
    plan: &CellPlan,
    folders: &[(Results, Listing)],
    shown: &Shown,
    outputs: &Outputs,
) -> Result<u8, Failure> {
    let mut merged = merge::merge(plan, folders);
    say_all(&merged);
    if let Some(why) = merged.refusal() {
        return Err(Failure::Skipped(why));
    }
    let mut result = |cell: &_| {
        merged
            .take(cell)
            .ok_or_else(|| anyhow!("a result is missing"))
    };
    let bench = match cell_result::whole(plan, &mut result)? {
        Whole::Experiments(document) => Bench::Experiments(document),
        Whole::Program(document) => Bench::Program(document),
    };
    let shown = Shown {
        all: shown.all || plan.all,
        rows: match shown.rows.as_slice() {
            [] => plan.rows.clone(),
            rows => rows.to_vec(),
        },
    };
    present::whole(bench, &shown, outputs)
}

/// Prints which results are missing, repeated, contradictory, cut short, or of another bench.
fn say_all(merged: &Merged) {
    for (heading, names) in [
        ("cut short or damaged, and not counted", &merged.damaged),
        ("in several folders, and counted once", &merged.repeated),
        (
            "contradictory: different results of one run",
            &merged.contradictory,
        ),
        ("missing", &merged.missing),
    ] {
        for line in list(heading, names) {
            say(&line);
        }
    }
    if merged.foreign > 0 {
        say(&format!(
            "of another bench or version, and not counted: {} results",
            merged.foreign
        ));
    }
}

/// Returns the heading with the number of names, and a line for each of the first [`MOST_LISTED`] names. If there are
/// more names, the last line contains their number. Without names, returns no lines.
fn list(heading: &str, names: &[String]) -> Vec<String> {
    if names.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("{heading}: {}", names.len())];
    let listed = names.iter().take(MOST_LISTED);
    lines.extend(listed.map(|name| format!("  {name}")));
    if names.len() > MOST_LISTED {
        lines.push(format!("  and {} more", names.len() - MOST_LISTED));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_an_end() {
        let names: Vec<String> = (0..25).map(|number| number.to_string()).collect();
        assert!(list("missing", &[]).is_empty());
        assert_eq!(list("missing", &names[..2]), ["missing: 2", "  0", "  1"]);
        let lines = list("missing", &names);
        assert_eq!((lines.len(), &*lines[11]), (12, "  and 15 more"));
    }
}
