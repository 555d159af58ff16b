//! The table of whole programs in `docs/experiments/releases.md`.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::count::{Count, cells};
use super::measure::Measured;
use super::page;
use crate::experiments::releases::{PAGE, Release, head, put, row};
use crate::shell;

/// The scripts of the table: programs whose work is mainly memory management, and which run for about a minute.
pub const PROGRAMS: [&str; 10] = [
    "gcc-build",
    "java-g1",
    "jemalloc",
    "lmdb",
    "perl-text",
    "postgres-pgbench",
    "python-fork",
    "redis-bgsave",
    "sqlite-wal",
    "stress-ng-vm",
];
/// The block of the page with the table.
const BLOCK: &str = "programs";

/// A row of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Row {
    name: String,
    /// The instructions of each kernel of Linux, in the order of the releases.
    linux: Vec<Count>,
    /// The instructions of Memwright's kernel.
    own: Count,
}

impl Row {
    /// Parses a row of a table with `count` kernels of Linux.
    fn parse(line: &str, count: usize) -> Option<Self> {
        let mut cells = cells(line).into_iter();
        let name = cells.next()?.strip_prefix('`')?.strip_suffix('`')?;
        // The cells of changes are not counts.
        let counts: Vec<Count> = cells.filter_map(Count::parse).collect();
        let (own, linux) = counts.split_last()?;
        (linux.len() == count).then(|| Self {
            name: name.to_owned(),
            linux: linux.to_vec(),
            own: *own,
        })
    }

    fn line(&self) -> String {
        let linux = self.linux.iter();
        let linux: Vec<(f64, String)> = linux
            .map(|count| (count.value as f64, count.cell()))
            .collect();
        row(&format!("`{}`", self.name), &linux, &self.own.cell())
    }
}

/// Returns the rows of the page.
fn rows(page: &str, releases: &[Release]) -> Vec<Row> {
    let lines = page::rows(page).into_values();
    lines
        .filter_map(|line| Row::parse(&line, releases.len()))
        .collect()
}

/// Returns the text of the block with these rows.
fn table(releases: &[Release], rows: &[Row]) -> String {
    let lines: String = rows.iter().map(Row::line).collect();
    let head = head("instructions of the kernel", releases);
    format!("\n{head}{lines}\n")
}

/// Returns the counts of a script on the kernels of the page, or `None` if it did not run on Linux.
///
/// # Errors
/// If the script did not run on all kernels, or if an image is not that of the page.
fn on_linux(measured: &Measured, releases: &[Release]) -> Result<Option<Vec<Count>>> {
    if measured.linux.is_empty() {
        return Ok(None);
    }
    let count = |release: &Release| {
        let name = &release.name;
        let found = measured.on(name);
        let found = found.with_context(|| format!("it did not run on {name}"))?;
        ensure!(
            found.sha256 == release.sha256,
            "{PAGE} is about {name} {}, and another image has this name: cargo xtask experiments releases",
            release.version
        );
        Ok(found.instructions)
    };
    releases.iter().map(count).collect::<Result<_>>().map(Some)
}

/// Writes the row of a script into the page. Keeps the other rows, and the counts on Linux if they were not measured.
///
/// # Errors
/// If a count is missing or an image is not that of the page, or if the page cannot be read or written.
pub fn write(name: &str, measured: &Measured, releases: &[Release]) -> Result<()> {
    let page = fs::read_to_string(shell::root().join(PAGE)).context(PAGE)?;
    let mut rows = rows(&page, releases);
    let old = rows.iter().position(|row| row.name == name);
    let old = old.map(|at| rows.remove(at));
    let linux = match on_linux(measured, releases)? {
        Some(linux) => linux,
        None => old
            .map(|row| row.linux)
            .with_context(|| format!("{PAGE}: cargo xtask workloads {name}"))?,
    };
    rows.push(Row {
        name: name.to_owned(),
        linux,
        own: measured.memwright,
    });
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    put(BLOCK, table(releases, &rows))
}

#[cfg(test)]
mod tests {
    use super::super::measure::OnLinux;
    use super::*;
    use crate::experiments::releases::{published, tests::example, with_block};

    fn count(value: u64, repeats: bool) -> Count {
        Count { value, repeats }
    }

    #[test]
    fn a_row_is_read_again() {
        let row = Row {
            name: "x".to_owned(),
            linux: vec![count(1000, true), count(1200, false), count(600, true)],
            own: count(500, true),
        };
        let line = "| `x` | 1,000 | 1,200 \\* | **+20 %** | 600 | **-50 %** | 500 |\n";
        assert_eq!(row.line(), line);
        assert_eq!(Row::parse(line, 3), Some(row.clone()));
        assert_eq!(Row::parse(line, 4), None);
        let table = table(&example(), std::slice::from_ref(&row));
        assert!(table.starts_with("\n| instructions of the kernel | 6.1.176 |"));
        assert_eq!(rows(&table, &example()), [row]);
    }

    #[test]
    fn counts_are_of_the_kernels_of_the_page() {
        let on = |kernel: &str, sha256: &str| OnLinux {
            kernel: kernel.to_owned(),
            sha256: sha256.to_owned(),
            instructions: count(7, true),
        };
        let with = |linux| Measured {
            faults: 1,
            user: 2,
            memwright: count(3, true),
            linux,
        };
        let three = vec![on("c", "bb"), on("a", "bb"), on("b", "bb")];
        let counts = |linux| on_linux(&with(linux), &example());
        assert_eq!(counts(three.clone()).unwrap().unwrap().len(), 3);
        assert_eq!(counts(Vec::new()).unwrap(), None);
        assert!(counts(three[..2].to_vec()).is_err());
        let mut other = three;
        other[1].sha256 = "cc".to_owned();
        assert!(counts(other).is_err());
    }

    #[test]
    fn the_page_has_a_row_for_each_program() {
        let text = |page: &str| fs::read_to_string(shell::root().join(page)).unwrap();
        let page = text(PAGE);
        let releases = published().unwrap();
        let rows = rows(&page, &releases);
        let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
        let command = "cargo xtask workloads --releases";
        assert_eq!(names, PROGRAMS, "{command}");
        let written = with_block(&page, BLOCK, table(&releases, &rows)).unwrap();
        assert_eq!(page, written, "{command}");
        let newest = releases.iter().position(|one| one.name == page::LINUX);
        let programs = text(page::PAGE);
        for row in rows {
            let counts = [row.own, row.linux[newest.unwrap()]];
            let name = &row.name;
            assert_eq!(page::published(&programs, name), Some(counts), "{command}");
        }
    }
}
