//! The guest's account, parsed from its account frames.

use serde::{Deserialize, Serialize};

/// One value of the account.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Value {
    /// A count.
    Count(u64),
    /// A count that this machine cannot observe.
    #[serde(
        serialize_with = "unobservable",
        deserialize_with = "read_unobservable"
    )]
    Unobservable,
}

/// The text that tables and JSON contain for a count that this machine cannot observe.
pub const UNOBSERVABLE: &str = "not observable under TCG";

fn unobservable<S: serde::Serializer>(serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(UNOBSERVABLE)
}

fn read_unobservable<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    let text = String::deserialize(deserializer)?;
    if text == UNOBSERVABLE {
        return Ok(());
    }
    Err(serde::de::Error::custom("neither a count nor unobservable"))
}

/// The account of one run. Its lists are in the order in which the guest sends them.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The names of the rows, and their values.
    pub rows: Vec<(String, Value)>,
    /// System calls that returned success without effect, and their counts.
    pub stubs: Vec<(String, u64)>,
    /// System calls that Memwright does not have, and their counts.
    pub unknown: Vec<(String, u64)>,
}

impl Account {
    /// Parses one account frame and adds its lines: `NAME VALUE`, `stub NAME COUNT` or `unknown NAME COUNT`. Lines of
    /// another form are ignored, because a kernel that is newer than the command can send more.
    pub fn add_lines(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            match words[..] {
                ["stub", name, count] => push(&mut self.stubs, name, count.parse().ok()),
                ["unknown", name, count] => push(&mut self.unknown, name, count.parse().ok()),
                [name, "not_observable"] => {
                    push(&mut self.rows, name, Some(Value::Unobservable));
                }
                [name, count] => push(&mut self.rows, name, count.parse().ok().map(Value::Count)),
                _ => {}
            }
        }
    }
}

fn push<T>(list: &mut Vec<(String, T)>, name: &str, value: Option<T>) {
    list.extend(value.map(|value| (name.to_owned(), value)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_rows_and_lists() {
        let mut account = Account::default();
        account.add_lines("faults.copy 12\nflushes.pcid not_observable\nstub madvise 3\nnonsense\nx y z w\nbad -1\n");
        account.add_lines("unknown 435:clone3 1\n");
        let expected = Account {
            rows: vec![
                ("faults.copy".into(), Value::Count(12)),
                ("flushes.pcid".into(), Value::Unobservable),
            ],
            stubs: vec![("madvise".into(), 3)],
            unknown: vec![("435:clone3".into(), 1)],
        };
        assert_eq!(account, expected);
    }
}
