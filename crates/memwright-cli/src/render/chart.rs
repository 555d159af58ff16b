//! Renders bar charts that are narrow enough for a phone.

use std::fmt::Write;

use crate::render::html::escaped;
use crate::sheet::{Row, Value};

/// The colours of the columns; the seventh column has the first colour again. Colour-blind readers can distinguish
/// them.
const COLOURS: [&str; 6] = [
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
];
/// Sizes in pixels: the width of the chart, the length of the longest bar, the height of a line of text, the height of
/// a bar, and the gap between the bars of two rows. The chart fits on a screen that is 420 pixels wide.
const WIDTH: usize = 388;
const LONGEST: usize = 210;
const LINE: usize = 17;
const BAR: usize = 14;
const GAP: usize = 8;
/// The maximum number of characters in a line of text.
const FITS: usize = 54;

/// The bars of one row, one for each column.
pub struct Bars<'a> {
    /// The heading of the row's group; may be empty.
    pub group: &'a str,
    /// The label above the bars.
    pub label: String,
    /// The row with the values.
    pub row: &'a Row,
}

/// Returns a chart of the rows with a value above 0, or an empty string if there is no such row. In each row, the
/// column with the largest value has a bar of `LONGEST` pixels. The other bars of the row are proportional to this bar,
/// but at least one pixel long.
pub fn chart(title: &str, columns: &[String], rows: &[Bars<'_>]) -> String {
    let rows: Vec<(&Bars<'_>, f64)> = rows
        .iter()
        .filter_map(|bars| Some((bars, largest(bars.row).filter(|largest| *largest > 0.0)?)))
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let headings = rows
        .chunk_by(|(one, _), (other, _)| one.group == other.group)
        .filter(|chunk| !chunk[0].0.group.is_empty());
    let legend = columns.len() * LINE;
    let axis = legend + 2 * LINE;
    let row_height = LINE + columns.len() * BAR + GAP;
    let height = axis + GAP + rows.len() * row_height + headings.count() * LINE;
    let mut out = format!(
        "<svg role=\"img\" aria-label=\"{}\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n",
        escaped(title.trim())
    );
    for (index, name) in columns.iter().enumerate() {
        let y = index * LINE;
        let _ = writeln!(
            out,
            "<rect class=\"key\" x=\"0\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"16\" y=\"{}\">{}</text>",
            y + 3,
            COLOURS[index % COLOURS.len()],
            y + 12,
            escaped(&shortened(name))
        );
    }
    draw_axis(&mut out, legend, axis, height);
    let (mut top, mut previous) = (axis + GAP, "");
    for (bars, largest) in rows {
        if bars.group != previous {
            let _ = writeln!(
                out,
                "<text x=\"0\" y=\"{}\" class=\"case\">{}</text>",
                top + 12,
                escaped(&shortened(bars.group))
            );
            previous = bars.group;
            top += LINE;
        }
        draw(&mut out, bars, largest, top);
        top += row_height;
    }
    out.push_str("</svg>\n");
    out
}

/// Draws the axis above the bars, with a line from each mark of the axis to the bottom of the chart.
fn draw_axis(out: &mut String, legend: usize, axis: usize, height: usize) {
    let _ = writeln!(
        out,
        "<text class=\"axis\" x=\"0\" y=\"{}\">share of the largest value of the row</text>",
        legend + 12
    );
    for (percent, anchor) in [(0, "start"), (50, "middle"), (100, "middle")] {
        let x = LONGEST * percent / 100;
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{axis}\" x2=\"{x}\" y2=\"{height}\"/>\
             <text class=\"axis\" x=\"{x}\" y=\"{}\" text-anchor=\"{anchor}\">{percent} %</text>",
            axis - 3
        );
    }
}

/// Draws the bars of a row, with its label above them and their values after them.
fn draw(out: &mut String, bars: &Bars<'_>, largest: f64, top: usize) {
    let _ = writeln!(
        out,
        "<text x=\"0\" y=\"{}\"><title>{}</title>{}</text>",
        top + 12,
        escaped(&bars.label),
        escaped(&shortened(&bars.label))
    );
    for (index, cell) in bars.row.cells.iter().enumerate() {
        let Some(value) = cell else { continue };
        let y = top + LINE + index * BAR;
        let length = (value.approximate() / largest * LONGEST as f64).max(1.0);
        let _ = writeln!(
            out,
            "<rect class=\"bar\" x=\"0\" y=\"{y}\" width=\"{length:.1}\" height=\"{}\" fill=\"{}\"/>\
             <text x=\"{:.1}\" y=\"{}\">{}</text>",
            BAR - 2,
            COLOURS[index % COLOURS.len()],
            length + 4.0,
            y + BAR - 4,
            escaped(&bars.row.cell_text(*cell))
        );
    }
}

fn largest(row: &Row) -> Option<f64> {
    let values = row.cells.iter().flatten().copied();
    values.map(Value::approximate).reduce(f64::max)
}

/// Returns a label, shortened so that it fits in a line.
fn shortened(text: &str) -> String {
    if text.chars().count() <= FITS {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(FITS - 1).collect();
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sheet::tests::{counts, with_figures};

    /// Returns the lengths of the bars.
    fn lengths(chart: &str) -> Vec<&str> {
        let bars = chart.split("<rect class=\"bar\"").skip(1);
        bars.filter_map(|bar| bar.split("width=\"").nth(1)?.split('"').next())
            .collect()
    }

    fn drawn(rows: &[Row], columns: &[&str]) -> String {
        let columns: Vec<String> = columns.iter().map(|one| (*one).to_owned()).collect();
        let bars = rows.iter().map(|row| Bars {
            group: "",
            label: row.title.clone(),
            row,
        });
        chart("x", &columns, &bars.collect::<Vec<_>>())
    }

    #[test]
    fn bars_are_shares_of_the_largest() {
        let rows = [
            counts("a", "a", &[Some(256), Some(0)]),
            counts("b", "b", &[Some(0), Some(0)]),
            counts("c", "c", &[Some(50), Some(100)]),
            counts("d", "d", &[None, Some(3)]),
        ];
        let chart = drawn(&rows, &["before", "after"]);
        assert_eq!(lengths(&chart), ["210.0", "1.0", "105.0", "210.0", "210.0"]);
        assert!(!chart.contains("NaN") && !chart.contains("inf"));
        for mark in [">0 %<", ">50 %<", ">100 %<", "share of the largest value"] {
            assert!(chart.contains(mark), "{mark}");
        }
        assert_eq!(drawn(&rows[1..2], &["before", "after"]), "");
    }

    #[test]
    fn statistics_are_drawn_like_counts() {
        let rows = with_figures().sections.remove(0).rows;
        let chart = drawn(&rows[1..2], &["memwright", "linux"]);
        // The length of the first bar is 540/1,001 of the length of the longest bar.
        assert_eq!(lengths(&chart), ["113.3", "210.0"]);
        assert!(chart.contains(">1,001</text>"));
    }
}
