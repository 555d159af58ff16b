//! Measures which locks and cache lines of the kernel are shared by threads and processes that each use their own
//! memory, on 1 to 8 CPUs. `cargo xtask docs docs/scaling.md` writes the figures into that page, with one line for each
//! test.

use crate::guest::{Ending, Guest};
use crate::prepare::{self, later_qemu};
use libtest_mimic::{Completion, Failed, Trial};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

const CPUS: [u8; 4] = [1, 2, 4, 8];
/// The maximum number of CPUs in the tests with processes.
const MOST_CPUS: u8 = 8;
const ROUNDS: u64 = 4;

/// A program whose workers use private memory, and the locks and cache lines that more than one CPU may write although
/// the memory is private.
struct Program {
    name: &'static str,
    /// The ranks of the locks that more than one CPU may write.
    locks: &'static [&'static str],
    /// The kinds of cache lines that more than one CPU may write.
    lines: &'static [&'static str],
    /// The number of operations in a round that remove pages or permissions. Each such operation may interrupt every
    /// other CPU once.
    shrinking: u64,
}

const PROGRAMS: &[Program] = &[
    // Page faults and the freeing of pages write no lock and no cache line that another CPU writes.
    Program {
        name: "fault",
        locks: &[],
        lines: &[],
        shrinking: 1,
    },
    // A CPU that changes areas holds the lock of the address space exclusively. If a page table is missing, the table
    // above it is locked.
    Program {
        name: "mmap",
        locks: &["space", "table"],
        lines: &[],
        shrinking: 0,
    },
    Program {
        name: "protect",
        locks: &["space"],
        lines: &[],
        shrinking: 1,
    },
    // Creating and freeing a page table changes an entry in the table above it. The first page of a new area changes
    // the area's record, which can be in one cache line with the records of other areas.
    Program {
        name: "unmap",
        locks: &["space", "table"],
        lines: &["entries", "space"],
        shrinking: 1,
    },
];

/// The kind of workers that execute the operations.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Workers {
    /// Threads of one process, which share the page tables and the map of areas.
    Threads,
    /// Processes, which share no memory and never interrupt one another.
    Processes,
}

impl Workers {
    fn name(self) -> &'static str {
        match self {
            Workers::Threads => "threads",
            Workers::Processes => "processes",
        }
    }
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for program in PROGRAMS {
        let threads = CPUS.map(|cpus| (Workers::Threads, cpus));
        for (workers, cpus) in threads.into_iter().chain([(Workers::Processes, MOST_CPUS)]) {
            let name = format!("scale::{}::{}_on_{cpus}", program.name, workers.name());
            trials.push(Trial::ignorable_test(name, move || {
                if cpus > 1 && !later_qemu() {
                    return Ok(Completion::ignored_with("no later QEMU"));
                }
                check(program, workers, cpus).map(|()| Completion::Completed)
            }));
        }
    }
    trials
}

fn check(program: &Program, workers: Workers, cpus: u8) -> Result<(), Failed> {
    let ending = run(program, workers, cpus)?;
    let statistics = Statistics::read(&ending.text())?;
    for ((kind, name), counts) in &statistics.counts {
        let (mut common, mut lines) = (program.locks, program.lines);
        if workers == Workers::Processes {
            (common, lines) = (&[], &[]);
        }
        let permitted = match kind.as_str() {
            "lock" => common.contains(&name.as_str()),
            // Shared cache lines that contain locks are permitted: each lock is checked as a separate word, and one
            // cache line can contain two locks.
            _ => lines.contains(&name.as_str()) || name == "lock",
        };
        if counts.bounced + counts.shared > 0 && !permitted {
            let text = format!("{kind} {name} was written by several CPUs: {counts:?}");
            return Err(format!("{text}\n{}", ending.report()).into());
        }
    }
    let words = statistics.sum("lock");
    let lines = statistics.of("line", "lock")?;
    if (lines.shared, lines.bounced) != (words.shared, words.bounced) {
        return Err(format!("locks are beside each other: {words:?}, {lines:?}").into());
    }
    if statistics.of("line", "missed")?.taken > 0 {
        return Err("lines were not followed".into());
    }
    let most = match workers {
        Workers::Threads => ROUNDS * u64::from(cpus) * program.shrinking * u64::from(cpus - 1),
        Workers::Processes => 0,
    };
    let interrupted = statistics.interrupted;
    // The number is below the maximum if two CPUs send a request to a third CPU at the same time, because only one of
    // them interrupts it.
    if interrupted > most || (interrupted == 0) != (most == 0) {
        let text = format!("{interrupted} CPUs were interrupted, at most {most} may be");
        return Err(format!("{text}\n{}", ending.report()).into());
    }
    compare(&Row::new(program, workers, cpus, &statistics))
}

fn run(program: &Program, workers: Workers, cpus: u8) -> Result<Ending, Failed> {
    let name = format!("scale_{}", program.name);
    let path = prepare::program("glibc-static", &name);
    // A longer or shorter path of the program would move the points at which the CPUs take turns.
    let place = format!("/{name}");
    let arguments = [&cpus.to_string(), &ROUNDS.to_string(), workers.name()];
    let ending = Guest::new(&place, &arguments)
        .file(&path, &place)
        .cpus(cpus)
        .option("--policy", "locks=count")
        .untraced()
        .run()?;
    ending.expect_code(0)?;
    Ok(ending)
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    taken: u64,
    bounced: u64,
    shared: u64,
}

/// The statistics that a program printed for its counted rounds.
struct Statistics {
    operations: u64,
    /// The number of interrupts that CPUs received from other CPUs.
    interrupted: u64,
    counts: BTreeMap<(String, String), Counts>,
}

impl Statistics {
    fn read(text: &str) -> Result<Self, Failed> {
        let mut statistics = Self {
            operations: 0,
            interrupted: 0,
            counts: BTreeMap::new(),
        };
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let number = |at: usize| words.get(at).and_then(|word| word.parse().ok());
            if let (Some(kind @ ("lock" | "line")), Some(taken)) =
                (words.first().copied(), number(2))
            {
                let counts = Counts {
                    taken,
                    bounced: number(3).unwrap_or_default(),
                    shared: number(4).unwrap_or_default(),
                };
                let key = (kind.to_owned(), words[1].to_owned());
                statistics.counts.insert(key, counts);
            }
            if line.ends_with(" interrupted") {
                statistics.interrupted = number(0).unwrap_or_default();
            }
            if line.ends_with(" operations") {
                statistics.operations = number(words.len() - 2).unwrap_or_default();
            }
        }
        if statistics.operations == 0 || statistics.counts.is_empty() {
            return Err(format!("no statistics in {text}").into());
        }
        Ok(statistics)
    }

    fn of(&self, kind: &str, name: &str) -> Result<Counts, Failed> {
        let key = (kind.to_owned(), name.to_owned());
        let counts = self.counts.get(&key).copied();
        counts.ok_or_else(|| format!("no row {kind} {name}").into())
    }

    /// Returns the sum of the counts of `kind`, without the row `missed` and without the row of cache lines that
    /// contain locks.
    fn sum(&self, kind: &str) -> Counts {
        let mut sum = Counts::default();
        for ((of, name), counts) in &self.counts {
            if of == kind && name != "missed" && (kind == "lock" || name != "lock") {
                sum.taken += counts.taken;
                sum.bounced += counts.bounced;
                sum.shared += counts.shared;
            }
        }
        sum
    }

    /// Returns the name of each statistic of `kind` (locks or lines) as text, each with the number of words or cache
    /// lines that more than one CPU wrote.
    fn shared(&self, kind: &str) -> String {
        let shared: Vec<String> = self
            .counts
            .iter()
            .filter(|((of, name), counts)| {
                of == kind && counts.shared > 0 && (kind == "lock" || name != "lock")
            })
            .map(|((_, name), counts)| format!("{name} {}", counts.shared))
            .collect();
        if shared.is_empty() {
            return "0".into();
        }
        shared.join(", ")
    }
}

/// A line of `docs/scaling.md`.
struct Row {
    /// The columns that identify the measurement.
    beginning: String,
    /// Figures that depend only on the calls and accesses of the program.
    exact: String,
    /// Figures that depend on the order in which the CPUs execute. This order depends on the number of instructions of
    /// every code path.
    rest: String,
}

impl Row {
    fn new(program: &Program, workers: Workers, cpus: u8, statistics: &Statistics) -> Self {
        let operations = statistics.operations;
        let (locks, lines) = (statistics.sum("lock"), statistics.sum("line"));
        Self {
            beginning: format!(
                "| `scale_{}` | {} | {cpus} | ",
                program.name,
                workers.name()
            ),
            exact: format!("{operations} | {} | ", statistics.shared("lock")),
            rest: format!(
                "{} | {} | {} | {} | {} |",
                statistics.shared("line"),
                each(statistics.interrupted, operations),
                each(locks.taken, operations),
                each(locks.bounced, operations),
                each(lines.bounced, operations)
            ),
        }
    }
}

/// Formats a count per operation with two decimals.
fn each(count: u64, operations: u64) -> String {
    let hundredths = (count * 100 + operations / 2) / operations;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// Compares the exact figures with the row's line in the page. If `MEMWRIGHT_UPDATE_DOCS` is set, rewrites that line
/// instead.
fn compare(row: &Row) -> Result<(), Failed> {
    static PAGE: Mutex<()> = Mutex::new(());
    let _alone = PAGE.lock().unwrap_or_else(PoisonError::into_inner);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/scaling.md");
    let page = fs::read_to_string(&path)?;
    let Row {
        beginning,
        exact,
        rest,
    } = row;
    let old = page.lines().find(|line| line.starts_with(beginning));
    let old = old.ok_or_else(|| format!("docs/scaling.md has no line {beginning}"))?;
    let new = format!("{beginning}{exact}{rest}");
    if std::env::var_os("MEMWRIGHT_UPDATE_DOCS").is_some() {
        fs::write(&path, page.replace(old, &new))?;
        return Ok(());
    }
    if old.starts_with(&format!("{beginning}{exact}")) {
        return Ok(());
    }
    Err(format!("docs/scaling.md says\n{old}\nand measured was\n{new}").into())
}
