//! Documents of several kernels, as a sheet and in every format.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::{Context, anyhow};
use serde::Serialize;

use super::counts::Counts;
use super::document::{Document, SCHEMA};
use super::log::Region;
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
            state_differs: differing_states(&sheet.sections),
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
    let mut regions: Vec<u16> = documents
        .iter()
        .flat_map(|one| one.regions.iter().flatten())
        .map(|region| region.region)
        .collect();
    regions.sort_unstable();
    regions.dedup();
    for number in regions {
        let of = |one: &Document| {
            let mut regions = one.regions.iter().flatten();
            regions.find(|region| region.region == number).copied()
        };
        let passes: Vec<u64> = documents
            .iter()
            .filter_map(of)
            .map(|one| one.passes)
            .collect();
        let counts: Vec<Option<Counts>> = documents
            .iter()
            .map(|one| of(one).map(|one| one.counts))
            .collect();
        let mut section = section(title(number, &passes), &counts);
        for (place, pick) in STATES {
            let states: Vec<_> = documents
                .iter()
                .map(|one| of(one).and_then(|one| pick(&one)))
                .collect();
            section.rows.extend(state_rows(place, &states));
        }
        sections.push(section);
    }
    let mut notes: Vec<String> = differing_states(&sections);
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

fn state_rows(place: &str, states: &[Option<PageTables>]) -> Vec<Row> {
    let rows = PageTables::default().rows().into_iter().enumerate();
    let row = |(index, (title, _)): (usize, (&str, u64))| Row {
        group: place.to_owned(),
        title: title.to_owned(),
        cells: states
            .iter()
            .map(|state| Cell::count(state.map(|state| state.rows()[index].1)))
            .collect(),
    };
    rows.map(row).collect()
}

/// A line for each row of page tables that is not the same in every column: then the kernels did not do the same work.
pub fn differing_states(sections: &[Section]) -> Vec<String> {
    let mut lines = Vec::new();
    for section in sections {
        for row in &section.rows {
            let is_state = STATES.iter().any(|(place, _)| *place == row.group);
            if is_state && row.differs() {
                let values: Vec<&str> = row.cells.iter().map(|cell| cell.text.as_str()).collect();
                lines.push(format!(
                    "NOT THE SAME STATE: {}: {}: {}: {}",
                    section.title,
                    row.group,
                    row.title,
                    values.join(" and ")
                ));
            }
        }
    }
    lines
}

fn title(number: u16, passes: &[u64]) -> String {
    match passes {
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
    notes
}
