//! Renders a sheet for a terminal.

use comfy_table::{Cell, CellAlignment, Table, presets};

use crate::sheet::change::Changes;
use crate::sheet::{Section, Sheet};

/// Returns the sheet as text. In a comparison, the rows that changed are first. The tables of sections follow: with
/// `all`, those of all sections; without `all`, only those of ranked sections.
pub fn text(sheet: &Sheet, all: bool) -> String {
    let mut out = format!("\n{}\n", sheet.heading);
    if sheet.compares {
        out.push_str(&changes(&sheet.changes()));
    }
    let wanted = |section: &&Section| all || !sheet.compares || section.is_ranked;
    for section in sheet.sections.iter().filter(wanted) {
        out.push_str(&table(sheet, section));
    }
    if !sheet.notes.is_empty() {
        out.push('\n');
    }
    for note in &sheet.notes {
        out.push_str(&format!("  {note}\n"));
    }
    out
}

/// Returns the summary of the changes, and one table with the rows that changed.
fn changes(changes: &Changes<'_>) -> String {
    let summary = format!("\n  {}\n", changes.summary);
    if changes.rows.is_empty() {
        return summary;
    }
    let mut table = empty();
    table.set_header(line("", 1, &changes.headings));
    for one in &changes.rows {
        table.add_row(line(&one.label, 1, &one.texts));
    }
    format!("{summary}\n{}", indented(&table))
}

/// Returns a table with all rows of a section.
fn table(sheet: &Sheet, section: &Section) -> String {
    let mut table = empty();
    let grid = sheet.grid(section);
    table.set_header(line("", sheet.words(), &grid.headings));
    let mut previous = "";
    for one in &grid.lines {
        if one.row.group != previous {
            table.add_row([Cell::new(&one.row.group)]);
            previous = &one.row.group;
        }
        let title = format!("  {}", one.title());
        table.add_row(line(&title, sheet.words(), &one.texts));
    }
    match section.title.as_str() {
        "" => indented(&table),
        _ => format!("\n  {}\n{}", section.heading(), indented(&table)),
    }
}

fn empty() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    table
}

fn indented(table: &Table) -> String {
    let lines = table.lines();
    lines
        .map(|line| format!("  {}\n", line.trim_end()))
        .collect()
}

/// Returns the cells of a line: the label and the first `words` texts are left-aligned, and the rest are right-aligned
/// as numbers.
fn line(label: &str, words: usize, texts: &[String]) -> Vec<Cell> {
    let cell = |(index, text): (usize, &String)| {
        Cell::new(text).set_alignment(if index < words {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        })
    };
    let texts = texts.iter().enumerate().map(cell);
    [Cell::new(label)].into_iter().chain(texts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{example, with_figures};

    fn words(text: &str) -> Vec<String> {
        let line = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        text.lines().map(line).collect()
    }

    #[test]
    fn changes_lead_and_the_rest_follows_where_it_is_wanted() {
        let short = words(&text(&example(), false));
        assert_eq!(
            short,
            [
                "",
                "./prog <1> & 2",
                "",
                "2 of 4 rows changed, the largest relative change first; 1 not measured in every column",
                "",
                "unit before after delta change",
                "region 1: user, \"odd\" faults 1 12,345 +12,344 +1234400.0 %",
                "run: user, write-protect faults 256 0 -256 -100.0 %",
                "",
                "both repeat"
            ]
        );
        let long = words(&text(&example(), true));
        assert_eq!(long[..8], short[..8]);
        for line in [
            "before after delta",
            "user, write-protect 256 0 -256",
            "user, not present, read 1,000 1,000 =",
            "user, refused 1 not measured",
        ] {
            assert!(long.contains(&line.to_owned()), "{line:?} in {long:?}");
            assert!(!short.contains(&line.to_owned()), "{line:?} in {short:?}");
        }
    }

    #[test]
    fn unit_and_statistic_are_columns() {
        let lines = words(&text(&with_figures(), false));
        for line in [
            "unit statistic memwright linux",
            "first write instructions mean 541.25 1,200.5",
            "flushes flushes per round value 2 not measured",
        ] {
            assert!(lines.contains(&line.to_owned()), "{line:?} in {lines:?}");
        }
    }
}
