//! What a bench found, as a document: what `--json` writes.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use sha2::{Digest, Sha256};

use super::column::Column;
use super::records::Record;

/// Version of the document's form: a higher one when a name changes its meaning or goes. New names keep it.
pub const SCHEMA: u32 = 1;

/// The document. It holds nothing of this machine but file names: equal runs give equal bytes everywhere.
#[derive(Debug, Serialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The kernels, in the order of the tables.
    pub columns: Vec<Kernel>,
    /// The experiments.
    pub experiments: Vec<Measured>,
}

/// A kernel that the experiments ran on.
#[derive(Debug, Serialize)]
pub struct Kernel {
    /// What its column is called.
    pub name: String,
    /// SHA-256 of its image.
    pub sha256: String,
}

/// One experiment.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Its name.
    pub experiment: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// SHA-256 of the program that every column ran.
    pub program_sha256: String,
    /// Its runs.
    pub runs: Vec<MeasuredRun>,
}

/// One run of an experiment, in every column.
#[derive(Debug, Serialize)]
pub struct MeasuredRun {
    /// What distinguishes it.
    pub label: &'static str,
    /// The program's arguments.
    pub arguments: &'static [&'static str],
    /// CPUs of the guest.
    pub cpus: u8,
    /// Its memory in bytes.
    pub memory: u64,
    /// What the program printed, by column.
    #[serde(serialize_with = "as_map")]
    pub records: Vec<(String, Vec<Record>)>,
}

fn as_map<S: Serializer>(
    pairs: &[(String, Vec<Record>)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let mut map = serializer.serialize_map(Some(pairs.len()))?;
    for (name, value) in pairs {
        map.serialize_entry(name, value)?;
    }
    map.end()
}

impl Document {
    /// One without experiments yet.
    ///
    /// # Errors
    /// Those of reading the images.
    pub fn new(columns: &[Column]) -> anyhow::Result<Self> {
        let kernel = |column: &Column| {
            Ok(Kernel {
                name: column.title(),
                sha256: column.hash()?,
            })
        };
        Ok(Self {
            schema: SCHEMA,
            columns: columns.iter().map(kernel).collect::<anyhow::Result<_>>()?,
            experiments: Vec::new(),
        })
    }
}

/// SHA-256 of bytes, as hexadecimal digits.
pub fn hash(bytes: &[u8]) -> String {
    let digits = Sha256::digest(bytes);
    digits.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same of a file.
///
/// # Errors
/// Those of reading it.
pub fn hash_file(path: &Path) -> anyhow::Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(hash(&bytes))
}
