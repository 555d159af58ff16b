//! The running QEMU: one owner waits for it, anyone may end it and say why.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why the command ended a run before the guest did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// `--timeout` expired.
    TimedOut,
    /// This signal asked the command to end.
    Signalled(i32),
    /// The reader of standard output has gone.
    OutputClosed,
    /// Standard output could not be written, with this error number.
    OutputFailed(i32),
}

/// A QEMU process. It is killed when this value goes.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    cut: Mutex<Option<Cut>>,
}

impl Process {
    /// Takes over a started process.
    pub fn new(child: Child) -> Self {
        Self {
            child: Mutex::new(child),
            cut: Mutex::new(None),
        }
    }

    /// Notes why the run is being cut short; the first reason stands. The process goes on.
    pub fn note(&self, cut: Cut) {
        hold(&self.cut).get_or_insert(cut);
    }

    /// Ends the process for that reason.
    pub fn cut(&self, cut: Cut) {
        self.note(cut);
        self.kill();
    }

    /// Why it was ended, if it was.
    pub fn was_cut(&self) -> Option<Cut> {
        *hold(&self.cut)
    }

    /// Kills the process if it still runs.
    pub fn kill(&self) {
        // A process that has ended already needs no killing; other errors cannot happen to a child.
        let _ = hold(&self.child).kill();
    }

    /// Waits for the end. Its output has ended before, so it takes no time.
    ///
    /// # Errors
    /// Those of waiting.
    pub fn wait(&self) -> io::Result<ExitStatus> {
        hold(&self.child).wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        let _ = self.wait();
    }
}

/// A panic elsewhere must not keep QEMU alive.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
