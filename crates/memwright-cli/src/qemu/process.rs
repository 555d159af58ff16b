//! The running QEMU: one owner waits for it, and any thread can end it with a reason.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why the command ended a run before the guest did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// `--timeout` expired.
    TimedOut,
    /// This signal was sent to the command to end it.
    Signalled(i32),
    /// The reader of standard output is gone.
    OutputClosed,
    /// Standard output could not be written, with this error number.
    OutputFailed(i32),
}

/// A QEMU process. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    cut: Mutex<Option<Cut>>,
}

impl Process {
    /// Takes ownership of a started process.
    pub fn new(child: Child) -> Self {
        Self {
            child: Mutex::new(child),
            cut: Mutex::new(None),
        }
    }

    /// Records why the run is being cut short; only the first reason is kept. The process continues.
    pub fn note(&self, cut: Cut) {
        hold(&self.cut).get_or_insert(cut);
    }

    /// Records the reason and kills the process.
    pub fn cut(&self, cut: Cut) {
        self.note(cut);
        self.kill();
    }

    /// Returns why the run was cut short, if it was.
    pub fn was_cut(&self) -> Option<Cut> {
        *hold(&self.cut)
    }

    /// Kills the process if it is still running.
    pub fn kill(&self) {
        // A process that has exited needs no killing; other errors cannot happen to a child.
        let _ = hold(&self.child).kill();
    }

    /// Waits for the process to exit. Its output must have ended: the lock is held while waiting.
    ///
    /// # Errors
    /// Errors of waiting.
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

/// Locks a mutex. A panic elsewhere must not keep QEMU alive.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
