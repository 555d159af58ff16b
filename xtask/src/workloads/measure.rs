//! Runs a script on Memwright and on kernels of Linux, and reads the counts from the results.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::count::Count;
use super::script::Script;
use crate::shell;

/// The seconds after which a run fails. A run takes a minute on an idle machine, but much longer on a busy one.
const TIMEOUT: &str = "7200";
/// The minimum number of page faults of a script. This limit and `LEAST_INSTRUCTIONS` exclude programs that use memory
/// management too little.
const LEAST_FAULTS: u64 = 10_000;
const LEAST_INSTRUCTIONS: u64 = 100_000_000;

/// The counts of a script on one kernel.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Column {
    kernel: Kernel,
    outcome: Outcome,
    output_sha256: String,
    /// Whether a second run had the same counts.
    repeats: bool,
    run: Counts,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Kernel {
    name: String,
    sha256: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    Exited(i64),
    Killed(i64),
    NotStarted(i64),
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Counts {
    user_faults: Faults,
    instructions: Instructions,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Faults {
    read: u64,
    write: u64,
    fetch: u64,
    write_protect: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Instructions {
    user: u64,
    kernel: u64,
}

/// The JSON document that `memwright bench` writes.
#[derive(Debug, Deserialize)]
struct Bench {
    points: Vec<Point>,
}

/// The columns of a script, one for each kernel.
#[derive(Debug, Deserialize)]
struct Point {
    columns: Vec<Column>,
}

/// The result of a script on all kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The number of page faults from user mode on Memwright.
    pub faults: u64,
    /// The number of instructions in user mode on Memwright.
    pub user: u64,
    /// The number of instructions of Memwright's kernel.
    pub memwright: Count,
    /// The results on the kernels of Linux.
    pub linux: Vec<OnLinux>,
}

/// The result of a script on a kernel of Linux.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnLinux {
    /// The name of the kernel in `memwright kernels`.
    pub kernel: String,
    /// The SHA-256 of its image.
    pub sha256: String,
    /// The number of its instructions.
    pub instructions: Count,
}

impl Measured {
    /// Returns the result on a kernel of Linux, or `None` if the script did not run on it.
    pub fn on(&self, kernel: &str) -> Option<&OnLinux> {
        self.linux.iter().find(|one| one.kernel == kernel)
    }

    /// Returns a line with the counts of a script, for printing.
    pub fn line(&self, name: &str) -> String {
        let mut line = format!(
            "{name}: instructions of the kernel: {}",
            self.memwright.cell()
        );
        for one in &self.linux {
            line.push_str(&format!(", {} on {}", one.instructions.cell(), one.kernel));
        }
        line
    }
}

/// Runs a script on Memwright and on these kernels of Linux, twice on each.
///
/// # Errors
/// If a run yields no result, if the script fails or its output differs between the kernels, or if the script is below
/// a minimum.
pub fn measure(command: &Path, script: &Script, linux: &[&str]) -> Result<Measured> {
    let folder = shell::target_folder().join("workloads");
    fs::create_dir_all(&folder)?;
    let json = folder.join(format!("{}.json", script.name));
    let _ = fs::remove_file(&json);
    let mut run = Command::new(command);
    run.args(["bench", &script.name, "--kernel", "memwright"]);
    for kernel in linux {
        run.args(["--kernel", kernel]);
    }
    run.args(["--timeout", TIMEOUT, "--json"]).arg(&json);
    shell::step(&shell::line(&run));
    let output = run.output()?;
    let text = fs::read_to_string(&json)
        .ok()
        .filter(|text| !text.is_empty());
    let Some(text) = text else {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{}", errors.trim());
    };
    let bench: Bench = serde_json::from_str(&text).context("an unknown document")?;
    let [point] = bench.points.as_slice() else {
        bail!("{} points", bench.points.len());
    };
    result(&point.columns)
}

/// Checks that the script had the same output on all kernels, and returns its counts.
fn result(columns: &[Column]) -> Result<Measured> {
    let [memwright, linux @ ..] = columns else {
        bail!("no columns");
    };
    for column in columns {
        ensure!(
            column.outcome == Outcome::Exited(0),
            "on {} it ended with {:?}",
            column.kernel.name,
            column.outcome
        );
        ensure!(
            column.output_sha256 == memwright.output_sha256,
            "its output differs on {}",
            column.kernel.name
        );
    }
    let Faults {
        read,
        write,
        fetch,
        write_protect,
    } = memwright.run.user_faults;
    let faults = read + write + fetch + write_protect;
    let user = memwright.run.instructions.user;
    ensure!(
        faults >= LEAST_FAULTS || user >= LEAST_INSTRUCTIONS,
        "{faults} faults and {user} instructions are too few"
    );
    let instructions = |column: &Column| Count {
        value: column.run.instructions.kernel,
        repeats: column.repeats,
    };
    let on_linux = |column: &Column| OnLinux {
        kernel: column.kernel.name.clone(),
        sha256: column.kernel.sha256.clone(),
        instructions: instructions(column),
    };
    Ok(Measured {
        faults,
        user,
        memwright: instructions(memwright),
        linux: linux.iter().map(on_linux).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(kernel: &str, output: &str, outcome: Outcome, user: u64) -> Column {
        Column {
            kernel: Kernel {
                name: kernel.to_owned(),
                sha256: "aa".to_owned(),
            },
            outcome,
            output_sha256: output.to_owned(),
            repeats: kernel != "new",
            run: Counts {
                user_faults: Faults {
                    read: 1,
                    write: 2,
                    fetch: 3,
                    write_protect: 4,
                },
                instructions: Instructions { user, kernel: 5 },
            },
        }
    }

    #[test]
    fn only_equal_output_of_enough_work_counts() {
        let right = |kernel| column(kernel, "a", Outcome::Exited(0), LEAST_INSTRUCTIONS);
        let columns = ["memwright", "old", "new"].map(right);
        let measured = result(&columns).unwrap();
        let repeats = measured.linux.iter().map(|one| one.instructions.repeats);
        assert_eq!(measured.faults, 10);
        assert_eq!(repeats.collect::<Vec<_>>(), [true, false]);
        assert_eq!(measured.on("new").unwrap().instructions.value, 5);
        assert_eq!(measured.on("other"), None);
        for other in [
            column("new", "b", Outcome::Exited(0), LEAST_INSTRUCTIONS),
            column("new", "a", Outcome::Exited(1), LEAST_INSTRUCTIONS),
            column("new", "a", Outcome::Killed(9), LEAST_INSTRUCTIONS),
        ] {
            assert!(result(&[right("memwright"), right("old"), other]).is_err());
        }
        let small = column("memwright", "a", Outcome::Exited(0), 7);
        assert!(result(&[small]).is_err());
        assert!(result(&[]).is_err());
    }
}
