//! Measures the tables in `docs/embedding.md`: what each feature of the memory manager costs, and what the memory
//! manager costs compared with other crates.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};

use super::ceilings::FEATURES;
use super::image::Image;
use super::{built, names};
use crate::block::Block;
use crate::number::grouped;
use crate::shell;
use crate::walk::trace;

const PAGE: &str = "docs/embedding.md";

/// The symbols of `crates/memwright-size` that are measured.
const AREA: &str = "AREA_BYTES";
const FAULT: &str = "measured_fault";

/// The largest differences from the page that do not count as a change, because the code of a crate differs a little
/// from compiler to compiler.
const SLACK_BYTES: u64 = 1000;
const SLACK_PERCENT: u64 = 5;

/// A program whose figures are in a table.
struct Program {
    /// The first cell of the row.
    title: String,
    /// The features of `crates/memwright-size`.
    features: Vec<String>,
}

/// The figures of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    /// The size of the code and constants, in units of 100 bytes.
    hundreds: u64,
    /// The size of an area, in bytes.
    area: u64,
    /// The number of instructions of a fault.
    instructions: u64,
}

impl Cost {
    fn of(image: &Image, path: &Path, empty: u64) -> Result<Self> {
        let symbol = |name: &str| {
            let symbol = image.symbols.get(name);
            symbol.copied().with_context(|| format!("no symbol {name}"))
        };
        let (fault, _) = symbol(FAULT)?;
        Ok(Self {
            hundreds: image.bytes.saturating_sub(empty).div_ceil(100),
            area: symbol(AREA)?.1,
            instructions: trace::instructions(path, fault, &image.relocations)?,
        })
    }

    /// Returns the cells of the figures.
    fn cells(self) -> String {
        let (whole, tenth) = (self.hundreds / 10, self.hundreds % 10);
        format!(
            "{whole}.{tenth} | {} | {}",
            self.area,
            grouped(self.instructions)
        )
    }

    /// Returns the figures of a row of the page, whose first cell is `title`.
    fn parse(page: &str, title: &str) -> Option<Self> {
        let begin = format!("| {title} | ");
        let row = page.lines().find_map(|line| line.strip_prefix(&begin))?;
        let mut cells = row.trim_end_matches(" |").split(" | ");
        let mut number = |dropped: char| cells.next()?.replace(dropped, "").parse().ok();
        Some(Self {
            hundreds: number('.')?,
            area: number(',')?,
            instructions: number(',')?,
        })
    }

    /// Returns whether the page may keep these figures when `now` is measured, because they differ by little.
    fn is_current(self, now: Self) -> bool {
        let bytes = self.hundreds.abs_diff(now.hundreds) * 100;
        let fault = self.instructions.abs_diff(now.instructions) * 100;
        bytes <= SLACK_BYTES && self.area == now.area && fault <= SLACK_PERCENT * now.instructions
    }
}

/// Measures the programs of both tables, and compares them with the page. With `write`, writes the page instead.
///
/// # Errors
/// If a program cannot be built or traced, or if a figure of the page is not current.
pub fn tables(write: bool) -> Result<()> {
    let (features, beside) = (features(), beside());
    update(
        &[
            ("features", "what is on", features),
            ("beside", "what is in the program", beside),
        ],
        write,
    )
}

/// Measures the programs of the table that compares crates, prints their figures, and compares these with the page.
///
/// # Errors
/// As for [`tables`].
pub fn print_beside() -> Result<()> {
    update(&[("beside", "what is in the program", beside())], false)
}

fn update(tables: &[(&'static str, &str, Vec<Program>)], write: bool) -> Result<()> {
    let path = shell::root().join(PAGE);
    let mut page = fs::read_to_string(&path).context(PAGE)?;
    let empty = built(&[])?.0.bytes;
    let mut old = Vec::new();
    for (name, first, programs) in tables {
        let mut text = format!(
            "| {first} | text, KB | bytes of an area | instructions of a fault |\n|---|---:|---:|---:|\n"
        );
        for program in programs {
            let features: Vec<&str> = program.features.iter().map(String::as_str).collect();
            let (image, file) = built(&features)?;
            let cost = Cost::of(&image, &file, empty)?;
            let row = format!("| {} | {} |", program.title, cost.cells());
            println!("{row}");
            let known = Cost::parse(&page, &program.title);
            if !known.is_some_and(|known| known.is_current(cost)) {
                old.push(row.clone());
            }
            text.push_str(&row);
            text.push('\n');
        }
        let block = Block {
            page: PAGE,
            name,
            text,
        };
        let put = block.put(&page);
        page = put.with_context(|| format!("{PAGE} has no block {name}"))?;
    }
    if write {
        return fs::write(&path, page).context(PAGE);
    }
    if old.is_empty() {
        return Ok(());
    }
    bail!(
        "{PAGE} has other figures (cargo xtask size --table --write):\n{}",
        old.join("\n")
    )
}

/// Returns the programs with all features, without each one, and with none.
fn features() -> Vec<Program> {
    let program = |title: String, features: Vec<&str>| Program {
        title,
        features: with(&["manager", "fork"], &features),
    };
    let mut programs = vec![program("all features".to_owned(), names())];
    for feature in FEATURES {
        let title = format!("all but `{}`", feature.name);
        programs.push(program(title, feature.without(FEATURES)));
    }
    programs.push(program("no feature".to_owned(), Vec::new()));
    programs
}

/// Returns the programs without fork, by Memwright and by other crates.
fn beside() -> Vec<Program> {
    let program = |title: &str, features: Vec<String>| Program {
        title: title.to_owned(),
        features,
    };
    vec![
        program(
            "`memory_set` and `page_table_multiarch`",
            with(&["others"], &[]),
        ),
        program("Memwright, no feature", with(&["manager"], &[])),
        program("Memwright, all features", with(&["manager"], &names())),
    ]
}

fn with(first: &[&str], features: &[&str]) -> Vec<String> {
    let all = first.iter().chain(features);
    all.map(|name| (*name).to_owned()).collect()
}

/// Compares a row of the page with the figures of a program that was built for another check.
///
/// # Errors
/// If the program cannot be traced, or if the row is not current.
pub fn check(title: &str, (image, path): &(Image, std::path::PathBuf), empty: u64) -> Result<()> {
    let page = fs::read_to_string(shell::root().join(PAGE)).context(PAGE)?;
    let now = Cost::of(image, path, empty)?;
    let known = Cost::parse(&page, title).with_context(|| format!("{PAGE} has no row {title}"))?;
    ensure!(
        known.is_current(now),
        "{PAGE} has other figures (cargo xtask size --table --write): | {title} | {} |",
        now.cells()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: Cost = Cost {
        hundreds: 1234,
        area: 96,
        instructions: 1500,
    };

    #[test]
    fn a_row_is_read_again() {
        assert_eq!(COST.cells(), "123.4 | 96 | 1,500");
        let page = format!("x\n| all | {} |\n| other | 1.0 | 2 | 3 |\n", COST.cells());
        assert_eq!(Cost::parse(&page, "all"), Some(COST));
        assert_eq!(Cost::parse(&page, "none"), None);
    }

    #[test]
    fn small_differences_are_no_change() {
        let with = |hundreds, area, instructions| Cost {
            hundreds,
            area,
            instructions,
        };
        for (other, current) in [
            (with(1244, 96, 1500), true),
            (with(1245, 96, 1500), false),
            (with(1224, 96, 1500), true),
            (with(1234, 88, 1500), false),
            (with(1234, 96, 1575), true),
            (with(1234, 96, 1600), false),
        ] {
            assert_eq!(COST.is_current(other), current, "{other:?}");
        }
    }
}
