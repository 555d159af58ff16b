//! The table of `docs/programs.md`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result};

use super::measure::Measured;
use super::script::Script;
use crate::block::Block;
use crate::number::grouped;
use crate::shell;

const PAGE: &str = "docs/programs.md";
const HEAD: &str = "| program | what it does | packages | page faults | user | Memwright's kernel | Linux | ratio |\n\
    |---|---|---|---:|---:|---:|---:|---:|\n";

/// Writes the row of a script into the page. Keeps the other rows.
///
/// # Errors
/// If the page cannot be read or written, or has no table.
pub fn write(script: &Script, versions: &[String], measured: &Measured) -> Result<()> {
    let path = shell::root().join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| PAGE.to_owned())?;
    let mut rows = rows(&text);
    rows.insert(script.name.clone(), line(script, versions, measured));
    let rows: String = rows.into_values().collect();
    let block = Block {
        page: PAGE,
        name: "programs",
        text: format!("\n{HEAD}{rows}\n"),
    };
    let text = block
        .put(&text)
        .with_context(|| format!("{PAGE}: no table"))?;
    fs::write(&path, text).with_context(|| PAGE.to_owned())
}

/// Returns the rows of the page, by the name of the script.
fn rows(page: &str) -> BTreeMap<String, String> {
    let rows = page.lines().filter_map(|line| {
        let name = line.strip_prefix("| `")?.split_once('`')?.0;
        Some((name.to_owned(), format!("{line}\n")))
    });
    rows.collect()
}

fn line(script: &Script, versions: &[String], measured: &Measured) -> String {
    let Script { name, title, .. } = script;
    let versions = versions.join(", ");
    let mut line = format!("| `{name}` | {title} | {versions} ");
    let counts = [
        measured.faults,
        measured.user,
        measured.memwright,
        measured.linux,
    ];
    for count in counts {
        // Writing to a string does not fail.
        let _ = write!(line, "| {} ", grouped(count));
    }
    let ratio = measured.linux as f64 / measured.memwright.max(1) as f64;
    let _ = writeln!(line, "| {ratio:.2} |");
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_found_again() {
        let script = Script {
            name: "x".to_owned(),
            title: "Does it".to_owned(),
            packages: Vec::new(),
            python_packages: Vec::new(),
        };
        let measured = Measured {
            faults: 1,
            user: 1_234_567,
            memwright: 2000,
            linux: 5000,
        };
        let line = line(&script, &["p 1".to_owned()], &measured);
        assert_eq!(
            line,
            "| `x` | Does it | p 1 | 1 | 1,234,567 | 2,000 | 5,000 | 2.50 |\n"
        );
        assert_eq!(rows(&format!("{HEAD}{line}"))["x"], line);
    }
}
