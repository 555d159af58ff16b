//! Renders page faults by their causes, as text.

use comfy_table::{Cell, Table, presets};

use crate::model::faults::{COPY, Cause, Faults};
use crate::model::profile::Order;
use crate::model::words::grouped;
use crate::render::functions::{percent, right};

/// A function that returns a number of a row.
type Figure = fn(&Cause) -> u64;

/// The columns after the faults: a heading, and a function that returns a row's value.
const COLUMNS: [(&str, Figure); 2] = [
    ("copies", |row| row.of_kind(COPY)),
    ("flushes", |row| row.flushes.unwrap_or(0)),
];

/// Returns the page faults as text. The rows add up to the total. Columns in which every row is 0 are left out.
pub fn text(faults: &Faults, order: Order) -> String {
    let (shown, others): (Vec<_>, Vec<_>) = faults
        .rows
        .iter()
        .partition(|row| order.is_shown(row.faults, faults.total));
    let columns: Vec<_> = COLUMNS
        .into_iter()
        .filter(|(_, value)| faults.rows.iter().any(|row| value(row) > 0))
        .collect();
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let headings = ["faults", "%"].into_iter();
    let headings = headings.chain(columns.iter().map(|(heading, _)| *heading));
    table.set_header(headings.map(right).chain([Cell::new(faults.by.name())]));
    let mut add = |rows: &[&Cause], label: String| {
        let sum = |value: Figure| rows.iter().map(|row| value(row)).sum::<u64>();
        let count = sum(|row| row.faults);
        let mut cells = vec![right(&grouped(count)), right(&percent(count, faults.total))];
        cells.extend(
            columns
                .iter()
                .map(|(_, value)| right(&grouped(sum(*value)))),
        );
        cells.push(Cell::new(label));
        table.add_row(cells);
    };
    for row in shown {
        add(&[row], row.label());
    }
    if !others.is_empty() {
        add(&others, format!("({} other rows)", others.len()));
    }
    add(
        &faults.rows.iter().collect::<Vec<_>>(),
        "(total)".to_owned(),
    );
    let mut out = format!("\n  Page faults by {}\n", faults.by.name());
    for line in table.lines() {
        out.push_str(&format!("  {}\n", line.trim_end()));
    }
    for note in &faults.notes {
        out.push_str(&format!("  {note}\n"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::faults::By;
    use crate::model::faults::tests::cause;

    #[test]
    fn rows_add_up_to_the_total() {
        let faults = Faults {
            by: By::Symbol,
            total: 1000,
            rows: vec![
                cause("touch", "demand_zero", 990),
                cause("copy", COPY, 6),
                cause("one", COPY, 3),
                cause("other", "file", 1),
            ],
            notes: vec!["a note".to_owned()],
        };
        let order = Order {
            children: false,
            percent_limit: 0.5,
        };
        let expected = "
  Page faults by symbol
   faults       %  copies  symbol
      990   99.00       0  touch
        6    0.60       6  copy
        4    0.40       3  (2 other rows)
    1,000  100.00       9  (total)
  a note
";
        assert_eq!(text(&faults, order), expected);
    }
}
