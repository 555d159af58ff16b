//! Renders a sheet in Markdown, for a web page or a message.

use crate::sheet::{Section, Sheet};

/// Returns the sheet in Markdown. In a comparison, the rows that changed are first. The tables of all rows follow with
/// `all`; those of ranked sections always follow.
pub fn markdown(sheet: &Sheet, all: bool) -> String {
    let mut out = format!("### {}\n", escaped(&sheet.heading));
    if sheet.compares {
        out.push_str(&format!("\n{}.\n", escaped(&sheet.change_summary())));
        let changed = sheet.changed();
        if !changed.is_empty() {
            out.push_str(&head(1, &sheet.change_headings()));
        }
        for row in changed {
            out.push_str(&line(&row.label(), &row.texts()));
        }
    }
    let wanted = |section: &&Section| all || !sheet.compares || section.is_ranked;
    for section in sheet.sections.iter().filter(wanted) {
        if !section.title.is_empty() {
            out.push_str(&format!("\n**{}**\n", escaped(&section.heading())));
        }
        let grid = sheet.grid(section);
        out.push_str(&head(sheet.words(), &grid.headings));
        for one in &grid.lines {
            let label = format!("{}: {}", one.row.group, one.row.label());
            out.push_str(&line(&label, &one.texts));
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

/// Returns the head of a table whose first `words` columns are text.
fn head(words: usize, headings: &[String]) -> String {
    format!(
        "\n{}|---|{}{}\n",
        line("", headings),
        "---|".repeat(words),
        "---:|".repeat(headings.len() - words)
    )
}

fn line(label: &str, texts: &[String]) -> String {
    let mut out = match label {
        "" => "| |".to_owned(),
        label => format!("| {} |", escaped(label)),
    };
    for text in texts {
        out.push_str(&format!(" {} |", escaped(text)));
    }
    out.push('\n');
    out
}

/// Escapes characters that have a meaning in Markdown.
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
    fn changes_lead() {
        let text = markdown(&example(), false);
        assert_eq!(
            text,
            "### ./prog \\<1\\> \\& 2\n\n\
             2 of 4 rows changed, the largest relative change first; 1 not measured in every column.\n\n\
             | | unit | before | after | delta | change |\n|---|---|---:|---:|---:|---:|\n\
             | region 1: user, \"odd\" | faults | 1 | 12,345 | +12,344 | +1234400.0 % |\n\
             | run: user, write-protect | faults | 256 | 0 | -256 | -100.0 % |\n\n- both repeat\n"
        );
    }

    #[test]
    fn sections_are_tables() {
        let text = markdown(&example(), true);
        assert!(text.contains("**run**\n\n| | before | after | delta |\n|---|---:|---:|---:|\n"));
        assert!(text.contains("| Page faults: user, write-protect | 256 | 0 | -256 |\n"));
        assert!(text.contains("| Page faults: user, not present, read | 1,000 | 1,000 | = |\n"));
        assert!(text.ends_with("\n- both repeat\n"));
    }

    #[test]
    fn unit_and_statistic_are_columns() {
        let text = markdown(&with_figures(), false);
        assert!(text.contains(
            "| | unit | statistic | memwright | linux |\n|---|---|---|---:|---:|\n\
             | fault: first write | instructions | minimum | 538 | 1,000 |\n"
        ));
        assert!(text.contains("| fault: first write | instructions | median | 540 | 1,001 |\n"));
        assert!(
            text.contains("| fault: flushes | flushes per round | value | 2 | not measured |\n")
        );
    }
}
