//! One boot of a kernel that runs without a program: its machine, its console, and how it ends.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::thread;

use anyhow::{Context, anyhow, bail};
use memwright_linux_abi::channel::Outcome;

use crate::count::counting::Counting;
use crate::count::said::Said;
use crate::count::wires::Wires;
use crate::host::folder::private_folder;
use crate::host::output::show;
use crate::model::code::Code;
use crate::model::image::System;
use crate::model::machine::Machine;
use crate::qemu::command::machine_arguments;
use crate::qemu::launch;
use crate::qemu::nodes::Backing;
use crate::qemu::process::Process;
use crate::qemu::runs::Runs;

/// The maximum size of the kernel's console output in bytes.
const LONGEST_CONSOLE: u64 = 64 << 20;

/// A kernel and its machine. All runs of the kernel use the same `AloneGuest`.
#[derive(Debug, Clone)]
pub struct AloneGuest {
    /// The path of QEMU.
    pub qemu: OsString,
    /// The kernel's image.
    pub image: PathBuf,
    /// The addresses of the kernel's code.
    pub code: Code,
    /// The kernel's command line; may be empty.
    pub command_line: String,
    /// The CPUs, memory and clock of the guest.
    pub machine: Machine,
    /// The QEMU features that count the run.
    pub counting: Counting,
    /// The region that the plugin profiles; `None` for no profile.
    pub profile: Option<u16>,
}

/// How the machine ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// The kernel wrote this value to isa-debug-exit.
    Exited(i32),
    /// The kernel turned the power off, or reset the machine.
    PoweredOff,
    /// An exception had no handler, and the double fault that followed had no handler either.
    TripleFault,
    /// QEMU failed, or a signal ended it.
    Failed,
}

impl AloneGuest {
    /// Returns QEMU's arguments. `wires` is `None` for a command line that is printed for the user to run.
    pub fn arguments(&self, wires: Option<&Wires>) -> Vec<OsString> {
        let memory = wires.map(Wires::memory_paths);
        let mut line = machine_arguments(&self.machine, &Backing::of(memory.as_deref()));
        line.extend([OsStr::new("-kernel"), self.image.as_os_str()].map(OsStr::to_owned));
        if !self.command_line.is_empty() {
            line.extend(["-append", &self.command_line].map(OsString::from));
        }
        // QEMU attaches only one frontend to a character device. The serial port and the debug port therefore have one
        // character device each. Both devices write to the same output, in the order of the writes.
        for (name, device) in [("serial", "-serial"), ("debug", "-device")] {
            line.extend([
                "-chardev".into(),
                format!("file,id={name},path=/dev/stdout").into(),
            ]);
            let value = match device {
                "-serial" => "chardev:serial",
                _ => "isa-debugcon,iobase=0xe9,chardev=debug",
            };
            line.extend([device, value].map(OsString::from));
        }
        line.extend(["-device", "isa-debug-exit,iobase=0xf4,iosize=4"].map(OsString::from));
        let cpus = self.machine.cpus;
        line.extend(self.counting.arguments(
            System::Alone,
            Some(&self.code),
            cpus,
            wires,
            self.profile,
            false,
        ));
        line
    }

    /// Boots the kernel, and returns what it printed, how it ended, and the counts.
    ///
    /// # Errors
    /// If QEMU fails, if the kernel is never entered, or if the kernel prints too much.
    pub fn run(&self, runs: &Runs) -> anyhow::Result<Said> {
        let folder = private_folder().context("cannot make a folder for the guest")?;
        let errors = folder.path().join("qemu.log");
        let wires =
            Wires::make(folder.path(), &self.machine).context("cannot make the guest's memory")?;
        let (log, writer) = io::pipe().context("cannot make a pipe")?;
        let create = File::create(&errors).context("cannot write to the guest's folder")?;
        let (output, child) = launch::start(
            &self.qemu,
            &self.arguments(Some(&wires)),
            Stdio::from(writer),
            Stdio::from(create),
        )?;
        let process = Arc::new(Process::new(child));
        runs.add(&process);
        let (console, tally) = thread::scope(|scope| {
            let following = scope.spawn(|| {
                wires.follow(
                    log,
                    System::Alone,
                    Some(&self.code),
                    self.machine.cpus,
                    false,
                )
            });
            let mut bytes = Vec::new();
            let read = output.take(LONGEST_CONSOLE).read_to_end(&mut bytes);
            if bytes.len() as u64 == LONGEST_CONSOLE {
                process.kill();
            }
            (read.map(|_| bytes), following.join())
        });
        let console = console.context("cannot read from QEMU")?;
        let tally = tally
            .map_err(|_| anyhow!("following QEMU's log panicked"))?
            .context("cannot read QEMU's log")?;
        let status = process.wait().context("cannot wait for QEMU")?;
        if console.len() as u64 == LONGEST_CONSOLE {
            bail!("the kernel printed more than {} MiB", LONGEST_CONSOLE >> 20);
        }
        let end = end(status, tally.triple_fault());
        if runs.was_cut().is_some() || end == End::Failed {
            show(&console);
            let errors = fs::read_to_string(&errors).unwrap_or_default();
            let last = errors.lines().rfind(|line| !line.trim().is_empty());
            bail!("QEMU failed: {}", last.unwrap_or("without a message"));
        }
        let counted = self.counting.result(tally);
        let counted = counted.context("the kernel was not entered, or QEMU did not say so")?;
        Ok(Said {
            output: console,
            outcome: match end {
                End::Exited(code) => Outcome::Exited(code),
                End::PoweredOff | End::TripleFault | End::Failed => Outcome::Exited(0),
            },
            triple_fault: end == End::TripleFault,
            counted,
            profile: self.profile.map(|_| wires.profile()).transpose()?,
            errors: Vec::new(),
            warnings: Vec::new(),
            not_found: Vec::new(),
            maps: Vec::new(),
            build_id: None,
        })
    }
}

/// Returns how the machine ended. isa-debug-exit ends QEMU with an odd status. QEMU's own failures have status 1; a
/// kernel causes status 1 only if it writes 0.
fn end(status: ExitStatus, triple_fault: bool) -> End {
    match (status.code(), triple_fault) {
        (_, true) if status.signal().is_none() => End::TripleFault,
        (Some(0), _) => End::PoweredOff,
        (Some(code), _) if code & 1 == 1 => End::Exited(code >> 1),
        (_, _) => End::Failed,
    }
}
