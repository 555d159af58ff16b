//! Runs one guest with Memwright's kernel, from the start of QEMU until its exit.

use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};

use anyhow::Context;

use crate::guestfs::root::RootServer;
use crate::memwright::input::{InputServer, Source};
use crate::memwright::session::{Report, Session, Streams};
use crate::memwright::symbolise::Symbols;
use crate::memwright::trace::TraceFile;
use crate::memwright::window::Window;
use crate::qemu::command::Places;
use crate::qemu::launch;
use crate::qemu::process::{Cut, Process};

/// The inputs of a guest, and the destinations of its output.
pub struct Drive<'a> {
    /// The path of QEMU.
    pub qemu: &'a OsString,
    /// QEMU's arguments.
    pub line: &'a [OsString],
    /// The files and sockets that the arguments name.
    pub places: &'a Places,
    /// QEMU's standard input. If this command reads QEMU's log, this is the pipe to which QEMU writes the log, because
    /// QEMU opens `/dev/stdin` as its log file.
    pub stdin: Stdio,
    /// The file to which QEMU's standard error is redirected.
    pub errors: &'a Path,
    /// The source of the program's standard input.
    pub source: Source,
    /// The server of the tree of `--root`; `None` without a tree.
    pub root: Option<Arc<Mutex<RootServer>>>,
    /// The destination of the program's output.
    pub streams: Streams,
    /// The kernel's symbols, for backtraces.
    pub symbols: &'a Symbols,
    /// The file of `--trace`; `None` without the option.
    pub trace: Option<TraceFile>,
    /// Whether page faults are collected from the trace.
    pub faults: bool,
    /// The log file of `--keep`; `None` without the option.
    pub kept_log: Option<File>,
    /// Whether the kernel's log is copied to standard error.
    pub verbose: bool,
    /// The sender of a message for every backtrace of the guest. It is dropped when the run has ended.
    pub progress: Sender<()>,
}

/// The outcome of a guest.
pub struct Driven {
    /// The guest's output and result.
    pub report: Report,
    /// Why the command ended the run before the program exited; `None` if the command did not end the run.
    pub cut: Option<Cut>,
    /// SHA-256 of the standard input that the program received.
    pub input: String,
    /// Whether the input was read from a terminal.
    pub was_live: bool,
}

impl Drive<'_> {
    /// Starts QEMU and waits until it exits. `attend` is called with QEMU's process and the server of the program's
    /// input as soon as both exist.
    ///
    /// # Errors
    /// If QEMU cannot be started, or the guest's output is malformed. QEMU has exited when this returns.
    pub fn run(self, attend: impl FnOnce(&Arc<Process>, &InputServer)) -> anyhow::Result<Driven> {
        let window =
            Window::create(&self.places.window).context("cannot make the window to the guest")?;
        let errors = File::create(self.errors)
            .with_context(|| format!("cannot write {}", self.errors.display()))?;
        let (output, child) = launch::start(self.qemu, self.line, self.stdin, Stdio::from(errors))?;
        let process = Arc::new(Process::new(child));
        let answers = window.answers().context("cannot serve input")?;
        let input = InputServer::start(self.places.input.clone(), answers, self.source, self.root)
            .context("cannot serve input")?;
        attend(&process, &input);
        let session = Session {
            process: &process,
            input: &input,
            streams: self.streams,
            symbols: self.symbols,
            trace: self.trace,
            faults: self.faults,
            kept_log: self.kept_log,
            verbose: self.verbose,
            progress: self.progress,
        };
        let report = session.run(output, window);
        if report.is_err() {
            process.kill();
        }
        let report = report?;
        process.wait().context("cannot wait for QEMU")?;
        Ok(Driven {
            report,
            cut: process.was_cut(),
            input: input.hash(),
            was_live: input.was_live(),
        })
    }
}
