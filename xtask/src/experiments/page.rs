//! A page of `docs/experiments`: its text, its command, and its figures.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use super::figures::Figures;
use super::{bars, chart, redis, releases};
use crate::shell;

/// The prefix of the line of a page that contains the command.
const COMMAND: &str = "    memwright bench ";
/// The list of the pages.
const README: &str = "README";
/// The heading of the figures. They extend to the end of the page.
const FIGURES: &str = "## Figures\n";
/// The options of the command that add columns of Linux. Each has a value.
const OF_LINUX: [&str; 2] = ["--kernel", "--append"];

/// A page of `docs/experiments`.
pub struct Page {
    /// The name, without the file extension.
    pub name: String,
    path: PathBuf,
    text: String,
}

impl Page {
    /// Reads the page with this name.
    ///
    /// # Errors
    /// If the page does not exist or has no command.
    pub fn read(name: &str) -> Result<Self> {
        let path = folder().join(format!("{name}.md"));
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let page = Self {
            name: name.to_owned(),
            path,
            text,
        };
        ensure!(
            !page.words().is_empty(),
            "{}: no line begins with {COMMAND:?}",
            page.path.display()
        );
        Ok(page)
    }

    /// Returns the arguments of the command; none if the page has no command.
    pub fn words(&self) -> Vec<&str> {
        if self.name == redis::NAME {
            return redis::WORDS.to_vec();
        }
        let mut lines = self.text.lines();
        let line = lines.find_map(|line| line.strip_prefix(COMMAND));
        split(line.unwrap_or_default())
    }

    /// Returns the labels of the runs: one empty label if the experiment has one run, and no label if the page has no
    /// figures.
    #[cfg(test)]
    pub fn labels(&self) -> Vec<&str> {
        let Some((_, figures)) = self.text.split_once(FIGURES) else {
            return Vec::new();
        };
        let lines = figures.lines();
        let labels: Vec<&str> = lines
            .filter_map(|line| line.strip_prefix("**")?.strip_suffix("**"))
            .collect();
        if labels.is_empty() { vec![""] } else { labels }
    }

    /// Parses the published figures.
    ///
    /// # Errors
    /// If there are no figures, or if they are not in the format of the bench.
    pub fn figures(&self) -> Result<Figures> {
        let Some((_, figures)) = self.text.split_once(FIGURES) else {
            bail!("{}: no figures", self.path.display());
        };
        Figures::parse(figures).with_context(|| self.path.display().to_string())
    }

    /// Writes the page with these figures, and its charts.
    ///
    /// # Errors
    /// If there is an I/O error, or if a cell is not a number.
    pub fn write(&self, figures: &Figures) -> Result<()> {
        let text = with_figures(&self.text, &figures.markdown());
        fs::write(&self.path, text).with_context(|| self.path.display().to_string())?;
        for (path, picture) in self.charts(figures)? {
            fs::write(&path, picture).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// Returns the charts of these figures, each with the path of its file.
    ///
    /// # Errors
    /// If a cell is not a number.
    pub fn charts(&self, figures: &Figures) -> Result<Vec<(PathBuf, String)>> {
        let mut charts = chart::charts(figures)?;
        if self.name == releases::NAME {
            charts.push(("change".to_owned(), bars::picture(figures)?));
        }
        let charts = charts.into_iter();
        let place = |label: &str| folder().join(format!("{}-{label}.svg", self.name));
        Ok(charts
            .map(|(label, picture)| (place(&label), picture))
            .collect())
    }

    /// Returns whether the page contains a link to this picture.
    #[cfg(test)]
    pub fn shows(&self, file: &str) -> bool {
        self.text.contains(&format!("]({file})"))
    }
}

/// Splits a command line into words. Text in single quotes is one word.
fn split(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let (word, after) = match rest.strip_prefix('\'') {
            Some(quoted) => quoted.split_once('\'').unwrap_or((quoted, "")),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word);
        rest = after.trim_start();
    }
    words
}

fn folder() -> PathBuf {
    shell::root().join("docs/experiments")
}

/// Returns the names of all pages, in order, except the page about Redis: its figures take ten minutes, and are
/// measured if the page is named.
///
/// # Errors
/// If the folder cannot be read.
pub fn names() -> Result<Vec<String>> {
    let folder = folder();
    let mut found = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        let is_page = path.extension().is_some_and(|ending| ending == "md");
        if let Some(name) = path.file_stem().and_then(|name| name.to_str())
            && is_page
            && ![README, redis::NAME].contains(&name)
        {
            found.push(name.to_owned());
        }
    }
    found.sort();
    ensure!(!found.is_empty(), "{}: no pages", folder.display());
    Ok(found)
}

/// Returns `words`, the words of a command, without the columns of Linux kernels that are not in `kernels`.
pub fn with_kernels<'a>(words: &[&'a str], kernels: &[&str]) -> Vec<&'a str> {
    let mut found = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if !OF_LINUX.contains(word) {
            found.push(*word);
            continue;
        }
        let Some(value) = words.next() else { continue };
        let stays = match *word {
            "--kernel" => kernels.contains(value),
            _ => !kernels.is_empty(),
        };
        if stays {
            found.extend([word, value]);
        }
    }
    found
}

/// Returns the names of the kernels in a command.
pub fn kernels<'a>(words: &[&'a str]) -> Vec<&'a str> {
    let pairs = words.iter().zip(words.iter().skip(1));
    pairs
        .filter(|(word, _)| **word == "--kernel")
        .map(|(_, name)| *name)
        .collect()
}

/// Returns the text of the page with its figures replaced.
fn with_figures(page: &str, figures: &str) -> String {
    let (head, _) = page.split_once(FIGURES).unwrap_or((page, ""));
    format!("{}\n\n{FIGURES}\n{}\n", head.trim_end(), figures.trim())
}

/// Returns the SHA-256 of the kernel of a column, from the notes of the page.
pub fn hash_of<'a>(figures: &'a Figures, column: &str) -> Option<&'a str> {
    let notes = figures.notes_of(&format!("{column}: "));
    let line = notes.into_iter().next_back()?;
    line.rsplit_once("(sha256 ")?.1.strip_suffix(')')
}

/// Returns the path of a page, for messages.
pub fn place(name: &str) -> String {
    Path::new("docs/experiments")
        .join(format!("{name}.md"))
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::EXAMPLE;
    use super::*;

    #[test]
    fn figures_are_replaced() {
        let once = with_figures("# X\n\ntext\n", "| 1 |\n");
        assert_eq!(once, "# X\n\ntext\n\n## Figures\n\n| 1 |\n");
        assert_eq!(with_figures(&once, "| 2 |"), once.replace('1', "2"));
    }

    #[test]
    fn every_page_has_a_command() {
        for name in names().unwrap() {
            let page = Page::read(&name).unwrap();
            assert!(!page.words().is_empty(), "{name}");
        }
        assert!(Page::read("no-such-page").is_err());
    }

    #[test]
    fn quotes_hold_words_together() {
        assert_eq!(
            split("x --append 'a=0 b=1'  --kernel k"),
            ["x", "--append", "a=0 b=1", "--kernel", "k"]
        );
        assert_eq!(split(""), [""; 0]);
    }

    #[test]
    fn linux_is_left_out_or_in() {
        let words: Vec<&str> =
            "x --policy a=b --kernel debian:trixie --append audit=0 --kernel old"
                .split(' ')
                .collect();
        assert_eq!(kernels(&words), ["debian:trixie", "old"]);
        assert_eq!(with_kernels(&words, &[]), ["x", "--policy", "a=b"]);
        let one = "x --policy a=b --append audit=0 --kernel old";
        assert_eq!(with_kernels(&words, &["old"]).join(" "), one);
        assert_eq!(with_kernels(&words, &["debian:trixie", "old"]), words);
    }

    #[test]
    fn a_page_says_which_kernel_it_is_of() {
        let figures = Figures::parse(EXAMPLE).unwrap();
        assert_eq!(hash_of(&figures, "debian:trixie"), Some("bb"));
        assert_eq!(hash_of(&figures, "memwright"), Some("aa"));
        assert_eq!(hash_of(&figures, "debian:bookworm"), None);
    }
}
