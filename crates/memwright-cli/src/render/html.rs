//! Renders sheets as one self-contained HTML page with embedded charts, without scripts and without other resources.

use std::fmt::Write;

use crate::render::chart::{Bars, chart};
use crate::sheet::change::with_unit;
use crate::sheet::{Section, Sheet};

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1b1f24;--back:#fff;--line:#d0d7de;--soft:#57606a;--other:#b35900}\
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--back:#0d1117;--line:#30363d;--soft:#8b949e;--other:#e3a04f}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:70rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}\
table{display:block;overflow-x:auto;border-collapse:collapse;margin:.5rem 0 1rem}\
th,td{padding:.15rem .7rem;border-bottom:1px solid var(--line);text-align:right;font-variant-numeric:tabular-nums}\
th:first-child,td:first-child,.word{text-align:left}\
.group td{font-weight:600;border-bottom:0;padding-top:.6rem}\
.other{color:var(--other)}\
.notes{color:var(--soft)}\
.summary{font-size:1.1rem;font-weight:600}\
svg{display:block;width:100%;max-width:34rem;height:auto}\
svg text{font:12px system-ui,sans-serif;fill:var(--text)}\
svg .case{font-weight:600}\
svg .axis{fill:var(--soft)}\
svg line{stroke:var(--line)}\
@media(max-width:34rem){\
table,tbody,tr{display:block}\
tr{display:flex;flex-wrap:wrap;column-gap:1rem;border-bottom:1px solid var(--line)}\
tr.head{display:none}\
td{border:0;padding:.1rem 0}\
td:first-child{flex:1 0 100%;font-weight:600}\
td[data-of]::before{content:attr(data-of)' ';color:var(--soft)}}\
@page{margin:1.5cm}\
@media print{\
:root{color-scheme:light;--text:#000;--back:#fff;--line:#999;--soft:#333;--other:#803f00}\
body{max-width:none;margin:0;padding:0;font-size:10pt}\
table{display:table;overflow:visible;width:100%}\
th,td{padding:.1rem .3rem}\
tr,svg,li{break-inside:avoid}\
h1,h2,h3,.group{break-after:avoid}\
svg rect{print-color-adjust:exact;-webkit-print-color-adjust:exact}}";

/// Returns the page. In a comparison, the rows that changed and their chart precede the tables of all rows.
pub fn html(title: &str, sheets: &[Sheet]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escaped(title)
    );
    for sheet in sheets {
        let _ = writeln!(page, "<h2>{}</h2>", escaped(&sheet.heading));
        if sheet.compares {
            changes(&mut page, sheet);
        }
        for section in &sheet.sections {
            if !section.title.is_empty() {
                let _ = writeln!(page, "<h3>{}</h3>", escaped(&section.heading()));
            }
            if !sheet.compares {
                section_chart(&mut page, sheet, section);
            }
            table(&mut page, sheet, section);
        }
        if !sheet.notes.is_empty() {
            page.push_str("<ul class=\"notes\">\n");
            for note in &sheet.notes {
                let _ = writeln!(page, "<li>{}</li>", escaped(note));
            }
            page.push_str("</ul>\n");
        }
    }
    page.push_str("</body>\n</html>\n");
    page
}

/// Adds the rows that changed, as a chart and as a table.
fn changes(page: &mut String, sheet: &Sheet) {
    let changes = sheet.changes();
    let summary = escaped(&changes.summary);
    let _ = writeln!(page, "<p class=\"summary\">{summary}.</p>");
    if changes.rows.is_empty() {
        return;
    }
    let bars = changes.rows.iter().map(|one| Bars {
        group: "",
        label: one.label_with_unit(),
        row: one.row,
    });
    page.push_str(&chart(
        &sheet.heading,
        &sheet.columns,
        &bars.collect::<Vec<_>>(),
    ));
    head(page, &changes.headings, 1);
    for one in &changes.rows {
        let label = escaped(&one.label);
        let _ = write!(page, "<tr class=\"other\"><td>{label}</td>");
        cells(page, &changes.headings, 1, &one.texts);
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n<h3>All rows</h3>\n");
}

/// Adds the chart of a section whose columns are not compared. For a series, the chart contains only the median.
fn section_chart(page: &mut String, sheet: &Sheet, section: &Section) {
    let drawn = section
        .rows
        .iter()
        .filter(|row| row.statistic.is_none_or(|statistic| statistic.is_drawn()));
    let bars = drawn.map(|row| Bars {
        group: &row.group,
        label: with_unit(&row.title, &row.unit),
        row,
    });
    let text = chart(
        &format!("{} {}", sheet.heading, section.title),
        &sheet.columns,
        &bars.collect::<Vec<_>>(),
    );
    if sheet.has_statistics() && !text.is_empty() {
        page.push_str("<p class=\"notes\">Bars are medians, and single values.</p>\n");
    }
    page.push_str(&text);
}

/// Begins a table whose first `words` columns are text.
fn head(page: &mut String, headings: &[String], words: usize) {
    page.push_str("<table>\n<tr class=\"head\"><th></th>");
    for (index, heading) in headings.iter().enumerate() {
        let word = word(index, words);
        let _ = write!(page, "<th{word}>{}</th>", escaped(heading));
    }
    page.push_str("</tr>\n");
}

/// Adds the cells of a row. Each cell contains the name of its column, for screens that are too narrow for the table
/// head.
fn cells(page: &mut String, headings: &[String], words: usize, texts: &[String]) {
    for (index, (text, heading)) in texts.iter().zip(headings).enumerate() {
        let word = word(index, words);
        let heading = escaped(heading);
        let _ = write!(
            page,
            "<td{word} data-of=\"{heading}\">{}</td>",
            escaped(text)
        );
    }
}

fn word(index: usize, words: usize) -> &'static str {
    if index < words { " class=\"word\"" } else { "" }
}

/// Adds a table with all rows of a section.
fn table(page: &mut String, sheet: &Sheet, section: &Section) {
    let (grid, words) = (sheet.grid(section), sheet.words());
    head(page, &grid.headings, words);
    let mut previous = "";
    for one in &grid.lines {
        let row = one.row;
        if row.group != previous {
            let group = escaped(&row.group);
            let _ = writeln!(page, "<tr class=\"group\"><td>{group}</td></tr>");
            previous = &row.group;
        }
        let other = if sheet.compares && row.differs() {
            " class=\"other\""
        } else {
            ""
        };
        let title = one.title();
        let shown = title.trim_start();
        // The title is indented if its line is below the line with the sum of the passes.
        let indent = "&emsp;".repeat(usize::from(shown.len() < title.len()));
        let _ = write!(page, "<tr{other}><td>{indent}{}</td>", escaped(shown));
        cells(page, &grid.headings, words, &one.texts);
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// Escapes text for HTML.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{example, with_figures};

    #[test]
    fn a_page_needs_nothing_else() {
        let page = html("a & b", &[example()]);
        for outside in ["http", "<script", "<link", "src=", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("<h1>a &amp; b</h1>") && page.contains("./prog &lt;1&gt; &amp; 2"));
        assert_eq!(
            page.matches("<svg ").count(),
            page.matches("</svg>").count()
        );
    }

    #[test]
    fn what_changed_leads() {
        let page = html("x", &[example()]);
        let (changes, all) = page.split_once("<h3>All rows</h3>").unwrap();
        assert_eq!(changes.matches("<svg ").count(), 1);
        assert!(changes.contains("2 of 4 rows changed"));
        let row = "<tr class=\"other\"><td>run: user, write-protect</td>\
             <td class=\"word\" data-of=\"unit\">faults</td><td data-of=\"before\">256</td>\
             <td data-of=\"after\">0</td><td data-of=\"delta\">-256</td>\
             <td data-of=\"change\">-100.0 %</td></tr>";
        assert!(changes.contains(row), "{changes}");
        assert!(!changes.contains("not present, read"));
        assert!(!all.contains("<svg") && all.contains("not present, read"));
        let mut same = example();
        same.sections.truncate(1);
        same.sections[0].rows.remove(0);
        assert!(!html("x", &[same]).contains("<svg"));
    }

    #[test]
    fn unit_and_statistic_are_columns() {
        let page = html("x", &[with_figures()]);
        assert!(page.contains("Bars are medians, and single values."));
        assert!(page.contains("first write (instructions)</text>"));
        for statistic in ["minimum", "median", "mean", "value"] {
            let cell = format!("<td class=\"word\" data-of=\"statistic\">{statistic}</td>");
            assert!(page.contains(&cell), "{statistic}");
        }
    }
}
