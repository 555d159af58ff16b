//! The account of a program on a kernel image as people read it: rows are measures, columns the run and its regions.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::counts::Counts;
use super::document::Document;
use crate::sheet::NOT_MEASURED;

/// The whole account as text.
pub fn render(document: &Document) -> String {
    let mut text = format!(
        "\nAccount of {} on {}\n\n",
        document.arguments.join(" "),
        document.kernel.name
    );
    let mut columns = vec![("run".to_owned(), document.run)];
    for one in document.regions.iter().flatten() {
        let passes = match one.passes {
            1 => String::new(),
            passes => format!(" (passed {passes} times)"),
        };
        columns.push((format!("region {}{passes}", one.region), Some(one.counts)));
    }
    text.push_str(&table(&columns));
    text.push('\n');
    for line in notes(document) {
        text.push_str(&format!("  {line}\n"));
    }
    text
}

/// A table of counts, one column each.
fn table(columns: &[(String, Option<Counts>)]) -> String {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    let mut header = vec![Cell::new("")];
    header.extend(columns.iter().map(|(title, _)| right(title)));
    table.set_header(header);
    let mut previous = "";
    for (index, (group, title, _)) in Counts::default().rows().into_iter().enumerate() {
        if group != previous {
            table.add_row([Cell::new(group)]);
            previous = group;
        }
        let mut row = vec![Cell::new(format!("  {title}"))];
        row.extend(columns.iter().map(|(_, counts)| match counts {
            Some(counts) => right(&crate::table::grouped(counts.rows()[index].2)),
            None => right(NOT_MEASURED),
        }));
        table.add_row(row);
    }
    let lines = table.lines().map(|line| format!("  {}\n", line.trim_end()));
    lines.collect()
}

fn notes(document: &Document) -> Vec<String> {
    let mut notes = vec![crate::table::ending(Some(document.outcome))];
    notes.push(document.repetition());
    notes.push(format!(
        "{} of memory, {}",
        crate::size::in_mebibytes(document.memory),
        crate::table::cpus(document.cpus)
    ));
    notes.push(format!("kernel {}", document.kernel.version));
    notes.push(format!("QEMU {}", document.qemu.version));
    notes.push(format!(
        "sha256 {} {}",
        document.program.sha256, document.program.path
    ));
    for file in &document.companions {
        notes.push(format!("sha256 {} {}", file.sha256, file.path));
    }
    notes.push(format!("sha256 {} kernel", document.kernel.sha256));
    notes.push(format!("sha256 {} QEMU", document.qemu.sha256));
    notes
}

fn right(text: &str) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}
