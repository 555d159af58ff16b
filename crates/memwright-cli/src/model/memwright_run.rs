//! The account of a run as a document, which `--json` writes and from which the table is printed.
//!
//! The document contains nothing that depends on the host, except paths: no QEMU version and no host time. Equal runs
//! produce equal bytes on every machine.

use std::borrow::Cow;

use memwright_linux_abi::channel::Outcome;
use serde::{Deserialize, Serialize};

use crate::model::account::Value;
use crate::model::faults::Faults;
use crate::model::hashed_file::HashedFile;
use crate::model::pairs;

/// The version of the document's format. It increases when a name in the JSON is removed or changes its meaning, but
/// not when one is added.
pub const SCHEMA: u32 = 2;

/// The document of a run on Memwright. A field that is missing in the JSON is read as empty, and therefore differs from
/// the field in the document of every real run.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Document {
    /// The version of the document's format: [`SCHEMA`].
    pub schema: u32,
    /// The executable of the program, with its hash.
    pub program: HashedFile,
    /// The program's arguments, beginning with `argv[0]`.
    pub arguments: Vec<String>,
    /// Interpreters and libraries that the program needs.
    pub companions: Vec<HashedFile>,
    /// SHA-256 of the kernel image.
    pub kernel_sha256: String,
    /// The guest's memory in bytes.
    pub memory: u64,
    /// The number of the guest's CPUs.
    pub cpus: u8,
    /// The name of the guest's clock.
    pub clock: Cow<'static, str>,
    /// The values of `--policy`.
    pub policies: Vec<String>,
    /// The guest's other settings as `NAME=VALUE`, where NAME is the name of an option.
    pub settings: Vec<String>,
    /// How PROGRAM ended.
    pub outcome: Option<Ending>,
    /// Whether a second run would give the same account.
    pub repeatable: bool,
    /// Why the run is not repeatable; absent if the run is repeatable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_repeatable: Option<Cow<'static, str>>,
    /// The names of the rows that have the same values in every run; absent with one CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeating: Option<Vec<String>>,
    /// The rows of the account, by name.
    #[serde(with = "pairs")]
    pub account: Vec<(String, Value)>,
    /// The page faults by what caused them, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub faults: Option<Faults>,
    /// System calls that returned success without effect, by name, and their counts.
    #[serde(with = "pairs")]
    pub stubs: Vec<(String, u64)>,
    /// System calls that Memwright does not have, and their counts.
    #[serde(with = "pairs")]
    pub unknown: Vec<(String, u64)>,
}

/// How PROGRAM ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// It could not be started. The value is Linux's error number.
    NotStarted(i32),
    /// A kernel that runs without a program ended in a triple fault.
    TripleFault {},
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
    /// Returns whether a row is marked as one that has the same value in every run.
    pub fn repeats(&self, name: &str) -> bool {
        self.repeating
            .iter()
            .flatten()
            .any(|repeating| repeating == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::faults::tests::example;
    use crate::model::schema::{faults, published};

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
            faults: Some(example()),
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
            document.faults,
        ) = (None, None, None, None);
        document.clock = "host".into();
        let bare = serde_json::to_value(&document).unwrap();
        assert_eq!(faults(FILE, &bare), Vec::<String>::new());
        document.clock = "sundial".into();
        let wrong = serde_json::to_value(&document).unwrap();
        assert_eq!(faults(FILE, &wrong).len(), 1);
    }
}
