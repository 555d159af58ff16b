//! Documents of several kernels, as a sheet and in every format.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::counts::Counts;
use super::document::{Document, SCHEMA};
use super::log::{Marks, Region};
use super::tables::PageTables;
use crate::args::Formats;
use crate::failure::Failure;
use crate::output::{Taken, print};
use crate::session::{say, write_fully};
use crate::sheet::{self, Cell, Row, Section, Sheet};

/// Says what is being done, to a terminal alone.
pub fn progress(line: &str) {
    if io::stderr().is_terminal() {
        say(line);
    }
}

/// Where results go. Every file is opened before anything runs: one that cannot be written is found then.
pub struct Outputs {
    json: Option<Target>,
    csv: Option<Target>,
    markdown: Option<Target>,
    html: Option<Target>,
}

enum Target {
    Output,
    File(File),
}

impl Target {
    fn open(option: &str, path: Option<&Path>, taken: &mut Taken) -> Result<Option<Self>, Failure> {
        let Some(path) = path else { return Ok(None) };
        if path == Path::new("-") {
            return Ok(Some(Self::Output));
        }
        let file = taken.create(&format!("the file of {option}"), path);
        Ok(Some(Self::File(file.map_err(Failure::Usage)?)))
    }

    fn write(&self, text: &str) -> anyhow::Result<()> {
        match self {
            Self::Output => print(text.as_bytes()),
            Self::File(file) => {
                write_fully(file.as_fd(), text.as_bytes()).context("cannot write a result")
            }
        }
    }
}

impl Outputs {
    /// Opens the files.
    ///
    /// # Errors
    /// One that cannot be written, or is read too; two formats for one file, or for standard output.
    pub fn open(
        json: Option<&Path>,
        formats: &Formats,
        taken: &mut Taken,
    ) -> Result<Self, Failure> {
        let outputs = Self {
            json: Target::open("--json", json, taken)?,
            csv: Target::open("--csv", formats.csv.as_deref(), taken)?,
            markdown: Target::open("--md", formats.md.as_deref(), taken)?,
            html: Target::open("--html", formats.html.as_deref(), taken)?,
        };
        let on_output = outputs
            .targets()
            .filter(|one| matches!(one, Target::Output));
        if on_output.count() > 1 {
            return Err(Failure::Usage(anyhow!(
                "standard output (\"-\") takes one of --json, --csv, --md and --html"
            )));
        }
        Ok(outputs)
    }

    fn targets(&self) -> impl Iterator<Item = &Target> {
        let all = [&self.json, &self.csv, &self.markdown, &self.html];
        all.into_iter().flatten()
    }

    /// Whether standard output is taken by one of the formats, so that no tables for people go there.
    pub fn on_output(&self) -> bool {
        self.targets()
            .any(|target| matches!(target, Target::Output))
    }

    /// Writes sheets and what they were made of to wherever they are wanted.
    ///
    /// # Errors
    /// Those of writing.
    pub fn write(
        &self,
        title: &str,
        sheets: &[Sheet],
        document: &impl Serialize,
    ) -> anyhow::Result<()> {
        let each = |render: fn(&Sheet) -> String| -> String { sheets.iter().map(render).collect() };
        if let Some(target) = &self.json {
            let mut text = serde_json::to_string_pretty(document).context("cannot write JSON")?;
            text.push('\n');
            target.write(&text)?;
        }
        if let Some(target) = &self.csv {
            target.write(&each(sheet::csv))?;
        }
        if let Some(target) = &self.markdown {
            target.write(&each(sheet::markdown))?;
        }
        if let Some(target) = &self.html {
            target.write(&sheet::html(title, sheets))?;
        }
        Ok(())
    }
}

/// What `compare` writes as JSON.
#[derive(Debug, Serialize)]
pub struct Comparison<'a> {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What the document is of.
    pub kind: &'static str,
    /// Whether any count differs from the first kernel's.
    pub differs: bool,
    /// Whether no kernel's second run was another; also where there was none.
    pub repeats: bool,
    /// How page tables differ at marks: where they do, the kernels did not do the same work.
    pub state_differs: Vec<String>,
    /// What each kernel gave.
    pub columns: &'a [Document],
}

impl<'a> Comparison<'a> {
    /// One of these documents.
    pub fn new(columns: &'a [Document], sheet: &Sheet) -> Self {
        Self {
            schema: SCHEMA,
            kind: "comparison",
            differs: sheet.differs(),
            repeats: columns.iter().all(|one| one.repeats != Some(false)),
            state_differs: differing_states(columns),
            columns,
        }
    }
}

/// The documents side by side, the first being what the others are compared with.
pub fn sheet(documents: &[Document]) -> Sheet {
    let arguments = documents.first().map(|one| one.arguments.join(" "));
    let mut sections = vec![section(
        "run".to_owned(),
        &documents.iter().map(|one| one.run).collect::<Vec<_>>(),
    )];
    for number in region_numbers(documents) {
        let marks: Vec<Option<Marks>> = documents.iter().map(|one| marks_of(one, number)).collect();
        let counts: Vec<Option<Counts>> = documents
            .iter()
            .map(|one| region_of(one, number).map(|one| one.counts))
            .collect();
        let mut section = section(title(number, &marks), &counts);
        let marks = rows("Marks", &marks, |marks| marks.rows().to_vec());
        section.rows.splice(0..0, marks);
        for (place, pick) in STATES {
            let states: Vec<_> = documents
                .iter()
                .map(|one| region_of(one, number).and_then(|one| pick(&one)))
                .collect();
            let values = |state: &PageTables| {
                let rows = state.rows().into_iter();
                rows.map(|row| (row.title, row.value)).collect()
            };
            section.rows.extend(rows(place, &states, values));
        }
        sections.push(section);
    }
    let mut notes: Vec<String> = differing_states(documents);
    notes.extend(documents.iter().flat_map(self::notes));
    Sheet {
        heading: arguments.unwrap_or_default(),
        columns: documents
            .iter()
            .map(|one| one.kernel.name.clone())
            .collect(),
        compares: documents.len() > 1,
        sections,
        notes,
    }
}

/// One document, for people.
pub fn account(document: &Document) -> Sheet {
    let mut sheet = sheet(std::slice::from_ref(document));
    sheet.heading = format!("Account of {} on {}", sheet.heading, document.kernel.name);
    sheet.notes.push(format!(
        "{} of memory, {}",
        crate::size::in_mebibytes(document.memory),
        crate::table::cpus(document.cpus)
    ));
    sheet.notes.push(format!(
        "QEMU {} (sha256 {})",
        document.qemu.version, document.qemu.sha256
    ));
    for file in std::iter::once(&document.program).chain(&document.companions) {
        sheet
            .notes
            .push(format!("sha256 {} {}", file.sha256, file.path));
    }
    sheet
}

/// Where page tables are read.
const STATES: [(&str, PickState); 2] = [
    ("Page tables where it begins", |one| one.at_beginning),
    ("Page tables where it ends", |one| one.at_end),
];
/// Which of a region's page tables.
type PickState = fn(&Region) -> Option<PageTables>;

/// The regions that any of the documents has.
fn region_numbers(documents: &[Document]) -> Vec<u16> {
    let regions = documents
        .iter()
        .flat_map(|one| one.regions.iter().flatten());
    let mut numbers: Vec<u16> = regions.map(|region| region.region).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

fn region_of(document: &Document, number: u16) -> Option<Region> {
    let mut regions = document.regions.iter().flatten();
    regions.find(|region| region.region == number).copied()
}

/// How the marks of a region came: none did where it was not entered; `None` where no marks are seen.
fn marks_of(document: &Document, number: u16) -> Option<Marks> {
    document.regions.as_ref()?;
    let region = region_of(document, number);
    Some(region.map(|region| region.marks).unwrap_or_default())
}

/// A row for each of what `values` gives of a column; a column that has nothing is not measured.
fn rows<T: Default>(
    group: &str,
    columns: &[Option<T>],
    values: impl Fn(&T) -> Vec<(&'static str, u64)>,
) -> Vec<Row> {
    let titles = values(&T::default()).into_iter().enumerate();
    let row = |(index, (title, _)): (usize, (&str, u64))| Row {
        group: group.to_owned(),
        title: title.to_owned(),
        cells: columns
            .iter()
            .map(|column| Cell::count(column.as_ref().map(|column| values(column)[index].1)))
            .collect(),
    };
    titles.map(row).collect()
}

/// A line for each way in which the kernels did not do the same work: marks that came otherwise, and memory that the
/// program has mapped otherwise at one of them.
pub fn differing_states(documents: &[Document]) -> Vec<String> {
    let mut lines = Vec::new();
    for number in region_numbers(documents) {
        let mut compare = |what: &str, values: &[Option<u64>]| {
            let known: Vec<u64> = values.iter().copied().flatten().collect();
            if known.iter().any(|value| *value != known[0]) {
                let texts = values.iter().map(|value| Cell::count(*value).text);
                let texts: Vec<String> = texts.collect();
                let texts = texts.join(" and ");
                lines.push(format!(
                    "NOT THE SAME STATE: region {number}: {what}: {texts}"
                ));
            }
        };
        for (index, (title, _)) in Marks::default().rows().into_iter().enumerate() {
            let value = |one| marks_of(one, number).map(|marks| marks.rows()[index].1);
            let values: Vec<_> = documents.iter().map(value).collect();
            compare(&format!("Marks: {title}"), &values);
        }
        for (place, pick) in STATES {
            let rows = PageTables::default().rows().into_iter().enumerate();
            for (index, row) in rows.filter(|(_, row)| row.of_program) {
                let state = |one| region_of(one, number).and_then(|one| pick(&one));
                let value = |one| state(one).map(|state| state.rows()[index].value);
                let values: Vec<_> = documents.iter().map(value).collect();
                compare(&format!("{place}: {}", row.title), &values);
            }
        }
    }
    lines
}

/// A line for each region of which not all marks pair, or that was passed more than once.
fn remarks(document: &Document) -> Vec<String> {
    let mut lines = Vec::new();
    for region in document.regions.iter().flatten() {
        let (name, number, marks) = (&document.kernel.name, region.region, region.marks);
        if marks.passes > 1 {
            let passes = marks.passes;
            lines.push(format!(
                "{name}: region {number}: the counts are the sum of {passes} passes, the page tables those of the first"
            ));
        }
        let unpaired = marks.rows().into_iter().skip(1);
        for (title, count) in unpaired.filter(|(_, count)| *count > 0) {
            lines.push(format!("{name}: region {number}: {title}: {count}"));
        }
    }
    lines
}

fn title(number: u16, marks: &[Option<Marks>]) -> String {
    let passes: Vec<u64> = marks.iter().flatten().map(|marks| marks.passes).collect();
    match passes.as_slice() {
        [1, rest @ ..] if rest.iter().all(|other| *other == 1) => format!("region {number}"),
        [first, rest @ ..] if rest.iter().all(|other| other == first) => {
            format!("region {number}, passed {first} times")
        }
        _ => {
            let list: Vec<String> = passes.iter().map(u64::to_string).collect();
            format!("region {number}, passed {} times", list.join(" and "))
        }
    }
}

fn section(title: String, columns: &[Option<Counts>]) -> Section {
    let rows = Counts::default().rows().into_iter().enumerate();
    let rows = rows.map(|(index, (group, title, _))| Row {
        group: group.to_owned(),
        title: title.to_owned(),
        cells: columns
            .iter()
            .map(|counts| Cell::count(counts.and_then(|counts| counts.rows()[index].2)))
            .collect(),
    });
    Section {
        title,
        rows: rows.collect(),
    }
}

fn notes(document: &Document) -> Vec<String> {
    let name = &document.kernel.name;
    let mut notes = vec![format!(
        "{name}: {}; {}",
        crate::table::ending(Some(document.outcome)),
        document.repetition()
    )];
    notes.push(format!(
        "{name}: {} (sha256 {})",
        document.kernel.version, document.kernel.sha256
    ));
    notes.extend(remarks(document));
    notes
}
