//! A sheet for people at a terminal.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::Sheet;

/// The sheet as text.
pub fn text(sheet: &Sheet) -> String {
    let mut out = format!("\n{}\n", sheet.heading);
    for section in &sheet.sections {
        if !section.title.is_empty() {
            out.push_str(&format!("\n  {}\n", section.title));
        }
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        let mut header = vec![Cell::new("")];
        header.extend(aligned(sheet, &sheet.headings()));
        table.set_header(header);
        let mut previous = "";
        for row in &section.rows {
            if row.group != previous {
                table.add_row([Cell::new(&row.group)]);
                previous = &row.group;
            }
            let mut cells = vec![Cell::new(format!("  {}", row.title))];
            cells.extend(aligned(sheet, &sheet.texts(row)));
            table.add_row(cells);
        }
        for line in table.lines() {
            out.push_str(&format!("  {}\n", line.trim_end()));
        }
    }
    if !sheet.notes.is_empty() {
        out.push('\n');
    }
    for note in &sheet.notes {
        out.push_str(&format!("  {note}\n"));
    }
    out
}

/// Words to the left, numbers to the right.
fn aligned(sheet: &Sheet, texts: &[String]) -> Vec<Cell> {
    let cell = |(index, text): (usize, &String)| {
        Cell::new(text).set_alignment(if index < sheet.words() {
            CellAlignment::Left
        } else {
            CellAlignment::Right
        })
    };
    texts.iter().enumerate().map(cell).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{example, with_figures};

    #[test]
    fn columns_stand_side_by_side_with_their_differences() {
        let text = text(&example());
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(lines.contains(&vec!["before", "after", "delta"]), "{text}");
        assert!(
            lines.contains(&vec!["user,", "write-protect", "256", "0", "-256"]),
            "{text}"
        );
        assert!(
            lines.contains(&vec!["user,", "refused", "1", "not", "measured"]),
            "{text}"
        );
        assert!(text.ends_with("\n  both repeat\n"));
    }

    #[test]
    fn unit_and_statistic_are_columns() {
        let text = text(&with_figures());
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        for words in [
            "unit statistic memwright linux",
            "first write instructions mean 541.25 1200.5",
            "flushes flushes per round value 2 not measured",
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            assert!(lines.contains(&words), "{words:?} in {text}");
        }
    }
}
