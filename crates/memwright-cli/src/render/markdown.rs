//! Renders a sheet in Markdown, for a web page or a message.

use crate::sheet::{Section, Sheet, Verdict};

/// Returns the sheet in Markdown. The verdict of a check is first, with the rows that have a limit. In a comparison,
/// the rows that changed follow. The tables of sections are last: with `all`, those of all sections; without `all`,
/// only those of ranked sections.
pub fn markdown(sheet: &Sheet, all: bool) -> String {
    let mut out = format!("### {}\n", escaped(&sheet.heading));
    if let Some(verdict) = &sheet.verdict {
        out.push_str(&judged(verdict, sheet));
    }
    if sheet.compares {
        let changes = sheet.changes();
        out.push_str(&format!("\n{}.\n", escaped(&changes.summary)));
        if !changes.rows.is_empty() {
            out.push_str(&head(1, &changes.headings));
        }
        for one in &changes.rows {
            out.push_str(&line(&one.label, &one.texts));
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

/// Returns the verdict, its reasons, and a table of the rows with limits.
fn judged(verdict: &Verdict, sheet: &Sheet) -> String {
    let mut out = format!("\n**{}**\n", verdict.kind.word());
    if !verdict.reasons.is_empty() {
        out.push('\n');
    }
    for reason in &verdict.reasons {
        out.push_str(&format!("- {}\n", escaped(reason)));
    }
    if verdict.limited.is_empty() {
        return out;
    }
    let mut headings = vec!["verdict".to_owned(), "unit".to_owned(), "limit".to_owned()];
    headings.extend(sheet.columns.iter().cloned());
    headings.extend(sheet.compares.then(|| "delta".to_owned()));
    out.push_str(&head(2, &headings));
    for one in &verdict.limited {
        let unit = one.row.as_ref().map_or("", |row| row.unit.as_str());
        let mut texts = [one.word, unit, &one.limit].map(str::to_owned).to_vec();
        match &one.row {
            Some(row) => {
                texts.extend(row.cells.iter().map(|cell| row.cell_text(*cell)));
                texts.extend(sheet.compares.then(|| row.delta(1)));
            }
            None => texts.resize(headings.len(), "no such row".to_owned()),
        }
        out.push_str(&line(&one.given, &texts));
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
    use crate::sheet::{Limited, VerdictKind};

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
    fn a_verdict_leads_with_its_limits() {
        let mut sheet = example();
        let limited = |given: &str, limit: &str, word, row| Limited {
            given: given.to_owned(),
            limit: limit.to_owned(),
            word,
            row,
        };
        let row = |section: usize, row: usize| Some(sheet.sections[section].rows[row].clone());
        sheet.verdict = Some(Verdict {
            kind: VerdictKind::Failed,
            reasons: vec!["the limit of region.odd.odd does not hold".to_owned()],
            limited: vec![
                limited("region.odd.odd", "+5%", "BAD", row(1, 0)),
                limited("run.write_protect", "0", "good", row(0, 0)),
                limited("run.refused", "5", "none", row(0, 2)),
                limited("region.2.odd", "5", "none", None),
            ],
        });
        let text = markdown(&sheet, false);
        let lines = "### ./prog \\<1\\> \\& 2\n\n**FAILED**\n\n\
            - the limit of region.odd.odd does not hold\n\n\
            | | verdict | unit | limit | before | after | delta |\n|---|---|---|---:|---:|---:|---:|\n\
            | region.odd.odd | BAD | faults | +5% | 1 | 12,345 | +12,344 |\n\
            | run.write\\_protect | good | faults | 0 | 256 | 0 | -256 |\n\
            | run.refused | none | faults | 5 | 1 | not measured |  |\n\
            | region.2.odd | none |  | 5 | no such row | no such row | no such row |\n\n\
            2 of 4 rows changed";
        assert!(text.starts_with(lines), "{text}");
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
