//! Checks that two runs have the same program, settings and other properties. The counts of runs with different
//! properties cannot be compared.

use clap::ValueEnum;
use serde_json::Value;

/// What may differ from a baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Vary {
    /// The program and its libraries, and their paths.
    Program,
    /// The path of the program and the name by which it is called: both are on its stack, and the kernel walks the
    /// path.
    Path,
    /// The kernel image.
    Kernel,
}

impl Vary {
    fn covers(self, what: &str) -> bool {
        match self {
            // A different program usually also has a different path.
            Self::Program => what == PROGRAM || what == PATH,
            Self::Path => what == PATH,
            Self::Kernel => what == KERNEL,
        }
    }
}

const PROGRAM: &str = "program";
const PATH: &str = "path of the program, or name that it is called by,";
const KERNEL: &str = "kernel";
const SETTING: &str = "setting of the guest";
/// The maximum number of settings that a message names.
const MOST_NAMED: usize = 6;

/// Returns the names of the properties that differ although they must be equal. If there are none, the runs can be
/// compared.
pub fn differing(one: &Value, other: &Value, vary: &[Vary]) -> Vec<String> {
    identities(one, other)
        .into_iter()
        .filter(|(what, one, other)| one != other && !vary.iter().any(|vary| vary.covers(what)))
        .map(|(what, one, other)| match what {
            SETTING => format!("{SETTING}: {}", lacking(&words(&one), &words(&other))),
            _ => what.to_owned(),
        })
        .collect()
}

/// Returns the properties that must be equal for counts to be compared: the name, and the value in each document.
fn identities(one: &Value, other: &Value) -> Vec<(&'static str, Value, Value)> {
    let pick = |document: &Value| {
        let kernel = match document["kernel"].is_object() {
            true => &document["kernel"]["sha256"],
            false => &document["kernel_sha256"],
        };
        [
            (
                PROGRAM,
                Value::from(vec![
                    document["program"]["sha256"].clone(),
                    document["companions"].clone(),
                ]),
            ),
            (
                PATH,
                Value::from(vec![
                    document["program"]["path"].clone(),
                    document["arguments"][0].clone(),
                ]),
            ),
            ("list of arguments", arguments(document)),
            (KERNEL, kernel.clone()),
            (
                "kernel command line",
                document["kernel"]["command_line"].clone(),
            ),
            ("first process", document["init_sha256"].clone()),
            ("QEMU", document["qemu"]["sha256"].clone()),
            ("memory size", document["memory"].clone()),
            ("number of CPUs", document["cpus"].clone()),
            ("policy", document["policies"].clone()),
            (SETTING, document["settings"].clone()),
        ]
    };
    let pairs = pick(one).into_iter().zip(pick(other));
    pairs
        .map(|((what, one), (_, other))| (what, one, other))
        .collect()
}

/// Returns the program's arguments without `argv[0]`.
fn arguments(document: &Value) -> Value {
    let words = document["arguments"].as_array().into_iter().flatten();
    words.skip(1).cloned().collect()
}

/// Returns the strings of a JSON array.
fn words(value: &Value) -> Vec<String> {
    let words = value.as_array().into_iter().flatten();
    words.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns the settings that only one of the two lists contains, for a message.
pub fn lacking(one: &[String], other: &[String]) -> String {
    let only = |these: &[String], those: &[String]| {
        let words = these.iter().filter(|word| !those.contains(word)).cloned();
        let words: Vec<String> = words.collect();
        match words.get(..MOST_NAMED) {
            None if words.is_empty() => "nothing".to_owned(),
            None => words.join(" "),
            Some(named) if named.len() == words.len() => words.join(" "),
            Some(named) => format!("{} and {} more", named.join(" "), words.len() - named.len()),
        }
    };
    format!("{} instead of {}", only(one, other), only(other, one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::memwright_run as report;
    use serde_json::json;

    fn account(program: &str, kernel: &str, faults: u64) -> Value {
        json!({
            "schema": report::SCHEMA, "program": {"sha256": program}, "companions": [{"sha256": "c"}],
            "kernel_sha256": kernel, "memory": 1, "cpus": 1, "policies": [], "repeatable": true,
            "arguments": ["x", "y"], "account": {"fault_zero": faults, "fault_cow": 5}
        })
    }

    #[test]
    fn hashes_that_differ_are_named() {
        let differing = |one: &Value, other: &Value| -> Vec<&str> {
            let all = identities(one, other).into_iter();
            all.filter(|(_, one, other)| one != other)
                .map(|(what, ..)| what)
                .collect()
        };
        let base = account("p", "k", 1);
        assert!(differing(&base, &account("p", "k", 2)).is_empty());
        assert_eq!(differing(&base, &account("q", "k", 1)), [PROGRAM]);
        assert_eq!(differing(&base, &account("p", "l", 1)), [KERNEL]);
        let mut other = account("p", "k", 1);
        other["settings"] = json!(["thp=always"]);
        assert_eq!(differing(&base, &other), [SETTING]);
        let mut other = account("p", "k", 1);
        other["arguments"] = json!(["z", "y"]);
        // A different path changes the counts, because it is on the program's stack and the kernel resolves it.
        assert_eq!(differing(&base, &other), [PATH]);
        other["arguments"] = json!(["x", "z"]);
        assert_eq!(differing(&base, &other), ["list of arguments"]);
        let mut other = account("p", "k", 1);
        other["program"]["path"] = json!("/elsewhere/x");
        assert_eq!(differing(&base, &other), [PATH]);
        assert!(Vary::Program.covers(PROGRAM) && !Vary::Program.covers(KERNEL));
        assert!(Vary::Program.covers(PATH) && Vary::Path.covers(PATH));
        assert!(!Vary::Path.covers(PROGRAM) && !Vary::Kernel.covers(PATH));
    }

    #[test]
    fn settings_that_differ_are_named() {
        for (one, other, said) in [
            (
                json!(["thp=always", "numa=1"]),
                json!(["thp=never", "numa=1"]),
                "thp=always instead of thp=never",
            ),
            (
                json!(["terminal=stdout"]),
                json!([]),
                "terminal=stdout instead of nothing",
            ),
            (Value::Null, json!(["numa=2"]), "nothing instead of numa=2"),
            (
                json!([
                    "env=A=1",
                    "file=/x sha256 1",
                    "append=a",
                    "stdin=sha256 1",
                    "trace=on"
                ]),
                json!([
                    "env=A=2",
                    "file=/x sha256 2",
                    "append=b",
                    "stdin=sha256 2",
                    "strace=on"
                ]),
                "env=A=1 file=/x sha256 1 append=a stdin=sha256 1 trace=on instead of \
                 env=A=2 file=/x sha256 2 append=b stdin=sha256 2 strace=on",
            ),
        ] {
            assert_eq!(lacking(&words(&one), &words(&other)), said);
        }
    }
}
