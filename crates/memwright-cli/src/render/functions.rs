//! Renders the functions of one profile as text.

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::model::profile::{Order, Profile};
use crate::model::words::grouped;

/// Returns the profile as text, sorted by `order` with the largest function first. The rows of the column "self" add up
/// to the total.
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
    let subject = profile.subject();
    let mut out = format!("\n  Instructions of the kernel by function, {subject}\n");
    for line in table.lines() {
        out.push_str(&format!("  {}\n", line.trim_end()));
    }
    for note in notes(profile) {
        out.push_str(&format!("  {note}\n"));
    }
    out
}

/// Returns the notes that follow the rows of a profile.
pub fn notes(profile: &Profile) -> Vec<String> {
    vec![
        format!("unattributed: {}", grouped(profile.unattributed())),
        format!(
            "calls that did not return to their caller: {}",
            grouped(profile.mismatches)
        ),
    ]
}

/// Returns a cell that is aligned to the right.
pub fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

/// Formats `count` as a percentage of `total`.
pub fn percent(count: u64, total: u64) -> String {
    if total == 0 {
        return String::new();
    }
    format!("{:.2}", count as f64 * 100.0 / total as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::profile::tests::profile;

    #[test]
    fn rows_add_up_to_the_total() {
        let profile = profile(&[(None, 0, 1), (Some(0), 1, 10), (Some(1), 2, 989)]);
        let order = Order {
            children: false,
            percent_limit: 1.0,
        };
        let said = text(&profile, order);
        let rows: Vec<String> = said
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        for row in [
            "989 98.90 989 98.90 1 c",
            "10 1.00 999 99.90 1 b",
            "1 0.10 (1 other functions)",
            "1,000 100.00 (total)",
            "unattributed: 0",
        ] {
            assert!(rows.iter().any(|one| one == row), "{row} in {said}");
        }
    }
}
