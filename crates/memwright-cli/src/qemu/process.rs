//! The running QEMU: one thread waits for it, and any thread can kill it and record the reason.

use std::io;
use std::process::{Child, ExitStatus};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why the command ended a run before the guest exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// `--timeout` expired.
    TimedOut,
    /// The command received this signal.
    Signalled(i32),
    /// The process that reads standard output closed it.
    OutputClosed,
    /// Writing to standard output failed with this error number.
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

    /// Records why the command ends the run early, without killing the process. If a reason is already recorded, it is
    /// kept.
    pub fn note(&self, cut: Cut) {
        hold(&self.cut).get_or_insert(cut);
    }

    /// Records why the command ends the run early, and kills the process.
    pub fn cut(&self, cut: Cut) {
        self.note(cut);
        self.kill();
    }

    /// Returns why the command ended the run early; `None` if the command did not end it.
    pub fn was_cut(&self) -> Option<Cut> {
        *hold(&self.cut)
    }

    /// Kills the process if it is still running.
    pub fn kill(&self) {
        // Killing fails only if the process has already exited; a child has no other errors.
        let _ = hold(&self.child).kill();
    }

    /// Waits until the process exits. Meanwhile, [`Self::kill`] in another thread blocks. The process must therefore
    /// already be about to exit: the caller has killed it, or has read its output to the end.
    ///
    /// # Errors
    /// Errors of wait(2).
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

/// Locks a mutex, even if a thread panicked while it held the lock, because QEMU must also be killed after a panic.
fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
