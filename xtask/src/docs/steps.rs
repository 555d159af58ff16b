//! Quotes the examples in the pages that explain them.

use std::fs;

use anyhow::{Context, Result};

use crate::block::Block;
use crate::shell;

const PAGE: &str = "docs/embedding-steps.md";

/// A quotation: the name of its block, the file in `examples`, and how the first line of the quoted item begins.
type Quote = (&'static str, &'static str, &'static str);

/// The starts of files: the name of the block, the file, how the first quoted line begins, and how the first line that is
/// not quoted begins.
const STARTS: &[(&str, &str, &str, &str)] = &[
    (
        "emulator",
        EMULATOR,
        "use std::cell::Cell",
        "    /// Performs an access",
    ),
    ("guest", STEPS, "mod machine", "/// Creates the machine,"),
    (
        "device-start",
        "emulator/src/swap.rs",
        "use std::collections",
        "impl SwapDevice",
    ),
];

/// The blocks of the page that builds the examples step by step.
const QUOTES: &[Quote] = &[
    ("dependencies", "emulator/Cargo.toml", "[dependencies]"),
    ("cpu", EMULATOR, "impl Threads for Emulator"),
    ("machine", EMULATOR, "unsafe impl Machine for Emulator"),
    ("start", STEPS, "fn start()"),
    ("access", EMULATOR, "    pub fn access("),
    ("space", STEPS, "    fn space("),
    ("store", STEPS, "    fn store("),
    ("load", STEPS, "    fn load("),
    ("count", STEPS, "    fn count("),
    ("steps", STEPS, "fn steps("),
    ("main", STEPS, "fn main("),
    ("fault", STEPS, "fn first_fault("),
    ("invalidate", EMULATOR, "    fn invalidate("),
    ("cpus", STEPS, "fn two_cpus("),
    ("fork", STEPS, "fn fork("),
    ("other-cpu", STEPS, "fn on_other_cpu"),
    ("device", "emulator/src/swap.rs", "impl SwapDevice"),
    ("swap", STEPS, "fn swap_out_and_in("),
    ("track", STEPS, "fn track("),
    ("kernel-main", "kernel/src/main.rs", "fn main("),
    (
        "kernel-machine",
        PROCESSOR,
        "unsafe impl Machine for Hardware",
    ),
    ("kernel-relax", PROCESSOR, "impl Threads for Hardware"),
    (
        "kernel-fences",
        "kernel/src/riscv64.rs",
        "    fn invalidate_remote(",
    ),
    (
        "kernel-broadcast",
        "kernel/src/aarch64.rs",
        "fn invalidate(",
    ),
    ("kernel-run", PROGRAM, "    pub fn run("),
    ("kernel-second", PROGRAM, "pub fn serve("),
    (
        "kernel-invalidate",
        "kernel/src/scenario.rs",
        "    fn invalidate(",
    ),
];

/// The page for embedders, and its blocks.
const EMBEDDING: &str = "docs/embedding.md";
const TESTS: &[Quote] = &[(
    "testkit",
    "emulator/tests/machine.rs",
    "fn the_emulator_passes(",
)];

const EMULATOR: &str = "emulator/src/machine.rs";
const STEPS: &str = "emulator/src/main.rs";
const PROCESSOR: &str = "kernel/src/x86_64.rs";
const PROGRAM: &str = "kernel/src/program.rs";

/// Returns every block of both pages.
///
/// # Errors
/// If a file cannot be read, or has no such item.
pub fn blocks() -> Result<Vec<Block>> {
    let folder = shell::root().join("examples");
    let block = |page, &(name, file, start): &Quote| {
        let source = fs::read_to_string(folder.join(file)).context(file)?;
        let item = item(&source, start).with_context(|| format!("{file} has no {start}"))?;
        let language = if file.ends_with(".toml") {
            "toml"
        } else {
            "rust,ignore"
        };
        Ok(Block {
            page,
            name,
            text: format!("```{language}\n{item}```\n"),
        })
    };
    let starts = STARTS.iter().map(|&(name, file, first, end)| {
        let source = fs::read_to_string(folder.join(file)).context(file)?;
        let lines =
            between(&source, first, end).with_context(|| format!("{file} has no {first}"))?;
        Ok(Block {
            page: PAGE,
            name,
            text: format!("```rust,ignore\n{lines}```\n"),
        })
    });
    let quotes = QUOTES.iter().map(|quote| block(PAGE, quote));
    let tests = TESTS.iter().map(|quote| block(EMBEDDING, quote));
    starts.chain(quotes).chain(tests).collect()
}

/// Returns the lines from the first that begins with `first` up to the next that begins with `end`, without empty lines
/// at the end.
fn between(source: &str, first: &str, end: &str) -> Option<String> {
    let mut lines = source.lines().skip_while(|line| !line.starts_with(first));
    let mut quoted = vec![lines.next()?];
    quoted.extend(lines.take_while(|line| !line.starts_with(end)));
    Some(format!("{}\n", quoted.join("\n").trim_end()))
}

/// Returns the lines of the item whose first line begins with `start`, with its comments, and without indentation. The
/// item ends at the line that closes it, which is indented like its first line.
fn item(source: &str, start: &str) -> Option<String> {
    let lines: Vec<&str> = source.lines().collect();
    let first = lines.iter().position(|line| line.starts_with(start))?;
    let indent = start.len() - start.trim_start().len();
    let is_comment = |line: &&&str| line.trim_start().starts_with("//");
    let comments = lines[..first].iter().rev().take_while(is_comment).count();
    let rest = &lines[first..];
    // An item without a body, such as a table of TOML, ends before an empty line.
    let end = if lines[first].starts_with('[') {
        rest.iter().position(|line| line.is_empty())
    } else {
        let closing = format!("{}}}", " ".repeat(indent));
        rest.iter()
            .position(|line| *line == closing)
            .map(|end| end + 1)
    };
    let end = end.unwrap_or(rest.len());
    let quoted = &lines[first - comments..first + end];
    let bare = quoted.iter().map(|line| line.get(indent..).unwrap_or(""));
    Some(bare.map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::{between, item};

    #[test]
    fn an_item_is_quoted_with_its_comments_and_without_its_indentation() {
        let source = "[a]\nb = 1\n\n/// One.\nfn one() {\n    1\n}\n\n    /// Two.\n    fn two() {\n        2\n    }\n}\n";
        assert_eq!(item(source, "[a]").unwrap(), "[a]\nb = 1\n");
        assert_eq!(
            item(source, "fn one").unwrap(),
            "/// One.\nfn one() {\n    1\n}\n"
        );
        assert_eq!(
            item(source, "    fn two").unwrap(),
            "/// Two.\nfn two() {\n    2\n}\n"
        );
        assert_eq!(item(source, "fn three"), None);
    }

    #[test]
    fn the_start_of_a_file_is_quoted_up_to_an_item() {
        let source = "//! A.\n\nuse b;\n\nconst C: u8 = 1;\n\n/// One.\nfn one() {}\n";
        assert_eq!(
            between(source, "use", "/// One").unwrap(),
            "use b;\n\nconst C: u8 = 1;\n"
        );
        assert_eq!(between(source, "fn two", "/// One"), None);
    }
}
