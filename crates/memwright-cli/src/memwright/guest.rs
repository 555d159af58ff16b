//! One run of a program on Memwright's kernel, counted by QEMU like a run on a Linux kernel.

use crate::memwright::drive::Drive;
use std::ffi::OsString;
use std::fs::{self};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, anyhow, bail};
use memwright_linux_abi::channel::{NO_ROOM, Outcome};

use crate::count::counting::Counting;
use crate::count::said::Said;
use crate::count::wires::Wires;
use crate::host::folder::private_folder;
use crate::host::output::show;
use crate::memwright::input::Source;
use crate::memwright::session::{Report, Streams};
use crate::memwright::symbolise::Symbols;
use crate::model::image::System;
use crate::model::machine::Machine;
use crate::qemu::command::{Places, arguments};
use crate::qemu::disk;
use crate::qemu::nodes::Backing;
use crate::qemu::runs::Runs;

/// A program and its machine. All runs of the program on Memwright's kernel use the same `OwnGuest`.
#[derive(Debug)]
pub struct OwnGuest<'a> {
    /// The path of QEMU.
    pub qemu: OsString,
    /// The kernel image.
    pub kernel: PathBuf,
    /// The archive of the program and its files.
    pub initrd: PathBuf,
    /// The program's standard input.
    pub input: &'a [u8],
    /// The CPUs, memory and clock of the guest.
    pub machine: Machine,
    /// The QEMU features that count the run.
    pub counting: Counting,
    /// The region that the plugin profiles, or [`THE_RUN`](memwright_linux_abi::channel::THE_RUN) for the complete run;
    /// `None` for no profile.
    pub profile: Option<u16>,
}

impl OwnGuest<'_> {
    /// Returns QEMU's arguments. `wires` is `None` for a command line that is printed for the user to run.
    pub fn arguments(&self, places: &Places, wires: Option<&Wires>) -> Vec<OsString> {
        let memory = wires.map(Wires::memory_paths);
        let backing = Backing::of(memory.as_deref());
        let mut line = arguments(places, &self.machine, &backing, None);
        let cpus = self.machine.cpus;
        let counting = &self.counting;
        line.extend(counting.arguments(System::Memwright, None, cpus, wires, self.profile, false));
        line
    }

    /// Returns the paths of the files and sockets of a run. Except for the kernel and the archive, they are in
    /// `folder`.
    pub fn places(&self, folder: &Path) -> Places {
        Places {
            kernel: self.kernel.clone(),
            initrd: self.initrd.clone(),
            ..Places::within(folder, folder)
        }
    }

    /// Runs the program and returns the outcome.
    ///
    /// # Errors
    /// If the guest gives no result. The error is one line with what is known about the guest.
    pub fn run(&self, runs: &Runs) -> anyhow::Result<Said> {
        let folder = private_folder().context("cannot make a folder for the guest")?;
        let places = self.places(folder.path());
        let wires =
            Wires::make(folder.path(), &self.machine).context("cannot make the guest's memory")?;
        if let Some(size) = self.machine.disk {
            disk::make(&places.disk, size).context("cannot make the disk")?;
        }
        let errors = folder.path().join("qemu.log");
        let (log, writer) = io::pipe().context("cannot make a pipe")?;
        let symbols = Symbols::read(&fs::read(&self.kernel).unwrap_or_default());
        let drive = Drive {
            qemu: &self.qemu,
            line: &self.arguments(&places, Some(&wires)),
            places: &places,
            stdin: Stdio::from(writer),
            errors: &errors,
            source: Source::Bytes(self.input.to_vec()),
            root: None,
            streams: Streams::Keep,
            symbols: &symbols,
            trace: None,
            faults: false,
            kept_log: None,
            verbose: false,
            progress: mpsc::channel().0,
        };
        let (driven, tally) = thread::scope(|scope| {
            let following = scope
                .spawn(|| wires.follow(log, System::Memwright, None, self.machine.cpus, false));
            let driven = drive.run(|process, _| runs.add(process));
            (driven, following.join())
        });
        let report = driven?.report;
        let tally = tally
            .map_err(|_| anyhow!("following QEMU's log panicked"))?
            .context("cannot read QEMU's log")?;
        let outcome = outcome(&report, &fs::read_to_string(&errors).unwrap_or_default())?;
        Ok(Said {
            output: report.output,
            errors: report.errors,
            warnings: Vec::new(),
            not_found: Vec::new(),
            maps: Vec::new(),
            build_id: None,
            outcome,
            triple_fault: false,
            counted: self.counting.result(tally)?,
            profile: self.profile.map(|_| wires.profile()).transpose()?,
        })
    }
}

/// Returns how the program ended.
///
/// # Errors
/// If the guest did not report how the program ended, or if it had too little memory to start the program. If the
/// report is missing and the kernel did not panic, the error includes the last line of `errors`, QEMU's messages.
fn outcome(report: &Report, errors: &str) -> anyhow::Result<Outcome> {
    match &report.outcome {
        Some((Outcome::NotStarted(NO_ROOM), text)) => {
            bail!("the guest could not start: {text}")
        }
        Some((outcome, _)) => Ok(*outcome),
        None if report.backtrace => bail!("the kernel panicked"),
        None => {
            show(&report.log);
            match errors.lines().rfind(|line| !line.trim().is_empty()) {
                Some(line) => bail!("the guest ended without a result; QEMU said: {line}"),
                None => bail!("the guest ended without a result"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_without_a_result_says_why() {
        let report = |outcome: Option<Outcome>, backtrace| Report {
            outcome: outcome.map(|outcome| (outcome, "words".to_owned())),
            backtrace,
            ..Report::default()
        };
        let exited = Outcome::Exited(3);
        #[rustfmt::skip]
        let rows = [
            (report(Some(exited), false),                       "",        Ok(exited)),
            (report(Some(Outcome::NotStarted(8)), false),       "",        Ok(Outcome::NotStarted(8))),
            (report(Some(Outcome::NotStarted(NO_ROOM)), false), "",        Err("the guest could not start: words")),
            (report(None, true),                                "x\n",     Err("the kernel panicked")),
            (report(None, false),                               "x\ny\n\n", Err("the guest ended without a result; QEMU said: y")),
            (report(None, false),                               "",        Err("the guest ended without a result")),
        ];
        for (report, errors, expected) in rows {
            let found = outcome(&report, errors).map_err(|error| error.to_string());
            assert_eq!(found, expected.map_err(str::to_owned));
        }
    }
}
