//! `cargo xtask experiments`: runs the command of each page in `docs/experiments`, and updates the figures of the page.
//!
//! A page states the measures, the kernels, the program and the version of QEMU. `--memwright` measures only
//! Memwright's columns, which change with its kernel. `--check` measures again and fails if a cell has changed.

mod bars;
mod chart;
mod check;
mod compare;
mod figures;
mod merge;
mod options;
mod page;
mod redis;
pub mod releases;
mod slice;

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use self::figures::Figures;
use self::page::Page;
use crate::command::{self, Profile};
use crate::{install, shell};

pub use self::check::{Part, check, head};

/// The exit code of `memwright bench` if figures of a second run differ. The page then names these figures.
const DIFFERS: i32 = 1;

/// The task that the arguments select.
#[derive(Debug, PartialEq, Eq)]
enum Task<'a> {
    /// Measure every column, and write the figures into the pages.
    All(Vec<&'a str>),
    /// Measure Memwright's columns, and write them into the pages. Keep those of Linux.
    Memwright(Vec<&'a str>),
    /// Measure again, and compare with the pages.
    Check(Part<'a>),
}

fn parse<'a>(arguments: &[&'a str]) -> Result<Task<'a>> {
    let is_option = |word: &&&str| word.starts_with('-');
    Ok(match arguments {
        ["--memwright", names @ ..] if !names.iter().any(|name| is_option(&name)) => {
            Task::Memwright(names.to_vec())
        }
        ["--check"] => Task::Check(Part::Slice(head())),
        ["--check", "--seed", seed] => Task::Check(Part::Slice(
            seed.parse().with_context(|| format!("--seed {seed}"))?,
        )),
        ["--check", "--all"] => Task::Check(Part::All),
        ["--check", names @ ..] if !names.iter().any(|name| is_option(&name)) => {
            Task::Check(Part::Pages(names.to_vec()))
        }
        names if !names.iter().any(|name| is_option(&name)) => Task::All(names.to_vec()),
        _ => bail!("experiments [--memwright | --check [--all | --seed N]] [NAME]..."),
    })
}

/// Measures the figures of the named pages, or of all, and writes or compares them.
///
/// # Errors
/// If a page is unknown or has no command, if a command fails, or, with `--check`, if a cell has changed. Figures that
/// do not repeat are written nevertheless, with a note.
pub fn run(arguments: &[&str]) -> Result<()> {
    let task = parse(arguments)?;
    install::install()?;
    let memwright = command::built(Profile::Dev)?;
    match task {
        Task::All(names) => {
            for name in chosen(&names)? {
                let page = Page::read(&name)?;
                let words = page.words();
                add_kernels(&memwright, &words)?;
                page.write(&measure(&memwright, &words, &[])?)?;
                if name == releases::NAME {
                    releases::write_jumps(&memwright)?;
                }
            }
            write_tables()
        }
        Task::Memwright(names) => {
            for name in chosen(&names)? {
                let page = Page::read(&name)?;
                let words = page.words();
                let measured = measure(&memwright, &page::with_kernels(&words, &[]), &[])?;
                let merged = merge::merge(&page.figures()?, &measured);
                let place = page::place(&name);
                page.write(
                    &merged.with_context(|| format!("{place}: cargo xtask experiments {name}"))?,
                )?;
            }
            write_tables()
        }
        Task::Check(part) => check(part),
    }
}

/// Writes the tables that are generated from the figures of pages.
fn write_tables() -> Result<()> {
    options::write()?;
    redis::write()?;
    releases::write()
}

/// Returns the names of the chosen pages: `names`, or those of [`page::names`] if it is empty.
fn chosen(names: &[&str]) -> Result<Vec<String>> {
    if names.is_empty() {
        return page::names();
    }
    Ok(names.iter().map(|name| (*name).to_owned()).collect())
}

/// Measures the figures of a page. `words` are the arguments of the page's command, whose output is parsed. The figures
/// of the page about Redis are measured without that command.
fn measure(memwright: &Path, words: &[&str], options: &[&str]) -> Result<Figures> {
    if words.first() == Some(&redis::NAME) {
        return redis::measure(memwright, words, options);
    }
    let mut bench = Command::new(memwright);
    bench
        .arg("bench")
        .args(words)
        .args(options)
        .args(["--md", "-"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    let line = shell::line(&bench);
    shell::step(&line);
    let output = bench.output().context("cannot start the command")?;
    match output.status.code() {
        Some(0) => {}
        Some(DIFFERS) => println!("`{line}`: not all figures repeat"),
        _ => bail!("`{line}` ended with {}", output.status),
    }
    let text = String::from_utf8(output.stdout).context("the bench printed no text")?;
    Figures::parse(&text).with_context(|| format!("`{line}`"))
}

/// Fetches the kernels of Debian that the command `words` names and that are not in the cache.
fn add_kernels(memwright: &Path, words: &[&str]) -> Result<()> {
    let kernels = page::kernels(words);
    for name in kernels.iter().filter(|name| name.starts_with("debian:")) {
        if kept(memwright, name).is_none() {
            shell::run(Command::new(memwright).args(["kernels", "add", name]))?;
        }
    }
    Ok(())
}

/// Returns the first digits of the SHA-256 of the kernel with this name in the cache, and its version; `None` if it is
/// not in the cache.
fn kept(memwright: &Path, name: &str) -> Option<(String, String)> {
    let list = shell::output(Command::new(memwright).args(["kernels", "list"]))?;
    list.lines().find_map(|line| {
        let (found, rest) = line.split_once(char::is_whitespace)?;
        let (hash, version) = rest.trim().split_once(char::is_whitespace)?;
        (found == name).then(|| (hash.to_owned(), version.trim().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_say_what_is_measured_and_what_becomes_of_it() {
        for (words, task) in [
            ("", Task::All(Vec::new())),
            ("merge autonuma", Task::All(vec!["merge", "autonuma"])),
            ("--memwright", Task::Memwright(Vec::new())),
            ("--memwright merge", Task::Memwright(vec!["merge"])),
            ("--check --seed 7", Task::Check(Part::Slice(7))),
            ("--check --all", Task::Check(Part::All)),
            ("--check merge", Task::Check(Part::Pages(vec!["merge"]))),
        ] {
            let words: Vec<&str> = words.split_whitespace().collect();
            assert_eq!(parse(&words).unwrap(), task);
        }
        for words in [
            "--al",
            "merge --check",
            "--check --seed x",
            "--memwright --check",
        ] {
            let words: Vec<&str> = words.split_whitespace().collect();
            assert!(parse(&words).is_err(), "{words:?}");
        }
    }
}
