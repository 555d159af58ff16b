//! Measures published figures again, and fails if a cell has changed.

use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};

use super::compare::{self, Compared};
use super::figures::Figures;
use super::options;
use super::page::{self, Page};
use super::slice::{self, Unit};
use super::{kept, measure};
use crate::command::{self, Profile};
use crate::shell;

/// The figures that are measured again.
#[derive(Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Memwright's columns of some runs, which are chosen by a seed.
    Slice(u64),
    /// Memwright's columns of these pages.
    Pages(Vec<&'a str>),
    /// Every column of every page. Linux's columns are included if the kernel of the page is available.
    All,
}

/// Returns a seed that is derived from the commit that is checked out.
pub fn head() -> u64 {
    let mut git = Command::new("git");
    git.args(["rev-parse", "HEAD"]).current_dir(shell::root());
    let commit = shell::output(&mut git);
    commit
        .and_then(|commit| u64::from_str_radix(commit.get(..16)?, 16).ok())
        .unwrap_or_default()
}

/// The runs and columns of a page that are measured again.
struct Chosen {
    page: String,
    /// The labels of the runs; empty for all runs.
    labels: Vec<&'static str>,
    with_linux: bool,
}

impl Part<'_> {
    fn chosen(self) -> Result<Vec<Chosen>> {
        let whole = |page: String, with_linux| Chosen {
            page,
            labels: Vec::new(),
            with_linux,
        };
        Ok(match self {
            Part::Slice(seed) => {
                println!("seed {seed}");
                let unit = |unit: Unit| Chosen {
                    page: unit.page.to_owned(),
                    labels: [unit.label]
                        .into_iter()
                        .filter(|one| !one.is_empty())
                        .collect(),
                    with_linux: false,
                };
                slice::choose(seed)?.into_iter().map(unit).collect()
            }
            Part::Pages(names) => {
                let names = names.into_iter().map(str::to_owned);
                names.map(|name| whole(name, false)).collect()
            }
            Part::All => {
                let names = page::names()?.into_iter();
                names.map(|name| whole(name, true)).collect()
            }
        })
    }
}

/// The results of all pages together.
#[derive(Default)]
struct Total {
    cells: usize,
    different: usize,
    /// The commands that update the figures.
    commands: Vec<String>,
}

/// Measures figures again, and compares the values with those on the pages.
///
/// # Errors
/// If a cell has changed: the error names the cell and the command that updates it. If a page has no figures that can
/// be parsed, or if a bench fails.
pub fn check(part: Part<'_>) -> Result<()> {
    let memwright = command::built(Profile::Dev)?;
    let mut total = Total::default();
    for chosen in part.chosen()? {
        check_page(&memwright, &chosen, &mut total)?;
    }
    total.commands.dedup();
    let Total {
        cells,
        different,
        commands,
    } = total;
    println!("{cells} published figures measured again, {different} have changed");
    options::check()?;
    if different > 0 {
        bail!(
            "{different} published figures have changed: {}",
            commands.join("; ")
        );
    }
    Ok(())
}

fn check_page(memwright: &Path, chosen: &Chosen, total: &mut Total) -> Result<()> {
    let name = &chosen.page;
    let page = Page::read(name)?;
    let published = match page.figures() {
        Ok(figures) => figures,
        Err(error) => {
            println!("{error:#}");
            total.different += 1;
            total
                .commands
                .push(format!("cargo xtask experiments {name}"));
            return Ok(());
        }
    };
    let published = match chosen.labels.as_slice() {
        [] => published,
        labels => published.restricted(labels),
    };
    let kernels = if chosen.with_linux {
        to_be_had(memwright, &page, &published)
    } else {
        Vec::new()
    };
    let kernels: Vec<&str> = kernels.iter().map(String::as_str).collect();
    let words = page.words();
    let mut options = vec!["--no-verify"];
    for label in &chosen.labels {
        options.extend(["--run", label]);
    }
    let measured = measure(memwright, &page::with_kernels(&words, &kernels), &options)?;
    let compared = compare_columns(&published, &measured)?;
    let place = page::place(name);
    ensure!(compared.cells > 0, "{place}: nothing was compared");
    for line in &compared.differences {
        println!("{place}: {line}");
    }
    total.cells += compared.cells;
    total.different += compared.differences.len();
    total
        .commands
        .extend(mends(name, &published, &measured, &compared));
    Ok(())
}

/// Compares the measured columns with the published ones.
fn compare_columns(published: &Figures, measured: &Figures) -> Result<Compared> {
    compare::compare(published, measured, &measured.columns())
}

/// Returns the command that updates the page, or `None` if no figure differs.
fn mends(
    name: &str,
    published: &Figures,
    measured: &Figures,
    compared: &Compared,
) -> Option<String> {
    if compared.differences.is_empty() {
        return None;
    }
    let same_program = published.notes_of("program ") == measured.notes_of("program ");
    let is_ours = |line: &String| line.starts_with("memwright");
    let only_ours = compared.differences.iter().all(is_ours);
    if !(same_program && only_ours) {
        return Some(format!("cargo xtask experiments {name}"));
    }
    let hash = |figures| page::hash_of(figures, "memwright").map(str::to_owned);
    let same_kernel = hash(published) == hash(measured);
    let why = if same_kernel {
        " (of the same kernel: this machine gave other counts)"
    } else {
        ""
    };
    Some(format!("cargo xtask experiments --memwright {name}{why}"))
}

/// Returns the names of the kernels of a page that are available and whose image has the hash that the page states.
fn to_be_had(memwright: &Path, page: &Page, published: &Figures) -> Vec<String> {
    let words = page.words();
    let mut found = Vec::new();
    for name in page::kernels(&words) {
        if kept(memwright, name).is_none() {
            // If the kernel cannot be fetched, for example without a network, its columns are not checked.
            let _ = shell::status(Command::new(memwright).args(["kernels", "add", name]));
        }
        let hash = page::hash_of(published, name);
        match (kept(memwright, name), hash) {
            (Some((beginning, _)), Some(hash)) if hash.starts_with(&beginning) => {
                found.push(name.to_owned());
            }
            (Some((_, version)), _) => {
                println!("{}: {name} is now {version}: not compared", page.name);
            }
            (None, _) => println!("{}: {name} is not available: not compared", page.name),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::EXAMPLE;
    use super::*;

    fn mended(measured: &str) -> Option<String> {
        let published = Figures::parse(EXAMPLE).unwrap();
        let measured = Figures::parse(measured).unwrap();
        let compared = compare_columns(&published, &measured).unwrap();
        mends("x", &published, &measured, &compared)
    }

    #[test]
    fn the_command_that_mends_a_page_is_named() {
        assert_eq!(mended(EXAMPLE), None);
        let ours = EXAMPLE.replace("1,010", "1,009");
        assert_eq!(
            mended(&ours.replace("sha256 aa", "sha256 a0")).as_deref(),
            Some("cargo xtask experiments --memwright x")
        );
        assert_eq!(
            mended(&ours).as_deref(),
            Some(
                "cargo xtask experiments --memwright x (of the same kernel: this machine gave other counts)"
            )
        );
        // If the program or a Linux kernel has changed, every column must be measured again.
        let all = Some("cargo xtask experiments x");
        let other_program = ours.replace("sha256 dd", "sha256 d0");
        assert_eq!(mended(&other_program).as_deref(), all);
        let linux = EXAMPLE.replace("| 20 |", "| 21 |");
        assert_eq!(mended(&linux).as_deref(), all);
    }
}
