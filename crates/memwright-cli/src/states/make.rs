//! Boots a guest to the last point at which its state does not depend on the program, and takes a snapshot of it.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow, bail, ensure};
use serde_json::json;

use crate::count::wires::Wires;
use crate::host::folder::private_folder;
use crate::linux::guest::{Guest, Start};
use crate::linux::no_result::NoResult;
use crate::qemu::launch;
use crate::qemu::process::Process;
use crate::qemu::qmp::{Event, Monitor, QmpError};
use crate::qemu::runs::Runs;
use crate::states::clock::{self, NextTimer};
use crate::states::monitor::Listener;

/// The parts of a snapshot: the device stream, and the [`Wires`] with the files of the guest's memory.
pub type Taken = (Vec<u8>, Wires);

/// Why no snapshot could be taken.
#[derive(Debug)]
pub enum Unmade {
    /// The guest did not reach the point at which it is saved. The error is one line with what is known about the
    /// guest.
    Guest(anyhow::Error),
    /// The guest reached the point at which it is saved, but its state could not be saved.
    Saving(anyhow::Error),
}

impl From<anyhow::Error> for Unmade {
    fn from(error: anyhow::Error) -> Self {
        Self::Saving(error)
    }
}

/// The maximum number of boots of a guest. In about one boot in ten, QEMU runs a timer after the guest has stopped.
const ATTEMPTS: u32 = 8;

/// Boots the guest until QEMU stops it without running the next timer, so that all snapshots of a guest are equal. If
/// QEMU runs the timer in each of `ATTEMPTS` boots, the last boot is used. The plugin must not count events in these
/// boots, because a snapshot contains no counts.
///
/// # Errors
/// See [`Unmade`].
pub fn boot(guest: &Guest, runs: &Runs) -> Result<Taken, Unmade> {
    let mut attempts = 1..=ATTEMPTS;
    loop {
        let ((mut devices, wires), time) = boot_once(guest, runs)?;
        let timer = clock::set(&mut devices, time).context("cannot set the clock")?;
        let is_last = attempts.next() == Some(ATTEMPTS);
        if timer == NextTimer::Waits || is_last {
            return Ok((devices, wires));
        }
    }
}

/// Boots the guest once. Returns the parts of its snapshot, and its clock just before it stopped.
fn boot_once(guest: &Guest, runs: &Runs) -> Result<(Taken, u64), Unmade> {
    let folder = private_folder().context("cannot make a folder for the guest")?;
    let within = |name: &str| folder.path().join(name);
    let (serial, errors) = (within("serial"), within("qemu.log"));
    let wires =
        Wires::make(folder.path(), &guest.machine).context("cannot make the guest's memory")?;
    let listen = |name: &str| Listener::bind(within(name)).context("cannot make a socket");
    let (monitor, stream) = (listen("monitor.sock")?, listen("stream.sock")?);
    let start = Start::Stop {
        monitor: monitor.path(),
    };
    let line = guest.arguments(&serial, Some(&wires), start);
    let create = File::create(&errors).context("cannot write to the guest's folder")?;
    let (output, child) = launch::start(&guest.qemu, &line, Stdio::null(), Stdio::from(create))?;
    let process = Arc::new(Process::new(child));
    runs.add(&process);
    let (taken, said) = thread::scope(|scope| {
        let reading = scope.spawn(|| read(&output));
        let taken = take(&monitor, &stream, &output);
        if taken.is_err() {
            process.kill();
        }
        (taken, reading.join())
    });
    let said = said
        .map_err(|_| anyhow!("reading from QEMU panicked"))?
        .context("cannot read from QEMU")?;
    let status = process.wait().context("cannot wait for QEMU")?;
    // A kernel that panics stops the machine through the same device as the init process, but reports no clock.
    let Some(time) = time_of(&said) else {
        // If saving failed, this command killed QEMU, so the signal that ended QEMU does not explain the failure.
        let signal = status.signal().filter(|_| taken.is_ok());
        let why = NoResult::read(&serial, &errors, signal);
        return Err(Unmade::Guest(why.into()));
    };
    let mut devices = taken?;
    clock::forget_host(&mut devices).context("cannot set the host's clocks")?;
    Ok(((devices, wires), time))
}

fn read(mut output: &PipeReader) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    output.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Returns the clock that the guest reported before it stopped; `None` unless this report is its only output.
fn time_of(said: &[u8]) -> Option<u64> {
    let time = said.strip_prefix(b"r\x08\0\0\0")?;
    Some(u64::from_le_bytes(time.try_into().ok()?))
}

/// Waits for the guest to stop, and makes QEMU save its state and exit. Returns the saved state, which does not contain
/// the memory.
fn take(listener: &Listener, stream: &Listener, output: &PipeReader) -> anyhow::Result<Vec<u8>> {
    let mut monitor = Monitor::open(listener.accept(output)?)?;
    monitor.wait_for(|event| event.name == "STOP")?;
    prepare(&mut monitor)?;
    let uri = format!("unix:{}", stream.path().display());
    monitor.execute("migrate", &json!({ "uri": uri }))?;
    let mut devices = Vec::new();
    stream.accept(output)?.read_to_end(&mut devices)?;
    finish(&mut monitor)?;
    match monitor.execute("quit", &json!({})) {
        // QEMU can exit before it sends the answer.
        Ok(_) | Err(QmpError::Io(_)) => Ok(devices),
        Err(error) => bail!(error),
    }
}

/// Configures the migration. QEMU does not save the memory, whose contents are in its backing files, and sends an event
/// when the migration ends.
///
/// # Errors
/// If QEMU rejects a capability, or if its monitor closes.
pub fn prepare(monitor: &mut Monitor) -> Result<(), QmpError> {
    let on = |name: &str| json!({ "capability": name, "state": true });
    let capabilities = [on("x-ignore-shared"), on("events")];
    let arguments = json!({ "capabilities": capabilities });
    monitor
        .execute("migrate-set-capabilities", &arguments)
        .map(drop)
}

/// Waits for QEMU's event that the migration has ended.
///
/// # Errors
/// If the migration failed or was cancelled, or if QEMU's monitor closes.
pub fn finish(monitor: &mut Monitor) -> anyhow::Result<()> {
    let status = |event: &Event| event.data["status"].as_str().unwrap_or_default().to_owned();
    let ended = |event: &Event| {
        event.name == "MIGRATION" && ["completed", "failed", "cancelled"].contains(&&*status(event))
    };
    let event = monitor.wait_for(ended)?;
    ensure!(
        status(&event) == "completed",
        "QEMU failed to move the machine"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_guest_that_came_to_the_point_has_a_time() {
        for (said, expected) in [
            (&b"r\x08\0\0\0\x01\x02\0\0\0\0\0\0"[..], Some(0x201)),
            (b"r\x08\0\0\0\x01\x02\0\0\0\0\0", None),
            (b"r\x08\0\0\0\x01\x02\0\0\0\0\0\0x", None),
            (b"", None),
            (b"SeaBIOS", None),
        ] {
            assert_eq!(time_of(said), expected, "{said:?}");
        }
    }
}
