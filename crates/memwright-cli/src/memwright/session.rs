//! One run of the guest, from its first frame until QEMU exits.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::sync::mpsc::Sender;

use anyhow::Context;
use memwright_linux_abi::channel::{Channel, Outcome, STREAM_BUFFER};
use rustix::io::Errno;

use crate::host::output::{show, write_fully};
use crate::memwright::channel::{Frames, decode_result};
use crate::memwright::fault_trace::FaultTrace;
use crate::memwright::input::InputServer;
use crate::memwright::symbolise::Symbols;
use crate::memwright::trace::TraceFile;
use crate::memwright::window::Window;
use crate::model::account::Account;
use crate::qemu::process::{Cut, Process};

/// The destination of the program's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// The output is written at once to this command's standard output and standard error.
    Forward,
    /// The output is collected in the [`Report`].
    Keep,
}

/// The destinations to which the contents of the guest's frames are written or sent.
pub struct Session<'a> {
    /// QEMU's process, which the session ends if standard output cannot be written.
    pub process: &'a Process,
    /// The server of input requests.
    pub input: &'a InputServer,
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
    /// Sends a message for every backtrace. Dropping this sender reports the end of the run to the thread of
    /// `--timeout`.
    pub progress: Sender<()>,
}

/// The output and result of a run.
#[derive(Debug, Default)]
pub struct Report {
    /// How PROGRAM ended, with the guest's text; `None` if the guest did not report it.
    pub outcome: Option<(Outcome, String)>,
    /// The guest's account.
    pub account: Account,
    /// The page faults of the trace; `None` if they are not collected.
    pub faults: Option<FaultTrace>,
    /// The last part of the kernel's log, which is printed if the run fails.
    pub log: Vec<u8>,
    /// Whether the kernel panicked or printed backtraces.
    pub backtrace: bool,
    /// The program's standard output, if it is captured.
    pub output: Vec<u8>,
    /// The program's standard error, if it is captured.
    pub errors: Vec<u8>,
}

impl Report {
    /// Describes the end of a guest that did not report how PROGRAM ended.
    pub fn silence(&self) -> &'static str {
        match self.backtrace {
            true => "the kernel panicked",
            false => "the guest ended without a result",
        }
    }
}

/// The number of bytes of the log that are printed after a failure.
const LOG_TAIL: usize = 4096;

impl Session<'_> {
    /// Processes frames until the guest's output ends.
    ///
    /// # Errors
    /// If the stream is malformed or a file cannot be written. The caller must then end QEMU.
    pub fn run(mut self, output: impl Read, window: Window) -> anyhow::Result<Report> {
        let report = self.forward(output, window)?;
        self.trace.map_or(Ok(()), TraceFile::end)?;
        Ok(report)
    }

    fn forward(&mut self, output: impl Read, window: Window) -> anyhow::Result<Report> {
        let mut report = Report {
            faults: self.faults.then(FaultTrace::default),
            ..Report::default()
        };
        let mut frames = Frames::new(BufReader::with_capacity(STREAM_BUFFER, output), window);
        loop {
            match frames.next() {
                Ok(Some((kind, payload))) => self.frame(kind, payload, &mut report)?,
                Ok(None) => return Ok(report),
                // The command killed QEMU while QEMU wrote a frame, so the frame is incomplete.
                Err(_) if self.process.was_cut().is_some() => return Ok(report),
                Err(error) => return Err(error),
            }
        }
    }

    fn frame(&mut self, kind: Channel, payload: &[u8], report: &mut Report) -> anyhow::Result<()> {
        match kind {
            Channel::Stdout => match self.streams {
                Streams::Forward => self.forward_output(payload),
                Streams::Keep => report.output.extend_from_slice(payload),
            },
            Channel::Stderr | Channel::SystemCalls => match self.streams {
                Streams::Forward => show(payload),
                Streams::Keep => report.errors.extend_from_slice(payload),
            },
            Channel::Log => self.log(payload, report)?,
            Channel::Account => report.account.add_lines(&String::from_utf8_lossy(payload)),
            Channel::Trace => {
                if let Some(trace) = &mut self.trace {
                    trace.write(payload)?;
                }
                if let Some(faults) = &mut report.faults {
                    faults.add(payload)?;
                }
            }
            Channel::InputRequest => {
                let wanted = payload
                    .first_chunk()
                    .map_or(0, |bytes| u32::from_le_bytes(*bytes));
                self.input.request(wanted);
            }
            Channel::LowerRequest => self.input.request_root(payload),
            Channel::Panic => {
                report.backtrace = true;
                let text = self.symbols.annotate(&String::from_utf8_lossy(payload));
                show(text.as_bytes());
                self.keep(text.as_bytes())?;
                // Without `--timeout`, sending fails because nothing receives the messages.
                let _ = self.progress.send(());
            }
            Channel::Result => report.outcome = Some(decode_result(payload)?),
        }
        Ok(())
    }

    fn forward_output(&self, payload: &[u8]) {
        if let Some(Cut::OutputClosed | Cut::OutputFailed(_)) = self.process.was_cut() {
            return;
        }
        if let Err(error) = write_fully(io::stdout().as_fd(), payload) {
            // If the process that reads the pipe has closed it, the run ends like a program that gets SIGPIPE. Other
            // errors, such as a full disk, are failures.
            self.process.cut(match error.raw_os_error() {
                Some(number) if number != Errno::PIPE.raw_os_error() => Cut::OutputFailed(number),
                Some(_) | None => Cut::OutputClosed,
            });
        }
    }

    fn log(&mut self, payload: &[u8], report: &mut Report) -> anyhow::Result<()> {
        if self.verbose {
            show(payload);
        }
        report.log.extend_from_slice(payload);
        if report.log.len() > 2 * LOG_TAIL {
            report.log.drain(..report.log.len() - LOG_TAIL);
        }
        self.keep(payload)
    }

    fn keep(&mut self, text: &[u8]) -> anyhow::Result<()> {
        match &mut self.kept_log {
            Some(file) => file.write_all(text).context("cannot write the log"),
            None => Ok(()),
        }
    }
}
