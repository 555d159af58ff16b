//! Reads rust-analyzer's index of the source: the place of the definition of each item, and the places of the
//! references to it.

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use prost::Message;

use crate::shell;

/// The bit in the roles of an occurrence that marks a definition.
const DEFINITION: i32 = 1;
/// The prefix of the names of items that are local to one file.
const LOCAL: &str = "local ";
/// The suffix of the names of modules. References to a module do not count, but references to its items do.
const MODULE: char = '/';

/// An index in the SCIP format. Only the fields that this program reads are declared.
#[derive(Clone, PartialEq, Message)]
struct Index {
    #[prost(message, repeated, tag = "2")]
    documents: Vec<Document>,
}

/// A source file, with the names that occur in it.
#[derive(Clone, PartialEq, Message)]
struct Document {
    #[prost(string, tag = "1")]
    relative_path: String,
    #[prost(message, repeated, tag = "2")]
    occurrences: Vec<Occurrence>,
}

/// An occurrence of the name of an item.
#[derive(Clone, PartialEq, Message)]
struct Occurrence {
    #[prost(int32, repeated, tag = "1")]
    range: Vec<i32>,
    #[prost(string, tag = "2")]
    symbol: String,
    #[prost(int32, tag = "3")]
    symbol_roles: i32,
}

/// A place in the source.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The file, relative to the root of the workspace.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
}

/// A reference from one file to an item that another file defines.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrow {
    /// The place of the reference.
    pub from: Place,
    /// The place of the definition.
    pub to: Place,
}

/// Returns every reference from one file of the workspace to another: by `use`, by path, and by method call.
///
/// # Errors
/// If rust-analyzer is missing or fails.
pub fn arrows() -> Result<Vec<Arrow>> {
    install()?;
    let path = shell::target_folder().join("arrows.scip");
    let mut command = Command::new("rust-analyzer");
    command
        .args(["scip", ".", "--exclude-vendored-libraries", "--output"])
        .arg(&path)
        .current_dir(shell::root());
    // Standard error is discarded, because rust-analyzer warns about modules without a name, such as the root of each
    // crate.
    let output = command.output().context("cannot start rust-analyzer")?;
    ensure!(
        output.status.success(),
        "rust-analyzer failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    read(&path)
}

/// Installs rust-analyzer if it is missing.
fn install() -> Result<()> {
    let mut version = Command::new("rust-analyzer");
    let is_there = version.arg("--version").output();
    if is_there.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let mut command = Command::new("rustup");
    command.args(["component", "add", "rust-analyzer"]);
    shell::run(command.current_dir(shell::root()))
}

fn read(path: &Path) -> Result<Vec<Arrow>> {
    let bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
    let index = Index::decode(&*bytes).context("an index that is damaged")?;
    let arrows = of(&index);
    ensure!(!arrows.is_empty(), "the index has no reference");
    Ok(arrows)
}

fn of(index: &Index) -> Vec<Arrow> {
    let mut defined: HashMap<&str, Place> = HashMap::new();
    let named = |document: &Document, occurrence: &Occurrence| Place {
        file: document.relative_path.clone(),
        line: occurrence
            .range
            .first()
            .copied()
            .unwrap_or(0)
            .unsigned_abs()
            + 1,
    };
    for document in &index.documents {
        for one in &document.occurrences {
            let is_item = !one.symbol.starts_with(LOCAL) && !one.symbol.ends_with(MODULE);
            if one.symbol_roles & DEFINITION != 0 && is_item {
                defined.insert(&one.symbol, named(document, one));
            }
        }
    }
    let mut arrows = Vec::new();
    for document in &index.documents {
        for one in &document.occurrences {
            if let Some(to) = defined.get(&*one.symbol)
                && to.file != document.relative_path
            {
                arrows.push(Arrow {
                    from: named(document, one),
                    to: to.clone(),
                });
            }
        }
    }
    arrows.sort();
    arrows.dedup();
    arrows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_to_other_files_are_arrows() {
        let at = |symbol: &str, line, symbol_roles| Occurrence {
            range: vec![line, 0, 1],
            symbol: symbol.to_owned(),
            symbol_roles,
        };
        let document = |path: &str, occurrences| Document {
            relative_path: path.to_owned(),
            occurrences,
        };
        let index = Index {
            documents: vec![
                document(
                    "a",
                    vec![
                        at("x a/", 0, DEFINITION),
                        at("x a/f().", 0, DEFINITION),
                        at("local 1", 4, DEFINITION),
                    ],
                ),
                document(
                    "b",
                    vec![
                        at("x a/", 6, 0),
                        at("x a/f().", 6, 0),
                        at("local 1", 7, 0),
                        at("x b/g().", 8, DEFINITION),
                        at("x b/g().", 9, 0),
                        at("y c/h().", 9, 0),
                    ],
                ),
            ],
        };
        let place = |file: &str, line| Place {
            file: file.to_owned(),
            line,
        };
        let arrow = Arrow {
            from: place("b", 7),
            to: place("a", 1),
        };
        let read = Index::decode(&*index.encode_to_vec()).unwrap();
        assert_eq!(of(&read), [arrow]);
    }
}
