//! The functions of one profile, for people.

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::args::RunArgs;

use super::tree::{FunctionRow, Profile};
use crate::table::grouped;

/// What is printed of a profile, and in which order.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Order {
    /// By what functions executed with those that they called.
    pub children: bool,
    /// Functions with a smaller part of all instructions are summed up in one row.
    pub percent_limit: f64,
}

impl Order {
    /// What the command line says.
    pub fn of(args: &RunArgs) -> Self {
        Self {
            children: args.children,
            percent_limit: args.percent_limit,
        }
    }

    /// The figure that decides.
    pub fn figure(self, row: &FunctionRow) -> u64 {
        if self.children {
            row.with_callees
        } else {
            row.own
        }
    }

    /// Whether so many instructions of `total` are worth a row.
    pub fn is_shown(self, instructions: u64, total: u64) -> bool {
        instructions as f64 * 100.0 >= self.percent_limit * total as f64
    }
}

/// The profile as text: largest first, all rows of the column "self" being the total.
pub fn text(profile: &Profile, order: Order) -> String {
    let mut rows = profile.rows();
    rows.sort_by_key(|row| (std::cmp::Reverse(order.figure(row)), row.name.clone()));
    let (shown, others): (Vec<_>, Vec<_>) = rows
        .iter()
        .filter(|row| row.with_callees > 0)
        .partition(|row| order.is_shown(order.figure(row), profile.total));
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let titles = ["self", "%", "children", "%", "calls"].map(right);
    table.set_header(titles.into_iter().chain([Cell::new("function")]));
    let percent = |count| percent(count, profile.total);
    for row in shown {
        table.add_row([
            right(&grouped(row.own)),
            right(&percent(row.own)),
            right(&grouped(row.with_callees)),
            right(&percent(row.with_callees)),
            right(&grouped(row.calls)),
            Cell::new(&row.name),
        ]);
    }
    let rest: u64 = others.iter().map(|row| row.own).sum();
    let mut sum = |count: u64, what: String| {
        table.add_row([
            right(&grouped(count)),
            right(&percent(count)),
            right(""),
            right(""),
            right(""),
            Cell::new(what),
        ]);
    };
    if !others.is_empty() {
        sum(rest, format!("({} other functions)", others.len()));
    }
    sum(profile.total, "(total)".to_owned());
    let title = match profile.region {
        Some(region) => format!("region {region}"),
        None => "run".to_owned(),
    };
    let mut out = format!("\n  Instructions of the kernel by function, {title}\n");
    for line in table.lines() {
        out.push_str(&format!("  {}\n", line.trim_end()));
    }
    for note in notes(profile) {
        out.push_str(&format!("  {note}\n"));
    }
    out
}

/// What is to be said of a profile beside its rows.
pub fn notes(profile: &Profile) -> Vec<String> {
    vec![
        format!("unattributed: {}", grouped(profile.unattributed())),
        format!(
            "calls that did not return to their caller: {}",
            grouped(profile.mismatches)
        ),
    ]
}

fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn percent(count: u64, total: u64) -> String {
    if total == 0 {
        return String::new();
    }
    format!("{:.2}", count as f64 * 100.0 / total as f64)
}
