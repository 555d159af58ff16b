//! Sheets as one page that needs nothing else: no script, no network, charts drawn in it.

use std::fmt::Write;

use super::{Row, Section, Sheet};

const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1b1f24;--back:#fff;--line:#d0d7de;--soft:#57606a;--other:#b35900}\
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--back:#0d1117;--line:#30363d;--soft:#8b949e;--other:#e3a04f}}\
body{font:15px/1.45 system-ui,sans-serif;color:var(--text);background:var(--back);max-width:70rem;margin:2rem auto;padding:0 1rem}\
table{display:block;overflow-x:auto;border-collapse:collapse;margin:.5rem 0 1rem}\
th,td{padding:.15rem .7rem;border-bottom:1px solid var(--line);text-align:right;font-variant-numeric:tabular-nums}\
th:first-child,td:first-child,.word{text-align:left}\
.group td{font-weight:600;border-bottom:0;padding-top:.6rem}\
.other{color:var(--other)}\
.notes{color:var(--soft)}\
svg{max-width:100%;height:auto}\
svg text{font:12px system-ui,sans-serif;fill:var(--text)}\
svg .case{font-weight:600}";
/// The colours of columns, in turn: told apart also by those who see few.
const COLOURS: [&str; 6] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
];
/// Measures of the charts, in pixels.
const HEADING: usize = 24;
const BAR: usize = 14;
const GAP: usize = 8;
const LABELS: usize = 300;
const LONGEST: usize = 420;
const VALUES: usize = 220;

/// The page.
pub fn html(title: &str, sheets: &[Sheet]) -> String {
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{0}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        escaped(title)
    );
    for sheet in sheets {
        let _ = writeln!(page, "<h2>{}</h2>", escaped(&sheet.heading));
        for section in &sheet.sections {
            if !section.title.is_empty() {
                let _ = writeln!(page, "<h3>{}</h3>", escaped(&section.title));
            }
            chart(&mut page, sheet, section);
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

/// The attribute of a column of words.
fn word(sheet: &Sheet, index: usize) -> &'static str {
    if index < sheet.words() {
        " class=\"word\""
    } else {
        ""
    }
}

fn table(page: &mut String, sheet: &Sheet, section: &Section) {
    page.push_str("<table>\n<tr><th></th>");
    for (index, heading) in sheet.headings().iter().enumerate() {
        let word = word(sheet, index);
        let _ = write!(page, "<th{word}>{}</th>", escaped(heading));
    }
    page.push_str("</tr>\n");
    let mut previous = "";
    for row in &section.rows {
        if row.group != previous {
            let _ = writeln!(
                page,
                "<tr class=\"group\"><td>{}</td></tr>",
                escaped(&row.group)
            );
            previous = &row.group;
        }
        let other = if sheet.compares && row.differs() {
            " class=\"other\""
        } else {
            ""
        };
        let _ = write!(page, "<tr{other}><td>{}</td>", escaped(&row.title));
        for (index, text) in sheet.texts(row).iter().enumerate() {
            let word = word(sheet, index);
            let _ = write!(page, "<td{word}>{}</td>", escaped(text));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</table>\n");
}

/// Whether a chart has bars for the row: of a series it draws the median alone.
fn is_drawn(row: &Row) -> bool {
    row.figure()
        .is_none_or(|figure| figure.statistic.is_drawn())
}

/// What stands beside the bars of a row.
fn label(row: &Row) -> String {
    match row.figure() {
        Some(figure) => format!("{} ({})", row.title, figure.unit),
        None => row.title.clone(),
    }
}

/// Bars for every row that says something: one for each column, as long as its share of the row's largest value.
fn chart(page: &mut String, sheet: &Sheet, section: &Section) {
    let rows: Vec<(&Row, f64)> = section
        .rows
        .iter()
        .filter(|row| is_drawn(row))
        .filter_map(|row| Some((row, largest(row).filter(|largest| *largest > 0.0)?)))
        .collect();
    if rows.is_empty() {
        return;
    }
    if sheet.has_figures() {
        page.push_str("<p class=\"notes\">Bars are medians, and single values.</p>\n");
    }
    let row_height = sheet.columns.len() * BAR + GAP;
    let legend = BAR + GAP;
    let groups = rows
        .chunk_by(|(one, _), (other, _)| one.group == other.group)
        .count();
    let (width, height) = (
        LABELS + LONGEST + VALUES,
        legend + rows.len() * row_height + groups * HEADING,
    );
    let _ = writeln!(
        page,
        "<svg role=\"img\" aria-label=\"{}\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\">",
        escaped(&format!("{} {}", sheet.heading, section.title))
    );
    for (index, name) in sheet.columns.iter().enumerate() {
        let x = LABELS + index * (LONGEST + VALUES) / sheet.columns.len();
        let _ = writeln!(
            page,
            "<rect x=\"{x}\" y=\"2\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{}\" y=\"11\">{}</text>",
            COLOURS[index % COLOURS.len()],
            x + 14,
            escaped(name)
        );
    }
    let (mut top, mut previous) = (legend, None);
    for (row, largest) in rows {
        if previous != Some(&row.group) {
            let _ = writeln!(
                page,
                "<text x=\"0\" y=\"{}\" class=\"case\">{}</text>",
                top + HEADING - GAP,
                escaped(&row.group)
            );
            previous = Some(&row.group);
            top += HEADING;
        }
        bars(page, row, largest, top, row_height);
        top += row_height;
    }
    page.push_str("</svg>\n");
}

/// The bars of a row, a label before them and their values behind.
fn bars(page: &mut String, row: &Row, largest: f64, top: usize, row_height: usize) {
    let _ = writeln!(
        page,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\"><title>{}</title>{}</text>",
        LABELS - 8,
        top + (row_height - GAP) / 2 + 4,
        escaped(&label(row)),
        escaped(&shortened(&label(row)))
    );
    for (index, cell) in row.cells.iter().enumerate() {
        let Some(value) = cell.value else { continue };
        let y = top + index * BAR;
        let length = (value / largest * LONGEST as f64).max(1.0);
        let _ = writeln!(
            page,
            "<rect x=\"{LABELS}\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            BAR - 2,
            COLOURS[index % COLOURS.len()],
            LABELS as f64 + length + 4.0,
            y + BAR - 4,
            escaped(&cell.text)
        );
    }
}

fn largest(row: &Row) -> Option<f64> {
    let values = row.cells.iter().filter_map(|cell| cell.value);
    values.reduce(f64::max)
}

/// A label that fits beside the bars.
fn shortened(text: &str) -> String {
    const FITS: usize = 40;
    if text.chars().count() <= FITS {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(FITS - 1).collect();
    short.push('…');
    short
}

fn escaped(text: &str) -> String {
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
        assert_eq!(page.matches("<svg ").count(), 2);
        assert_eq!(
            page.matches("<svg ").count(),
            page.matches("</svg>").count()
        );
        assert!(page.contains("<tr class=\"other\"><td>user, write-protect</td><td>256</td><td>0</td><td>-256</td></tr>"));
    }

    #[test]
    fn bars_are_shares_of_the_largest() {
        let page = html("x", &[example()]);
        assert!(page.contains("width=\"420.0\" height=\"12\" fill=\"#0072b2\""));
        assert!(page.contains("width=\"1.0\" height=\"12\" fill=\"#e69f00\""));
        assert!(!page.contains("NaN") && !page.contains("inf"));
    }

    #[test]
    fn bars_of_a_series_are_its_medians() {
        let page = html("x", &[with_figures()]);
        assert!(page.contains("Bars are medians, and single values."));
        let lengths: Vec<&str> = page
            .split("<rect x=\"300\"")
            .skip(1)
            .filter(|bar| bar.contains("height=\"12\""))
            .filter_map(|bar| bar.split("width=\"").nth(1)?.split('"').next())
            .collect();
        // 540 of 1,001; 1,001; the flushes of one kernel.
        assert_eq!(lengths, ["226.6", "420.0", "420.0"]);
        assert!(page.contains("first write (instructions)</text>"));
        for statistic in ["minimum", "median", "mean", "value"] {
            assert!(page.contains(&format!("<td class=\"word\">{statistic}</td>")));
        }
    }
}
