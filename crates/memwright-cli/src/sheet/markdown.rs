//! A sheet to be pasted under a patch.

use super::Sheet;

/// The sheet in Markdown.
pub fn markdown(sheet: &Sheet) -> String {
    let mut out = format!("### {}\n", escaped(&sheet.heading));
    for section in &sheet.sections {
        if !section.title.is_empty() {
            out.push_str(&format!("\n**{}**\n", escaped(&section.title)));
        }
        let headings = sheet.headings();
        out.push_str("\n| |");
        for heading in &headings {
            out.push_str(&format!(" {} |", escaped(heading)));
        }
        out.push_str("\n|---|");
        out.push_str(&"---|".repeat(sheet.words()));
        out.push_str(&"---:|".repeat(headings.len() - sheet.words()));
        out.push('\n');
        for row in &section.rows {
            out.push_str(&format!(
                "| {}: {} |",
                escaped(&row.group),
                escaped(&row.title)
            ));
            for text in sheet.texts(row) {
                out.push_str(&format!(" {} |", escaped(&text)));
            }
            out.push('\n');
        }
    }
    if !sheet.notes.is_empty() {
        out.push('\n');
    }
    for note in &sheet.notes {
        out.push_str(&format!("- {}\n", escaped(note)));
    }
    out
}

/// What Markdown would read as more than text.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if "|\\`*_<>&#[]".contains(letter) {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{example, with_figures};

    #[test]
    fn sections_are_tables() {
        let text = markdown(&example());
        assert!(text.starts_with("### ./prog \\<1\\> \\& 2\n\n**run**\n\n| | before | after | delta |\n|---|---:|---:|---:|\n"));
        assert!(text.contains("| Page faults: user, write-protect | 256 | 0 | -256 |\n"));
        assert!(text.contains("| Page faults: user, not present, read | 1,000 | 1,000 | = |\n"));
        assert!(text.ends_with("\n- both repeat\n"));
    }

    #[test]
    fn unit_and_statistic_are_columns() {
        let text = markdown(&with_figures());
        assert!(text.contains(
            "| | unit | statistic | memwright | linux |\n|---|---|---|---:|---:|\n\
             | fault: first write | instructions | minimum | 538 | 1000 |\n"
        ));
        assert!(text.contains("| fault: first write | instructions | median | 540 | 1001 |\n"));
        assert!(
            text.contains("| fault: flushes | flushes per round | value | 2 | not measured |\n")
        );
    }
}
