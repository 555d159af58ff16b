//! Renders documents of runs on kernel images as a sheet with one column per run.

use crate::compare::names::{self, Name};
use crate::compare::{again, faults, identity};
use crate::model::counts::Counts;
use crate::model::kernel_run::Document;
use crate::model::page_tables::{PageTables, SMALL_READ_ONLY};
use crate::model::passes::Each;
use crate::model::region::{Marks, Region};
use crate::model::sent::Sent;
use crate::model::size::in_mebibytes;
use crate::model::statistic::{Pass, Statistic};
use crate::model::{region_names, words};
use crate::sheet::{MeasuredKernel, NOT_MEASURED, NOT_OBSERVABLE, Row, Section, Sheet, Value};

/// The group of the rows about marks.
pub const MARKS: &str = "Marks";
/// The group of the rows about interprocessor interrupts.
pub const SENT: &str = "Interprocessor interrupts";
/// The marks of a region, at which its page tables are read. Each has the group of its rows, its name in the JSON, and
/// a function that returns the page tables.
pub const PLACES: [(&str, &str, PickTables); 2] = [
    ("Page tables where it begins", "at_beginning", |region| {
        region.at_beginning
    }),
    ("Page tables where it ends", "at_end", |region| {
        region.at_end
    }),
];
/// The heading of lines about the change of page tables between the begin mark and the end mark.
const CHANGE: &str = "Page tables, changed from its beginning to its end";
/// A function that returns the page tables at one of a region's marks.
pub type PickTables = fn(&Region) -> Option<PageTables>;
/// A row of a report: the group, the title, the value, and whether it counts work of the program.
type Line = (&'static str, &'static str, Option<u64>, bool);

/// Returns a sheet with one column per document. The other columns are compared with the first.
pub fn sheet(documents: &[Document]) -> Sheet {
    let heading = documents.first().map(Document::subject);
    let runs: Vec<_> = documents.iter().map(|one| one.run).collect();
    let mut sections = vec![Section {
        title: names::RUN.to_owned(),
        remark: String::new(),
        is_ranked: false,
        rows: count_rows(names::RUN, &runs),
    }];
    sections.extend(cpu_sections(documents));
    sections.extend(sent_section(documents));
    let numbers = region_numbers(documents).into_iter();
    sections.extend(numbers.map(|number| region_section(documents, number)));
    let causes: Vec<_> = documents.iter().map(|one| one.faults.as_ref()).collect();
    if causes.iter().any(Option::is_some) {
        sections.extend(faults::section(&causes));
    }
    let mut sheet = Sheet {
        heading: heading.unwrap_or_default(),
        columns: documents
            .iter()
            .map(|one| one.kernel.name.clone())
            .collect(),
        compares: documents.len() > 1,
        sections,
        notes: Vec::new(),
        commands: again::on_kernels(documents, &[]).into_iter().collect(),
        kernels: documents.iter().map(measured_kernel).collect(),
        verdict: None,
    };
    if documents.iter().any(|one| one.program.is_none()) {
        let rows = sheet
            .sections
            .iter_mut()
            .flat_map(|section| &mut section.rows);
        for row in rows.filter(|row| is_unobservable_alone(&row.name)) {
            row.absent = NOT_OBSERVABLE;
        }
    }
    sheet.notes = differing_states(&sheet);
    sheet.notes.extend(differing_names(documents));
    sheet.notes.extend(documents.iter().flat_map(notes));
    sheet
}

/// Returns one section for each CPU that has counts in at least one column.
fn cpu_sections(documents: &[Document]) -> impl Iterator<Item = Section> + '_ {
    let most = documents.iter().map(|one| one.by_cpu.len()).max();
    (0..most.unwrap_or(0)).map(|cpu| {
        let counts = documents.iter().map(|one| one.by_cpu.get(cpu).copied());
        Section {
            title: format!("CPU {cpu}"),
            remark: String::new(),
            is_ranked: false,
            rows: count_rows(&names::cpu(cpu), &counts.collect::<Vec<_>>()),
        }
    })
}

/// Returns the section with the interprocessor interrupts of all documents; `None` if none was sent. If a document with
/// several CPUs lacks the interrupts of a row, their count is 0.
fn sent_section(documents: &[Document]) -> Option<Section> {
    let mut all: Vec<Sent> = documents.iter().flat_map(|one| one.sent.clone()).collect();
    let key = |one: &Sent| (one.from, one.to, one.vector);
    all.sort_by_key(key);
    all.dedup_by_key(|one| key(one));
    let cell = |document: &Document, row: &Sent| {
        let sent = document.sent.iter().find(|one| key(one) == key(row));
        let count = sent.map_or(0, |sent| sent.count);
        (!document.by_cpu.is_empty()).then_some(Value::Count(count))
    };
    let rows = all.iter().map(|row| Row {
        name: names::sent(row),
        group: SENT.to_owned(),
        title: row.title(),
        unit: "interrupts".to_owned(),
        statistic: None,
        is_state: false,
        absent: NOT_MEASURED,
        cells: documents.iter().map(|one| cell(one, row)).collect(),
    });
    (!all.is_empty()).then(|| Section {
        title: "between CPUs".to_owned(),
        remark: String::new(),
        is_ranked: false,
        rows: rows.collect(),
    })
}

/// Returns whether a row can be observed only on Linux and on Memwright's kernel. The vectors of interrupts and the use
/// of page tables are not known for other kernels.
fn is_unobservable_alone(name: &str) -> bool {
    let of_interrupts = ["call_interrupts", "instructions.interrupts"];
    let mut places = PLACES.iter();
    of_interrupts.iter().any(|row| name.ends_with(row))
        || places.any(|(_, place, _)| name.contains(&format!(".{place}.")))
}

/// Returns the kernel of a document, by the name of its column.
fn measured_kernel(document: &Document) -> MeasuredKernel {
    MeasuredKernel {
        name: document.kernel.name.clone(),
        sha256: document.kernel.sha256.clone(),
    }
}

/// Returns one document as a sheet.
pub fn account(document: &Document) -> Sheet {
    let mut sheet = sheet(std::slice::from_ref(document));
    sheet.heading = document.title();
    sheet.notes.push(format!(
        "{} of memory, {}",
        in_mebibytes(document.memory),
        words::cpus(document.cpus)
    ));
    sheet.notes.push(format!(
        "QEMU {} (sha256 {})",
        document.qemu.version, document.qemu.sha256
    ));
    for file in document.program.iter().chain(&document.companions) {
        sheet
            .notes
            .push(format!("sha256 {} {}", file.sha256, file.path));
    }
    sheet
}

/// Returns a sheet with one column per document, and notes about what the documents share and how they differ.
pub fn comparison(documents: &[Document]) -> Sheet {
    let mut sheet = sheet(documents);
    sheet.notes.extend(other_settings(documents));
    sheet.notes.extend(documents.first().map(|common| {
        let program = common.program.as_ref();
        let program = program.map(|file| format!("; {} sha256 {}", file.path, file.sha256));
        format!(
            "QEMU {}, {} of memory, {}{}",
            common.qemu.version,
            in_mebibytes(common.memory),
            words::cpus(common.cpus),
            program.unwrap_or_default()
        )
    }));
    sheet
}

/// Returns one line for each column whose memory, CPUs, program or other settings differ from the first column's.
fn other_settings(documents: &[Document]) -> Vec<String> {
    let options = |one: &Document| {
        let memory = format!("memory={}", in_mebibytes(one.memory));
        let machine = [memory, format!("cpus={}", one.cpus)];
        let program = one.program.as_ref();
        let program = program.map(|file| format!("program={}", file.path));
        let all = machine.into_iter().chain(program);
        all.chain(one.settings.iter().cloned()).collect::<Vec<_>>()
    };
    let Some((first, others)) = documents.split_first() else {
        return Vec::new();
    };
    let first = options(first);
    let line = |other: &Document| {
        let own = options(other);
        let lacking = || identity::lacking(&own, &first);
        (own != first).then(|| format!("{}: {}", other.kernel.name, lacking()))
    };
    others.iter().filter_map(line).collect()
}

/// Returns one line for each row that proves that the kernels did not do the same work. These are the rows about marks,
/// and the rows about the program's page tables at a mark. A difference in how a region changed the number of read-only
/// pages also gives a line.
pub fn differing_states(sheet: &Sheet) -> Vec<String> {
    let mut lines = Vec::new();
    for section in &sheet.sections {
        for row in section.rows.iter().filter(|row| row.is_state) {
            let known: Vec<Value> = row.cells.iter().copied().flatten().collect();
            if known.iter().any(|value| *value != known[0]) {
                let cells = row.cells.iter().map(|cell| row.cell_text(*cell));
                let cells: Vec<String> = cells.collect();
                lines.push(format!(
                    "NOT THE SAME STATE: {}: {}: {}: {}",
                    section.title,
                    row.group,
                    row.title,
                    cells.join(" and ")
                ));
            }
        }
        lines.extend(differing_change(section));
    }
    lines
}

/// Returns a line if the kernels differ in the number of read-only pages that the region added or removed.
fn differing_change(section: &Section) -> Option<String> {
    let [before, after] = PLACES.map(|(group, _, _)| {
        let mut rows = section.rows.iter();
        rows.find(|row| row.group == group && row.title == SMALL_READ_ONLY)
    });
    let change = |(before, after): (&Option<Value>, &Option<Value>)| match (before, after) {
        (Some(Value::Count(before)), Some(Value::Count(after))) => {
            Some(i128::from(*after) - i128::from(*before))
        }
        (_, _) => None,
    };
    let cells = before?.cells.iter().zip(&after?.cells);
    let changes: Vec<Option<i128>> = cells.map(change).collect();
    let known: Vec<i128> = changes.iter().copied().flatten().collect();
    if known.iter().all(|change| *change == known[0]) {
        return None;
    }
    let text = |change: &Option<i128>| match change {
        Some(0) => "0".to_owned(),
        Some(change) => format!("{change:+}"),
        None => NOT_MEASURED.to_owned(),
    };
    let texts: Vec<String> = changes.iter().map(text).collect();
    Some(format!(
        "NOT THE SAME STATE: {}: {CHANGE}: {SMALL_READ_ONLY}: {}",
        section.title,
        texts.join(" and ")
    ))
}

/// Returns one line for each region to which the programs of several columns give different names.
fn differing_names(documents: &[Document]) -> Vec<String> {
    let line = |number: u16| {
        let regions = documents
            .iter()
            .filter_map(|one| Some((one, region_of(one, number)?)));
        let named: Vec<_> = regions
            .map(|(one, region)| (&one.kernel.name, region.name))
            .collect();
        let differs = named.iter().any(|(_, name)| *name != named[0].1);
        let text = |(column, name): &(&String, Option<String>)| {
            format!("{column}: {}", name.as_deref().unwrap_or("no name"))
        };
        let texts: Vec<String> = named.iter().map(text).collect();
        differs.then(|| format!("the names of region {number} differ: {}", texts.join(", ")))
    };
    region_numbers(documents)
        .into_iter()
        .filter_map(line)
        .collect()
}

/// Returns the numbers of the regions that occur in any of the documents.
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
    regions.find(|region| region.region == number).cloned()
}

/// Returns the marks of a region, which are all 0 if the program did not mark the region. Returns `None` if the
/// document has no regions, because marks were not detected.
fn marks_of(document: &Document, number: u16) -> Option<Marks> {
    document.regions.as_ref()?;
    let region = region_of(document, number);
    Some(region.map(|region| region.marks).unwrap_or_default())
}

fn region_section(documents: &[Document], number: u16) -> Section {
    let prefix = names::region(number);
    let marks: Vec<Option<Marks>> = documents.iter().map(|one| marks_of(one, number)).collect();
    let regions: Vec<Option<Region>> = documents.iter().map(|one| region_of(one, number)).collect();
    let mark_lines = |marks: Option<Marks>| -> Vec<Line> {
        let line = |(title, value)| (MARKS, title, marks.map(|_| value), true);
        marks.unwrap_or_default().rows().map(line).to_vec()
    };
    let mut rows = side_by_side(&prefix, &names::MARKS, &marks, mark_lines);
    let counts: Vec<_> = regions
        .iter()
        .map(|region| region.as_ref().map(|region| region.counts))
        .collect();
    rows.extend(with_passes(&prefix, count_rows(&prefix, &counts), &regions));
    for (group, place, pick) in PLACES {
        let states = regions.iter().map(|region| region.as_ref().and_then(pick));
        let lines = |tables: Option<PageTables>| -> Vec<Line> {
            let rows = tables.unwrap_or_default().rows();
            rows.map(|row| (group, row.title, tables.map(|_| row.value), row.of_program))
                .to_vec()
        };
        let prefix = names::full(&prefix, place);
        let states: Vec<_> = states.collect();
        rows.extend(side_by_side(&prefix, &names::TABLES, &states, lines));
    }
    Section {
        title: title(number, &regions),
        remark: passes(&marks),
        is_ranked: false,
        rows,
    }
}

/// Returns the title of a region, with every name that the programs of the columns give it.
fn title(number: u16, regions: &[Option<Region>]) -> String {
    let mut called: Vec<&str> = Vec::new();
    let names = regions.iter().flatten().flat_map(|one| one.name.as_deref());
    for name in names {
        if !called.contains(&name) {
            called.push(name);
        }
    }
    let called = (!called.is_empty()).then(|| called.join(" and "));
    region_names::title(number, called.as_deref())
}

fn count_rows(prefix: &str, columns: &[Option<Counts>]) -> Vec<Row> {
    side_by_side(prefix, &names::COUNTS, columns, |counts| {
        let rows = counts.unwrap_or_default().rows().into_iter();
        rows.map(|(group, title, value)| (group, title, counts.and(value), false))
            .collect()
    })
}

/// Returns the rows of a region's counts. If every column has statistics of the passes, each row is followed by its
/// statistics.
fn with_passes(prefix: &str, sums: Vec<Row>, regions: &[Option<Region>]) -> Vec<Row> {
    let each = regions
        .iter()
        .map(|region| region.as_ref().and_then(|one| one.each));
    let Some(each) = each.collect::<Option<Vec<Each>>>() else {
        return sums;
    };
    let passes = Pass::ALL.map(|pass| {
        let columns: Vec<_> = each.iter().map(|each| Some(each.of(pass))).collect();
        let rows = count_rows(&names::each(prefix, pass), &columns).into_iter();
        rows.map(move |row| Row {
            statistic: Some(Statistic::Pass(pass)),
            ..row
        })
    });
    let mut passes = passes;
    let with = sums.into_iter().flat_map(|sum| {
        let behind = passes.iter_mut().filter_map(Iterator::next);
        [sum].into_iter().chain(behind).collect::<Vec<_>>()
    });
    with.collect()
}

/// Returns one row for each name, with the values that `lines` returns for each column.
fn side_by_side<T: Copy>(
    prefix: &str,
    names: &[Name],
    columns: &[Option<T>],
    lines: impl Fn(Option<T>) -> Vec<Line>,
) -> Vec<Row> {
    let columns: Vec<Vec<Line>> = columns.iter().map(|column| lines(*column)).collect();
    let rows = lines(None).into_iter().zip(names).enumerate();
    rows.map(|(index, ((group, title, _, is_state), (name, unit)))| Row {
        name: names::full(prefix, name),
        group: group.to_owned(),
        title: title.to_owned(),
        unit: (*unit).to_owned(),
        statistic: None,
        is_state,
        absent: NOT_MEASURED,
        cells: columns
            .iter()
            .map(|lines| lines[index].2.map(Value::Count))
            .collect(),
    })
    .collect()
}

/// Describes how many passes of a region each column has. Returns an empty text if each has one.
fn passes(marks: &[Option<Marks>]) -> String {
    let passes: Vec<u64> = marks.iter().flatten().map(|marks| marks.passes).collect();
    match passes.as_slice() {
        [1, rest @ ..] if rest.iter().all(|other| *other == 1) => String::new(),
        [first, rest @ ..] if rest.iter().all(|other| other == first) => {
            format!("passed {first} times")
        }
        [] => NOT_MEASURED.to_owned(),
        _ => {
            let list: Vec<String> = passes.iter().map(u64::to_string).collect();
            format!("passed {} times", list.join(" and "))
        }
    }
}

/// Returns one line for each region that has unpaired marks or more than one pass.
fn remarks(document: &Document) -> Vec<String> {
    let mut lines = Vec::new();
    for region in document.regions.iter().flatten() {
        let (name, title, marks) = (&document.kernel.name, region.title(), region.marks);
        if marks.passes > 1 {
            let passes = marks.passes;
            lines.push(format!(
                "{name}: {title}: the counts are the sum of {passes} passes, the page tables those of the first"
            ));
        }
        let unpaired = marks.rows().into_iter().skip(1);
        for (what, count) in unpaired.filter(|(_, count)| *count > 0) {
            lines.push(format!("{name}: {title}: {what}: {count}"));
        }
    }
    lines
}

fn notes(document: &Document) -> Vec<String> {
    let name = &document.kernel.name;
    let mut notes = vec![format!(
        "{name}: {}; {}",
        words::ending(Some(document.outcome)),
        document.repetition()
    )];
    notes.push(format!(
        "{name}: {} (sha256 {})",
        document.kernel.version, document.kernel.sha256
    ));
    notes.extend(remarks(document));
    notes
}
