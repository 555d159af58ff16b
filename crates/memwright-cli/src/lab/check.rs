//! `memwright check`: a program's counts against those of an earlier run.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, anyhow};
use rustix::process::Signal;
use serde_json::Value;

use super::document::{self, Document, KIND};
use super::image::Image;
use super::laboratory::Laboratory;
use super::output::{self, Outputs};
use crate::args::{CheckArgs, FailOn, RunArgs, Vary};
use crate::children::Children;
use crate::failure::{DIFFERENCE, Failure, TIMEOUT};
use crate::folder::private_folder;
use crate::host_file::{self, LARGEST_DOCUMENT};
use crate::output::{Taken, print};
use crate::qemu::launch;
use crate::report::{self, Ending};
use crate::session::{say, show};
use crate::sheet::{self, Cell, Row, Section, Sheet};

/// Runs the program as the baseline was made, and compares; 1 where it fails.
///
/// # Errors
/// Usage; something is missing; a guest that gives no result; counts that cannot be compared.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let baseline = read(&args.baseline).map_err(Failure::Usage)?;
    let mut taken = Taken::default();
    taken.read_path("the baseline", &args.baseline);
    let program = args.run.command.first().map(Path::new);
    taken.read_path("the program", program.unwrap_or(Path::new("")));
    let outputs = Outputs::open(args.run.json.as_deref(), &args.formats, &mut taken)?;
    let now = measure(&args.run, &baseline)?;
    let differing = identities(&baseline, &now)
        .into_iter()
        .filter(|(what, one, other)| {
            one != other && !args.vary.iter().any(|vary| vary.covers(what))
        })
        .map(|(what, one, other)| match what {
            SETTING => format!("{SETTING}: {}", lacking(&one, &other)),
            _ => what.to_owned(),
        })
        .collect::<Vec<_>>();
    if !differing.is_empty() {
        return Err(Failure::Skipped(format!(
            "nothing can be claimed: the baseline was made with another {} (--vary says what may differ)",
            differing.join(", another ")
        )));
    }
    for (which, document) in [("the baseline", &baseline), ("this run", &now)] {
        if repeats(document) == Some(false) {
            return Err(Failure::Skipped(format!(
                "nothing can be claimed: {which} does not repeat"
            )));
        }
    }
    let sheet = sheet(&baseline, &now)?;
    if !outputs.on_output() {
        print(sheet::text(&sheet).as_bytes())?;
    }
    let mut failed = failing(&sheet, args.fail_on);
    failed.extend(other_ending(&baseline, &now));
    for line in &failed {
        say(line);
    }
    outputs.write("memwright check", &[sheet], &now)?;
    Ok(if failed.is_empty() { 0 } else { DIFFERENCE })
}

impl Vary {
    fn covers(self, what: &str) -> bool {
        match self {
            // Another program usually stands elsewhere.
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

fn read(path: &Path) -> anyhow::Result<Value> {
    let context = || format!("--baseline {}", path.display());
    let text = host_file::read(path, LARGEST_DOCUMENT).with_context(context)?;
    let value: Value = serde_json::from_slice(&text).with_context(context)?;
    let known = if value["kind"] == KIND {
        value["schema"] == document::SCHEMA
    } else {
        value["schema"] == report::SCHEMA && value["account"].is_object()
    };
    if known {
        return Ok(value);
    }
    Err(anyhow!("no account that memwright run --json wrote")).with_context(context)
}

/// The document of a run like the baseline's: on a kernel image, or on Memwright.
fn measure(args: &RunArgs, baseline: &Value) -> Result<Value, Failure> {
    if baseline["kind"] == KIND {
        let [image] = args.kernel.as_slice() else {
            return Err(Failure::Usage(anyhow!(
                "the baseline was made on {}: name the kernel with --kernel",
                baseline["kernel"]["name"]
            )));
        };
        let image = Image::open(image).map_err(Failure::Usage)?;
        let laboratory = Laboratory::open(args)?;
        let measured = laboratory.measure(&image, &laboratory.runs()?)?;
        show(&measured.said.errors);
        return Ok(serde_json::to_value(&measured.document).context("cannot write JSON")?);
    }
    if !args.kernel.is_empty() {
        return Err(Failure::Usage(anyhow!(
            "the baseline was made on Memwright, not on a kernel image"
        )));
    }
    run_memwright(args)
}

/// Runs this command itself: what is checked is what its users run.
fn run_memwright(args: &RunArgs) -> Result<Value, Failure> {
    let folder = private_folder().context("cannot make a temporary folder")?;
    let file = folder.path().join("account.json");
    let children = Children::watch().context("cannot receive signals")?;
    let mut command = launch::command(Signal::TERM);
    command
        .args(["/proc/self/exe", "run", "--json"])
        .arg(&file)
        .args(words(args))
        .stdin(input())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let output = children.output(&mut command)?;
    if args.verbose {
        show(&output.stderr);
    }
    let text = fs::read(&file).unwrap_or_default();
    serde_json::from_slice(&text).map_err(|_| {
        if !args.verbose {
            show(&output.stderr);
        }
        match output.status.code() {
            Some(code) if code == i32::from(TIMEOUT) => {
                Failure::Ended(TIMEOUT, "--timeout expired".to_owned())
            }
            _ => Failure::Guest(anyhow!("the run gave no account")),
        }
    })
}

/// The program's input: this command's, as for any run, but for a terminal, which a check is to do without.
fn input() -> Stdio {
    if io::stdin().is_terminal() {
        Stdio::null()
    } else {
        Stdio::inherit()
    }
}

/// The options of a run of Memwright, for another command.
fn words(args: &RunArgs) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut add = |name: &str, value: &str| words.extend([name.into(), value.into()]);
    add("--memory", &args.memory.to_string());
    add("--cpus", &args.cpus.to_string());
    for (name, value) in args.settings() {
        add(&format!("--{name}"), &value);
    }
    for variable in &args.environment {
        add("--env", variable);
    }
    for policy in &args.policies {
        add("--policy", policy);
    }
    if let Some(limit) = args.timeout {
        add("--timeout", &limit.as_secs_f64().to_string());
    }
    for file in &args.files {
        words.extend([OsString::from("--file"), file.clone()]);
    }
    if let Some(folder) = &args.keep {
        words.extend([OsString::from("--keep"), folder.into()]);
    }
    if args.verbose {
        words.push("--verbose".into());
    }
    words.push("--".into());
    words.extend(args.command.iter().cloned());
    words
}

/// What must be the same for counts to be compared, by name.
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

/// The program's arguments without its name.
fn arguments(document: &Value) -> Value {
    let words = document["arguments"].as_array().into_iter().flatten();
    words.skip(1).cloned().collect()
}

/// The settings that only one of two lists has.
fn lacking(one: &Value, other: &Value) -> String {
    let list = |value: &Value| -> Vec<String> {
        let words = value.as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let (one, other) = (list(one), list(other));
    let only = |these: &[String], those: &[String]| {
        let words = these.iter().filter(|word| !those.contains(word)).cloned();
        let words: Vec<String> = words.collect();
        if words.is_empty() {
            "nothing".to_owned()
        } else {
            words.join(" ")
        }
    };
    format!("{} instead of {}", only(&one, &other), only(&other, &one))
}

/// A line where the program did not end as it did: whatever its counts are, it did something else.
fn other_ending(baseline: &Value, now: &Value) -> Option<String> {
    let ending = |document: &Value| {
        let ending = serde_json::from_value::<Option<Ending>>(document["outcome"].clone());
        crate::table::ending(ending.ok().flatten())
    };
    let (before, now) = (ending(baseline), ending(now));
    (before != now).then(|| format!("the program: {before} before, {now} now"))
}

fn repeats(document: &Value) -> Option<bool> {
    let value = document
        .get("repeats")
        .or_else(|| document.get("repeatable"));
    value.and_then(Value::as_bool)
}

fn sheet(baseline: &Value, now: &Value) -> anyhow::Result<Sheet> {
    if baseline["kind"] == KIND {
        let parse = |value: &Value| serde_json::from_value::<Document>(value.clone());
        let documents = [parse(baseline).context("the baseline")?, parse(now)?];
        let mut sheet = output::sheet(&documents);
        sheet.columns = columns();
        return Ok(sheet);
    }
    let empty = serde_json::Map::new();
    let account = |value: &Value| value["account"].as_object().unwrap_or(&empty).clone();
    let (before, after) = (account(baseline), account(now));
    let names = before
        .keys()
        .chain(after.keys().filter(|name| !before.contains_key(*name)));
    let rows = names.map(|name| Row {
        group: crate::rows::group(name).to_owned(),
        title: crate::rows::title(name).to_owned(),
        cells: [&before, &after]
            .map(|account| Cell::count(account.get(name).and_then(Value::as_u64)))
            .to_vec(),
    });
    Ok(Sheet {
        heading: now["arguments"]
            .as_array()
            .map_or_else(String::new, |words| {
                let words = words.iter().filter_map(Value::as_str);
                words.collect::<Vec<_>>().join(" ")
            }),
        columns: columns(),
        compares: true,
        sections: vec![Section {
            title: String::new(),
            rows: rows.collect(),
        }],
        notes: Vec::new(),
    })
}

fn columns() -> Vec<String> {
    vec!["baseline".to_owned(), "now".to_owned()]
}

/// A line for each row that makes the check fail. What one side did not measure makes it fail too: it must not pass unseen.
fn failing(sheet: &Sheet, on: FailOn) -> Vec<String> {
    let mut lines = Vec::new();
    for section in &sheet.sections {
        for row in &section.rows {
            let [before, now] = row.cells.as_slice() else {
                continue;
            };
            let fails = match (before.value, now.value, on) {
                (Some(before), Some(now), FailOn::Increase) => now > before,
                (Some(before), Some(now), FailOn::Difference) => now != before,
                (None, None, _) => false,
                (None, Some(_), _) | (Some(_), None, _) => true,
            };
            if fails {
                let place = if section.title.is_empty() {
                    String::new()
                } else {
                    format!("{}: ", section.title)
                };
                lines.push(format!(
                    "{place}{}: {}: {} before, {} now",
                    row.group, row.title, before.text, now.text
                ));
            }
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
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
        // A path is on the program's stack, and the kernel walks it.
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
            assert_eq!(lacking(&one, &other), said);
        }
    }

    #[test]
    fn a_program_that_ends_otherwise_fails() {
        let ended = |outcome: Value| json!({"outcome": outcome});
        let exited = |code: i32| ended(json!({"exited": code}));
        assert_eq!(other_ending(&exited(1), &exited(1)), None);
        assert_eq!(
            other_ending(&exited(0), &exited(1)).unwrap(),
            "the program: exited with code 0 before, exited with code 1 now"
        );
        assert_eq!(
            other_ending(&exited(0), &ended(json!({"killed": 6}))).unwrap(),
            "the program: exited with code 0 before, killed by signal 6 now"
        );
    }

    #[test]
    fn only_what_was_asked_for_fails() {
        for (before, now, increase, difference) in [(1, 1, 0, 0), (1, 2, 1, 1), (2, 1, 0, 1)] {
            let sheet = sheet(&account("p", "k", before), &account("p", "k", now)).unwrap();
            assert_eq!(failing(&sheet, FailOn::Increase).len(), increase);
            assert_eq!(failing(&sheet, FailOn::Difference).len(), difference);
        }
        let mut lacking = account("p", "k", 1);
        lacking["account"] = json!({"fault_zero": "not observable under TCG", "fault_cow": 5});
        let sheet = sheet(&account("p", "k", 1), &lacking).unwrap();
        assert_eq!(failing(&sheet, FailOn::Increase).len(), 1);
    }
}
