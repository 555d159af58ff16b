//! `cargo xtask walk`: derives, from an executed call trace, the files that a reader of one operation passes.
//!
//! The operation runs in a process without optimisation, so that each call is one, and `ptrace` stops the process at each
//! call and return. A *stay* is a maximal part of the trace in one file. A *return* is a stay in a file that the walk had
//! left. What is left out is in `calls.rs`: the simulated machine, accessors, and what a loop repeats.
//!
//! The figures have ceilings, which may only fall, and the sequence of files is written into `ARCHITECTURE.md`.

mod calls;
mod ceilings;
mod functions;
mod names;
mod page;
mod program;
mod stays;
mod trace;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use self::ceilings::{CEILINGS, Ceiling};
use self::functions::Functions;
use self::program::Program;
use self::stays::{Counts, Walk};
use crate::shell;

/// Prints the figures of every operation beside their ceilings and checks them and `ARCHITECTURE.md`. With `--write`,
/// updates `ARCHITECTURE.md` first. With the name of an operation, prints its stays instead, of this tree or another.
///
/// # Errors
/// A figure that is not at its ceiling; a page that is not up to date; a process that cannot be traced; arguments that
/// are not known.
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

/// Walks every operation of this tree.
fn walks() -> Result<Vec<(&'static Ceiling, Walk)>> {
    let tree = shell::root();
    program::build(&tree, &names())?;
    let walk = |ceiling: &'static Ceiling| Ok((ceiling, walk(&tree, ceiling.name)?));
    CEILINGS.iter().map(walk).collect()
}

/// Performs an operation on the source in `tree` and returns its walk.
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
