//! `memwright report`: renders saved documents in every format, and compares several of them.

use crate::host::host_file;
use crate::render;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use crate::cmd::args::ReportArgs;
use crate::cmd::compare;
use crate::cmd::results;
use crate::cmd::results::versions::{NotChosen, Plans};
use crate::compare::{account_sheet, bench_sheet as table, comparison, side_by_side, sweep_sheet};
use crate::host::output::{print, say};
use crate::host::results::Results;
use crate::host::taken::Taken;
use crate::model::bench::{self, Document as Bench};
use crate::model::failure::Failure;
use crate::model::image::split_name;
use crate::model::region_names::{self, RegionNames};
use crate::model::saved::Saved;
use crate::model::sweep::{self, Document as Sweep};
use crate::render::account;
use crate::render::outputs::{Outputs, Shown};
use crate::sheet::Sheet;

/// The title of pages with a report.
const TITLE: &str = "memwright report";

/// A document file that the user names.
struct File {
    name: Option<String>,
    path: PathBuf,
}

impl File {
    /// Parses `[NAME=]FILE`.
    fn of(text: &str) -> Self {
        let (name, path) = split_name(text);
        Self {
            name: name.map(str::to_owned),
            path: path.into(),
        }
    }

    /// Returns the file name without its extension. It is the name of the column if another column has the same kernel.
    fn stem(&self) -> String {
        let stem = self.path.file_stem().unwrap_or_default();
        stem.to_string_lossy().into_owned()
    }
}

/// The document that a file contains.
enum Content {
    Run(Saved),
    Comparison(Vec<Saved>),
    Bench(Bench),
    Sweep(Sweep),
}

/// Renders one document, or compares several runs. The exit code of a comparison is that of `compare`.
///
/// # Errors
/// A usage error if a file is not a document that this command wrote, or if the documents cannot be compared.
pub fn report(args: &ReportArgs) -> Result<u8, Failure> {
    if args.files.iter().any(|text| Path::new(text).is_dir()) {
        return folders(args);
    }
    if args.only.is_some() {
        return Err(Failure::Usage(anyhow!(
            "--only: no folder of results is given"
        )));
    }
    let files: Vec<File> = args.files.iter().map(|text| File::of(text)).collect();
    let mut taken = Taken::default();
    for file in &files {
        taken.read_path("a document that is read", &file.path);
    }
    let contents = files.iter().map(|file| content(&file.path));
    let contents: Vec<Content> = contents
        .collect::<anyhow::Result<_>>()
        .map_err(Failure::Usage)?;
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut taken)?;
    if let [file] = files.as_slice() {
        return one(args, file, &contents[0], &outputs);
    }
    let saved = contents
        .iter()
        .map(|content| match content {
            Content::Run(saved) => Ok(saved),
            Content::Comparison(_) | Content::Bench(_) | Content::Sweep(_) => {
                Err(anyhow!("only documents of run are compared"))
            }
        })
        .collect::<anyhow::Result<Vec<_>>>()
        .map_err(Failure::Usage)?;
    let columns: Vec<(String, &Saved)> = names(&files, &saved).into_iter().zip(saved).collect();
    conclude(args, &columns, &outputs)
}

/// Merges folders of results, and reports the complete bench. Returns the exit code.
fn folders(args: &ReportArgs) -> Result<u8, Failure> {
    if let Some(text) = args.files.iter().find(|text| !Path::new(text).is_dir()) {
        let why = "folders of results are not mixed with documents";
        return Err(Failure::Usage(anyhow!("{text}: {why}")));
    }
    let mut given = BTreeSet::new();
    let mut folders = Vec::new();
    for text in &args.files {
        let about = fs::metadata(text).with_context(|| text.clone())?;
        if given.insert((about.dev(), about.ino())) {
            folders.push(Results::open(Path::new(text)).map_err(Failure::Usage)?);
        } else {
            say(&format!("{text} is given twice, and is read once"));
        }
    }
    let plans = Plans::read(&folders).map_err(Failure::Usage)?;
    let plan = match plans.choose(args.only.as_deref()) {
        Ok(plan) => plan,
        Err(why) => {
            for line in plans.lines(&folders)? {
                say(&line);
            }
            return Err(match why {
                NotChosen::Unknown(_) => Failure::Usage(anyhow!(why.to_string())),
                NotChosen::Several(_) => Failure::Skipped(why.to_string()),
            });
        }
    };
    let outputs = Outputs::open(args.json.as_deref(), &args.formats, &mut Taken::default())?;
    results::conclude(plan, &folders, &args.shown, &outputs)
}

/// Returns the patterns of `--rows`, in which the names that the documents give their regions are replaced by the
/// regions' numbers.
fn rows<'a>(
    args: &ReportArgs,
    documents: impl Iterator<Item = &'a Saved>,
) -> Result<Vec<String>, Failure> {
    let patterns = &args.shown.rows;
    if patterns.is_empty() {
        return Ok(Vec::new());
    }
    let names: Vec<RegionNames> = documents.map(Saved::region_names).collect();
    let rows = region_names::all_numbered(patterns, &names);
    rows.map_err(|unknown| Failure::Usage(anyhow!("--rows: {unknown}")))
}

fn conclude(
    args: &ReportArgs,
    columns: &[(String, &Saved)],
    outputs: &Outputs,
) -> Result<u8, Failure> {
    let shown = Shown {
        all: args.shown.all,
        rows: rows(args, columns.iter().map(|(_, saved)| *saved))?,
    };
    compare::conclude(TITLE, columns, Vec::new(), &shown, outputs)
}

/// Renders one document. Returns the exit code.
fn one(
    args: &ReportArgs,
    file: &File,
    content: &Content,
    outputs: &Outputs,
) -> Result<u8, Failure> {
    match content {
        Content::Comparison(columns) => {
            let columns: Vec<&Saved> = columns.iter().collect();
            let names = names(&[], &columns).into_iter();
            // The exit code is 0 even if the kernels differ: `compare` reported the differences when it wrote this
            // document.
            let columns: Vec<(String, &Saved)> = names.zip(columns).collect();
            conclude(args, &columns, outputs)?;
            Ok(0)
        }
        Content::Run(saved) => {
            let unknown = |unknown| Failure::Usage(anyhow!("--rows: {unknown}"));
            let sheet = single(file, saved);
            let rows = rows(args, std::iter::once(saved))?;
            let sheet = sheet.select(&rows).map_err(unknown)?;
            let text = match saved {
                Saved::Memwright(document) if args.shown.rows.is_empty() => {
                    account::render(document, false)
                }
                Saved::Memwright(_) | Saved::Kernel(_) => render::text(&sheet, true),
            };
            write(&text, &[sheet], saved, outputs)
        }
        Content::Sweep(document) => {
            let columns = document.points.iter().flat_map(|point| &point.columns);
            let saved: Vec<Saved> = columns
                .cloned()
                .map(|one| Saved::Kernel(Box::new(one)))
                .collect();
            let rows = rows(args, saved.iter())?;
            let sheet = sweep_sheet::sheet(document, &rows, args.shown.all)
                .map_err(|unknown| Failure::Usage(anyhow!("--rows: {unknown}")))?;
            outputs.present(TITLE, &sheet, true, document)?;
            Ok(0)
        }
        Content::Bench(document) => {
            if !args.shown.rows.is_empty() {
                return Err(Failure::Usage(anyhow!("--rows: a bench has cases instead")));
            }
            let sheets = document.experiments.iter().map(|measured| {
                let mut sheet = table::sheet(measured, &document.columns);
                sheet
                    .notes
                    .extend(table::origins(measured, &document.columns));
                sheet
            });
            let sheets: Vec<Sheet> = sheets.collect();
            let text = sheets.iter().map(|one| render::text(one, true));
            write(&text.collect::<String>(), &sheets, document, outputs)
        }
    }
}

fn write(
    text: &str,
    sheets: &[Sheet],
    document: &impl serde::Serialize,
    outputs: &Outputs,
) -> Result<u8, Failure> {
    if !outputs.on_output() {
        print(text.as_bytes())?;
    }
    outputs.write(TITLE, sheets, true, document)?;
    Ok(0)
}

/// Returns the sheet of a single run.
fn single(file: &File, saved: &Saved) -> Sheet {
    match saved {
        Saved::Kernel(document) => {
            let mut document = (**document).clone();
            if let Some(name) = &file.name {
                document.kernel.name.clone_from(name);
            }
            side_by_side::account(&document)
        }
        Saved::Memwright(document) => {
            let name = file.name.as_deref().unwrap_or(account_sheet::COLUMN);
            account_sheet::sheet(&[(name.to_owned(), document)])
        }
    }
}

/// Returns the names of the columns. A column has the name that the user gives it. Without such a name, it has the name
/// of its kernel or, if several columns have the same kernel, the name of its file.
fn names(files: &[File], columns: &[&Saved]) -> Vec<String> {
    let kernel = |saved: &Saved| match saved {
        Saved::Kernel(document) => document.kernel.name.clone(),
        Saved::Memwright(_) => account_sheet::COLUMN.to_owned(),
    };
    let kernels: Vec<String> = columns.iter().map(|saved| kernel(saved)).collect();
    let name = |(index, own): (usize, &String)| {
        let is_alone = kernels.iter().filter(|other| *other == own).count() == 1;
        match files.get(index) {
            Some(file) => match &file.name {
                Some(name) => name.clone(),
                None if is_alone => own.clone(),
                None => file.stem(),
            },
            None => own.clone(),
        }
    };
    kernels.iter().enumerate().map(name).collect()
}

fn content(path: &Path) -> anyhow::Result<Content> {
    let value = host_file::read_json(path)?;
    parse(value).with_context(|| path.display().to_string())
}

/// Parses a document by its kind.
fn parse(mut value: Value) -> anyhow::Result<Content> {
    if value["kind"] == bench::KIND {
        if value["schema"] != bench::SCHEMA {
            bail!("a bench of another version");
        }
        return Ok(Content::Bench(
            serde_json::from_value(value).context("damaged")?,
        ));
    }
    if value["kind"] == sweep::KIND {
        if value["schema"] != sweep::SCHEMA {
            bail!("a sweep of another version");
        }
        return Ok(Content::Sweep(
            serde_json::from_value(value).context("damaged")?,
        ));
    }
    if value["kind"] == comparison::KIND {
        let columns = match value["columns"].take() {
            Value::Array(columns) => columns,
            _ => bail!("damaged: no columns"),
        };
        let columns = columns.into_iter().map(Saved::parse);
        return Ok(Content::Comparison(columns.collect::<anyhow::Result<_>>()?));
    }
    Saved::parse(value)
        .map(Content::Run)
        .map_err(|_| anyhow!("no document that memwright wrote"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::document;

    #[test]
    fn columns_have_names_of_their_own() {
        let saved = |name: &str| {
            let mut document = document();
            document.kernel.name = name.to_owned();
            Saved::Kernel(Box::new(document))
        };
        let (one, two) = (saved("a"), saved("b"));
        for (texts, columns, expected) in [
            (["x/1.json", "x/2.json"], [&one, &two], ["a", "b"]),
            (["x/1.json", "x/2.json"], [&one, &one], ["1", "2"]),
            (["before=1.json", "2.json"], [&one, &one], ["before", "2"]),
            (["./a=1.json", "2.json"], [&one, &two], ["a", "b"]),
        ] {
            let files = texts.map(File::of);
            assert_eq!(names(&files, &columns), expected, "{texts:?}");
        }
    }

    #[test]
    fn kinds_are_known_by_what_they_say() {
        let run = serde_json::to_value(document()).unwrap();
        let comparison =
            serde_json::json!({"schema": 2, "kind": "comparison", "columns": [run.clone()]});
        assert!(matches!(parse(run), Ok(Content::Run(_))));
        assert!(
            matches!(parse(comparison), Ok(Content::Comparison(columns)) if columns.len() == 1)
        );
        for wrong in [
            serde_json::json!({}),
            serde_json::json!({"schema": 1, "kind": "kernel-run"}),
            serde_json::json!({"schema": 9, "kind": "bench"}),
            serde_json::json!({"schema": 2, "kind": "comparison"}),
            serde_json::json!([1]),
        ] {
            assert!(parse(wrong.clone()).is_err(), "{wrong}");
        }
    }
}
