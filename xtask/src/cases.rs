//! `cargo xtask cases`: runs the commands in the pages of `docs/cases` and in the README, and updates the output in the
//! pages.
//!
//! A code block whose first line begins with `$ ` contains a command. A `\` at the end of a line continues the command.
//! The rest of the block is the standard output of the command.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::command::{self, Profile};
use crate::{install, shell};

/// The README, the only page outside of `docs/cases`.
const README: &str = "README.md";
/// The line that begins and ends a code block.
const FENCE: &str = "```";
/// The exit codes of `memwright compare` that report a result and not a failure.
const VERDICTS: [i32; 4] = [0, 1, 6, 7];

/// Runs the commands of every page, or of the named pages, and writes their output into the pages. With `--check`,
/// writes nothing and fails if the output in a page differs.
///
/// # Errors
/// If a page is unknown, if a command fails, or, with `--check`, if output differs from the page.
pub fn run(arguments: &[&str]) -> Result<()> {
    let (check, names) = match arguments {
        ["--check", names @ ..] => (true, names),
        names => (false, names),
    };
    ensure!(
        !names.iter().any(|name| name.starts_with('-')),
        "cases [--check] [NAME]..."
    );
    install::install()?;
    let memwright = command::built(Profile::Dev)?;
    for path in pages(names)? {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        add_kernels(&memwright, &text)?;
        let made = filled(&text, &mut |line| output(&memwright, line))?;
        match (check, made == text) {
            (_, true) => println!("{}: as it was", path.display()),
            (true, false) => bail!(
                "{}: the output of a command has changed (cargo xtask cases)",
                path.display()
            ),
            (false, false) => fs::write(&path, made)?,
        }
    }
    Ok(())
}

fn pages(names: &[&str]) -> Result<Vec<PathBuf>> {
    let folder = shell::root().join("docs/cases");
    if !names.is_empty() {
        let path = |name: &&str| match *name {
            README => shell::root().join(README),
            name => folder.join(format!("{name}.md")),
        };
        return Ok(names.iter().map(path).collect());
    }
    let mut pages = vec![shell::root().join(README)];
    for entry in fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    Ok(pages)
}

/// Fetches the kernels that a page names, unless they are in the cache. Includes their debug information if a command
/// needs it.
fn add_kernels(memwright: &Path, text: &str) -> Result<()> {
    let kept = Command::new(memwright).args(["kernels", "list"]).output()?;
    let kept = String::from_utf8_lossy(&kept.stdout).into_owned();
    for name in kernels(text) {
        let is_it = |line: &str| line.split_whitespace().next() == Some(name);
        if !kept.lines().any(is_it) {
            let mut command = Command::new(memwright);
            command.args(["kernels", "add", name]);
            command.args(text.contains("--inlined").then_some("--debug"));
            shell::run(&mut command)?;
        }
    }
    Ok(())
}

/// Returns the names of Debian's kernels in the commands of a page, each once, in the order of their first occurrence.
fn kernels(text: &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let words = text
        .split_whitespace()
        .filter(|word| word.contains("=debian:"));
    // The options of the column follow a comma.
    let named = words.filter_map(|word| word.split_once('=')?.1.split(',').next());
    for name in named {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the page with the output of each command replaced by the text that `output` returns for that command.
fn filled(text: &str, output: &mut dyn FnMut(&str) -> Result<String>) -> Result<String> {
    let mut made = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        made.push_str(line);
        made.push('\n');
        let is_command = |next: &&str| next.starts_with("$ ");
        if !line.starts_with(FENCE) || !lines.peek().is_some_and(is_command) {
            continue;
        }
        let mut command = String::new();
        for line in lines.by_ref() {
            made.push_str(line);
            made.push('\n');
            match line.strip_suffix('\\') {
                Some(part) => command.push_str(part),
                None => {
                    command.push_str(line);
                    break;
                }
            }
        }
        let command = command.trim_start_matches("$ ");
        made.push_str(output(command)?.trim_matches('\n'));
        made.push('\n');
        let end = lines.by_ref().find(|line| line.starts_with(FENCE));
        made.push_str(end.with_context(|| format!("the block of `{command}` has no end"))?);
        made.push('\n');
    }
    Ok(made)
}

/// Runs a command in the root of the workspace, and returns its standard output.
fn output(memwright: &Path, line: &str) -> Result<String> {
    shell::step(line);
    let mut folders: Vec<PathBuf> = memwright.parent().map(Path::to_owned).into_iter().collect();
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    let path: OsString = std::env::join_paths(folders)?;
    let output = Command::new("sh")
        .args(["-c", line])
        .env("PATH", path)
        .current_dir(shell::root())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start sh")?;
    let code = output.status.code();
    ensure!(
        code.is_some_and(|code| VERDICTS.contains(&code)),
        "`{line}` ended with {}",
        output.status
    );
    let text = String::from_utf8(output.stdout).context("a command printed no text")?;
    let lines = text.lines().map(|line| format!("{}\n", line.trim_end()));
    Ok(lines.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_those_of_the_commands() {
        let text = "Debian's debian:sid\n$ x --kernel a=debian:trixie --kernel b=debian:y-backports \\\n \
            --kernel c=debian:trixie,thp=never";
        assert_eq!(kernels(text), ["debian:trixie", "debian:y-backports"]);
    }

    #[test]
    fn blocks_of_commands_are_filled() {
        let text = "a\n```text\n$ one \\\n    two\nold\n```\nb\n```\nno command\n```\n";
        let mut asked = Vec::new();
        let made = filled(text, &mut |line| {
            asked.push(line.to_owned());
            Ok("\nnew\nlines\n\n".to_owned())
        });
        let expected = "a\n```text\n$ one \\\n    two\nnew\nlines\n```\nb\n```\nno command\n```\n";
        assert_eq!(made.unwrap(), expected);
        assert_eq!(asked, ["one     two"]);
        let open = filled("```\n$ one\n", &mut |_| Ok(String::new()));
        assert!(open.is_err());
    }
}
