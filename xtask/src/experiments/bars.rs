//! Draws the chart of the page about releases. It has a group of bars for each operation, and a bar for each kernel in
//! the group. The length of a bar is relative to the largest figure of its group.

use std::fmt::Write;

use anyhow::Result;

use super::chart::{COLOURS, STYLE, escaped};
use super::figures::Figures;
use super::releases::{medians, releases};
use crate::number::grouped;

/// The position of the left ends of the bars, and the sizes of the bars, in pixels.
const LEFT: f64 = 250.0;
const WIDTH: f64 = 430.0;
const BAR: f64 = 9.0;
const GAP: f64 = 9.0;
const LEGEND: f64 = 30.0;
/// The space to the right of the longest bar, for its figure.
const FIGURE: f64 = 80.0;

/// Returns the chart as SVG.
///
/// # Errors
/// If a figure is missing.
pub fn picture(figures: &Figures) -> Result<String> {
    let mut names: Vec<String> = releases(figures)?
        .into_iter()
        .map(|release| release.version)
        .collect();
    names.push("Memwright".to_owned());
    let groups = medians(figures)?;
    let group = BAR * names.len() as f64 + GAP;
    let (width, height) = (LEFT + WIDTH + FIGURE, LEGEND + group * groups.len() as f64);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" \
         aria-label=\"Instructions per operation, by release\" viewBox=\"0 0 {width} {height}\">\n\
         <style>{STYLE}</style>\n"
    );
    for (index, name) in names.iter().enumerate() {
        let x = LEFT + 90.0 * index as f64;
        let _ = writeln!(
            out,
            "<rect x=\"{x}\" y=\"8\" width=\"18\" height=\"8\" fill=\"{}\"/><text x=\"{}\" y=\"16\">{}</text>",
            COLOURS[index % COLOURS.len()],
            x + 24.0,
            escaped(name)
        );
    }
    for (index, (measure, mut values, own)) in groups.into_iter().enumerate() {
        values.push(own);
        let top = LEGEND + group * index as f64;
        draw(&mut out, top, &measure, &values);
    }
    out.push_str("</svg>\n");
    Ok(out)
}

/// Draws the name of an operation and its bars, each with its figure.
fn draw(out: &mut String, top: f64, measure: &str, values: &[f64]) {
    let largest = values.iter().copied().fold(1.0, f64::max);
    let middle = top + BAR * values.len() as f64 / 2.0 + 4.0;
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>",
        LEFT - 8.0,
        escaped(measure)
    );
    for (index, value) in values.iter().enumerate() {
        let y = top + BAR * index as f64;
        let length = WIDTH * value / largest;
        let _ = writeln!(
            out,
            "<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{length:.1}\" height=\"{}\" fill=\"{}\"/>\
             <text style=\"font-size:9px\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            BAR - 1.0,
            COLOURS[index % COLOURS.len()],
            LEFT + length + 4.0,
            y + BAR - 1.5,
            grouped(value.round() as u64)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::releases::tests::EXAMPLE;
    use super::*;

    #[test]
    fn each_operation_is_a_group_and_each_kernel_a_bar() {
        let picture = picture(&Figures::parse(EXAMPLE).unwrap()).unwrap();
        // The largest figure of the first operation is 104, so its bars for 104, 52 and 50 have the full width, half of
        // it, and a little less.
        for part in [
            ">7.3.4</text>",
            ">Memwright</text>",
            ">call: x</text>",
            "width=\"430.0\"",
            "width=\"215.0\"",
            ">1,235</text>",
        ] {
            assert!(picture.contains(part), "{part}: {picture}");
        }
        assert!(!picture.contains("NaN") && !picture.contains("inf"));
        // Four bars for each of two operations, and four in the legend.
        assert_eq!(picture.matches("<rect").count(), 12);
    }
}
