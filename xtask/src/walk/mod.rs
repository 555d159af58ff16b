//! `cargo xtask walk`: lists the files that a reader of an operation passes, from a trace of the calls of that
//! operation.
//!
//! The operation runs in a process that is compiled without optimisation, so that no call is inlined. `ptrace` stops
//! the process at each call and return. A *stay* is a maximal part of the trace in one file. A *return* is a stay in a
//! file that the walk had left before. The walk omits the simulated machine, accessors, and repeated calls
//! (`calls.rs`).
//!
//! The figures have ceilings, which may only be lowered. The task writes the sequence of files into `ARCHITECTURE.md`.

mod calls;
mod ceilings;
mod functions;
mod names;
mod page;
mod program;
mod stays;
pub mod trace;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use self::ceilings::{CEILINGS, Ceiling};
use self::functions::Functions;
use self::program::Program;
use self::stays::{Counts, Walk};
use crate::shell;

/// Prints the figures of every operation next to their ceilings, and checks them and `ARCHITECTURE.md`. With `--write`,
/// updates `ARCHITECTURE.md` first. With the name of an operation, prints the stays of that operation instead, for this
/// source tree or for that of `--tree`.
///
/// # Errors
/// If a figure is not at its ceiling, if the page is not up to date, if a process cannot be traced, or if an argument
/// is unknown.
pub fn run(arguments: &[&str]) -> Result<()> {
    match arguments {
        [] | ["--check"] => check(&walks()?, false),
        ["--write"] => check(&walks()?, true),
        [name] => show(&shell::root(), name),
        [name, "--tree", folder] => show(&Path::new(folder).canonicalize()?, name),
        _ => bail!("walk takes --check, --write, or the name of an operation and --tree FOLDER"),
    }
}

/// Returns the names of the operations.
fn names() -> Vec<&'static str> {
    CEILINGS.iter().map(|ceiling| ceiling.name).collect()
}

/// Returns the walk of every operation, for this source tree.
fn walks() -> Result<Vec<(&'static Ceiling, Walk)>> {
    let tree = shell::root();
    program::build(&tree, &names())?;
    let walk = |ceiling: &'static Ceiling| Ok((ceiling, walk(&tree, ceiling.name)?));
    CEILINGS.iter().map(walk).collect()
}

/// Runs an operation, built from the source in `tree`, and returns its walk.
fn walk(tree: &Path, name: &str) -> Result<Walk> {
    let program = Program::of(tree, name);
    let functions = Functions::read(&program.path, tree)?;
    let events = trace::events(
        &program.path,
        &program.arguments,
        &functions,
        program.begins,
    )?;
    Ok(Walk::of(&calls::calls(&events, functions.all())))
}

fn show(tree: &Path, name: &str) -> Result<()> {
    if !names().contains(&name) {
        let names = names().join(", ");
        bail!("no operation is named {name}: there are {names}");
    }
    program::build(tree, &[name])?;
    let walk = walk(tree, name)?;
    print!("{}", walk.table());
    println!("\n{}", walk.summary());
    println!(
        "left out: the simulated machine, and accessors of at most {} lines",
        calls::SMALL
    );
    Ok(())
}

fn page() -> PathBuf {
    shell::root().join(page::PAGE)
}

fn check(walks: &[(&Ceiling, Walk)], write: bool) -> Result<()> {
    let mut wrong = Vec::new();
    println!("{:<10}{}", "", Counts::HEAD);
    for (ceiling, walk) in walks {
        let now = walk.counts();
        println!("{:<10}{}", ceiling.name, now.line());
        println!("{:<10}{}", "  at most", ceiling.most.line());
        println!("{:<10}{}", "  before", ceiling.before.line());
        wrong.extend(ceiling.complaint(&now));
    }
    let before = fs::read_to_string(page())?;
    let after = page::updated(&before, walks)?;
    if before != after {
        if write {
            fs::write(page(), after)?;
        } else {
            wrong.push("ARCHITECTURE.md is not up to date: cargo xtask walk --write".to_owned());
        }
    }
    if wrong.is_empty() {
        return Ok(());
    }
    bail!("{}", wrong.join("\n"))
}
