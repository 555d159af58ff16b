//! Renders the most important rows of a run's account in 80 columns and 24 lines. `--full` prints every row instead.

use crate::compare::rows;
use crate::model::account::Value;
use crate::model::counts::Counts;
use crate::model::kernel_run;
use crate::model::memwright_run::Document;
use crate::model::region::Region;
use crate::model::size::in_mebibytes;
use crate::model::words::{cpus, ending, grouped};

/// The size of the terminal for which the account is made, in lines and columns.
const LINES: usize = 24;
const COLUMNS: usize = 80;
/// The width of the column of counts, in characters.
const COUNT: usize = 16;
/// The minimum number of kinds of faults that the account lists in separate lines, even if it then has more than
/// [`LINES`] lines.
const LEAST_KINDS: usize = 2;

/// The rows that follow the faults, in this order. Rows that are 0 are omitted.
const USUAL: [&str; 12] = [
    "fault_around",
    "flush_local",
    "flush_remote",
    "flush_remote_cpus",
    "frames_copied",
    "frames_peak",
    "page_tables_peak",
    "swap_out",
    "swap_read",
    "instructions_user",
    "instructions_kernel",
    "instructions_interrupts",
];
/// The rows that report a failure.
const FAILURES: [&str; 2] = ["oom_kills", "audit_findings"];
/// The last line.
const MORE: &str = "  all rows, versions and hashes: --full";

/// Returns the account of a run on Memwright.
pub fn own(document: &Document) -> String {
    let mut lines = vec![
        String::new(),
        cut(&format!(
            "Memory account of {}",
            document.arguments.join(" ")
        )),
    ];
    if let Some(reason) = &document.not_repeatable {
        lines.push(format!("not repeatable: {reason}"));
    }
    let mut last: Vec<String> = Vec::new();
    for name in USUAL.iter().chain(&FAILURES) {
        let mut known = document.account.iter();
        let value = known.find(|(row, _)| row == name).map(|(_, value)| *value);
        match value {
            // Rows that are not observable on this machine appear only with `--full`.
            Some(Value::Count(0) | Value::Unobservable) | None => {}
            Some(Value::Count(count)) => last.push(row(count, rows::title(name))),
        }
    }
    for (title, calls) in [
        (
            "system calls that succeeded without effect",
            &document.stubs,
        ),
        ("system calls that are missing", &document.unknown),
    ] {
        let count: u64 = calls.iter().map(|(_, count)| count).sum();
        let names: Vec<&str> = calls.iter().map(|(name, _)| name.as_str()).collect();
        if count > 0 {
            let text = format!("{title}: {}", names.join(", "));
            last.push(cut(&row(count, &text)));
        }
    }
    last.push(cut(&format!(
        "  {}; {}",
        ending(document.outcome),
        guest(document)
    )));
    last.push(MORE.to_owned());
    let room = LINES.saturating_sub(lines.len() + last.len());
    lines.extend(faults(document, room.max(LEAST_KINDS + 1)));
    lines.extend(last);
    lines.join("\n") + "\n"
}

/// Returns the kinds of faults, the most frequent first, in at most `room` lines. The last line sums up the kinds that
/// are not listed.
fn faults(document: &Document, room: usize) -> Vec<String> {
    let is_kind = |name: &str| name.starts_with("fault_") && name != "fault_around";
    let mut kinds: Vec<(u64, &str)> = document
        .account
        .iter()
        .filter_map(|(name, value)| match value {
            Value::Count(count) if *count > 0 && is_kind(name) => Some((*count, name.as_str())),
            Value::Count(_) | Value::Unobservable => None,
        })
        .collect();
    kinds.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
    let named = match kinds.len() <= room {
        true => kinds.len(),
        false => room - 1,
    };
    let (named, others) = kinds.split_at(named);
    let mut lines: Vec<String> = named
        .iter()
        .map(|(count, name)| row(*count, rows::title(name)))
        .collect();
    if !others.is_empty() {
        let sum = others.iter().map(|(count, _)| count).sum();
        let title = format!("faults: {} other kinds", others.len());
        lines.push(row(sum, &title));
    }
    lines
}

fn guest(document: &Document) -> String {
    let policies = match document.policies.as_slice() {
        [] => "default".to_owned(),
        some => some.join(","),
    };
    format!(
        "{} of memory, {}, policy {policies}",
        in_mebibytes(document.memory),
        cpus(document.cpus)
    )
}

/// Returns the account of a run on a kernel image: the rows of the run that are not 0, and as many regions as fit.
pub fn image(document: &kernel_run::Document) -> String {
    let mut lines = vec![String::new(), cut(&document.title())];
    let regions: Vec<_> = document.regions.iter().flatten().collect();
    let shown = &regions[..regions.len().min(REGIONS)];
    let mut columns: Vec<(String, Option<Counts>)> = vec![("run".to_owned(), document.run)];
    columns.extend(
        shown
            .iter()
            .map(|region| (heading_of(region), Some(region.counts))),
    );
    let mut last = problems(document, shown.len());
    last.push(cut(&format!(
        "  {}; {}",
        ending(Some(document.outcome)),
        document.repetition()
    )));
    last.push(MORE.to_owned());
    let rows = count_rows(&columns);
    let room = LINES.saturating_sub(lines.len() + last.len());
    let fits = match rows.len() <= room {
        true => rows.len(),
        false => room.saturating_sub(1),
    };
    lines.extend(rows[..fits].iter().cloned());
    if fits < rows.len() {
        lines.push("  more rows are not 0".to_owned());
    }
    lines.extend(last);
    lines.join("\n") + "\n"
}

/// The maximum number of regions in columns next to the run, and the width of each column in characters.
const REGIONS: usize = 2;
const CELL: usize = 16;
/// The width of the column of titles.
const TITLE: usize = COLUMNS - (REGIONS + 1) * CELL - 2;

/// Returns the heading of a region: its title, or its name alone if the title is too long.
fn heading_of(region: &Region) -> String {
    let title = region.title();
    match &region.name {
        Some(name) if title.len() >= CELL => name.clone(),
        Some(_) | None => title,
    }
}

/// Returns the line with the name of the first group and the titles of the columns.
fn heading(group: &str, columns: &[(String, Option<Counts>)]) -> String {
    let mut line = format!("  {group:TITLE$}");
    for (title, _) in columns {
        let title: String = title.chars().take(CELL - 1).collect();
        line.push_str(&format!("{title:>CELL$}"));
    }
    line
}

/// Returns one line for each row with a value above 0 in at least one column, below the name of its group.
fn count_rows(columns: &[(String, Option<Counts>)]) -> Vec<String> {
    let values: Vec<_> = columns
        .iter()
        .map(|(_, counts)| counts.map(|counts| counts.values()))
        .collect();
    let titles = Counts::default().rows();
    let mut lines = Vec::new();
    let mut last = "";
    for (index, (group, title, _)) in titles.into_iter().enumerate() {
        let cells: Vec<Option<u64>> = values
            .iter()
            .map(|column| column.and_then(|column| column[index]))
            .collect();
        if cells.iter().all(|cell| matches!(cell, Some(0) | None)) {
            continue;
        }
        if lines.is_empty() {
            lines.push(heading(group, columns));
        } else if group != last {
            lines.push(format!("  {group}"));
        }
        last = group;
        let mut line = format!("    {title:within$}", within = TITLE - 2);
        for cell in cells {
            let text = cell.map_or_else(|| "-".to_owned(), grouped);
            line.push_str(&format!("{text:>CELL$}"));
        }
        lines.push(line);
    }
    lines
}

/// Returns the warnings: that nothing was counted, how many regions are omitted because they have no column, and which
/// regions have unpaired marks.
fn problems(document: &kernel_run::Document, shown: usize) -> Vec<String> {
    let mut lines = Vec::new();
    if document.run.is_none() {
        lines.push("  nothing was counted".to_owned());
    }
    let regions: Vec<_> = document.regions.iter().flatten().collect();
    if regions.len() > shown {
        lines.push(format!("  {} more regions", regions.len() - shown));
    }
    let disorder = regions.iter().filter(|region| {
        let unpaired = region.marks.rows().into_iter().skip(1);
        unpaired.map(|(_, count)| count).sum::<u64>() > 0
    });
    let titles: Vec<String> = disorder.map(|region| region.title()).collect();
    if !titles.is_empty() {
        lines.push(cut(&format!(
            "  marks without their other half: {}",
            titles.join(", ")
        )));
    }
    lines
}

fn row(count: u64, title: &str) -> String {
    format!("{:>COUNT$}  {title}", grouped(count))
}

/// Truncates a line to the width of a terminal.
fn cut(line: &str) -> String {
    let line: String = line.replace(char::is_control, " ");
    if line.chars().count() <= COLUMNS {
        return line;
    }
    let start: String = line.chars().take(COLUMNS - 3).collect();
    start + "..."
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::schema::document as image_document;
    use crate::model::memwright_run::Ending;
    use crate::model::region::Marks;

    fn fits(text: &str) {
        assert!(text.lines().count() <= LINES, "{text}");
        for line in text.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
        }
    }

    /// The account fits in a terminal even if no row is 0, and it states how many kinds of faults it omits.
    #[test]
    fn the_fullest_account_fits() {
        let names = |count: usize| {
            (0..count)
                .map(|number| (format!("call{number}"), 7))
                .collect()
        };
        for cpus in [1, 4] {
            let account = rows::names().map(|name| (name.to_owned(), Value::Count(12_345_678)));
            let document = Document {
                arguments: vec!["x\n".repeat(100)],
                cpus,
                outcome: Some(Ending::Killed(11)),
                not_repeatable: Some("live input".into()),
                policies: vec!["write-upgrade=off".to_owned(); 9],
                account: account.collect(),
                stubs: names(30),
                unknown: names(40),
                ..Document::default()
            };
            let text = own(&document);
            fits(&text);
            assert!(text.contains("other kinds"), "{text}");
            assert!(text.contains("12,345,678  audit findings"), "{text}");
        }
    }

    #[test]
    fn an_idle_account_has_no_rows() {
        let account = rows::names().map(|name| (name.to_owned(), Value::Count(0)));
        let document = Document {
            arguments: vec!["x".to_owned()],
            cpus: 1,
            memory: 512 << 20,
            outcome: Some(Ending::Exited(0)),
            account: account.collect(),
            ..Document::default()
        };
        let expected = "\nMemory account of x\n  exited with code 0; 512 MiB of memory, 1 CPU, policy default\n";
        assert_eq!(own(&document), format!("{expected}{MORE}\n"));
    }

    #[test]
    fn faults_are_named_as_far_as_there_is_room() {
        let account = [
            ("fault_cow", 3),
            ("fault_file", 5),
            ("fault_thp", 1),
            ("fault_around", 9),
        ];
        let document = Document {
            account: account
                .map(|(name, count)| (name.to_owned(), Value::Count(count)))
                .to_vec(),
            ..Document::default()
        };
        let (file, cow) = (row(5, "faults: file"), row(3, "faults: copy-on-write"));
        let thp = row(1, "faults: huge page");
        assert_eq!(faults(&document, 3), [file.clone(), cow, thp]);
        assert_eq!(
            faults(&document, 2),
            [file, row(4, "faults: 2 other kinds")]
        );
    }

    #[test]
    fn the_fullest_account_of_an_image_fits() {
        let mut document = image_document();
        document.arguments = vec!["x".repeat(200)];
        let full = Counts::of_values([Some(1_234_567_890); crate::model::counts::ROWS]);
        document.run = Some(full);
        let region = |number| Region {
            region: number,
            name: Some("n".repeat(60)),
            marks: Marks {
                not_ended: 1,
                ..Marks::default()
            },
            counts: full,
            ..Region::default()
        };
        document.regions = Some((0..9).map(region).collect());
        let text = image(&document);
        fits(&text);
        assert!(text.contains("7 more regions"), "{text}");
        assert!(text.contains("marks without their other half"), "{text}");
        document.run = None;
        document.regions = None;
        let text = image(&document);
        fits(&text);
        assert!(text.contains("nothing was counted"), "{text}");
    }
}
