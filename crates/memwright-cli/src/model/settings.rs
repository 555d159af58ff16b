//! What documents say of everything that a guest was told beside its memory, its CPUs and its policies, and that can shift a
//! count.

use crate::model::hash::hexadecimal_hash;
use crate::model::plan::{Setup, Terminals};

/// The settings of a guest, as `NAME=VALUE`. `files` is what `--file` put there, `input` the hash of standard input, `on` names
/// what the kernel does beside its work.
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

/// The setting of a program that read nothing from standard input, or was given nothing.
pub fn empty_input() -> String {
    format!("stdin=sha256 {}", hexadecimal_hash(&[]))
}

/// What a document says of the guest's terminals: programs do something else there.
pub fn terminals(terminals: &Terminals) -> Vec<String> {
    let descriptors = terminals.descriptors().into_iter();
    let names = descriptors
        .filter(|(_, is)| *is)
        .map(|(name, _)| format!("terminal={name}"));
    let size = terminals.size;
    let size = size.map(|(columns, rows)| format!("terminal-size={columns}x{rows}"));
    names.chain(size).collect()
}
