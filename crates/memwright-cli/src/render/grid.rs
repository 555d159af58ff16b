//! The table of a section, from which text, Markdown, HTML and mails are made.

use crate::model::statistic::Pass;
use crate::sheet::{Row, Section, Sheet};

/// A table of a section.
pub struct Grid<'a> {
    /// The headings of the columns that follow the column of labels.
    pub headings: Vec<String>,
    /// The lines of the table.
    pub lines: Vec<Line<'a>>,
}

/// A line of a table.
pub struct Line<'a> {
    /// The row that the line presents.
    pub row: &'a Row,
    /// Whether the row is a statistic of a region's passes, and the line with the sum of the passes is above it.
    is_below: bool,
    /// The texts of the cells, in the order of the headings.
    pub texts: Vec<String>,
}

impl Line<'_> {
    /// Returns the label of the line within its group. For a statistic of passes that is below the line with the sum of
    /// the passes, the label is the indented name of the statistic.
    pub fn title(&self) -> String {
        match self.row.pass().filter(|_| self.is_below) {
            Some(pass) => format!("  {}", pass.name()),
            None => self.row.label(),
        }
    }
}

impl Sheet {
    /// Returns the table of a section.
    ///
    /// If there is one kernel, the statistics of a region's passes are in columns after the sum of the passes. If there
    /// are several kernels, the statistics are in lines below the sum. Statistics that are 0 in every column are
    /// omitted.
    pub fn grid<'a>(&self, section: &'a Section) -> Grid<'a> {
        let has_one_column = self.columns.len() == 1;
        let mut headings = self.headings();
        let own = headings.len();
        let mut lines: Vec<Line<'a>> = Vec::new();
        let mut sum: Option<usize> = None;
        for row in &section.rows {
            let is_of = |index: &usize| {
                let sum = lines[*index].row;
                (&sum.group, &sum.title) == (&row.group, &row.title)
            };
            let pass = row.pass();
            let above = sum.filter(|index| pass.is_some() && is_of(index));
            match (pass, above) {
                (Some(_), Some(_)) if row.is_idle() => {}
                (Some(pass), Some(above)) if has_one_column => {
                    let texts = &mut lines[above].texts;
                    texts.resize(own + Pass::ALL.len(), String::new());
                    for (other, text) in Pass::ALL.iter().zip(&mut texts[own..]) {
                        if *other == pass {
                            *text = row.cell_text(row.cells.first().copied().flatten());
                        }
                    }
                }
                (pass, above) => {
                    lines.push(Line {
                        row,
                        is_below: above.is_some(),
                        texts: self.texts(row),
                    });
                    sum = match pass {
                        Some(_) => sum,
                        None => Some(lines.len() - 1),
                    };
                }
            }
        }
        if lines.iter().any(|line| line.texts.len() > own) {
            headings.extend(Pass::ALL.map(|pass| pass.name().to_owned()));
        }
        for line in &mut lines {
            line.texts.resize(headings.len(), String::new());
        }
        Grid { headings, lines }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::model::statistic::Statistic;
    use crate::render::{csv, html, mail, markdown, text};
    use crate::sheet::tests::{counts, example};

    /// Returns a row with a statistic of a region's passes.
    fn of_passes(pass: Pass, title: &str, cells: &[Option<u64>]) -> Row {
        Row {
            statistic: Some(Statistic::Pass(pass)),
            ..counts(
                &format!("region.1.each.{}.{title}", pass.name()),
                title,
                cells,
            )
        }
    }

    /// Returns a region with several passes in both columns. Only the maximum of the passes differs, and one row is 0.
    fn passed() -> Sheet {
        let mut sheet = example();
        let mut rows = vec![counts("region.1.write", "write", &[Some(10), Some(12)])];
        for (pass, cells) in Pass::ALL.into_iter().zip([[1, 1], [1, 1], [2, 2], [4, 6]]) {
            rows.push(of_passes(pass, "write", &cells.map(Some)));
        }
        rows.push(counts("region.1.read", "read", &[Some(0), Some(0)]));
        rows.extend(Pass::ALL.map(|pass| of_passes(pass, "read", &[Some(0), Some(0)])));
        (sheet.sections[1].rows, sheet.heading) = (rows, "./prog".to_owned());
        sheet.sections.remove(0);
        sheet
    }

    fn account() -> Sheet {
        let mut sheet = passed();
        (sheet.compares, sheet.columns) = (false, vec!["before".to_owned()]);
        for row in &mut sheet.sections[0].rows {
            row.cells.truncate(1);
        }
        sheet
    }

    /// Returns the titles and texts of a table's lines.
    fn lines(sheet: &Sheet) -> Vec<String> {
        let grid = sheet.grid(&sheet.sections[0]);
        let line = |line: &Line<'_>| format!("{}|{}", line.title(), line.texts.join("|"));
        let lines = grid.lines.iter().map(line);
        [grid.headings.join("|")].into_iter().chain(lines).collect()
    }

    #[test]
    fn passes_stand_behind_their_sum_or_below_it() {
        assert_eq!(
            lines(&account()),
            [
                "before|first|min|median|max",
                "write|10|1|1|2|4",
                "read|0||||"
            ]
        );
        assert_eq!(
            lines(&passed()),
            [
                "before|after|delta",
                "write|10|12|+2",
                "  first|1|1|=",
                "  min|1|1|=",
                "  median|2|2|=",
                "  max|4|6|+2",
                "read|0|0|="
            ]
        );
    }

    #[test]
    fn passes_without_their_sum_are_lines_of_their_own() {
        for (patterns, expected) in [
            (
                &["region.1.each.max.*"][..],
                &["before", "write, max of a pass|4", "read, max of a pass|0"][..],
            ),
            (
                &[
                    "region.1.each.min.write",
                    "region.1.read",
                    "region.1.each.first.read",
                ],
                &["before", "write, min of a pass|1", "read|0"],
            ),
            (
                &[
                    "region.1.write",
                    "region.1.each.max.write",
                    "region.1.each.max.read",
                ],
                &[
                    "before|first|min|median|max",
                    "write|10||||4",
                    "read, max of a pass|0||||",
                ],
            ),
        ] {
            let patterns: Vec<String> = patterns.iter().map(|one| (*one).to_owned()).collect();
            let sheet = account().select(&patterns).unwrap();
            assert_eq!(lines(&sheet), expected, "{patterns:?}");
        }
    }

    /// Every format contains the changes; for a single account, every format contains the statistics of the passes.
    #[test]
    fn every_format_has_the_passes() {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let has = |format: &str, text: &str, expected: &str| {
            assert!(
                words(text).contains(expected),
                "{format}: {expected}: {text}"
            );
        };
        let sheet = passed();
        let changed = "region 1: write, max of a pass";
        has(
            "text",
            &text(&sheet, false),
            &format!("{changed} faults 4 6 +2 +50.0 %"),
        );
        has(
            "mail",
            &mail(&sheet, false),
            &format!("{changed} (faults) 4 6 +2 +50.0 %"),
        );
        let line = format!("| {changed} | faults | 4 | 6 | +2 | +50.0 % |");
        has("Markdown", &markdown(&sheet, false), &line);
        has("HTML", &html("x", std::slice::from_ref(&sheet)), changed);
        assert!(!text(&sheet, false).contains("median"));
        has(
            "CSV",
            &csv(&sheet),
            "region.1.each.max.write,region 1,Page faults,\"write, max of a pass\",faults,after,6",
        );
        let sheet = account();
        has("text", &text(&sheet, true), "before first min median max");
        has("text", &text(&sheet, true), "write 10 1 1 2 4");
        has("mail", &mail(&sheet, true), "write 10 1 1 2 4");
        has(
            "Markdown",
            &markdown(&sheet, true),
            "| Page faults: write | 10 | 1 | 1 | 2 | 4 |",
        );
        has("HTML", &html("x", &[sheet]), "<td data-of=\"max\">4</td>");
    }
}
