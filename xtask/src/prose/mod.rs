//! `cargo xtask prose`: checks the spelling in every file, and the words in pages and comments.
//!
//! The tool `typos` checks spelling (`typos.toml`), and Vale checks the choice of words (`.vale.ini` and the lists in
//! `.vale`). Vale reads Markdown pages directly. Its support for Rust would treat code in comments as prose, so for
//! each source file Vale reads a copy that contains only the comments, as Markdown, on their original lines.

mod checkers;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::house::{self, Source};
use crate::shell;
use crate::tier::Outcome;

/// Checks every file, and prints each error. A checker that cannot be built is skipped.
///
/// # Errors
/// If a file cannot be read, or if a checker fails.
pub fn run() -> Result<Outcome> {
    let mut skipped = Vec::new();
    let mut wrong = Vec::new();
    match checkers::typos() {
        Ok(typos) => {
            let mut command = Command::new(typos);
            if !shell::status(command.current_dir(shell::root()))?.success() {
                let what = "words that are misspelled, or that typos.toml has to accept";
                wrong.push(what.to_owned());
            }
        }
        Err(why) => skipped.push(format!("{why:#}")),
    }
    match checkers::vale() {
        Ok(vale) => {
            let alerts = alerts(&vale)?;
            for alert in &alerts {
                println!("{alert}");
            }
            if !alerts.is_empty() {
                wrong.push(format!("{} places with words of .vale", alerts.len()));
            }
        }
        Err(why) => skipped.push(format!("{why:#}")),
    }
    Ok(match (wrong.is_empty(), skipped.is_empty()) {
        (true, true) => Outcome::Passed,
        (true, false) => Outcome::Skipped(skipped.join("; ")),
        (false, _) => Outcome::Failed(wrong.join("; ")),
    })
}

/// Runs Vale on pages and comments. Returns a line for each wrong word.
fn alerts(vale: &Path) -> Result<Vec<String>> {
    let pages = shell::git(["ls-files", "--", "*.md"])?;
    let copy = shell::target_folder().join("prose");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    let mut command = Command::new(vale);
    command
        .current_dir(shell::root())
        .args(["--no-global", "--config", ".vale.ini", "--output", "line"])
        .args(pages.lines());
    let sources = house::sources()?;
    for source in sources.iter().filter(|source| has_checked_comments(source)) {
        let path = copy.join(format!("{}.md", source.path));
        fs::create_dir_all(path.parent().context("a file in no folder")?)?;
        fs::write(&path, comments(source))?;
        command.arg(path);
    }
    shell::step("vale, on every page and on comments");
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start Vale")?;
    // The exit code is 1 if Vale found wrong words.
    ensure!(
        matches!(output.status.code(), Some(0 | 1)),
        "Vale failed: {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).context("Vale printed what is not UTF-8")?;
    let lines = text.lines().map(|line| original(line, &copy));
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() && !output.status.success() {
        bail!("Vale failed and printed nothing");
    }
    Ok(lines)
}

fn has_checked_comments(source: &Source) -> bool {
    !source.path.ends_with(".md")
}

/// Returns a line of Vale's output, with the path of a copy replaced by the path of the source file.
fn original(line: &str, copy: &Path) -> String {
    let copied = line
        .strip_prefix(&*copy.to_string_lossy())
        .and_then(|line| line.strip_prefix('/')?.split_once(".md:"));
    match copied {
        Some((path, rest)) => format!("{path}:{rest}"),
        None => line.to_owned(),
    }
}

/// Returns the comments of a source file as Markdown. Each is at its line, without the characters that mark a comment.
fn comments(source: &Source) -> String {
    let mut text = String::new();
    let mut at = 1;
    for (line, comment) in house::prose(source) {
        while at < line {
            text.push('\n');
            at += 1;
        }
        // Strip the third character of `///` and `//!`, or the star at the start of a continuation line in C.
        let comment = match source.is_rust() {
            true => comment.strip_prefix(['/', '!']).unwrap_or(comment),
            false => {
                let comment = comment.trim_start();
                comment.strip_prefix('*').unwrap_or(comment)
            }
        };
        text.push_str(comment.strip_prefix(' ').unwrap_or(comment));
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_at_their_lines() {
        for (path, text, expected) in [
            (
                "a.rs",
                "//! One.\n//! ```\n//! let x = 1;\n//! ```\n\nfn f() {} // Two.\n    /// Three.\n",
                "One.\n```\nlet x = 1;\n```\n\nTwo.\nThree.\n",
            ),
            (
                "a.c",
                "int a;\n/* One\n *     code\n * two. */\n",
                "\nOne\n    code\ntwo. \n",
            ),
        ] {
            let source = Source {
                path: path.to_owned(),
                text: text.to_owned(),
            };
            assert_eq!(comments(&source), expected);
        }
    }

    #[test]
    fn lines_of_vale_name_the_original() {
        let copy = Path::new("/w/target/prose");
        let line = "/w/target/prose/a/b.rs.md:3:4:Memwright.Words:'x.md:' is not";
        assert_eq!(
            original(line, copy),
            "a/b.rs:3:4:Memwright.Words:'x.md:' is not"
        );
        assert_eq!(original("docs/a.md:1:2:x", copy), "docs/a.md:1:2:x");
    }
}
