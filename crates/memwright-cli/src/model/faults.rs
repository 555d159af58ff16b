//! The page faults of a run, grouped by their causes.

use std::collections::BTreeMap;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::model::pairs;

/// The name of the row of faults whose cause is not known.
pub const UNKNOWN: &str = "[unknown]";
/// The name of the row of faults that the kernel takes while it replaces the program.
pub const EXEC: &str = "[exec]";
/// The name of code that is in no file, for example code of a just-in-time compiler.
pub const ANONYMOUS_CODE: &str = "[anonymous code]";
/// The name of memory that `/proc/PID/maps` shows without a name.
pub const ANONYMOUS: &str = "[anonymous]";
/// The name of memory that none of the process's maps contains, because it was unmapped before the maps were read.
pub const UNMAPPED: &str = "[unmapped by then]";
/// The call that replaces the program.
pub const EXECVE: &str = "execve";
/// The kind of a write fault that mapped a new page in a private mapping.
pub const COPY: &str = "cow";

/// The kind of cause by which page faults are grouped into rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// The function of the program or of a library that accessed the memory.
    #[value(help = None::<&'static str>)]
    Symbol,
    /// The line of the source.
    #[value(help = None::<&'static str>)]
    Line,
    /// The area of memory that was accessed.
    #[value(help = None::<&'static str>)]
    Area,
    /// The process.
    #[value(help = None::<&'static str>)]
    Process,
}

impl By {
    /// Returns the value of `--faults-by` that selects this kind, which is also the heading of the rows.
    pub fn name(self) -> &'static str {
        match self {
            Self::Symbol => "symbol",
            Self::Line => "line",
            Self::Area => "area",
            Self::Process => "process",
        }
    }
}

/// The page faults of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faults {
    /// The kind of cause by which the faults are grouped.
    pub by: By,
    /// The number of page faults that the account counts, which is the sum of the faults of all rows.
    pub total: u64,
    /// The rows, those with the most faults first.
    pub rows: Vec<Cause>,
    /// Remarks about the names, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// A row: a cause, and the page faults that it caused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The name of the function, line, area or process.
    pub name: String,
    /// The path of the file with the code; absent if the code is in no file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// The system call in which the kernel took the faults on the program's behalf; absent for faults of the program
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The number of page faults.
    pub faults: u64,
    /// The number of faults of each kind. On Memwright, a kind has the name of a row of the account, without the prefix
    /// `fault_`.
    #[serde(with = "pairs")]
    pub kinds: Vec<(String, u64)>,
    /// The number of TLB flushes that the faults caused, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes: Option<u64>,
}

impl Cause {
    /// Returns the number of faults of a kind.
    pub fn of_kind(&self, kind: &str) -> u64 {
        let found = self.kinds.iter().find(|(name, _)| name == kind);
        found.map_or(0, |(_, count)| *count)
    }

    /// Returns the row's label: the name, the file's name, and the system call.
    pub fn label(&self) -> String {
        let object = self.object.as_deref().map(|object| {
            let base = object.rsplit_once('/').map_or(object, |(_, base)| base);
            format!("  {base}")
        });
        let call = self.call.as_ref().map(|call| format!("  in {call}"));
        [Some(self.name.clone()), object, call]
            .into_iter()
            .flatten()
            .collect()
    }
}

/// The page faults of one cause, counted by kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// The number of faults of each kind.
    pub kinds: BTreeMap<String, u64>,
    /// The number of TLB flushes that the faults caused; `None` if it is not known.
    pub flushes: Option<u64>,
}

impl Tally {
    /// Returns the number of faults.
    pub fn faults(&self) -> u64 {
        self.kinds.values().sum()
    }

    /// Adds another tally.
    pub fn add(&mut self, other: &Self) {
        for (kind, count) in &other.kinds {
            *self.kinds.entry(kind.clone()).or_default() += count;
        }
        if let Some(flushes) = other.flushes {
            *self.flushes.get_or_insert(0) += flushes;
        }
    }
}

/// Page faults by stack, the outermost frame first.
pub type Stacks = BTreeMap<Vec<String>, Tally>;

#[cfg(test)]
pub mod tests {
    use super::*;

    /// Returns a row with faults of one kind.
    pub fn cause(name: &str, kind: &str, faults: u64) -> Cause {
        Cause {
            name: name.to_owned(),
            faults,
            kinds: vec![(kind.to_owned(), faults)],
            ..Cause::default()
        }
    }

    /// Returns page faults in which every optional part is present.
    pub fn example() -> Faults {
        Faults {
            by: By::Symbol,
            total: 1,
            rows: vec![Cause {
                object: Some("/x".to_owned()),
                call: Some("read".to_owned()),
                flushes: Some(1),
                ..cause("main", COPY, 1)
            }],
            notes: vec!["without symbols: /x".to_owned()],
        }
    }

    #[test]
    fn labels_name_the_file_and_the_call() {
        let plain = cause("touch", COPY, 1);
        let object = Cause {
            object: Some("/lib/libc.so.6".to_owned()),
            ..plain.clone()
        };
        let call = Cause {
            call: Some("read".to_owned()),
            ..object.clone()
        };
        for (one, expected) in [
            (plain, "touch"),
            (object, "touch  libc.so.6"),
            (call, "touch  libc.so.6  in read"),
        ] {
            assert_eq!(one.label(), expected);
            assert_eq!((one.of_kind(COPY), one.of_kind("file")), (1, 0));
        }
    }
}
