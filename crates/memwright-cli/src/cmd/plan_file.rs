//! Plan files: the options and columns of a command in TOML, which replace `--plan FILE` in its command line.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use clap::{ArgAction, Command, CommandFactory};
use toml::{Table, Value};

use crate::cmd::args::Cli;
use crate::cmd::front::front;
use crate::host::host_file::{self, LARGEST_DOCUMENT};

/// The name of the option `--plan`.
const OPTION: &str = "plan";
/// The key with the program and its arguments.
const PROGRAM: &str = "program";
/// The key with the names of experiments or workloads. In a command line, these names belong to no option.
const NAMES: &str = "names";
/// The key of the array of column tables. `NAME` and `KERNEL` are the keys of a column's name and kernel.
const COLUMN: &str = "column";
const NAME: &str = "name";
const KERNEL: &str = "kernel";

/// Replaces `--plan FILE` in a command line by the words of the plan. The options of the command line follow those of
/// the plan, and a program in the command line replaces the plan's.
///
/// # Errors
/// If the plan cannot be read or has unknown keys, or if there are two plans.
pub fn expanded(words: Vec<OsString>) -> anyhow::Result<Vec<OsString>> {
    let command = Cli::command();
    let name = words.get(1).and_then(|word| word.to_str());
    let Some(subcommand) = name.and_then(|name| command.find_subcommand(name)) else {
        return Ok(words);
    };
    let takes_a_plan = subcommand.get_arguments().any(|one| one.get_id() == OPTION);
    let found = front(subcommand, &words);
    let mut plans = found
        .options
        .iter()
        .filter(|one| takes_a_plan && one.name == OPTION);
    let Some(plan) = plans.next() else {
        return Ok(words);
    };
    let path = plan.value.as_ref().context("--plan takes a FILE")?;
    if plans.next().is_some() {
        bail!("--plan is given twice");
    }
    let context = || format!("--plan {}", path.display());
    let text = host_file::read(Path::new(path), LARGEST_DOCUMENT).with_context(context)?;
    let text = String::from_utf8(text).with_context(context)?;
    let table: Table = toml::from_str(&text).with_context(context)?;
    let (options, program) = of_table(subcommand, table).with_context(context)?;
    let (start, rest) = words.split_at(plan.words.start);
    let rest = &rest[plan.words.len()..];
    let mut all = start.to_vec();
    all.extend(options);
    all.extend(rest.iter().cloned());
    if found.end == words.len() && !program.is_empty() {
        all.push("--".into());
        all.extend(program);
    }
    Ok(all)
}

/// Returns the words of a plan: the options, and the program with its arguments.
fn of_table(
    subcommand: &Command,
    mut table: Table,
) -> anyhow::Result<(Vec<OsString>, Vec<OsString>)> {
    let program = match table.remove(PROGRAM) {
        Some(value) => words(PROGRAM, value)?,
        None => Vec::new(),
    };
    let columns = table.remove(COLUMN);
    let mut options: Vec<OsString> = Vec::new();
    if subcommand.get_arguments().any(|one| one.get_id() == NAMES) {
        let names = table.remove(NAMES).map(|value| words(NAMES, value));
        for name in names.transpose()?.into_iter().flatten() {
            if name.starts_with('-') {
                bail!("{NAMES}: {name:?} is an option, not a name");
            }
            options.push(name.into());
        }
    }
    for (key, value) in table {
        options.extend(option(subcommand, &key, value)?);
    }
    match columns {
        Some(Value::Array(columns)) => {
            for (number, one) in columns.into_iter().enumerate() {
                let place = || format!("column {}", number + 1);
                let Value::Table(one) = one else {
                    bail!("{}: expected a table", place());
                };
                let text = column(one).with_context(place)?;
                options.push(format!("--kernel={text}").into());
            }
        }
        Some(_) => bail!("{COLUMN}: expected tables, each [[{COLUMN}]]"),
        None => {}
    }
    let program = program.into_iter().map(OsString::from);
    Ok((options, program.collect()))
}

/// Returns the words of the command line for the option `key` with this value.
fn option(subcommand: &Command, key: &str, value: Value) -> anyhow::Result<Vec<OsString>> {
    let mut known = subcommand.get_arguments();
    let known = known.find(|one| one.get_long() == Some(key) && !one.is_hide_set());
    let known = known.filter(|one| one.get_id() != OPTION && one.get_id() != "help");
    let Some(known) = known else {
        bail!("{} has no option {key}", subcommand.get_name());
    };
    let is_flag = match known.get_action() {
        ArgAction::SetTrue => true,
        action => !action.takes_values(),
    };
    match (is_flag, value) {
        (true, Value::Boolean(true)) => Ok(vec![format!("--{key}").into()]),
        (true, Value::Boolean(false)) => Ok(Vec::new()),
        (true, _) => bail!("{key}: expected true or false"),
        (false, value) => {
            let values = words(key, value)?.into_iter();
            Ok(values
                .map(|value| format!("--{key}={value}").into())
                .collect())
        }
    }
}

/// Converts the TOML table that describes a column to the form `[NAME=]IMAGE[,KEY=VALUE]...`.
fn column(mut table: Table) -> anyhow::Result<String> {
    let kernel = table.remove(KERNEL).context("there is no kernel")?;
    let mut text = scalar(KERNEL, &kernel)?;
    if let Some(name) = table.remove(NAME) {
        text = format!("{}={text}", scalar(NAME, &name)?);
    }
    for (key, value) in table {
        for value in words(&key, value)? {
            // A comma is normally part of the value. If an equals sign follows the comma, the text after it would be
            // parsed as another `KEY=VALUE`.
            let begins_another = value.split(',').skip(1).any(|part| part.contains('='));
            if begins_another {
                bail!(
                    "{key}: {value:?} has a comma before an equals sign, which begins another key"
                );
            }
            text.push_str(&format!(",{key}={value}"));
        }
    }
    Ok(text)
}

/// Returns a value, or each value of a list, as a word.
fn words(key: &str, value: Value) -> anyhow::Result<Vec<String>> {
    match value {
        Value::Array(values) => values.iter().map(|value| scalar(key, value)).collect(),
        one => Ok(vec![scalar(key, &one)?]),
    }
}

fn scalar(key: &str, value: &Value) -> anyhow::Result<String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Integer(number) => Ok(number.to_string()),
        Value::Float(number) => Ok(number.to_string()),
        Value::Boolean(_) | Value::Datetime(_) | Value::Array(_) | Value::Table(_) => {
            Err(anyhow!("{key}: expected a text or a number"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(line: &str, plan: &str) -> anyhow::Result<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.toml");
        std::fs::write(&path, plan).unwrap();
        let line = line.replace("PLAN", path.to_str().unwrap());
        let words = line.split(' ').map(OsString::from).collect();
        let words = expanded(words)?;
        let words = words
            .iter()
            .skip(1)
            .map(|word| word.to_string_lossy().into_owned());
        Ok(words.collect::<Vec<_>>().join(" "))
    }

    const PLAN: &str = r#"
program = ["./x", "--deep", "1"]
memory = "1G"
env = ["A=1", "B=2"]
functions = true
no-verify = false
cpus = 1

[[column]]
name = "before"
kernel = "debian:bookworm"

[[column]]
kernel = "memwright"
policy = ["write-upgrade=off", "tlb=gather"]
memory = "2G"
"#;

    #[test]
    fn a_plan_stands_for_words() {
        let options = "--cpus=1 --env=A=1 --env=B=2 --functions --memory=1G --kernel=before=debian:bookworm \
             --kernel=memwright,memory=2G,policy=write-upgrade=off,policy=tlb=gather";
        assert_eq!(
            expand("memwright compare --plan PLAN", PLAN).unwrap(),
            format!("compare {options} -- ./x --deep 1")
        );
        assert_eq!(
            expand(
                "memwright compare --all --plan=PLAN --cold /bin/true --plan z",
                PLAN
            )
            .unwrap(),
            format!("compare --all {options} --cold /bin/true --plan z")
        );
        let names = "names = ['basics', 'swap']\ncold = true";
        assert_eq!(
            expand("memwright bench --plan PLAN --shard 1/2", names).unwrap(),
            "bench basics swap --cold --shard 1/2"
        );
        for line in [
            "memwright compare /bin/true --plan PLAN",
            "memwright",
            "memwright x --plan",
        ] {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            assert_eq!(expanded(words.clone()).unwrap(), words);
        }
    }

    #[test]
    fn what_a_plan_cannot_say_is_named() {
        for (plan, part) in [
            ("speed = 1", "compare has no option speed"),
            ("plan = 'x'", "compare has no option plan"),
            ("native = true", "compare has no option native"),
            ("functions = 1", "functions: expected true or false"),
            ("memory = true", "memory: expected a text or a number"),
            ("memory = ", "TOML parse error"),
            ("column = 1", "column: expected tables"),
            ("[[column]]\nname = 'x'", "column 1: there is no kernel"),
            (
                "[[column]]\nkernel = 'k'\nappend = 'a,b=1'",
                "begins another key",
            ),
        ] {
            let error = expand("memwright compare --plan PLAN x", plan).unwrap_err();
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
        for (plan, part) in [
            (
                "names = ['--json=x']",
                "\"--json=x\" is an option, not a name",
            ),
            ("names = true", "names: expected a text or a number"),
        ] {
            let error = expand("memwright bench --plan PLAN", plan).unwrap_err();
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
        let error = expand("memwright compare --plan PLAN x", "names = ['x']").unwrap_err();
        assert!(
            format!("{error:#}").contains("compare has no option names"),
            "{error:#}"
        );
        for (line, part) in [
            ("memwright compare --plan /no/such/plan x", "No such file"),
            ("memwright compare --plan PLAN --plan PLAN x", "twice"),
            ("memwright compare --plan", "takes a FILE"),
        ] {
            let error = expand(line, "").unwrap_err();
            assert!(format!("{error:#}").contains(part), "{error:#}");
        }
    }
}
