//! `cargo xtask docs`: writes the generated parts of the pages, or checks them.
//!
//! Most parts are made here, from lists in the workspace. The others are made by tests of the crates that they describe:
//! such a test compares its part of a page with the source, and writes it if [`UPDATE`] is set.

mod locks;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result, bail, ensure};

use crate::block::Block;
use crate::{conformance, install, mutants, shell, suite};

/// The variable that tells a test to write its part of a page.
const UPDATE: &str = "MEMWRIGHT_UPDATE_DOCS";

/// A page of which a test of another crate makes a part.
struct Made {
    page: &'static str,
    /// The arguments of `cargo test` that run the test.
    test: &'static [&'static str],
    /// Whether the test measures, which needs QEMU and takes minutes. Such a page is made only if it is named.
    measures: bool,
}

/// The pages that tests of other crates make.
const MADE: &[Made] = &[
    Made {
        page: "docs/system-calls.md",
        test: &[
            "-p",
            "memwright-linux",
            "--test",
            "system_calls",
            "the_page_is_that_of_the_table",
        ],
        measures: false,
    },
    Made {
        page: "docs/account.md",
        test: &[
            "-p",
            "memwright-cli",
            "--bin",
            "memwright",
            "the_page_about_the_account_is_current",
        ],
        measures: false,
    },
    Made {
        page: "docs/scaling.md",
        test: &["-p", "memwright-cli", "--test", "qemu", "--", "scale::"],
        measures: true,
    },
];

/// Writes the generated parts of every page that is made without measurements, or of the named pages. With `--check`,
/// compares instead.
///
/// # Errors
/// An unknown page, a list that cannot be read, or with `--check` a part that is not current.
pub fn run(arguments: &[&str]) -> Result<()> {
    let (check, pages) = match arguments {
        ["--check", pages @ ..] => (true, pages),
        pages => (false, pages),
    };
    let blocks = blocks()?;
    let known: BTreeSet<&str> = blocks
        .iter()
        .map(|block| block.page)
        .chain(MADE.iter().map(|made| made.page))
        .collect();
    for page in pages {
        ensure!(
            known.contains(page),
            "docs [--check] [PAGE]...: no part of {page} is generated; pages are {}",
            known.into_iter().collect::<Vec<_>>().join(", ")
        );
    }
    let is_wanted = |page: &str| pages.is_empty() || pages.contains(&page);
    let mut old: BTreeSet<&str> = BTreeSet::new();
    for block in blocks.iter().filter(|block| is_wanted(block.page)) {
        if !put(block, check)? {
            old.insert(block.page);
        }
    }
    for made in MADE {
        if !is_wanted(made.page) || made.measures && pages.is_empty() {
            continue;
        }
        if made.measures {
            install::install()?;
        }
        let mut command = shell::cargo(["test", "-q"]);
        command.args(made.test);
        if !check {
            command.env(UPDATE, "1");
        }
        if !shell::status(&mut command)?.success() {
            old.insert(made.page);
        }
    }
    if !old.is_empty() {
        let old: Vec<&str> = old.into_iter().collect();
        bail!("not current: {} (cargo xtask docs)", old.join(", "));
    }
    Ok(())
}

/// Returns every part that is made here.
fn blocks() -> Result<Vec<Block>> {
    let mut blocks = vec![
        locks::block()?,
        Block {
            page: "docs/correctness.md",
            name: "tiers",
            text: suite::markdown(),
        },
        Block {
            page: "docs/correctness.md",
            name: "mistakes",
            text: mutants::markdown()?,
        },
    ];
    blocks.extend(conformance::blocks()?);
    Ok(blocks)
}

/// Puts a part into its page, or only compares. Returns whether the page has the part now.
fn put(block: &Block, check: bool) -> Result<bool> {
    let path = shell::root().join(block.page);
    let old = fs::read_to_string(&path).context(block.page)?;
    let new = block.put(&old);
    let new = new.with_context(|| format!("{} has no place for {}", block.page, block.name))?;
    if new == old {
        return Ok(true);
    }
    if !check {
        fs::write(&path, new)?;
        println!("{}: {} written", block.page, block.name);
    }
    Ok(!check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_parts_are_current() {
        let blocks = blocks().expect("the lists");
        assert!(blocks.len() > 5);
        for block in &blocks {
            let current = put(block, true).expect("a page with a place for the part");
            assert!(
                current,
                "{}: {} is not current (cargo xtask docs)",
                block.page, block.name
            );
        }
    }

    #[test]
    fn a_page_without_a_generated_part_is_refused() {
        let error = run(&["--check", "docs/none.md"]).expect_err("no such page");
        let error = error.to_string();
        assert!(
            error.contains("docs/none.md") && error.contains("docs/account.md"),
            "{error}"
        );
    }
}
