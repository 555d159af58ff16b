//! Runs a script on Memwright and on Linux, and reads the counts from the results.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::script::Script;
use crate::shell;

/// The Linux kernel, by its name in `memwright kernels`.
const LINUX: &str = "debian:trixie-backports";
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
    run: Counts,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
struct Kernel {
    version: String,
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

/// The result of a script on both kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The number of page faults from user mode on Memwright.
    pub faults: u64,
    /// The number of instructions in user mode on Memwright.
    pub user: u64,
    /// The number of instructions of Memwright's kernel.
    pub memwright: u64,
    /// The number of instructions of the Linux kernel.
    pub linux: u64,
}

/// Runs a script on both kernels.
///
/// # Errors
/// If a run yields no result, if the script fails or its output differs between the kernels, or if the script is below
/// a minimum.
pub fn measure(command: &Path, script: &Script) -> Result<Measured> {
    let folder = shell::target_folder().join("workloads");
    fs::create_dir_all(&folder)?;
    let json = folder.join(format!("{}.json", script.name));
    let _ = fs::remove_file(&json);
    let mut run = Command::new(command);
    run.args(["bench", &script.name, "--no-verify"])
        .args(["--kernel", "memwright", "--kernel"])
        .arg(format!("linux={LINUX}"))
        .arg("--json")
        .arg(&json);
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

/// Checks that the script had the same output on both kernels, and returns its counts.
fn result(columns: &[Column]) -> Result<Measured> {
    let [memwright, linux] = columns else {
        bail!("{} columns", columns.len());
    };
    for column in [memwright, linux] {
        ensure!(
            column.outcome == Outcome::Exited(0),
            "on {} it ended with {:?}",
            column.kernel.version,
            column.outcome
        );
    }
    ensure!(
        memwright.output_sha256 == linux.output_sha256,
        "its output differs"
    );
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
    Ok(Measured {
        faults,
        user,
        memwright: memwright.run.instructions.kernel,
        linux: linux.run.instructions.kernel,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(output: &str, outcome: Outcome, user: u64) -> Column {
        Column {
            kernel: Kernel {
                version: "v".to_owned(),
            },
            outcome,
            output_sha256: output.to_owned(),
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
        let right = column("a", Outcome::Exited(0), LEAST_INSTRUCTIONS);
        let measured = result(&[right.clone(), right.clone()]).unwrap();
        assert_eq!((measured.faults, measured.linux), (10, 5));
        for other in [
            column("b", Outcome::Exited(0), LEAST_INSTRUCTIONS),
            column("a", Outcome::Exited(1), LEAST_INSTRUCTIONS),
            column("a", Outcome::Killed(9), LEAST_INSTRUCTIONS),
        ] {
            assert!(result(&[right.clone(), other]).is_err());
        }
        let small = column("a", Outcome::Exited(0), 7);
        assert!(result(&[small.clone(), small]).is_err());
    }
}
