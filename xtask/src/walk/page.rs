//! Updates the walks in `ARCHITECTURE.md`.

use std::fmt::Write;

use anyhow::{Context, Result};

use super::ceilings::Ceiling;
use super::stays::{Entry, Walk, place};
use crate::block::Block;

/// The page that contains the walks.
pub const PAGE: &str = "ARCHITECTURE.md";

/// Returns the text of the page with the files of each walk and the table of all figures replaced by those of `walks`.
///
/// # Errors
/// If the page has no generated block for one of them.
pub fn updated(page: &str, walks: &[(&Ceiling, Walk)]) -> Result<String> {
    let files = walks.iter().map(|(ceiling, walk)| Block {
        page: PAGE,
        name: ceiling.block,
        text: files(walk),
    });
    let figures = Block {
        page: PAGE,
        name: "walks",
        text: figures(walks),
    };
    let mut page = page.to_owned();
    for block in files.chain([figures]) {
        let new = block.put(&page);
        page = new.with_context(|| format!("{PAGE} has no place for {}", block.name))?;
    }
    Ok(page)
}

/// Returns the files of a walk in the order in which the walk enters them. Each file is indented below the file from
/// which it is entered, and is followed by the function that is called.
fn files(walk: &Walk) -> String {
    let mut lines = Vec::new();
    lay_out(&walk.entries, 0, &mut lines);
    let width = lines.iter().map(|(file, _)| file.len()).max().unwrap_or(0);
    let lines = lines
        .iter()
        .map(|(file, function)| format!("{file:<width$}  {function}\n"));
    format!("```text\n{}```\n", lines.collect::<String>())
}

fn lay_out<'a>(entries: &'a [Entry], depth: usize, lines: &mut Vec<(String, &'a str)>) {
    for entry in entries {
        let file = format!("{:indent$}{}", "", place(&entry.file), indent = depth * 2);
        lines.push((file, &entry.function));
        lay_out(&entry.entries, depth + 1, lines);
    }
}

/// Returns the table of figures.
fn figures(walks: &[(&Ceiling, Walk)]) -> String {
    let mut text = "| operation | files | stays | crossings between crates | returns | returns before | goal |\n\
                    |---|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for (ceiling, walk) in walks {
        let now = walk.counts();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            ceiling.title,
            now.files,
            now.stays,
            now.crossings,
            now.returns,
            ceiling.before.returns,
            ceiling.goal()
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::stays::{Counts, Stay};

    #[test]
    fn the_page_has_the_files_and_the_figures() {
        let entry = |file: &str, function: &str, entries| Entry {
            file: file.to_owned(),
            function: function.to_owned(),
            entries,
        };
        let files = ["crates/a/src/x.rs", "crates/b/src/y.rs"];
        let walk = Walk {
            stays: vec![
                Stay {
                    file: "crates/a/src/x.rs".to_owned(),
                    functions: vec!["f".to_owned()],
                };
                3
            ],
            files: files.map(str::to_owned).to_vec(),
            entries: vec![entry(files[0], "f", vec![entry(files[1], "T::g", vec![])])],
        };
        let ceiling = Ceiling {
            name: "fault",
            block: "walk fault",
            title: "a fault",
            most: Counts::default(),
            before: Counts {
                returns: 9,
                ..Counts::default()
            },
        };
        let walks = [(&ceiling, walk)];
        let page = "# Title\n<!-- generated: walk fault -->\nold\n<!-- end -->\ntext\n<!-- generated: walks -->\n<!-- end -->\n";
        let expected = "# Title\n<!-- generated: walk fault -->\n```text\na/src/x.rs    f\n  b/src/y.rs  T::g\n```\n<!-- end -->\n\
                        text\n<!-- generated: walks -->\n\
                        | operation | files | stays | crossings between crates | returns | returns before | goal |\n\
                        |---|--:|--:|--:|--:|--:|--:|\n| a fault | 2 | 3 | 0 | 1 | 9 | 4 |\n<!-- end -->\n";
        assert_eq!(updated(page, &walks).unwrap(), expected);
        assert_eq!(updated(expected, &walks).unwrap(), expected);
        assert!(updated("# Title\n", &walks).is_err());
    }
}
