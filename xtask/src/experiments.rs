//! The figures in `docs/experiments`: what the command that each page names gives.

use crate::{install, shell};
use anyhow::{Context, Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How a page names its command.
const COMMAND: &str = "    memwright bench ";
/// Where the figures begin; they reach to the end of the page.
const FIGURES: &str = "## Figures\n";

/// What `memwright bench` ends with where a second run gave other figures; the page says which.
const DIFFERS: i32 = 1;

/// Runs the command of each page, or of those that are named, and writes what it printed into it.
///
/// # Errors
/// No such page, one without a command, or a command that fails. Figures that do not repeat are written nevertheless.
pub fn run(names: &[&str]) -> Result<()> {
    install::install()?;
    shell::run(&mut shell::cargo([
        "build",
        "--release",
        "-p",
        "memwright-cli",
    ]))?;
    let memwright = shell::target_folder().join("release/memwright");
    let pages = pages(&shell::root().join("docs/experiments"), names)?;
    for page in pages {
        let text = fs::read_to_string(&page).with_context(|| page.display().to_string())?;
        let Some(words) = command(&text) else {
            bail!("{}: no line begins with {COMMAND:?}", page.display());
        };
        add_kernels(&memwright, &words)?;
        let mut bench = Command::new(&memwright);
        bench
            .arg("bench")
            .args(&words)
            .args(["--md", "-"])
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        shell::step(&shell::line(&bench));
        let output = bench.output().context("cannot start the command")?;
        match output.status.code() {
            Some(0) => {}
            Some(DIFFERS) => println!("{}: not all figures repeat", page.display()),
            _ => bail!("{}: the bench ended with {}", page.display(), output.status),
        }
        let figures = String::from_utf8(output.stdout).context("the bench printed no text")?;
        fs::write(&page, with_figures(&text, &figures))
            .with_context(|| page.display().to_string())?;
    }
    Ok(())
}

/// Fetches the kernels of Debian that are not kept yet.
fn add_kernels(memwright: &Path, words: &[&str]) -> Result<()> {
    let kept = shell::output(Command::new(memwright).args(["kernels", "list"])).unwrap_or_default();
    for name in words.iter().filter(|word| word.starts_with("debian:")) {
        let has = |line: &str| line.split_whitespace().next() == Some(name);
        if !kept.lines().any(has) {
            shell::run(Command::new(memwright).args(["kernels", "add", name]))?;
        }
    }
    Ok(())
}

fn pages(folder: &Path, names: &[&str]) -> Result<Vec<PathBuf>> {
    if !names.is_empty() {
        let paths = names.iter().map(|name| folder.join(format!("{name}.md")));
        return Ok(paths.collect());
    }
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name != "README.md") {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// The arguments of the command that a page names.
fn command(page: &str) -> Option<Vec<&str>> {
    let line = page.lines().find_map(|line| line.strip_prefix(COMMAND))?;
    Some(line.split_whitespace().collect())
}

/// The page with these figures, in the place of those that it had.
fn with_figures(page: &str, figures: &str) -> String {
    let (head, _) = page.split_once(FIGURES).unwrap_or((page, ""));
    format!("{}\n\n{FIGURES}\n{}\n", head.trim_end(), figures.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_its_command() {
        let page = "# X\n\n    memwright bench x --kernel a=b\n\nmore\n";
        assert_eq!(command(page), Some(vec!["x", "--kernel", "a=b"]));
        assert_eq!(command("# X\n"), None);
    }

    #[test]
    fn figures_are_replaced() {
        let once = with_figures("# X\n\ntext\n", "| 1 |\n");
        assert_eq!(once, "# X\n\ntext\n\n## Figures\n\n| 1 |\n");
        assert_eq!(with_figures(&once, "| 2 |"), once.replace('1', "2"));
    }

    #[test]
    fn every_page_has_a_command() {
        let folder = shell::root().join("docs/experiments");
        for page in pages(&folder, &[]).unwrap() {
            let text = fs::read_to_string(&page).unwrap();
            assert!(command(&text).is_some(), "{}", page.display());
        }
    }
}
