//! Renders the complete account of a run for standard error.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use crate::compare::rows;
use crate::model::account::{UNOBSERVABLE, Value};
use crate::model::memwright_run::Document;
use crate::model::settings::empty_input;
use crate::model::size::in_mebibytes;
use crate::model::words::{cpus, ending, grouped};

/// The width of the column of counts, in characters.
const COUNT_WIDTH: usize = 24;
/// The mark of a count that is the same in every run. It is used only in accounts with counts that can differ between
/// runs.
const REPEATS: char = '=';

/// Returns whether the output has styles. Standard error must be a terminal, and `NO_COLOR` must not be set.
pub fn styled() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns the complete account as text.
pub fn render(document: &Document, styled: bool) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "\nMemory account of {}", document.arguments.join(" "));
    if let Some(reason) = &document.not_repeatable {
        let _ = writeln!(out, "not repeatable: {reason}");
    }
    if document.repeating.is_some() {
        let _ = writeln!(
            out,
            "rows marked {REPEATS} are the same on every run with as many CPUs"
        );
    }
    let mut idle = Vec::new();
    for group in rows::groups() {
        let rows = document.account.iter();
        let rows: Vec<_> = rows
            .filter(|(name, _)| rows::group(name) == group)
            .collect();
        if rows.is_empty() {
            continue;
        }
        if rows.iter().all(|(_, value)| *value == Value::Count(0)) {
            idle.push(group);
            continue;
        }
        heading(&mut out, group, styled);
        for (name, value) in rows {
            row(&mut out, *value, document.repeats(name), rows::title(name));
        }
    }
    if !idle.is_empty() {
        heading(&mut out, "All rows 0", styled);
        line(&mut out, &idle.join(", "));
    }
    list(
        &mut out,
        "System calls that succeeded without effect",
        &document.stubs,
        styled,
    );
    list(
        &mut out,
        "System calls that are missing",
        &document.unknown,
        styled,
    );
    heading(&mut out, "Run", styled);
    line(&mut out, &ending(document.outcome));
    let policies = if document.policies.is_empty() {
        "default".to_owned()
    } else {
        document.policies.join(",")
    };
    line(
        &mut out,
        &format!(
            "{} of memory, {}, policy {policies}{}",
            in_mebibytes(document.memory),
            cpus(document.cpus),
            settings(&document.settings)
        ),
    );
    line(
        &mut out,
        &format!(
            "sha256 {} {}",
            document.program.sha256, document.program.path
        ),
    );
    for file in &document.companions {
        line(&mut out, &format!("sha256 {} {}", file.sha256, file.path));
    }
    line(
        &mut out,
        &format!("sha256 {} kernel", document.kernel_sha256),
    );
    out.push('\n');
    out
}

/// Returns the guest's settings that differ from the defaults, for the line about the machine. Settings with paths of
/// the tree of `--root` are only counted, because there can be thousands of them.
fn settings(all: &[String]) -> String {
    let empty = empty_input();
    let usual = ["thp=madvise", "numa=1", &empty];
    let (paths, others): (Vec<&String>, Vec<&String>) =
        all.iter().partition(|setting| setting.starts_with("root="));
    let unusual = others
        .iter()
        .filter(|setting| !usual.contains(&setting.as_str()));
    let mut text: String = unusual.map(|setting| format!(", {setting}")).collect();
    if !paths.is_empty() {
        let _ = write!(text, ", paths looked up in the root: {}", paths.len());
    }
    text
}

fn heading(out: &mut String, text: &str, styled: bool) {
    let (on, off) = if styled {
        ("\x1b[1m", "\x1b[0m")
    } else {
        ("", "")
    };
    let _ = writeln!(out, "\n  {on}{text}{off}");
}

fn line(out: &mut String, text: &str) {
    let _ = writeln!(out, "    {text}");
}

fn row(out: &mut String, value: Value, repeats: bool, title: &str) {
    let text = match value {
        Value::Count(count) => grouped(count),
        Value::Unobservable => UNOBSERVABLE.to_owned(),
    };
    let mark = if repeats { REPEATS } else { ' ' };
    let _ = writeln!(out, "{text:>COUNT_WIDTH$}{mark} {title}");
}

fn list(out: &mut String, title: &str, pairs: &[(String, u64)], styled: bool) {
    if pairs.is_empty() {
        return;
    }
    heading(out, title, styled);
    for (name, count) in pairs {
        row(out, Value::Count(*count), false, name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_told_where_they_are_unusual() {
        let told =
            |list: &[&str]| settings(&list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>());
        let empty = empty_input();
        assert_eq!(told(&["thp=madvise", "numa=1", &empty]), "");
        assert_eq!(
            told(&["thp=never", "swap=zram:67108864", "numa=2"]),
            ", thp=never, swap=zram:67108864, numa=2"
        );
        assert_eq!(
            told(&["root=/bin folder 755", "env=A=1", "root=/x absent"]),
            ", env=A=1, paths looked up in the root: 2"
        );
    }
}
