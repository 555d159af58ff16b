//! The settings of a run, in the form in which documents list them. They are all settings that can change a count,
//! except memory, CPUs and policies.

use crate::model::hash::hexadecimal_hash;
use crate::model::plan::{Setup, Terminals};

/// Returns the settings of a guest as `NAME=VALUE`. `files` describes the files of `--file`, `input` is the SHA-256 of
/// standard input, and `on` names features that make the kernel do extra work, such as tracing.
pub fn settings(setup: &Setup, files: &[String], input: &str, on: &[&'static str]) -> Vec<String> {
    let mut settings = setup.settings();
    let repeated = |name: &'static str, values: &[String]| {
        let values = values.iter().cloned();
        values.map(|value| (name, value)).collect::<Vec<_>>()
    };
    settings.extend(repeated("env", &setup.environment));
    settings.extend(repeated("file", files));
    settings.extend(repeated("append", &setup.append));
    settings.extend(on.iter().map(|name| (*name, "on".to_owned())));
    settings.push(("stdin", format!("sha256 {input}")));
    let settings = settings.into_iter();
    settings
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

/// Returns the setting `stdin` of a program that read nothing from standard input.
pub fn empty_input() -> String {
    format!("stdin=sha256 {}", hexadecimal_hash(&[]))
}

/// Returns the settings that list which descriptors are terminals, because a program can behave differently on a
/// terminal.
pub fn terminals(terminals: &Terminals) -> Vec<String> {
    let descriptors = terminals.descriptors().into_iter();
    let names = descriptors
        .filter(|(_, is)| *is)
        .map(|(name, _)| format!("terminal={name}"));
    let size = terminals.size;
    let size = size.map(|(columns, rows)| format!("terminal-size={columns}x{rows}"));
    names.chain(size).collect()
}
