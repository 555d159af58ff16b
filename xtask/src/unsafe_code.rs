//! `cargo xtask unsafe`: counts the uses of `unsafe`, and checks that each is in a permitted place and has a comment
//! that states why it is sound.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;

/// The folders and files in which `unsafe` is permitted.
const PERMITTED: &[&str] = &[
    "crates/memwright-table/src/",
    "crates/memwright-kernel/",
    "crates/memwright-sim/src/machine.rs",
    "crates/memwright-mark/src/lib.rs",
    "crates/memwright-size/src/",
    "examples/adapters/src/mapper.rs",
    "examples/adapters/tests/mapper.rs",
    "examples/emulator/src/machine.rs",
    "examples/boot/src/",
    "examples/kernel/src/heap.rs",
    "examples/kernel/src/mistaken.rs",
    "examples/kernel/src/program.rs",
    "examples/kernel/src/thread.rs",
    "examples/kernel/src/user.rs",
    "examples/kernel/src/x86_64.rs",
    "examples/kernel/src/aarch64.rs",
    "examples/kernel/src/riscv64.rs",
];

/// The construct that the keyword introduces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// A block. The author of the block guarantees soundness.
    Block,
    /// An `impl` of an unsafe trait. The author of the `impl` guarantees soundness.
    Impl,
    /// A function or a trait. Its callers or implementers must guarantee soundness.
    Contract,
    /// A foreign block or an attribute.
    Foreign,
}

/// One use of the keyword.
#[derive(Debug, PartialEq, Eq)]
struct Use {
    line: usize,
    kind: Kind,
    explained: bool,
}

/// Checks every use of `unsafe`, and prints the number of uses in each crate.
///
/// # Errors
/// If a use is outside of the permitted places, or has no `SAFETY` comment or `# Safety` section.
pub fn run() -> Result<()> {
    let root = shell::root();
    let mut files = Vec::new();
    for folder in ["crates", "examples"] {
        collect(&root.join(folder), &mut files)?;
    }
    let mut counts: BTreeMap<String, [usize; 4]> = BTreeMap::new();
    let mut complaints = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(&file)
            .with_context(|| format!("cannot read {}", file.display()))?;
        let name = file.strip_prefix(&root).unwrap_or(&file);
        let name = name.to_string_lossy().into_owned();
        for one in uses(&text) {
            let owner = name.split('/').nth(1).unwrap_or(&name);
            counts.entry(owner.to_owned()).or_default()[one.kind as usize] += 1;
            if !PERMITTED.iter().any(|place| name.starts_with(place)) {
                complaints.push(format!("{name}:{}: unsafe outside of its places", one.line));
            } else if !one.explained {
                complaints.push(format!("{name}:{}: no word why it is sound", one.line));
            }
        }
    }
    println!(
        "{:<20} {:>7} {:>6} {:>10} {:>8}",
        "unsafe", "blocks", "impls", "contracts", "foreign"
    );
    for (owner, [blocks, impls, contracts, foreign]) in &counts {
        println!("{owner:<20} {blocks:>7} {impls:>6} {contracts:>10} {foreign:>8}");
    }
    for complaint in &complaints {
        println!("{complaint}");
    }
    if !complaints.is_empty() {
        bail!(
            "{} uses of unsafe are outside the permitted places or unexplained",
            complaints.len()
        );
    }
    Ok(())
}

/// Appends the paths of the Rust files in a folder and its subfolders to `files`, sorted by name.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries =
        std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if path.file_name().is_some_and(|name| name != "target") {
                collect(&path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the uses of the keyword in a source text.
fn uses(text: &str) -> Vec<Use> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let code = code_of(line);
        let mut from = 0;
        while let Some(at) = code[from..].find("unsafe") {
            let start = from + at;
            from = start + "unsafe".len();
            let part_of_a_name = |c: char| c.is_alphanumeric() || c == '_';
            if code[..start].ends_with(part_of_a_name) || code[from..].starts_with(part_of_a_name) {
                continue;
            }
            let mut rest = code[from..].trim_start().to_owned();
            if rest.is_empty() {
                rest = lines
                    .get(index + 1)
                    .map_or("", |next| next.trim())
                    .to_owned();
            }
            let kind = kind_of(&rest);
            let explained = match kind {
                Kind::Block | Kind::Impl => is_explained(&lines, index, "SAFETY:"),
                Kind::Contract => {
                    is_explained(&lines, index, "# Safety") || is_of_trait(&lines, index)
                }
                Kind::Foreign => true,
            };
            // A function pointer type imposes no contract.
            if kind != Kind::Contract || !code[..start].trim_end().ends_with(['(', ':', '=', '<']) {
                found.push(Use {
                    line: index + 1,
                    kind,
                    explained,
                });
            }
        }
    }
    found
}

fn kind_of(rest: &str) -> Kind {
    if rest.starts_with("impl") {
        Kind::Impl
    } else if rest.starts_with("fn") || rest.starts_with("trait") {
        Kind::Contract
    } else if rest.starts_with("extern") || rest.starts_with('(') {
        Kind::Foreign
    } else {
        Kind::Block
    }
}

/// Returns the line without comments and without the contents of strings.
fn code_of(line: &str) -> String {
    let mut code = String::new();
    let mut in_string = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            '\\' if in_string => {
                characters.next();
            }
            '"' => in_string = !in_string,
            '/' if !in_string && characters.peek() == Some(&'/') => break,
            other if !in_string => code.push(other),
            _ => {}
        }
    }
    code
}

/// Returns whether `word` is in the line, or in the comments above the statement that contains the line.
fn is_explained(lines: &[&str], index: usize, word: &str) -> bool {
    if lines[index].contains(word) {
        return true;
    }
    let mut above = lines[..index]
        .iter()
        .rev()
        .map(|line| line.trim())
        .peekable();
    // The statement may begin on an earlier line.
    while above.next_if(|line| !ends_statement(line)).is_some() {}
    above
        .take_while(|line| {
            line.starts_with("//") || line.starts_with('#') || line.starts_with("\"safe")
        })
        .any(|line| line.contains(word))
}

/// Returns whether the line is in an `impl` of a trait. In that case, the documentation of the trait states the
/// contract.
fn is_of_trait(lines: &[&str], index: usize) -> bool {
    let outer = |line: &&&str| line.starts_with(|c: char| c.is_alphabetic());
    let inner = lines[index].starts_with(' ');
    let head = lines[..index].iter().rev().find(outer);
    inner && head.is_some_and(|line| line.contains("impl") && line.contains(" for "))
}

/// Guesses from a line alone whether a statement ends on it, so that the next line begins a new one.
fn ends_statement(line: &str) -> bool {
    line.is_empty()
        || line.starts_with("//")
        || line.starts_with('#')
        || line.ends_with([';', '{', '}', ','])
}

#[cfg(test)]
mod tests {
    use super::{Kind, uses};

    #[test]
    fn each_use_is_found_with_its_reason() {
        let text = "\
// SAFETY: no other code uses it.
let value = unsafe { *pointer };
let other =
    unsafe { *pointer };
// SAFETY: as above.
let third = wrap(
    unsafe { *pointer };
/// Nothing.
unsafe fn bare() {}
/// # Safety
/// The caller knows.
pub unsafe fn told() {}
// unsafe in a comment, \"unsafe\" too
let text = \"unsafe { }\"; let unsafe_name = 1;
// SAFETY: atomics only.
unsafe impl Given for X {
    unsafe fn promised_by_the_trait() {}
}
unsafe extern \"C\" {}
";
        let found: Vec<(usize, Kind, bool)> = uses(text)
            .iter()
            .map(|one| (one.line, one.kind, one.explained))
            .collect();
        assert_eq!(
            found,
            [
                (2, Kind::Block, true),
                (4, Kind::Block, false),
                (7, Kind::Block, true),
                (9, Kind::Contract, false),
                (12, Kind::Contract, true),
                (16, Kind::Impl, true),
                (17, Kind::Contract, true),
                (19, Kind::Foreign, true),
            ]
        );
    }
}
