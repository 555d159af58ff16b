//! The names, titles and groups of the account's rows in reports.

use crate::model::account::Value;
use crate::model::machine::{Clock, Machine};
use crate::sheet::{UnknownRow, check_pattern};

/// The groups in the order of reports, each with the prefixes of its rows' names. Rows without a group are last.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "Page faults",
        &["fault_", "stack_expansions", "write_faults_avoided_max"],
    ),
    ("Page-table entries changed", &["entries_"]),
    ("TLB flushes", &["flush_", "paging_structure_", "pcid_"]),
    ("Frames", &["frames_", "lazyfree"]),
    ("Page tables", &["page_tables"]),
    ("Huge pages", &["thp_", "hugetlb_", "folio_"]),
    ("NUMA and migration", &["numa_", "migrated", "migration_"]),
    ("Swap", &["swap_", "written_back"]),
    ("KSM", &["ksm_"]),
    ("Address spaces", &["fork", "shared_tables", "vmas_"]),
    ("Locks", &["lock_", "locks_", "lines_"]),
    ("Instructions", &["instructions_"]),
];
/// The group of all rows that match no prefix.
const OTHERS: &str = "Processes";

/// The rows that the personality adds to those of the memory manager, each with its name, title and definition.
const PERSONALITY: &[(&str, &str, &str)] = &[
    (
        "instructions_user",
        "instructions: user mode",
        "Instructions that programs retired in user mode, from the start of PROGRAM to its exit.",
    ),
    (
        "instructions_kernel",
        "instructions: kernel",
        "Instructions that the kernel retired outside interrupts from the start of PROGRAM, including its exec, to its exit, except those spent on the account itself and on waiting for input.",
    ),
    (
        "instructions_interrupts",
        "instructions: interrupts",
        "Instructions that the kernel retired in interrupts that arrived in user mode, mostly timer ticks: from the interrupt's entry to the return to user mode, or to the switch to another thread.",
    ),
    (
        "instructions_stretch",
        "instructions: kernel, longest stretch",
        "The maximum number of instructions that the kernel retired between two scheduling points, which bounds how long a runnable thread waited for the kernel. Stretches below 500,000 may be missed.",
    ),
    (
        "locks_contended",
        "waits for another CPU",
        "Waits for a lock that another CPU held, or for another action of a CPU; only with several CPUs.",
    ),
    (
        "locks_halted",
        "waits for another CPU that blocked",
        "Of these, long waits: the thread yielded its CPU, or the CPU halted until the holder or a timer woke it.",
    ),
    (
        "flush_waits_halted",
        "TLB shootdowns: waits that halted",
        "Long waits for the acknowledgement of a shootdown, in which the CPU halted until the last of the other CPUs woke it; only with several CPUs.",
    ),
    (
        "processes",
        "processes",
        "Processes that were started, including PROGRAM but not process 1.",
    ),
    (
        "processes_killed",
        "processes killed at the end",
        "Processes that were still alive when PROGRAM exited, and were killed.",
    ),
    (
        "oom_kills",
        "processes killed by the OOM killer",
        "Processes that were killed because no frame was left.",
    ),
    (
        "audit_findings",
        "audit findings",
        "Inconsistencies between frames, page tables, references and VMAs that the audit found after the run: any value but 0 is a bug in Memwright.",
    ),
];

/// A row that this build of the kernel counts.
struct Definition {
    name: &'static str,
    title: &'static str,
    /// The corresponding counter of Linux; empty if there is none.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the page about the account")
    )]
    linux: &'static str,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for the page about the account")
    )]
    meaning: &'static str,
}

/// Returns the counter of Linux that corresponds to a row of the personality; empty if there is none.
fn linux_counter(name: &str) -> &'static str {
    match name {
        "oom_kills" => "oom_kill",
        _ => "",
    }
}

/// Returns every row that this build of the kernel counts.
fn definitions() -> impl Iterator<Item = Definition> {
    let memory = memwright::ROWS.iter().map(|row| Definition {
        name: row.name,
        title: row.title,
        linux: row.linux,
        meaning: row.definition,
    });
    let personality = PERSONALITY.iter().map(|(name, title, meaning)| Definition {
        name,
        title,
        linux: linux_counter(name),
        meaning,
    });
    memory.chain(personality)
}

/// Returns the names of the rows, in the order of reports.
pub fn names() -> impl Iterator<Item = &'static str> {
    definitions().map(|row| row.name)
}

/// Returns a row's title in reports, which is the name itself for an unknown row.
pub fn title(name: &str) -> &str {
    definitions()
        .find(|row| row.name == name)
        .map_or(name, |row| row.title)
}

/// Prefixes of the names of rows, each with the unit of the rows that have this prefix.
const UNITS: &[(&str, &str)] = &[
    ("fault_", "faults"),
    ("entries_", "entries"),
    ("flush_", "flushes"),
    ("frames_", "frames"),
    ("page_tables", "tables"),
    ("numa_", "pages"),
    ("migrated", "pages"),
    ("instructions_", "instructions"),
    ("processes", "processes"),
];

/// Returns the unit of a row; empty if the row's title contains the unit.
pub fn unit(name: &str) -> &'static str {
    UNITS
        .iter()
        .find(|(beginning, _)| name.starts_with(beginning))
        .map_or("", |(_, unit)| unit)
}

/// Checks that a pattern matches the name of a row that a run can have.
///
/// # Errors
/// [`UnknownRow`], with similar names.
pub fn check(pattern: &str) -> Result<(), UnknownRow> {
    let known: Vec<_> = names().map(|name| (name, group(name))).collect();
    check_pattern(pattern, known.iter().copied())
}

/// Returns a row's value if this machine can observe it. How instructions are split between programs and the kernel is
/// known only with one CPU and the instruction clock.
pub fn shown(name: &str, value: Value, machine: &Machine) -> Value {
    let counted = machine.cpus == 1 && machine.clock == Clock::Instructions;
    if name.starts_with("instructions_") && !counted {
        return Value::Unobservable;
    }
    value
}

/// Returns the titles of all groups, in the order of reports.
pub fn groups() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().map(|(title, _)| *title).chain([OTHERS])
}

/// Returns the group of a row.
pub fn group(name: &str) -> &'static str {
    let belongs = |beginnings: &[&str]| {
        beginnings
            .iter()
            .any(|beginning| name.starts_with(beginning))
    };
    GROUPS
        .iter()
        .find(|(_, beginnings)| belongs(beginnings))
        .map_or(OTHERS, |(title, _)| title)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::machine::Apic;
    use crate::model::size::MemorySize;
    use std::fmt::Write;

    #[test]
    fn rows_have_titles_and_groups() {
        assert_eq!(
            (title("fault_cow"), group("fault_cow")),
            ("faults: copy-on-write", "Page faults")
        );
        assert_eq!(
            (title("later_row"), group("later_row")),
            ("later_row", "Processes")
        );
        for definition in memwright::ROWS {
            assert_ne!(group(definition.name), OTHERS, "{}", definition.name);
        }
    }

    #[test]
    fn instructions_are_counted_where_one_cpu_counts_them() {
        let machine = |cpus, clock| Machine {
            memory: MemorySize::least(),
            cpus,
            nodes: crate::model::nodes::Nodes::even(1),
            clock,
            apic: Apic::Xapic,
            disk: None,
        };
        let count = Value::Count(7);
        for (name, machine, expected) in [
            ("instructions_user", machine(1, Clock::Instructions), count),
            (
                "instructions_user",
                machine(2, Clock::Instructions),
                Value::Unobservable,
            ),
            (
                "instructions_kernel",
                machine(1, Clock::Host),
                Value::Unobservable,
            ),
            ("forks", machine(4, Clock::Host), count),
        ] {
            assert_eq!(shown(name, count, &machine), expected, "{name} {machine:?}");
        }
    }

    /// Returns the text of the page about the account: its head, and a table for every group.
    fn page() -> String {
        let mut page = include_str!("account-head.md").to_owned();
        for group_title in groups() {
            let mut rows = definitions()
                .filter(|row| group(row.name) == group_title)
                .peekable();
            if rows.peek().is_some() {
                write!(
                    page,
                    "\n## {group_title}\n\n| Name | In the table | Meaning | Linux |\n|---|---|---|---|\n"
                )
                .unwrap();
            }
            for row in rows {
                let linux = match row.linux {
                    "" => "-",
                    counter => counter,
                };
                let Definition {
                    name,
                    title,
                    meaning,
                    ..
                } = row;
                writeln!(page, "| `{name}` | {title} | {meaning} | {linux} |").unwrap();
            }
        }
        page
    }

    /// `cargo xtask docs` writes the page, and this test checks that it is up to date.
    #[test]
    fn the_page_about_the_account_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/account.md");
        if std::env::var_os("MEMWRIGHT_UPDATE_DOCS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let current = std::fs::read_to_string(path).unwrap() == page();
        assert!(current, "docs/account.md is not current (cargo xtask docs)");
    }
}
