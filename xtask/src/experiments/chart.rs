//! Draws the charts of experiments that measure how costs grow with a size. The chart of a run has a panel for each
//! operation, and a panel has a line for each kernel. Both axes are logarithmic, so the slope of a line is the exponent
//! of the growth.

use std::fmt::Write;

use anyhow::Result;

use super::figures::{Figures, Table};

/// The suffix of the name of a measure that contains the exponent of an operation's growth.
const EXPONENT: &str = ": exponent";
/// The colours of the kernels, in their order. Colour-blind readers can distinguish them, on white and on black.
pub const COLOURS: [&str; 6] = [
    "#d55e00", "#0072b2", "#009e73", "#cc79a7", "#56b4e9", "#e69f00",
];
/// The number of panels side by side. The constants that follow are in pixels.
const ACROSS: usize = 2;
const PANEL: (f64, f64) = (400.0, 230.0);
/// The area of a panel inside the axes: the left end, the top, the width and the height.
const PLOT: (f64, f64, f64, f64) = (52.0, 26.0, 332.0, 160.0);
const LEGEND: f64 = 30.0;
/// The style of the charts, in light and in dark pages.
pub const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#57606a}.case{font-weight:600}\
    .axis{stroke:#8b949e}.mark{stroke:#8b949e;stroke-opacity:.3}polyline{fill:none;stroke-width:2}\
    @media(prefers-color-scheme:dark){text{fill:#c9d1d9}}";

/// An operation with a line for each kernel. A point of a line is a size and a cost.
struct Panel {
    operation: String,
    lines: Vec<Vec<(f64, f64)>>,
}

/// Returns the chart of each run that measures growth, as SVG, with the label of the run.
///
/// # Errors
/// If a cell is not a number.
pub fn charts(figures: &Figures) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for table in &figures.tables {
        let panels = panels(table)?;
        if !panels.is_empty() {
            found.push((table.title.clone(), picture(table, &panels)));
        }
    }
    Ok(found)
}

/// Returns a panel for each operation that has an exponent.
fn panels(table: &Table) -> Result<Vec<Panel>> {
    let measures = table.rows.iter().map(|row| row.name.measure.as_str());
    let operations = measures.filter_map(|measure| measure.strip_suffix(EXPONENT));
    operations
        .map(|operation| panel(table, operation))
        .collect()
}

fn panel(table: &Table, operation: &str) -> Result<Panel> {
    let mut lines = vec![Vec::new(); table.columns.len()];
    for row in &table.rows {
        let Some((of, size)) = row.name.measure.rsplit_once(": ") else {
            continue;
        };
        let Some(size) = size.split(' ').next().and_then(|text| text.parse().ok()) else {
            continue;
        };
        for (column, line) in lines.iter_mut().enumerate().filter(|_| of == operation) {
            line.extend(row.value(column)?.map(|cost| (size, cost)));
        }
    }
    Ok(Panel {
        operation: operation.replace('\\', ""),
        lines,
    })
}

/// Returns the unit of the sizes, such as `areas`: the words after the number in the name of a measure.
fn things(table: &Table) -> &str {
    let mut sizes = table.rows.iter().filter_map(|row| {
        let (_, size) = row.name.measure.rsplit_once(": ")?;
        size.split_once(' ').map(|(_, things)| things)
    });
    sizes.next().unwrap_or_default()
}

fn picture(table: &Table, panels: &[Panel]) -> String {
    let rows = panels.len().div_ceil(ACROSS);
    let (width, height) = (PANEL.0 * ACROSS as f64, PANEL.1 * rows as f64 + LEGEND);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {height}\">\n\
         <style>{STYLE}</style>\n",
        escaped(&table.title)
    );
    let mut x = PLOT.0;
    for (index, name) in table.columns.iter().enumerate() {
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"10\" width=\"18\" height=\"4\" fill=\"{}\"/><text x=\"{}\" y=\"16\">{}</text>",
            COLOURS[index % COLOURS.len()],
            x + 24.0,
            escaped(name)
        );
        x += 50.0 + 7.0 * name.chars().count() as f64;
    }
    for (index, panel) in panels.iter().enumerate() {
        let (across, down) = ((index % ACROSS) as f64, (index / ACROSS) as f64);
        let _ = writeln!(
            out,
            "<g transform=\"translate({},{})\">",
            across * PANEL.0,
            down * PANEL.1 + LEGEND
        );
        draw(&mut out, panel, things(table));
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

/// Draws the axes of a panel with their labels, and its lines.
fn draw(out: &mut String, panel: &Panel, things: &str) {
    let (left, top, width, height) = PLOT;
    let points = || panel.lines.iter().flatten().copied();
    let sizes = Scale::of(points().map(|(size, _)| size));
    let costs = Scale::of(points().map(|(_, cost)| cost));
    let bottom = top + height;
    let _ = writeln!(
        out,
        "<text class=\"case\" x=\"{left}\" y=\"{}\">{}</text>",
        top - 10.0,
        escaped(&panel.operation)
    );
    for power in sizes.powers() {
        let x = left + width * sizes.share(power);
        let _ = writeln!(
            out,
            "<path class=\"mark\" d=\"M{x:.1} {top}V{bottom}\"/><text x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            bottom + 15.0,
            short(power)
        );
    }
    for power in costs.powers() {
        let y = bottom - height * costs.share(power);
        let _ = writeln!(
            out,
            "<path class=\"mark\" d=\"M{left} {y:.1}h{width}\"/><text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 6.0,
            y + 4.0,
            short(power)
        );
    }
    let _ = writeln!(
        out,
        "<path class=\"axis\" fill=\"none\" d=\"M{left} {top}V{bottom}h{width}\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{} (instructions upwards)</text>",
        left + width,
        bottom + 31.0,
        escaped(things)
    );
    for (index, line) in panel.lines.iter().enumerate() {
        let colour = COLOURS[index % COLOURS.len()];
        let places: Vec<(f64, f64)> = line
            .iter()
            .map(|(size, cost)| {
                let (x, y) = (sizes.share(*size), costs.share(*cost));
                (left + width * x, bottom - height * y)
            })
            .collect();
        let text: Vec<String> = places
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let _ = writeln!(
            out,
            "<polyline stroke=\"{colour}\" points=\"{}\"/>",
            text.join(" ")
        );
        for (x, y) in places {
            let _ = writeln!(
                out,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>"
            );
        }
    }
}

/// A logarithmic axis, from the power of ten with the exponent `first` to that with the exponent `last`.
struct Scale {
    first: i32,
    last: i32,
}

impl Scale {
    /// Returns the shortest axis that contains these values, which must be above 0.
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let logarithms: Vec<f64> = values.map(|value| value.max(1.0).log10()).collect();
        let least = logarithms.iter().copied().fold(f64::INFINITY, f64::min);
        let most = logarithms.iter().copied().fold(0.0, f64::max);
        let first = least.min(most).floor() as i32;
        Self {
            first,
            last: (most.ceil() as i32).max(first + 1),
        }
    }

    /// Returns the position of a value on the axis, from 0 at its start to 1 at its end.
    fn share(&self, value: f64) -> f64 {
        let length = f64::from(self.last - self.first);
        (value.max(1.0).log10() - f64::from(self.first)) / length
    }

    fn powers(&self) -> impl Iterator<Item = f64> + use<> {
        (self.first..=self.last).map(|power| 10_f64.powi(power))
    }
}

/// Formats a power of ten with the suffix k, M or G.
fn short(power: f64) -> String {
    match power {
        power if power >= 1e9 => format!("{}G", power / 1e9),
        power if power >= 1e6 => format!("{}M", power / 1e6),
        power if power >= 1e3 => format!("{}k", power / 1e3),
        power => power.to_string(),
    }
}

/// Escapes a text for SVG.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::page::{self, Page};
    use super::*;

    const GROWTH: &str = "### growth: How?\n\n**areas**\n\n\
        | | unit | statistic | memwright | linux |\n|---|---|---|---:|---:|\n\
        | a \\_b: 10 areas | instructions | value | 100 | 1,000 |\n\
        | a \\_b: 1000 areas | instructions | value | 100 | not measured |\n\
        | a \\_b: exponent | power | value | 0 | not measured |\n";

    #[test]
    fn each_kernel_is_a_line_whose_slope_is_the_exponent() {
        let charts = charts(&Figures::parse(GROWTH).unwrap()).unwrap();
        let [(label, picture)] = charts.as_slice() else {
            panic!("{} charts", charts.len());
        };
        assert_eq!(label, "areas");
        // The axis of costs begins at 100 and ends at 1,000.
        for part in [
            "points=\"52.0,186.0 384.0,186.0\"",
            "points=\"52.0,26.0\"",
            ">a _b</text>",
            ">linux</text>",
            ">1k</text>",
            ">areas (instructions upwards)</text>",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
    }

    #[test]
    fn other_experiments_have_no_charts() {
        let example = super::super::figures::tests::EXAMPLE;
        assert!(
            charts(&Figures::parse(example).unwrap())
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn published_charts_are_those_of_the_figures_and_each_is_shown() {
        for name in page::names().unwrap() {
            let page = Page::read(&name).unwrap();
            for (path, picture) in page.charts(&page.figures().unwrap()).unwrap() {
                let published = std::fs::read_to_string(&path).unwrap_or_default();
                assert_eq!(published, picture, "{}", path.display());
                let file = path.file_name().unwrap().to_str().unwrap();
                assert!(page.shows(file), "{name}: {file} is not shown");
            }
        }
    }
}
