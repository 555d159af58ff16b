//! One run of a program on a Linux kernel, counted by QEMU.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow, bail};

use crate::count::said::Said;
use crate::count::wires::Wires;
use crate::host::folder::private_folder;
use crate::linux::frames::{NOT_UNPACKED, parse_frames};
use crate::linux::guest::{Guest, Start, disk_beside};
use crate::linux::no_result::NoResult;
use crate::model::image::System;
use crate::qemu::disk;
use crate::qemu::launch;
use crate::qemu::process::Process;
use crate::qemu::runs::Runs;
use crate::states::{Listener, State};

/// Runs the program, from a snapshot if there is one, and returns the outcome.
///
/// # Errors
/// If the guest gives no result. The error is one line with what is known about the guest.
pub fn run(guest: &Guest, runs: &Runs, state: Option<&State>) -> anyhow::Result<Said> {
    let folder = private_folder().context("cannot make a folder for the guest")?;
    let (serial, errors) = (folder.path().join("serial"), folder.path().join("qemu.log"));
    let wires =
        Wires::make(folder.path(), &guest.machine).context("cannot make the guest's memory")?;
    let monitor = folder.path().join("monitor.sock");
    let listener = state.map(|_| Listener::bind(monitor.clone())).transpose();
    let listener = listener.context("cannot make a socket")?;
    let start = match state {
        Some(_) => Start::Saved { monitor: &monitor },
        None => Start::Boot,
    };
    if let Some(state) = state
        && let Err(error) = state.fill(wires.memory())
    {
        state.say_unusable(&error);
        return run(guest, runs, None);
    }
    if let Some(size) = guest.machine.disk {
        disk::make(&disk_beside(&serial), size).context("cannot make the disk")?;
    }
    let line = guest.arguments(&serial, Some(&wires), start);
    let (log, writer) = io::pipe().context("cannot make a pipe")?;
    let create = || File::create(&errors).context("cannot write to the guest's folder");
    let (mut output, child) = launch::start(
        &guest.qemu,
        &line,
        Stdio::from(writer),
        Stdio::from(create()?),
    )?;
    let process = Arc::new(Process::new(child));
    runs.add(&process);
    if let (Some(state), Some(listener)) = (state, listener) {
        let stream = listener.accept(&output).context("QEMU does not answer");
        let resumed = stream.and_then(|stream| state.resume(stream, folder.path()));
        if let Err(error) = resumed
            && runs.was_cut().is_none()
        {
            process.kill();
            process.wait().context("cannot wait for QEMU")?;
            state.say_unusable(&error.context(NoResult::read(&serial, &errors, None)));
            return run(guest, runs, None);
        }
    }
    let (read, tally) = thread::scope(|scope| {
        let (wires, cpus) = (&wires, guest.machine.cpus);
        let with_faults = guest.with_faults;
        let follow = move || wires.follow(log, System::Linux, None, cpus, with_faults);
        let following = scope.spawn(follow);
        let mut bytes = Vec::new();
        let read = output.read_to_end(&mut bytes).map(|_| bytes);
        (read, following.join())
    });
    let bytes = read.context("cannot read from QEMU")?;
    let tally = tally
        .map_err(|_| anyhow!("following QEMU's log panicked"))?
        .context("cannot read QEMU's log")?;
    let status = process.wait().context("cannot wait for QEMU")?;
    let Some(said) = parse_frames(&bytes) else {
        if bytes.ends_with(NOT_UNPACKED) {
            bail!("the program and its files do not fit into the guest's memory");
        }
        return Err(NoResult::read(&serial, &errors, status.signal()).into());
    };
    Ok(Said {
        counted: guest.counting.result(tally)?,
        profile: guest.profile.map(|_| wires.profile()).transpose()?,
        ..said
    })
}
