//! The account of a run as a document: what `--json` writes, and what the table is printed from.
//!
//! It holds nothing of this machine but paths: no QEMU version, no host time. Equal runs give equal bytes everywhere.

use std::borrow::Cow;
use std::path::Path;

use memwright_linux::channel::Outcome;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::account::Value;
use crate::args::RunArgs;
use crate::guest::program::Program;
use crate::host_file::{self, LARGEST_IMAGE};
use crate::pairs;
use crate::qemu::machine::Clock;
use crate::rows;
use crate::run::{self, Finished};

/// Version of the document's form: a higher one when a name changes its meaning or goes. New names keep it.
pub const SCHEMA: u32 = 2;

/// The document. What one that is read does not say is empty, so that it equals nothing of a run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The program.
    pub program: HashedFile,
    /// Its arguments, its name first.
    pub arguments: Vec<String>,
    /// Interpreters and libraries that came with it.
    pub companions: Vec<HashedFile>,
    /// SHA-256 of the kernel image.
    pub kernel_sha256: String,
    /// The guest's memory in bytes.
    pub memory: u64,
    /// The guest's CPUs.
    pub cpus: u8,
    /// What its time was.
    pub clock: Cow<'static, str>,
    /// What `--policy` said.
    pub policies: Vec<String>,
    /// What else the guest was told: `NAME=VALUE` for each of these options.
    pub settings: Vec<String>,
    /// How PROGRAM ended.
    pub outcome: Option<Ending>,
    /// Whether another run prints the same.
    pub repeatable: bool,
    /// Why not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_repeatable: Option<Cow<'static, str>>,
    /// With several CPUs: the rows that another run repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeating: Option<Vec<String>>,
    /// The rows.
    #[serde(with = "pairs")]
    pub account: Vec<(String, Value)>,
    /// System calls that returned success without effect, by name, and how often.
    #[serde(with = "pairs")]
    pub stubs: Vec<(String, u64)>,
    /// System calls that Memwright does not have, and how often.
    #[serde(with = "pairs")]
    pub unknown: Vec<(String, u64)>,
}

/// Everything that the guest was told beside its memory, its CPUs and its policies and that can shift a count, as documents
/// have it. `files` is what `--file` put there, `input` the hash of standard input.
pub fn settings(args: &RunArgs, files: &[String], input: &str) -> Vec<String> {
    let mut settings = args.settings();
    let repeated = |name: &'static str, values: &[String]| {
        let values = values.iter().cloned();
        values.map(|value| (name, value)).collect::<Vec<_>>()
    };
    settings.extend(repeated("env", &args.environment));
    settings.extend(repeated("file", files));
    settings.extend(repeated("append", &args.append));
    for (name, is) in [("trace", args.trace.is_some()), ("strace", args.strace)] {
        settings.extend(is.then(|| (name, "on".to_owned())));
    }
    settings.push(("stdin", format!("sha256 {input}")));
    let settings = settings.into_iter();
    settings
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

/// What documents say of a program that read nothing from standard input, or was given nothing.
pub fn empty_input() -> String {
    format!("stdin=sha256 {}", hexadecimal_hash(&[]))
}

/// What a document says of the guest's terminal.
fn terminals(args: &RunArgs) -> Vec<String> {
    let descriptors = run::descriptors(args).into_iter();
    let size = run::terminal_size(args);
    let size = size.map(|(columns, rows)| format!("terminal-size={columns}x{rows}"));
    descriptors.filter_map(terminal).chain(size).collect()
}

/// What a document says of a descriptor that is a terminal: programs do something else there.
fn terminal((name, is): (&'static str, bool)) -> Option<String> {
    is.then(|| format!("terminal={name}"))
}

/// The hashes of everything that ran.
#[derive(Debug, Clone)]
pub struct Hashes {
    program: HashedFile,
    companions: Vec<HashedFile>,
    kernel: String,
}

impl Hashes {
    /// Reads and hashes the files.
    pub fn read(program: &Program, kernel: &[u8]) -> Self {
        Self {
            program: HashedFile::read(&program.path),
            companions: program
                .companions
                .iter()
                .map(|path| HashedFile::read(path))
                .collect(),
            kernel: hexadecimal(&Sha256::digest(kernel)),
        }
    }
}

/// A file of the host that ran.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HashedFile {
    /// Its path, here and in the guest.
    pub path: String,
    /// SHA-256 of its contents.
    pub sha256: String,
}

/// How PROGRAM ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It could not be started: an error number of Linux.
    NotStarted(i32),
}

impl From<Outcome> for Ending {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Exited(code) => Self::Exited(code),
            Outcome::Killed(signal) => Self::Killed(signal),
            Outcome::NotStarted(errno) => Self::NotStarted(errno),
        }
    }
}

impl Document {
    /// Makes the document of a finished run.
    pub fn new(run: &Finished<'_>) -> Self {
        let account = &run.report.account;
        let rows: Vec<(String, Value)> = account
            .rows
            .iter()
            .map(|(name, value)| (name.clone(), rows::shown(name, *value, run.machine)))
            .collect();
        let counted = rows
            .iter()
            .filter(|(_, value)| *value != Value::Unobservable);
        let repeating = (run.machine.cpus > 1 && run.not_repeatable.is_none())
            .then(|| counted.map(|(name, _)| name.clone()).collect());
        Self {
            schema: SCHEMA,
            program: run.hashes.program.clone(),
            arguments: run
                .args
                .command
                .iter()
                .map(|text| text.to_string_lossy().into_owned())
                .collect(),
            companions: run.hashes.companions.clone(),
            kernel_sha256: run.hashes.kernel.clone(),
            memory: run.args.memory().bytes(),
            cpus: run.machine.cpus,
            clock: match run.machine.clock {
                Clock::Instructions => "instructions".into(),
                Clock::Host => "host".into(),
            },
            policies: run.args.policies.clone(),
            settings: [
                settings(run.args, &run.prepared.files, &run.input),
                terminals(run.args),
            ]
            .concat(),
            outcome: run
                .report
                .outcome
                .as_ref()
                .map(|(outcome, _)| (*outcome).into()),
            repeatable: run.not_repeatable.is_none(),
            not_repeatable: run.not_repeatable.map(Cow::Borrowed),
            repeating,
            account: rows,
            stubs: account.stubs.clone(),
            unknown: account.unknown.clone(),
        }
    }

    /// Whether a row is marked as one that repeats.
    pub fn repeats(&self, name: &str) -> bool {
        self.repeating
            .iter()
            .flatten()
            .any(|repeating| repeating == name)
    }
}

impl HashedFile {
    /// Hashes a file; one that has gone meanwhile has no hash.
    pub fn read(path: &Path) -> Self {
        let sha256 = host_file::read(path, LARGEST_IMAGE)
            .map(|data| hexadecimal(&Sha256::digest(data)))
            .unwrap_or_default();
        Self {
            path: path.to_string_lossy().into_owned(),
            sha256,
        }
    }
}

/// Adds one of several parts to a hash, behind its length: no two lists of parts give the same bytes.
pub fn hash_part(hash: &mut Sha256, part: &[u8]) {
    hash.update((part.len() as u64).to_le_bytes());
    hash.update(part);
}

/// SHA-256 of bytes, as hexadecimal digits.
pub fn hexadecimal_hash(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// Bytes as hexadecimal digits.
pub fn hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::{faults, published};

    fn document() -> Document {
        let file = HashedFile {
            path: "/x".to_owned(),
            sha256: "00".to_owned(),
        };
        Document {
            schema: SCHEMA,
            program: file.clone(),
            arguments: vec!["x".to_owned()],
            companions: vec![file],
            kernel_sha256: "00".to_owned(),
            memory: 1,
            cpus: 2,
            clock: "instructions".into(),
            policies: vec!["aslr=1".to_owned()],
            settings: vec!["thp=always".to_owned()],
            outcome: Some(Ending::Exited(0)),
            repeatable: false,
            not_repeatable: Some("live input".into()),
            repeating: Some(vec!["forks".to_owned()]),
            account: vec![
                ("forks".to_owned(), Value::Count(1)),
                ("hits".to_owned(), Value::Unobservable),
            ],
            stubs: vec![("rseq".to_owned(), 1)],
            unknown: vec![("bpf".to_owned(), 2)],
        }
    }

    #[test]
    fn what_is_written_is_what_is_published() {
        const FILE: &str = "run.json";
        let mut document = document();
        let whole = serde_json::to_value(&document).unwrap();
        assert_eq!(faults(FILE, &whole), Vec::<String>::new());
        let read: Document = serde_json::from_value(whole.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), whole);
        for name in published(FILE)["properties"].as_object().unwrap().keys() {
            assert!(whole.get(name).is_some(), "{name}");
        }
        (
            document.outcome,
            document.not_repeatable,
            document.repeating,
        ) = (None, None, None);
        document.clock = "host".into();
        let bare = serde_json::to_value(&document).unwrap();
        assert_eq!(faults(FILE, &bare), Vec::<String>::new());
        document.clock = "sundial".into();
        let wrong = serde_json::to_value(&document).unwrap();
        assert_eq!(faults(FILE, &wrong).len(), 1);
    }
}
