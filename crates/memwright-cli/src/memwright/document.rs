//! Creates the document with the account of a run.

use std::borrow::Cow;

use crate::compare::rows;
use crate::guestfs::prepare::Prepared;
use crate::guestfs::program::Program;
use crate::host::host_file::hashed_file;
use crate::memwright::session::Report;
use crate::model::account::Value;
use crate::model::hash::hexadecimal_hash;
use crate::model::hashed_file::HashedFile;
use crate::model::machine::{Clock, Machine};
use crate::model::memwright_run::{Document, SCHEMA};
use crate::model::plan::OwnPlan;
use crate::model::settings::{settings, terminals};

/// SHA-256 of the program, of its interpreters and libraries, and of the kernel image.
#[derive(Debug, Clone)]
pub struct Hashes {
    program: HashedFile,
    companions: Vec<HashedFile>,
    kernel: String,
}

impl Hashes {
    /// Reads and hashes the files.
    pub fn read(program: &Program, kernel: &[u8]) -> Self {
        let companions = program.companions.iter();
        Self {
            program: program.hashed(),
            companions: companions.map(|path| hashed_file(path)).collect(),
            kernel: hexadecimal_hash(kernel),
        }
    }
}

/// Returns the document of a run. `input` is the SHA-256 of the program's standard input. `seen` lists what the program
/// looked up in the tree of `--root`.
pub fn document(
    plan: &OwnPlan,
    machine: &Machine,
    prepared: &Prepared,
    hashes: Hashes,
    report: &Report,
    (input, seen): (&str, &[String]),
    not_repeatable: Option<&'static str>,
) -> Document {
    let account = &report.account;
    let rows: Vec<(String, Value)> = account
        .rows
        .iter()
        .map(|(name, value)| (name.clone(), rows::shown(name, *value, machine)))
        .collect();
    let counted = rows
        .iter()
        .filter(|(_, value)| *value != Value::Unobservable);
    let repeating = (machine.cpus > 1 && not_repeatable.is_none())
        .then(|| counted.map(|(name, _)| name.clone()).collect());
    let arguments = plan.setup.command.iter();
    let on: Vec<&'static str> = [
        ("trace", plan.trace || plan.faults.is_some()),
        ("strace", plan.strace),
    ]
    .into_iter()
    .filter_map(|(name, is)| is.then_some(name))
    .collect();
    Document {
        schema: SCHEMA,
        program: hashes.program,
        arguments: arguments
            .map(|text| text.to_string_lossy().into_owned())
            .collect(),
        companions: hashes.companions,
        kernel_sha256: hashes.kernel,
        memory: plan.setup.memory().bytes(),
        cpus: machine.cpus,
        clock: match machine.clock {
            Clock::Instructions => "instructions".into(),
            Clock::Host => "host".into(),
        },
        policies: plan.setup.policies.clone(),
        settings: [
            settings(&plan.setup, &prepared.files, input, &on),
            terminals(&plan.terminals),
            seen.iter().map(|line| format!("root={line}")).collect(),
        ]
        .concat(),
        outcome: report
            .outcome
            .as_ref()
            .map(|(outcome, _)| (*outcome).into()),
        repeatable: not_repeatable.is_none(),
        not_repeatable: not_repeatable.map(Cow::Borrowed),
        repeating,
        account: rows,
        faults: None,
        stubs: account.stubs.clone(),
        unknown: account.unknown.clone(),
    }
}
