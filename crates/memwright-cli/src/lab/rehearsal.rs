//! Determines which files of the tree of `--root` a program uses. To do so, runs the program on Memwright's kernel.
//! This run is called a rehearsal.
//!
//! A guest with a kernel image cannot read the tree while the guest runs. The files that the rehearsal used are
//! therefore added to the guest before it starts, so that the program finds the same files on every kernel.

use std::ffi::OsString;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, anyhow};
use memwright_linux_abi::channel::Outcome;

use crate::guestfs::carry::carry;
use crate::guestfs::prepare::{Prepared, RootChoice};
use crate::guestfs::root::Record;
use crate::lab::input::Input;
use crate::lab::laboratory::USUAL_LIMIT;
use crate::lab::own_run;
use crate::memwright::run::Run;
use crate::model::failure::Failure;
use crate::model::plan::{ImagePlan, OwnPlan, Setup};
use crate::qemu::runs::Runs;

/// The rehearsals of a command. Guests with the same command, environment, files and tree share a rehearsal, even if
/// their other settings differ.
#[derive(Debug, Default)]
pub struct Rehearsals(Mutex<Vec<(Program, Arc<Record>)>>);

/// The inputs on which a rehearsal depends.
#[derive(Debug, PartialEq, Eq)]
struct Program {
    command: Vec<OsString>,
    environment: Vec<String>,
    files: Vec<OsString>,
    root: RootChoice,
}

/// Adds the files of the tree of `--root` that the program uses to the files of its guest. Returns what the program
/// looked up, or `None` if there is no tree.
///
/// # Errors
/// If the rehearsal gives no result, if the program cannot be started in it, or if a file cannot be read.
pub fn add_files(
    prepared: &mut Prepared,
    plan: &ImagePlan,
    input: &Input,
) -> Result<Option<Arc<Record>>, Failure> {
    let Some(root) = prepared.root.clone() else {
        return Ok(None);
    };
    let setup = &plan.setup;
    let program = Program {
        command: setup.command.clone(),
        environment: setup.environment.clone(),
        files: setup.files.clone(),
        root: root.clone(),
    };
    let mut known = input
        .rehearsals
        .0
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let before = known.iter().find(|(other, _)| *other == program);
    let seen = match before.map(|(_, seen)| seen.clone()) {
        Some(seen) => seen,
        None => {
            let seen = Arc::new(rehearse(plan, input)?);
            known.push((program, seen.clone()));
            seen
        }
    };
    carry(&seen, &root.open()?, &mut prepared.tree)?;
    Ok(Some(seen))
}

/// Runs the program on Memwright's kernel, and returns what it looked up in the tree.
fn rehearse(plan: &ImagePlan, input: &Input) -> Result<Record, Failure> {
    let setup = Setup {
        append: Vec::new(),
        ..plan.setup.clone()
    };
    let mut care = plan.care.clone();
    care.keep = None;
    let plan = OwnPlan::new(setup, care);
    let run = Run::open(&plan)?;
    let limit = plan.care.timeout.unwrap_or(USUAL_LIMIT);
    let runs = Runs::start(limit).context("cannot receive signals")?;
    let (finished, (outcome, text)) = own_run::run(&run, input, &runs)?;
    match outcome {
        Outcome::Exited(_) | Outcome::Killed(_) => Ok(finished.seen),
        Outcome::NotStarted(_) => Err(Failure::Guest(anyhow!(
            "the run on Memwright that finds the program's files could not start: {text}; --root none goes without"
        ))),
    }
}
