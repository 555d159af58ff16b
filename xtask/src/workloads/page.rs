//! The table of `docs/programs.md`.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, ensure};

use super::count::{Count, cells};
use super::measure::Measured;
use super::script::Script;
use crate::block::Block;
use crate::number::grouped;
use crate::shell;

/// The Linux kernel of the page, by its name in `memwright kernels`.
pub const LINUX: &str = "debian:trixie-backports";
pub const PAGE: &str = "docs/programs.md";
const HEAD: &str = "| program | what it does | packages | page faults | user | Memwright's kernel | Linux | ratio |\n\
    |---|---|---|---:|---:|---:|---:|---:|\n";
/// The indexes of two cells in a row.
const PACKAGES: usize = 2;
const ON_LINUX: usize = 6;

/// Writes the row of a script into the page. Keeps the other rows, and the count on Linux if it was not measured.
///
/// # Errors
/// If a kept count is of other versions of the packages, or if the page cannot be read or written, or has no table.
pub fn write(script: &Script, versions: &[String], measured: &Measured) -> Result<()> {
    let path = shell::root().join(PAGE);
    let text = fs::read_to_string(&path).with_context(|| PAGE.to_owned())?;
    let mut rows = rows(&text);
    let name = &script.name;
    let versions = versions.join(", ");
    let linux = match measured.on(LINUX) {
        Some(linux) => linux.instructions,
        None => kept(rows.get(name).map(String::as_str), &versions)
            .with_context(|| format!("{PAGE}: cargo xtask workloads {name}"))?,
    };
    rows.insert(name.clone(), line(script, &versions, measured, linux));
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

/// Returns the rows of a page, by the name of the script.
pub fn rows(page: &str) -> BTreeMap<String, String> {
    let rows = page.lines().filter_map(|line| {
        let name = line.strip_prefix("| `")?.split_once('`')?.0;
        Some((name.to_owned(), format!("{line}\n")))
    });
    rows.collect()
}

/// Returns the count on Linux of a row.
///
/// # Errors
/// If there is no row, or if it is of other versions of the packages.
fn kept(row: Option<&str>, versions: &str) -> Result<Count> {
    let cells = cells(row.context("Linux's count was not measured")?);
    let before = cells.get(PACKAGES).copied().unwrap_or_default();
    ensure!(
        before == versions,
        "Linux's count is of {before}, and {versions} is installed"
    );
    let count = cells.get(ON_LINUX).copied().and_then(Count::parse);
    count.context("Linux's count cannot be read")
}

/// Returns the row of a script.
fn line(script: &Script, versions: &str, measured: &Measured, linux: Count) -> String {
    let Script { name, title, .. } = script;
    let [faults, user] = [measured.faults, measured.user].map(grouped);
    let own = measured.memwright;
    let ratio = linux.value as f64 / own.value.max(1) as f64;
    let [own, linux] = [own, linux].map(Count::cell);
    format!(
        "| `{name}` | {title} | {versions} | {faults} | {user} | {own} | {linux} | {ratio:.2} |\n"
    )
}

/// Returns the counts that the page has for a script, of Memwright's kernel and of Linux.
#[cfg(test)]
pub fn published(page: &str, name: &str) -> Option<[Count; 2]> {
    let rows = rows(page);
    let cells = cells(rows.get(name)?);
    let counts = [cells.get(ON_LINUX - 1)?, cells.get(ON_LINUX)?];
    let [own, linux] = counts.map(|cell| Count::parse(cell));
    Some([own?, linux?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(value: u64, repeats: bool) -> Count {
        Count { value, repeats }
    }

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
            memwright: count(2000, true),
            linux: Vec::new(),
        };
        let linux = count(5000, false);
        let line = line(&script, "p 1", &measured, linux);
        assert_eq!(
            line,
            "| `x` | Does it | p 1 | 1 | 1,234,567 | 2,000 | 5,000 \\* | 2.50 |\n"
        );
        let page = format!("{HEAD}{line}");
        assert_eq!(rows(&page)["x"], line);
        assert_eq!(published(&page, "x"), Some([count(2000, true), linux]));
        assert_eq!(kept(Some(&line), "p 1").unwrap(), linux);
        assert!(kept(Some(&line), "p 2").is_err());
        assert!(kept(None, "p 1").is_err());
    }
}
