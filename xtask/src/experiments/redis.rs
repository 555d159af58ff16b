//! Measures what a snapshot of Redis costs the kernel while records are written: the instructions of the fork, of the
//! page faults and of the child's exit, by the functions of each kernel.
//!
//! Each figure is that of a run with the snapshot, minus that of a run that only writes the records.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use serde::Deserialize;

use super::figures::{Figures, Name, Row, Table};
use super::page::{self, Page};
use crate::block::Block;
use crate::number::grouped;
use crate::{install, shell};

/// The name of the page.
pub const NAME: &str = "redis-bgsave";
/// The name of the page, and the kernels of Linux, in the form of the words of a bench.
pub const WORDS: [&str; 3] = [NAME, "--kernel", "debian:trixie-backports"];
const PAGE: &str = "docs/experiments/redis-bgsave.md";
const HEADING: &str =
    "redis-bgsave: What does a snapshot of Redis cost the kernel while records are written?";
/// The columns of Memwright, each with the value of `--kernel`.
const OWN: [(&str, &str); 2] = [
    ("memwright", "memwright"),
    ("memwright fork=share", "memwright,policy=fork=share"),
];
/// The index in `OWN` of the column to which the goals apply.
const SHARING: usize = 1;
/// The memory of every guest.
const MEMORY: &str = "memory=3G";
const REDIS: &str = "/usr/bin/redis-server";
const SOURCE: &str = "programs/lab/redis_bgsave.c";
/// The path of the program in the guest.
const PLACE: &str = "/tmp/experiment/redis_bgsave";
/// The number of records, of 1,000 bytes each, which take 1 GiB of Redis's memory.
const RECORDS: &str = "980000";

/// The labels of the runs, each with the kind and the number of the records that are written.
const CASES: [(&str, &str, &str); 3] = [
    ("500 writes to existing records", "existing", "500"),
    ("10,000 writes to existing records", "existing", "10000"),
    ("500 writes of new records", "new", "500"),
];

/// The measures that are instructions of functions. Each has the names of these functions in Memwright's kernel and in
/// Linux's. Instructions of the functions that they call are included.
const FUNCTIONS: [(&str, [&str; 2]); 3] = [
    (
        "fork",
        ["memwright_linux::lifecycle::clone::create", "kernel_clone"],
    ),
    (
        "page faults",
        [
            "memwright::fault::<impl memwright::mm::space::AddressSpace<M>>::fault",
            "asm_exc_page_fault",
        ],
    ),
    (
        "exit of the child",
        ["memwright_linux::events::Events::end_thread", "do_exit"],
    ),
];
const SUM: &str = "fork, page faults and exit";
const PAUSE: &str = "pause of the fork";
/// The measures with a goal, each with the factor by which Linux must cost more than `fork=share`.
const GOALS: [(&str, u32); 2] = [(SUM, 10), (PAUSE, 100)];

/// What `memwright run --json` writes about a run.
#[derive(Debug, Deserialize)]
struct Run {
    program: File,
    kernel: Kernel,
    qemu: Qemu,
    settings: Vec<String>,
    regions: Vec<Region>,
    functions: Profile,
}

#[derive(Debug, Deserialize)]
struct File {
    sha256: String,
}

#[derive(Debug, Deserialize)]
struct Kernel {
    sha256: String,
    version: String,
}

#[derive(Debug, Deserialize)]
struct Qemu {
    version: String,
    sha256: String,
}

#[derive(Debug, Deserialize)]
struct Region {
    counts: Counts,
}

#[derive(Debug, Deserialize)]
struct Counts {
    user_faults: Faults,
    kernel_faults: Faults,
    instructions: Instructions,
}

#[derive(Debug, Deserialize)]
struct Faults {
    read: u64,
    write: u64,
    fetch: u64,
    write_protect: u64,
}

#[derive(Debug, Deserialize)]
struct Instructions {
    kernel: u64,
}

/// The functions of a profile, and the tree of their calls, in which a caller precedes the functions that it calls.
#[derive(Debug, Deserialize)]
struct Profile {
    functions: Vec<String>,
    calls: Vec<Call>,
}

#[derive(Debug, Deserialize)]
struct Call {
    caller: Option<usize>,
    function: usize,
    instructions: u64,
}

impl Faults {
    fn all(&self) -> u64 {
        self.read + self.write + self.fetch + self.write_protect
    }
}

impl Profile {
    /// Returns the instructions of a function and of the functions that it calls.
    fn instructions(&self, name: &str) -> u64 {
        let mut is_below: Vec<bool> = Vec::new();
        let mut sum = 0;
        for call in &self.calls {
            let above = call.caller.and_then(|caller| is_below.get(caller));
            let is_it = self
                .functions
                .get(call.function)
                .is_some_and(|one| one == name);
            let counts = is_it || above == Some(&true);
            is_below.push(counts);
            if counts {
                sum += call.instructions;
            }
        }
        sum
    }
}

/// A run of the program, and the duration of the fork that Redis reported, in microseconds.
struct Measured {
    run: Run,
    pause: u64,
}

impl Measured {
    /// Returns the measures, each with its unit and its value.
    fn values(&self, is_linux: bool) -> Result<Vec<(&'static str, &'static str, u64)>> {
        let region = self.run.regions.first().context("no region 1")?;
        let counts = &region.counts;
        let mut values: Vec<_> = FUNCTIONS
            .iter()
            .map(|(measure, names)| {
                let name = names[usize::from(is_linux)];
                (
                    *measure,
                    "instructions",
                    self.run.functions.instructions(name),
                )
            })
            .collect();
        let sum = values.iter().map(|(.., value)| value).sum();
        let faults = counts.user_faults.all() + counts.kernel_faults.all();
        values.extend([
            (SUM, "instructions", sum),
            (PAUSE, "microseconds", self.pause),
            ("page faults, their number", "faults", faults),
            (
                "all that the kernel does",
                "instructions",
                counts.instructions.kernel,
            ),
        ]);
        Ok(values)
    }

    /// Returns the measures of the snapshot: those of this run minus those of a run without a snapshot.
    fn less(&self, without: &Self, is_linux: bool) -> Result<Vec<(Name, u64)>> {
        let pairs = self
            .values(is_linux)?
            .into_iter()
            .zip(without.values(is_linux)?);
        pairs
            .map(|((measure, unit, with), (.., without))| {
                let value = with.checked_sub(without).filter(|value| *value > 0);
                let value = value.with_context(|| {
                    format!("{measure}: {with} with the snapshot, {without} without")
                })?;
                let name = Name {
                    measure: measure.to_owned(),
                    unit: unit.to_owned(),
                    statistic: "value".to_owned(),
                };
                Ok((name, value))
            })
            .collect()
    }
}

/// Measures Memwright's columns, and those of the kernels of Linux in `words`. `options` may contain `--run LABEL`, to
/// measure only some of the runs.
///
/// # Errors
/// If Redis or a compiler is missing, if a run fails, or if a kernel has no function of the expected name.
pub fn measure(memwright: &Path, words: &[&str], options: &[&str]) -> Result<Figures> {
    let program = program()?;
    let linux = page::kernels(words);
    let columns = OWN
        .into_iter()
        .chain(linux.iter().map(|name| (*name, *name)));
    let columns: Vec<(&str, &str)> = columns.collect();
    let labels: Vec<&str> = values_of(options, "--run");
    let mut figures = Figures {
        heading: HEADING.to_owned(),
        ..Figures::default()
    };
    for (label, kind, writes) in CASES {
        if !labels.is_empty() && !labels.contains(&label) {
            continue;
        }
        let mut table = Table {
            title: label.to_owned(),
            columns: columns.iter().map(|(name, _)| (*name).to_owned()).collect(),
            rows: Vec::new(),
        };
        figures.notes.clear();
        for (column, kernel) in &columns {
            let run = |what| run(memwright, &program, kernel, [what, kind, writes]);
            let (with, without) = thread::scope(|scope| {
                let without = scope.spawn(|| run("none"));
                let with = run("save");
                let panicked = |_| Err(anyhow!("a run panicked"));
                (with, without.join().unwrap_or_else(panicked))
            });
            let (with, without) = (with?, without?);
            for (name, value) in with.less(&without, linux.contains(column))? {
                table.add_cell(name, grouped(value));
            }
            add_notes(&mut figures.notes, column, &with.run);
        }
        let one = Figures {
            heading: figures.heading.clone(),
            tables: vec![table.clone()],
            notes: Vec::new(),
        };
        // A case takes minutes, so its figures are printed as soon as they are measured.
        println!("{}", one.markdown());
        figures.tables.push(table);
    }
    figures
        .notes
        .sort_by_key(|note| (note.starts_with("program "), note.starts_with("QEMU ")));
    Ok(figures)
}

/// Returns the values of an option that can be given several times.
fn values_of<'a>(words: &[&'a str], option: &str) -> Vec<&'a str> {
    let pairs = words.iter().zip(words.iter().skip(1));
    let values = pairs.filter(|(word, _)| **word == option);
    values.map(|(_, value)| *value).collect()
}

/// Builds the program, and returns its path. Installs Redis if it is missing.
fn program() -> Result<PathBuf> {
    if !Path::new(REDIS).exists() {
        install::install_named(&["redis-server"])?;
    }
    let folder = shell::target_folder().join(NAME);
    fs::create_dir_all(&folder).context("cannot create a folder for the program")?;
    let program = folder.join("redis_bgsave");
    let mut build = Command::new("musl-gcc");
    build
        .args([
            "-std=gnu11",
            "-O2",
            "-static",
            "-Iinclude/memwright",
            SOURCE,
            "-o",
        ])
        .arg(&program)
        .current_dir(shell::root());
    shell::run(&mut build)?;
    Ok(program)
}

/// Runs the program on `kernel`, with `words` as its first arguments.
fn run(memwright: &Path, program: &Path, kernel: &str, words: [&str; 3]) -> Result<Measured> {
    let json = program.with_file_name(format!("{kernel}-{}.json", words.join("-")));
    let mut file = program.as_os_str().to_owned();
    file.push(":");
    file.push(PLACE);
    let mut command = Command::new(memwright);
    command
        .args([
            "run",
            "--kernel",
            &format!("{kernel},{MEMORY}"),
            "--no-verify",
            "--functions",
        ])
        .args(["--region", "1", "--root", "none", "--file", REDIS, "--file"])
        .arg(file)
        .arg("--json")
        .arg(&json)
        .arg(PLACE)
        .args(words)
        .arg(RECORDS)
        .stdin(Stdio::null());
    let line = shell::line(&command);
    shell::step(&line);
    let output = command.output().context("cannot start the command")?;
    ensure!(
        output.status.success(),
        "`{line}` ended with {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut lines = printed.lines();
    let pause = lines.find_map(|line| line.strip_prefix("fork ")?.parse().ok());
    let text = fs::read_to_string(&json).with_context(|| json.display().to_string())?;
    Ok(Measured {
        run: serde_json::from_str(&text).context("an unknown document")?,
        pause: pause.with_context(|| format!("`{line}`: no duration of the fork"))?,
    })
}

impl Table {
    /// Adds a cell at the end of a row, which is created with its first cell.
    fn add_cell(&mut self, name: Name, cell: String) {
        match self.rows.iter_mut().find(|row| row.name == name) {
            Some(row) => row.cells.push(cell),
            None => self.rows.push(Row {
                name,
                cells: vec![cell],
            }),
        }
    }
}

/// Adds the notes on the kernel of a column, on QEMU and on the programs, each once.
fn add_notes(notes: &mut Vec<String>, column: &str, run: &Run) {
    let escaped = |text: &str| text.replace('#', "\\#").replace('_', "\\_");
    let Run { kernel, qemu, .. } = run;
    let version = escaped(&kernel.version);
    let redis = run.settings.iter().find_map(|line| {
        let hash = line.strip_prefix("file=")?.strip_prefix(REDIS)?;
        Some(hash.trim_start_matches(" sha256 "))
    });
    for note in [
        format!("{column}: {version} (sha256 {})", kernel.sha256),
        format!("QEMU {} (sha256 {})", qemu.version, qemu.sha256),
        format!("program redis\\_bgsave (sha256 {})", run.program.sha256),
        format!(
            "program redis-server (sha256 {})",
            redis.unwrap_or_default()
        ),
    ] {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
}

/// Returns the table of the goals, from the figures of the page.
fn goals(figures: &Figures) -> Result<String> {
    let linux = OWN.len();
    let mut text = String::from(
        "\n| while the child saves | | `fork=share` | Linux | times less | goal |\n\
         |---|---|---:|---:|---:|---:|\n",
    );
    for table in &figures.tables {
        for (measure, goal) in GOALS {
            let mut rows = table.rows.iter();
            let row = rows.find(|row| row.name.measure == measure);
            let row = row.with_context(|| format!("{PAGE}: no row {measure}"))?;
            let value = |column| row.value(column)?.context("not measured");
            let (own, other) = (value(SHARING)?, value(linux)?);
            let cell = |column: usize| row.cells[column].as_str();
            text.push_str(&format!(
                "| {} | {measure}, in {} | {} | {} | {:.1} | {goal} |\n",
                table.title,
                row.name.unit,
                cell(SHARING),
                cell(linux),
                other / own
            ));
        }
    }
    text.push('\n');
    Ok(text)
}

/// Returns the text of the page with the table of the goals replaced.
fn with_goals(page: &str, figures: &Figures) -> Result<String> {
    let block = Block {
        page: PAGE,
        name: "goals",
        text: goals(figures)?,
    };
    block.put(page).with_context(|| format!("{PAGE}: no block"))
}

/// Writes the table of the goals from the figures of the page.
///
/// # Errors
/// If a figure is missing, or if there is an I/O error.
pub fn write() -> Result<()> {
    let path = shell::root().join(PAGE);
    let text = fs::read_to_string(&path).context(PAGE)?;
    let figures = Page::read(NAME)?.figures()?;
    fs::write(&path, with_goals(&text, &figures)?).context(PAGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_includes_what_it_calls_but_once() {
        let call = |caller, function, instructions| Call {
            caller,
            function,
            instructions,
        };
        let profile = Profile {
            functions: ["a", "b", "c"].map(str::to_owned).to_vec(),
            calls: vec![
                call(None, 0, 1),
                call(Some(0), 1, 10),
                call(Some(1), 2, 100),
                call(Some(2), 1, 1000),
                call(Some(0), 2, 10_000),
            ],
        };
        for (name, sum) in [("a", 11_111), ("b", 1110), ("c", 11_100), ("d", 0)] {
            assert_eq!(profile.instructions(name), sum, "{name}");
        }
    }

    #[test]
    fn the_page_has_the_goals_of_its_figures() {
        let text = fs::read_to_string(shell::root().join(PAGE)).unwrap();
        let figures = Page::read(NAME).unwrap().figures().unwrap();
        assert_eq!(with_goals(&text, &figures).unwrap(), text, "{PAGE}");
        for table in &figures.tables {
            let is_it = |(label, ..): &(&str, &str, &str)| *label == table.title;
            assert!(CASES.iter().any(is_it), "{}", table.title);
        }
    }
}
