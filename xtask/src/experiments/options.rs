//! Generates, from the figures of a page, the table in `docs/bench.md` of the costs of Linux's features that Memwright
//! lacks.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::figures::{Figures, Table};
use super::page::Page;
use crate::shell;

/// The name of the page with the figures.
pub const NAME: &str = "linux-options";
/// The page with the table.
const PAGE: &str = "docs/bench.md";
/// The line before the table.
const BEGIN: &str = "<!-- experiments: linux-options -->\n";
const END: &str = "<!-- end -->\n";

/// Descriptions of features of Linux, each with the boot option that disables the feature.
const OPTIONS: [(&str, &str); 5] = [
    ("zeroes the kernel's own allocations", "init_on_alloc=0"),
    ("charges pages to memory cgroups", "cgroup_disable=memory"),
    ("calls the hooks of Linux security modules", "lsm="),
    ("prepares to audit system calls", "audit=0"),
    ("checks for preemption in the kernel", "preempt=none"),
];

/// The measures in the table, each with the heading of its column.
const MEASURES: [(&str, &str); 4] = [
    ("system call: getppid", "system call"),
    ("mmap: 4 KiB", "`mmap` of 4 KiB"),
    ("fault: first write of a page", "first write of a page"),
    ("munmap: 4 MiB populated, per page", "`munmap`, per page"),
];

/// Returns the cells with the medians of [`MEASURES`] in a column of the page.
fn medians(table: &Table, column: &str) -> Result<Vec<String>> {
    let place = table
        .column(&column.replace('_', "\\_"))
        .with_context(|| format!("{NAME}: no column {column}"))?;
    let cell = |(measure, _): &(&str, &str)| {
        let mut rows = table.rows.iter();
        let row = rows.find(|row| row.name.measure == *measure && row.name.statistic == "median");
        let cell = row.and_then(|row| row.cells.get(place));
        cell.cloned()
            .with_context(|| format!("{NAME}: no median of {measure}"))
    };
    MEASURES.iter().map(cell).collect()
}

/// Returns the table, from the figures of the page.
fn table(figures: &Figures) -> Result<String> {
    let [table] = figures.tables.as_slice() else {
        anyhow::bail!("{NAME}: one table was expected");
    };
    let linux = figures
        .columns()
        .into_iter()
        .find(|column| *column != "memwright")
        .context("no column of Linux")?;
    let version = figures
        .notes_of(&format!("{linux}: "))
        .first()
        .and_then(|note| note.split(['+', '-', ' ']).next())
        .context("the version of Linux")?;
    let all: Vec<&str> = OPTIONS.map(|(_, option)| option).to_vec();
    let own = format!("Debian's {version}, booted as on every other page");
    let mut lines = vec![(own, String::new(), medians(table, linux)?)];
    for (what, option) in OPTIONS {
        let cells = medians(table, &format!("{linux} {option}"))?;
        lines.push((what.to_owned(), format!("`{option}`"), cells));
    }
    let cells = medians(table, &format!("{linux} {}", all.join(" ")))?;
    lines.push(("all five".to_owned(), "all five".to_owned(), cells));
    let cells = medians(table, "memwright")?;
    lines.push(("Memwright".to_owned(), String::new(), cells));
    let headings = MEASURES.map(|(_, heading)| heading).join(" | ");
    let rule = "--:|".repeat(MEASURES.len());
    let mut text = format!(
        "| work that Linux does | boot option that disables it | {headings} |\n|---|---|{rule}\n"
    );
    for (what, option, cells) in lines {
        let option = format!("{option} ");
        let option = option.trim_start();
        text.push_str(&format!("| {what} | {option}| {} |\n", cells.join(" | ")));
    }
    Ok(text)
}

/// Returns the text of `docs/bench.md` with the table replaced.
fn with_table(page: &str, table: &str) -> Result<String> {
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(END)?;
        Some((before, after))
    });
    let (before, after) = parts.with_context(|| format!("{PAGE}: no place for the table"))?;
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

/// Writes the table from the figures of the page.
///
/// # Errors
/// If the page lacks a column or a measure, or if there is an I/O error.
pub fn write() -> Result<()> {
    let path = shell::root().join(PAGE);
    let page = fs::read_to_string(&path).context(PAGE)?;
    let written = with_table(&page, &table(&Page::read(NAME)?.figures()?)?)?;
    fs::write(&path, written).context(PAGE)
}

/// Checks that the table matches the figures of the page.
///
/// # Errors
/// If the table differs. The error names the command that updates it.
pub fn check() -> Result<()> {
    let page = fs::read_to_string(shell::root().join(PAGE)).context(PAGE)?;
    let written = with_table(&page, &table(&Page::read(NAME)?.figures()?)?)?;
    ensure!(
        page == written,
        "{PAGE} has other figures than docs/experiments/{NAME}.md: cargo xtask experiments --memwright {NAME}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_the_figures_of_its_page() {
        check().unwrap();
    }

    #[test]
    fn another_figure_is_another_table() {
        let mut figures = Page::read(NAME).unwrap().figures().unwrap();
        let before = table(&figures).unwrap();
        let rows = &mut figures.tables[0].rows;
        let row = rows
            .iter_mut()
            .find(|row| row.name.measure == "mmap: 4 KiB" && row.name.statistic == "median")
            .unwrap();
        row.cells[0] = "7".to_owned();
        let after = table(&figures).unwrap();
        assert!(before != after && after.contains("| Memwright | | ") && after.contains(" | 7 | "));
        figures.tables[0].columns.remove(3);
        assert!(table(&figures).is_err());
    }

    #[test]
    fn the_table_is_put_in_its_place() {
        let page = format!("a\n{BEGIN}old\n{END}b\n");
        let expected = format!("a\n{BEGIN}new\n{END}b\n");
        assert_eq!(with_table(&page, "new\n").unwrap(), expected);
        assert!(with_table("a\n", "new\n").is_err());
    }
}
