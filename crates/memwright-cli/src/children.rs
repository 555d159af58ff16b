//! Runs of this command that another run of it starts, and the signals that end them all.

use std::io::{self, Read};
use std::process::{Child, Command, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::iterator::{Handle, Signals};

use crate::failure::{Failure, signal_code};
use crate::signals;

/// The children of this command. While this value lives, the signals that end a command end them, and then it.
pub struct Children {
    shared: Arc<Mutex<Shared>>,
    signals: Handle,
}

#[derive(Debug, Default)]
struct Shared {
    /// The signal that came first.
    ended_by: Option<i32>,
    running: Vec<Pid>,
}

impl Shared {
    /// Ends the children: by SIGTERM, so that they can tidy up, and by SIGKILL if that was tried.
    fn end(&mut self, signal: i32) {
        let first = self
            .ended_by
            .replace(self.ended_by.unwrap_or(signal))
            .is_none();
        let with = if first { Signal::TERM } else { Signal::KILL };
        for child in &self.running {
            // No child in the list was waited for, so that the number is its own.
            let _ = kill_process(*child, with);
        }
    }
}

impl Children {
    /// From now on SIGINT, SIGTERM and SIGHUP end the children.
    ///
    /// # Errors
    /// Those of installing signal handlers.
    pub fn watch() -> io::Result<Self> {
        let mut signals = Signals::new(signals::ending())?;
        let handle = signals.handle();
        let shared = Arc::new(Mutex::new(Shared::default()));
        let watched = shared.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                hold(&watched).end(signal);
            }
        });
        Ok(Self {
            shared,
            signals: handle,
        })
    }

    /// Runs a child to its end and returns what it wrote to its pipes.
    ///
    /// # Errors
    /// When it cannot be started; [`Failure::Ended`] when a signal came.
    pub fn output(&self, command: &mut Command) -> Result<Output, Failure> {
        let (mut child, id) = self.start(command)?;
        let (stdout, stderr) = thread::scope(|scope| {
            let (output, errors) = (child.stdout.take(), child.stderr.take());
            let reading = scope.spawn(move || read(errors));
            (read(output), reading.join())
        });
        hold(&self.shared).running.retain(|other| *other != id);
        let status = child.wait().context("cannot wait for a run")?;
        self.check()?;
        let stderr = stderr.unwrap_or_else(|_| Err(io::Error::other("reading panicked")));
        Ok(Output {
            status,
            stdout: stdout.context("cannot read from a run")?,
            stderr: stderr.context("cannot read from a run")?,
        })
    }

    /// Starts a child, unless a signal came.
    fn start(&self, command: &mut Command) -> Result<(Child, Pid), Failure> {
        let mut shared = hold(&self.shared);
        ended(shared.ended_by)?;
        let child = command.spawn().context("cannot start the command again")?;
        let id = Pid::from_child(&child);
        shared.running.push(id);
        Ok((child, id))
    }

    /// Fails once a signal came.
    ///
    /// # Errors
    /// [`Failure::Ended`].
    pub fn check(&self) -> Result<(), Failure> {
        ended(hold(&self.shared).ended_by)
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        self.signals.close();
    }
}

fn ended(by: Option<i32>) -> Result<(), Failure> {
    match by {
        None => Ok(()),
        Some(signal) => Err(Failure::Ended(
            signal_code(signal),
            format!("ended by signal {signal}"),
        )),
    }
}

fn read(stream: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut stream) = stream {
        stream.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// A panic elsewhere must not keep a child alive.
fn hold(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
