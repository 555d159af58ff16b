//! The account of a program on a kernel image, as a document.

use serde::Serialize;

use super::counts::Counts;
use super::guest::Said;
use super::log::Region;
use crate::guest::program::Program;
use crate::qemu::machine::Machine;
use crate::report::{Ending, HashedFile};

/// Version of the document's form: a higher one when a name changes its meaning or goes. New names keep it.
pub const SCHEMA: u32 = 1;

/// One program on one kernel. But for `host` it holds nothing of this machine: equal runs give equal bytes everywhere.
#[derive(Debug, Clone, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What the document is of.
    pub kind: &'static str,
    /// The program.
    pub program: HashedFile,
    /// Its arguments, its name first.
    pub arguments: Vec<String>,
    /// Interpreters and libraries that came with it.
    pub companions: Vec<HashedFile>,
    /// The kernel.
    pub kernel: Kernel,
    /// The emulator.
    pub qemu: Qemu,
    /// The guest's memory in bytes.
    pub memory: u64,
    /// The guest's CPUs.
    pub cpus: u8,
    /// How PROGRAM ended.
    pub outcome: Ending,
    /// Whether a second run was the same; absent where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<bool>,
    /// What was different in the second run: the titles of rows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// What was counted from the program's fork to its end; absent where nothing could count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Counts>,
    /// What was counted in each region that the program marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<Region>>,
    /// What belongs to this machine alone.
    pub host: Host,
}

/// The kernel that ran.
#[derive(Debug, Clone, Serialize)]
pub struct Kernel {
    /// What it is called.
    pub name: String,
    /// SHA-256 of its image.
    pub sha256: String,
    /// What the image says of itself: release, builder, time.
    pub version: String,
    /// Its command line.
    pub command_line: String,
}

/// The emulator that it ran in.
#[derive(Debug, Clone, Serialize)]
pub struct Qemu {
    /// Its version.
    pub version: String,
    /// SHA-256 of the executable.
    pub sha256: String,
}

/// What another machine need not have in common.
#[derive(Debug, Clone, Serialize)]
pub struct Host {
    /// Where the image was.
    pub image: String,
    /// The whole command, for a shell.
    pub command: String,
}

/// What is known before the runs.
#[derive(Debug, Clone)]
pub struct About {
    /// The program.
    pub program: HashedFile,
    /// What came with it.
    pub companions: Vec<HashedFile>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The kernel.
    pub kernel: Kernel,
    /// The emulator.
    pub qemu: Qemu,
    /// The machine.
    pub machine: Machine,
    /// This machine's part.
    pub host: Host,
}

impl About {
    /// Hashes of the program's files.
    pub fn hashes(program: &Program) -> (HashedFile, Vec<HashedFile>) {
        let companions = program.companions.iter().map(|path| HashedFile::read(path));
        (HashedFile::read(&program.path), companions.collect())
    }

    /// The document of a run, and of one more where there was one.
    pub fn document(self, said: &Said, again: Option<&Said>) -> Document {
        let differs = again.map(|again| differences(said, again));
        let (run, regions) = said.counted.clone().unzip();
        Document {
            schema: SCHEMA,
            kind: "kernel-run",
            program: self.program,
            arguments: self.arguments,
            companions: self.companions,
            kernel: self.kernel,
            qemu: self.qemu,
            memory: self.machine.memory.bytes(),
            cpus: self.machine.cpus,
            outcome: said.outcome.into(),
            repeats: differs.as_ref().map(Vec::is_empty),
            differs: differs.unwrap_or_default(),
            run,
            regions,
            host: self.host,
        }
    }
}

/// The titles of what two runs do not have in common.
fn differences(one: &Said, other: &Said) -> Vec<String> {
    let mut found = Vec::new();
    for (what, differs) in [
        ("output", one.output != other.output),
        ("standard error", one.errors != other.errors),
        ("outcome", one.outcome != other.outcome),
    ] {
        if differs {
            found.push(what.to_owned());
        }
    }
    let columns = |said: &Said| {
        let (run, regions) = said.counted.clone().unwrap_or_default();
        let mut columns = vec![(String::new(), 1, run)];
        let regions = regions.iter();
        columns.extend(
            regions.map(|one| (format!("region {}: ", one.region), one.passes, one.counts)),
        );
        columns
    };
    let (mine, others) = (columns(one), columns(other));
    let names = |columns: &[(String, u64, Counts)]| -> Vec<(String, u64)> {
        columns
            .iter()
            .map(|(name, passes, _)| (name.clone(), *passes))
            .collect()
    };
    if names(&mine) != names(&others) {
        found.push("marks".to_owned());
        return found;
    }
    for ((name, _, counts), (.., other)) in mine.iter().zip(&others) {
        for ((group, title, value), (.., again)) in counts.rows().into_iter().zip(other.rows()) {
            if value != again {
                found.push(format!("{name}{group}: {title}: {value} and {again}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use memwright_linux::channel::Outcome;

    fn said() -> Said {
        let region = Region {
            region: 1,
            passes: 2,
            counts: Counts::default(),
        };
        Said {
            output: b"x".to_vec(),
            errors: Vec::new(),
            outcome: Outcome::Exited(0),
            counted: Some((Counts::default(), vec![region])),
        }
    }

    #[test]
    fn what_differs_is_named() {
        assert!(differences(&said(), &said()).is_empty());
        let mut other = said();
        other.output = b"y".to_vec();
        let (run, regions) = other.counted.as_mut().unwrap();
        run.invlpg = 3;
        regions[0].counts.user_faults.write = 1;
        assert_eq!(
            differences(&said(), &other),
            [
                "output",
                "Flushes: INVLPG: 0 and 3",
                "region 1: Page faults: user, not present, write: 0 and 1"
            ]
        );
        let mut other = said();
        other.counted.as_mut().unwrap().1[0].passes = 3;
        assert_eq!(differences(&said(), &other), ["marks"]);
    }
}
