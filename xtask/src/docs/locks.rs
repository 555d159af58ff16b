//! Generates the table of locks in ARCHITECTURE.md from the ranks and their documentation.

use std::fs;

use anyhow::{Context, Result};

use crate::block::Block;
use crate::shell;

/// The file that declares the ranks.
const SOURCE: &str = "crates/memwright-table/src/sync/order.rs";

/// Returns the generated block with the table.
///
/// # Errors
/// If the file that declares the ranks cannot be read.
pub fn block() -> Result<Block> {
    let source = fs::read_to_string(shell::root().join(SOURCE)).context(SOURCE)?;
    let mut text = "| rank | guards |\n|---|---|\n".to_owned();
    for (name, about) in ranks(&source) {
        text.push_str(&format!("| `{name}` | {about} |\n"));
    }
    Ok(Block {
        page: "ARCHITECTURE.md",
        name: "locks",
        text,
    })
}

/// Returns the ranks that are declared in a source text, in their order, each with its documentation.
fn ranks(source: &str) -> Vec<(String, String)> {
    let body = source
        .split_once("pub enum Rank {")
        .and_then(|(_, rest)| rest.split_once("\n}"))
        .map_or("", |(body, _)| body);
    let mut ranks = Vec::new();
    let mut about = String::new();
    for line in body.lines().map(str::trim) {
        if let Some(text) = line.strip_prefix("///") {
            about.push_str(text);
        } else if let Some(name) = line.strip_suffix(',') {
            ranks.push((
                name.to_owned(),
                std::mem::take(&mut about).trim().to_owned(),
            ));
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_their_order_and_their_documentation() {
        let source = "pub enum Rank {\n    /// The first,\n    /// explained.\n    One,\n    /// Next.\n    Two,\n}\n";
        let expected = [("One", "The first, explained."), ("Two", "Next.")];
        let expected = expected.map(|(name, about)| (name.to_owned(), about.to_owned()));
        assert_eq!(ranks(source), expected);
    }
}
