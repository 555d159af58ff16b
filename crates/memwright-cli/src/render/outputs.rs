//! The additional outputs of a command's result: files or standard output, in any of the formats.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use clap::Args;
use serde::Serialize;

use crate::host::output::{print, write_fully};
use crate::host::taken::Taken;
use crate::model::failure::Failure;
use crate::sheet::Sheet;

/// The options of the formats, except JSON.
#[derive(Debug, Clone, Default, Args)]
pub struct Formats {
    /// Write one self-contained HTML page with charts ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub html: Option<PathBuf>,

    /// Write CSV, one line for each value ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub csv: Option<PathBuf>,

    /// Write Markdown ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub md: Option<PathBuf>,

    /// Write the rows as the JSON of github-action-benchmark's customSmallerIsBetter ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub benchmark_json: Option<PathBuf>,

    /// Write plain text of 72 columns, to paste under a patch ("-" for standard output).
    #[arg(long, value_name = "PATH")]
    pub mail: Option<PathBuf>,
}

/// Which rows of a comparison are compared and printed.
#[derive(Debug, Default, Args)]
pub struct Shown {
    /// Show all rows, not only those that changed.
    #[arg(long)]
    pub all: bool,

    /// Compare and show only these rows, by name (* matches any characters) or by group (repeatable). The names are
    /// those of --csv: run.instructions.kernel, region.1.user_faults.write.
    #[arg(long, value_name = "PATTERN")]
    pub rows: Vec<String>,
}

/// The destinations of results. Every file is opened before a program runs, so that a file which cannot be written is
/// detected at the start and not after hours.
pub struct Outputs {
    json: Option<Target>,
    csv: Option<Target>,
    markdown: Option<Target>,
    benchmark: Option<Target>,
    mail: Option<Target>,
    html: Option<Target>,
}

enum Target {
    Output,
    File(PathBuf, File),
}

impl Target {
    fn open(option: &str, path: Option<&Path>, taken: &mut Taken) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        if path == Path::new("-") {
            return Ok(Some(Self::Output));
        }
        let file = taken.create(&format!("the file of {option}"), path);
        Ok(Some(Self::File(
            path.to_owned(),
            file.map_err(Failure::Usage)?,
        )))
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Output => print(text.as_bytes()),
            Self::File(path, file) => write_fully(file.as_fd(), text.as_bytes())
                .with_context(|| format!("cannot write {}", path.display())),
        }
    }

    fn write_json(&self, document: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_string_pretty(document).context("cannot write JSON")?;
        text.push('\n');
        self.write(&text)
    }
}

impl Outputs {
    /// Opens the files.
    ///
    /// # Errors
    /// If a file cannot be written, or if the command also reads it. Also if two formats have the same file, or if two
    /// formats use standard output.
    pub fn open(
        json: Option<&Path>,
        formats: &Formats,
        taken: &mut Taken,
    ) -> Result<Self, Failure> {
        let outputs = Self {
            json: Target::open("--json", json, taken)?,
            csv: Target::open("--csv", formats.csv.as_deref(), taken)?,
            markdown: Target::open("--md", formats.md.as_deref(), taken)?,
            benchmark: Target::open("--benchmark-json", formats.benchmark_json.as_deref(), taken)?,
            mail: Target::open("--mail", formats.mail.as_deref(), taken)?,
            html: Target::open("--html", formats.html.as_deref(), taken)?,
        };
        let on_output = outputs
            .targets()
            .filter(|one| matches!(one, Target::Output));
        if on_output.count() > 1 {
            return Err(Failure::Usage(anyhow!(
                "standard output (\"-\") takes one of --json, --csv, --md, --benchmark-json, --mail and --html"
            )));
        }
        Ok(outputs)
    }

    fn targets(&self) -> impl Iterator<Item = &Target> {
        let all = [
            &self.json,
            &self.csv,
            &self.markdown,
            &self.benchmark,
            &self.mail,
            &self.html,
        ];
        all.into_iter().flatten()
    }

    /// Returns whether one of the formats is written to standard output. The command then prints no text tables there.
    pub fn on_output(&self) -> bool {
        self.targets()
            .any(|target| matches!(target, Target::Output))
    }

    /// Prints the sheet as text unless a format is written to standard output, and writes it in the requested formats.
    /// Without `all`, the text, Markdown and the mail include only the rows that changed.
    ///
    /// # Errors
    /// I/O errors of writing.
    pub fn present(
        &self,
        title: &str,
        sheet: &Sheet,
        all: bool,
        document: &impl Serialize,
    ) -> anyhow::Result<()> {
        if !self.on_output() {
            print(super::text(sheet, all).as_bytes())?;
        }
        self.write(title, std::slice::from_ref(sheet), all, document)
    }

    /// Writes the sheets in the requested formats and, as JSON, the document from which the sheets were made. With
    /// `all`, Markdown and the mail include the rows that did not change.
    ///
    /// # Errors
    /// I/O errors of writing.
    pub fn write(
        &self,
        title: &str,
        sheets: &[Sheet],
        all: bool,
        document: &impl Serialize,
    ) -> anyhow::Result<()> {
        let each = |render: &dyn Fn(&Sheet) -> String| -> Vec<String> {
            sheets.iter().map(render).collect()
        };
        if let Some(target) = &self.json {
            target.write_json(document)?;
        }
        if let Some(target) = &self.csv {
            target.write(&each(&super::csv).concat())?;
        }
        if let Some(target) = &self.markdown {
            target.write(&each(&|one| super::markdown(one, all)).concat())?;
        }
        if let Some(target) = &self.benchmark {
            target.write_json(&super::benchmark(sheets))?;
        }
        if let Some(target) = &self.mail {
            target.write(&each(&|one| super::mail(one, all)).join("\n"))?;
        }
        if let Some(target) = &self.html {
            target.write(&super::html(title, sheets))?;
        }
        Ok(())
    }
}
