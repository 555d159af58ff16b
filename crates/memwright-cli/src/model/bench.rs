//! The results of a bench as a document, which `--json` writes.

use serde::{Deserialize, Serialize};

use crate::model::kernel_run::Qemu;
use crate::model::pairs;
use crate::model::records::Record;

/// The version of the document's format. It increases when a name in the JSON is removed or changes its meaning, but
/// not when one is added.
pub const SCHEMA: u32 = 2;

/// The value of `kind` in the document of a bench.
pub const KIND: &str = "bench";

/// The document of a bench. It contains nothing that depends on the host, so equal runs produce equal bytes on every
/// machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    /// The version of the document's format: [`SCHEMA`].
    pub schema: u32,
    /// The kind of the document: [`KIND`].
    pub kind: String,
    /// The kernels, in the order of the tables' columns.
    pub columns: Vec<Kernel>,
    /// The experiments, each with its results.
    pub experiments: Vec<Measured>,
}

/// A kernel on which the experiments ran.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Kernel {
    /// The name of its column.
    pub name: String,
    /// SHA-256 of its image.
    pub sha256: String,
    /// The version text of the image: release, builder, time.
    pub version: String,
    /// Words that were added to a Linux kernel's command line; absent if none were.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub append: String,
    /// SHA-256 of its configuration, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config_sha256: Option<String>,
}

/// The results of one experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// The name of the experiment.
    pub experiment: String,
    /// The question that the experiment answers, in one line.
    pub question: String,
    /// SHA-256 of the program that every column ran.
    pub program_sha256: String,
    /// The runs of the experiment.
    pub runs: Vec<MeasuredRun>,
}

/// One run of an experiment, with its results on every kernel.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// The text that distinguishes the run from the experiment's other runs.
    pub label: String,
    /// The program's arguments.
    pub arguments: Vec<String>,
    /// The number of the guest's CPUs.
    pub cpus: u8,
    /// The number of NUMA nodes; absent if it is one.
    #[serde(default = "single", skip_serializing_if = "is_single")]
    pub nodes: u8,
    /// The guest's memory in bytes.
    pub memory: u64,
    /// The guest's swap devices in the syntax of `--swap`; absent if it has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub swap: String,
    /// The QEMU that ran the guests.
    pub qemu: Qemu,
    /// Whether, on every kernel, a second run printed the same records; absent if there were no second runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeats: Option<bool>,
    /// The differences between the first and the second runs, each with its column, case and measure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// The name of each column, with the records that the program printed on its kernel.
    #[serde(with = "pairs")]
    pub records: Vec<(String, Vec<Record>)>,
}

/// The results of one run of an experiment on one kernel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// The records that the program printed.
    pub records: Vec<Record>,
    /// The differences between the first and the second run, each with its case and measure; absent if there was no
    /// second run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub differs: Option<Vec<String>>,
}

impl MeasuredRun {
    /// Adds the results of the run on the kernel `kernel`.
    pub fn add(&mut self, kernel: &str, figures: Figures) {
        if let Some(lines) = figures.differs {
            self.repeats = Some(self.repeats.unwrap_or(true) && lines.is_empty());
            let lines = lines.into_iter().map(|line| format!("{kernel}: {line}"));
            self.differs.extend(lines);
        }
        self.records.push((kernel.to_owned(), figures.records));
    }
}

fn is_single(nodes: &u8) -> bool {
    *nodes == 1
}

fn single() -> u8 {
    1
}

impl Document {
    /// Returns whether the second run of any experiment differed from the first.
    pub fn differs(&self) -> bool {
        let mut runs = self.experiments.iter().flat_map(|one| &one.runs);
        runs.any(|run| run.repeats == Some(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::records::Found;
    use crate::model::schema::{faults, published};

    #[test]
    fn what_is_written_is_what_is_published() {
        let record = |found| Record {
            case: "a".into(),
            measure: "b".into(),
            unit: "c".into(),
            found,
        };
        let value = record(Found::Value { value: 1.5 });
        let series = record(Found::Series {
            minimum: 1.0,
            median: 2.0,
            mean: 2.5,
            maximum: 4.0,
        });
        let mut document = Document {
            schema: SCHEMA,
            kind: KIND.to_owned(),
            columns: vec![Kernel {
                name: "k".into(),
                sha256: "00".into(),
                version: "1".into(),
                append: "preempt=none".into(),
                config_sha256: Some("00".into()),
            }],
            experiments: vec![Measured {
                experiment: "x".into(),
                question: "?".into(),
                program_sha256: "00".into(),
                runs: vec![MeasuredRun {
                    label: String::new(),
                    arguments: vec!["1".into()],
                    cpus: 4,
                    nodes: 2,
                    memory: 1,
                    swap: "zram:1M".into(),
                    qemu: Qemu {
                        version: "7.2".into(),
                        sha256: "00".into(),
                    },
                    repeats: Some(false),
                    differs: vec!["k: a: b: 1 and 2".into()],
                    records: vec![("k".into(), vec![value, series])],
                }],
            }],
        };
        let whole = serde_json::to_value(&document).unwrap();
        assert_eq!(faults("bench.json", &whole), Vec::<String>::new());
        let read: Document = serde_json::from_value(whole.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), whole);
        let schema = published("bench.json");
        let run = &whole["experiments"][0]["runs"][0];
        for name in schema["$defs"]["run"]["properties"]
            .as_object()
            .unwrap()
            .keys()
        {
            assert!(run.get(name).is_some(), "{name}");
        }
        assert!(document.differs());
        let run = &mut document.experiments[0].runs[0];
        (run.swap, run.repeats, run.differs) = (String::new(), None, Vec::new());
        document.columns[0].config_sha256 = None;
        let bare = serde_json::to_value(&document).unwrap();
        assert_eq!(faults("bench.json", &bare), Vec::<String>::new());
        assert!(!document.differs());
    }
}
