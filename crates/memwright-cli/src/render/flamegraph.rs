//! Draws flame graphs with inferno.

use anyhow::{Context, ensure};
use inferno::flamegraph::{self, Options};

/// Draws folded stacks of `unit` as SVG. Lines with two counts give a differential flame graph: the second count
/// determines the width, and red means that the second count is larger.
///
/// # Errors
/// If there are no stacks, or if inferno rejects a line.
pub fn svg(lines: &[String], title: &str, subtitle: &str, unit: &str) -> anyhow::Result<Vec<u8>> {
    ensure!(!lines.is_empty(), "no {unit}: there is no flame graph");
    let mut options = Options::default();
    title.clone_into(&mut options.title);
    options.subtitle = Some(subtitle.to_owned());
    unit.clone_into(&mut options.count_name);
    // A function's colour is derived from its name, so that equal profiles produce equal bytes.
    options.hash = true;
    let mut drawn = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut drawn)
        .context("cannot draw the flame graph")?;
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flame_graphs_name_functions_and_totals() {
        let lines = ["a;b 10 20", "a 1 2"].map(str::to_owned);
        let drawn = svg(&lines, "x", "y", "instructions").unwrap();
        assert_eq!(drawn, svg(&lines, "x", "y", "instructions").unwrap());
        let text = String::from_utf8(drawn).unwrap();
        assert!(
            text.contains("b (20 instructions, 90.91%; +45.45%)"),
            "{text}"
        );
        assert!(svg(&[], "x", "y", "instructions").is_err());
    }
}
