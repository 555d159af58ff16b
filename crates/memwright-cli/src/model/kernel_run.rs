//! The account of a program on a kernel image, as a document.

use serde::{Deserialize, Serialize};

use crate::model::counts::Counts;
use crate::model::hashed_file::HashedFile;
use crate::model::memwright_run::Ending;
use crate::model::profile::Profile;
use crate::model::region::Region;

/// Version of the document's form: a higher one when a name changes its meaning or goes. New names keep it.
pub const SCHEMA: u32 = 2;
/// What says that a document is one of these.
pub const KIND: &str = "kernel-run";

/// One program on one kernel. But for `host` it holds nothing of this machine: equal runs give equal bytes everywhere.
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
    /// Interpreters and libraries that came with it.
    pub companions: Vec<HashedFile>,
    /// The kernel.
    pub kernel: Kernel,
    /// SHA-256 of the guest's first process, which is this command's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub init_sha256: Option<String>,
    /// The emulator.
    pub qemu: Qemu,
    /// The guest's memory in bytes.
    pub memory: u64,
    /// The guest's CPUs.
    pub cpus: u8,
    /// What else the guest was told: `NAME=VALUE` for each of these options.
    #[serde(default)]
    pub settings: Vec<String>,
    /// How PROGRAM ended.
    pub outcome: Ending,
    /// SHA-256 of what it wrote to standard output; absent in documents of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<String>,
    /// SHA-256 of what it wrote to standard error; absent likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_sha256: Option<String>,
    /// Whether a second run was the same; absent where there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<bool>,
    /// What was different in the second run: the titles of rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// What was counted from the program's exec to its exit; absent where nothing could count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Counts>,
    /// What was counted in each region that the program marked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regions: Option<Vec<Region>>,
    /// The kernel's instructions by function, where that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<Profile>,
    /// What belongs to this machine alone.
    pub host: Host,
}

impl Document {
    /// Whether the run repeats, in words.
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
    /// What it is called.
    pub name: String,
    /// SHA-256 of its image.
    pub sha256: String,
    /// The build ID that it tells its programs (`/sys/kernel/notes`), where it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// SHA-256 of its configuration, where that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
    /// What the image says of itself: release, builder, time.
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

/// What another machine need not have in common.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Host {
    /// Where the image was.
    pub image: String,
    /// The whole command, for a shell.
    pub command: String,
}
