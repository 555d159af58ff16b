//! The account of a program on a kernel image, as a document.

use serde::{Deserialize, Serialize};

use crate::model::counts::Counts;
use crate::model::hashed_file::HashedFile;
use crate::model::memwright_run::Ending;
use crate::model::profile::Profile;
use crate::model::region::Region;

/// The version of the document's form. It is raised when a name is removed or changes its meaning, not for new names.
pub const SCHEMA: u32 = 2;
/// The value of `kind` in such a document.
pub const KIND: &str = "kernel-run";

/// One program on one kernel. Except for `host`, it contains nothing of this machine: equal runs give equal bytes
/// everywhere.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// [`KIND`].
    pub kind: String,
    /// The program.
    pub program: HashedFile,
    /// Its arguments, its name first.
    pub arguments: Vec<String>,
    /// Interpreters and libraries that the program needs.
    pub companions: Vec<HashedFile>,
    /// The kernel.
    pub kernel: Kernel,
    /// SHA-256 of the guest's first process, which is part of this command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_sha256: Option<String>,
    /// The emulator.
    pub qemu: Qemu,
    /// The guest's memory in bytes.
    pub memory: u64,
    /// The guest's CPUs.
    pub cpus: u8,
    /// The guest's other settings: `NAME=VALUE` for each of these options.
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
    /// Whether a second run was the same; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<bool>,
    /// The differences of the second run: the titles of rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// The paths in the tree of `--root` that the program looked up on this kernel and that its guest lacked, because the
    /// run on Memwright did not use them; absent if they were not looked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Vec<String>>,
    /// The counts from the program's exec to its exit; absent if nothing could be counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Counts>,
    /// The counts of each region that the program marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<Region>>,
    /// The kernel's instructions by function, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<Profile>,
    /// Properties of this machine alone.
    pub host: Host,
}

impl Document {
    /// Returns whether the run repeats, in words.
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
    /// Its name.
    pub name: String,
    /// SHA-256 of its image.
    pub sha256: String,
    /// The build ID that it reports to its programs (`/sys/kernel/notes`), if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// SHA-256 of its configuration, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// The version text of the image: release, builder, time.
    pub version: String,
    /// Its command line.
    pub command_line: String,
}

/// The emulator that it ran in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Qemu {
    /// Its version.
    pub version: String,
    /// SHA-256 of the executable.
    pub sha256: String,
}

/// Properties that can differ on another machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Host {
    /// The path of the image.
    pub image: String,
    /// The complete command, quoted for a shell.
    pub command: String,
}
