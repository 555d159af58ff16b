//! Runs a program as a baseline was made.

use std::ffi::OsString;
use std::fs;
use std::io::{self, IsTerminal};
use std::process::Stdio;

use anyhow::{Context, anyhow};
use rustix::process::Signal;

use super::column::Column;
use super::image::is_absent_or_broken;
use super::laboratory::{Input, Laboratory};
use super::saved::Saved;
use crate::args::RunArgs;
use crate::children::Children;
use crate::failure::{Failure, TIMEOUT};
use crate::folder::private_folder;
use crate::qemu::machine::Machine;
use crate::qemu::{launch, version};
use crate::run::{self as preparing, Terminals};
use crate::session::show;

/// Runs the program on the kernel image that is named, or on Memwright: as the baseline was made, where there is one.
///
/// # Errors
/// Usage; something is missing; a guest that gives no result.
pub fn run(args: &RunArgs, baseline: Option<&Saved>) -> Result<Saved, Failure> {
    match (baseline, args.kernel.as_slice()) {
        (Some(Saved::Kernel(document)), []) => Err(Failure::Usage(anyhow!(
            "the baseline was made on {:?}: name the kernel with --kernel",
            document.kernel.name
        ))),
        (Some(Saved::Memwright(_)), [_, ..]) => Err(Failure::Usage(anyhow!(
            "the baseline was made on Memwright, not on a kernel image"
        ))),
        (Some(Saved::Memwright(_)) | None, []) => run_memwright(args),
        (Some(Saved::Kernel(_)) | None, [image]) => run_kernel(args, image),
        (Some(Saved::Kernel(_)) | None, [_, _, ..]) => Err(Failure::Usage(anyhow!(
            "check takes one --kernel; memwright compare compares several"
        ))),
    }
}

fn run_kernel(args: &RunArgs, image: &str) -> Result<Saved, Failure> {
    let column = Column::open(image).map_err(|error| match is_absent_or_broken(&error) {
        true => Failure::NoImage(error),
        false => Failure::Usage(error),
    })?;
    let args = &column.args(args).map_err(Failure::Usage)?;
    let image = column.image;
    let laboratory = Laboratory::open(args, &Input::default(), image.system)?;
    let measured = laboratory.measure(&image, &laboratory.runs()?)?;
    show(&measured.said.errors);
    Ok(Saved::Kernel(Box::new(measured.document)))
}

/// Runs this command itself: what is checked is what its users run. What it would refuse is refused before, each thing
/// by the code that other commands than `run` have for it.
fn run_memwright(args: &RunArgs) -> Result<Saved, Failure> {
    drop(preparing::prepare(args, Terminals::None)?);
    let machine = Machine::of(args);
    let qemu = version::program(&machine, args.patience()).map_err(Failure::Environment)?;
    version::check_for(&qemu, &machine, args.patience()).map_err(Failure::Environment)?;
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
    let document = serde_json::from_slice(&text).map_err(anyhow::Error::from);
    document.and_then(Saved::parse).map_err(|_| {
        if !args.verbose {
            show(&output.stderr);
        }
        match output.status.code() {
            Some(code) if code == i32::from(TIMEOUT) => {
                Failure::Ended(TIMEOUT, "--timeout expired".to_owned())
            }
            Some(_) | None => Failure::Guest(anyhow!("the run gave no account")),
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
