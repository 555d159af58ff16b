//! The account of a program on a kernel image, as a document.

use serde::{Deserialize, Serialize};

use crate::model::counts::Counts;
use crate::model::faults::Faults;
use crate::model::hashed_file::HashedFile;
use crate::model::memwright_run::Ending;
use crate::model::profile::Profile;
use crate::model::region::Region;
use crate::model::sent::Sent;

/// The version of the document's format. It increases when a name in the JSON is removed or changes its meaning, but
/// not when one is added.
pub const SCHEMA: u32 = 2;
/// The value of `kind` in the document of a run on a kernel image.
pub const KIND: &str = "kernel-run";

/// The document of a program's run on a kernel image. Only `host` depends on the host: the other fields of equal runs
/// have equal bytes on every machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// The version of the document's format: [`SCHEMA`].
    pub schema: u32,
    /// The kind of the document: [`KIND`].
    pub kind: String,
    /// The program; absent if the kernel runs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<HashedFile>,
    /// The program's arguments, beginning with `argv[0]`.
    pub arguments: Vec<String>,
    /// Interpreters and libraries that the program needs.
    pub companions: Vec<HashedFile>,
    /// The kernel that ran the program.
    pub kernel: Kernel,
    /// SHA-256 of the guest's init process, which is embedded in this command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_sha256: Option<String>,
    /// The QEMU that ran the guest.
    pub qemu: Qemu,
    /// The guest's memory in bytes.
    pub memory: u64,
    /// The number of the guest's CPUs.
    pub cpus: u8,
    /// The guest's other settings as `NAME=VALUE`, where NAME is the name of an option.
    #[serde(default)]
    pub settings: Vec<String>,
    /// How PROGRAM ended.
    pub outcome: Ending,
    /// SHA-256 of the program's standard output; absent in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<String>,
    /// SHA-256 of the program's standard error; absent in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_sha256: Option<String>,
    /// Whether a second run gave the same results; absent if there was no second run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<bool>,
    /// The titles of the rows that differ in the second run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// The paths in the tree of `--root` that the program looked up on this kernel and did not find. The guest lacked
    /// them because the rehearsal on Memwright did not use them. Absent if the command did not search for such paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Vec<String>>,
    /// The counts from the program's exec to its exit; absent if nothing could be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Counts>,
    /// The counts of the run on each CPU, which add up to `run`. Absent if the guest has one CPU, or if the counts by
    /// CPU are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub by_cpu: Vec<Counts>,
    /// The interprocessor interrupts that CPUs sent in the run; absent if the guest has one CPU.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sent: Vec<Sent>,
    /// The counts of each region that the program marked. Absent without the plugin, because QEMU's log alone does not
    /// show marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<Region>>,
    /// The page faults by what caused them, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub faults: Option<Faults>,
    /// The kernel's instructions by function, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<Profile>,
    /// What depends on the host: it can differ between equal runs.
    pub host: Host,
}

impl Document {
    /// Returns what ran: the program with its arguments or, if the kernel runs no program, the file name of the
    /// kernel's image. In a comparison, the name of the kernel cannot be used, because it is the name of a column.
    pub fn subject(&self) -> String {
        let words = self.program.as_ref().map(|_| self.arguments.join(" "));
        words.unwrap_or_else(|| last_part(&self.host.image).to_owned())
    }

    /// Returns the title of the document's account.
    pub fn title(&self) -> String {
        match &self.program {
            Some(_) => format!("Account of {} on {}", self.subject(), self.kernel.name),
            None => format!("Account of {}", self.kernel.name),
        }
    }

    /// Returns a phrase that states whether a second run gave the same results.
    pub fn repetition(&self) -> String {
        match self.repeats {
            Some(true) => "repeats: a second run was the same, byte for byte".to_owned(),
            Some(false) => format!("does not repeat: {}", self.differs.join("; ")),
            None => "not verified by a second run".to_owned(),
        }
    }
}

/// The kernel that ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kernel {
    /// The name of the kernel in reports.
    pub name: String,
    /// SHA-256 of its image.
    pub sha256: String,
    /// The build ID that the kernel exports to programs (`/sys/kernel/notes`); absent if it exports none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// SHA-256 of its configuration, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// The version text of the image: release, builder, time.
    pub version: String,
    /// Its command line or, for Memwright's kernel, its options.
    pub command_line: String,
}

/// The emulator that ran the guest.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Qemu {
    /// The version of QEMU.
    pub version: String,
    /// SHA-256 of the executable.
    pub sha256: String,
}

/// Values that depend on the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Host {
    /// The path of the image.
    pub image: String,
    /// The complete command, quoted for a shell.
    pub command: String,
}

/// Returns the part of a path after its last slash.
fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
