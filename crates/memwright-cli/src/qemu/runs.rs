//! The guests that run in parallel. A signal or the time limit ends all of them.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::iterator::{Handle, Signals};

use crate::host::signals;
use crate::model::failure::{Failure, TIMEOUT, signal_code};
use crate::qemu::process::{Cut, Process};

/// The running guests, and the reason why the command ended them, if it has ended them.
#[derive(Debug, Default)]
struct Shared {
    cut: Option<Cut>,
    processes: Vec<Arc<Process>>,
}

/// The guests of a command. Dropping this value stops the handling of signals.
pub struct Runs {
    shared: Arc<Mutex<Shared>>,
    signals: Handle,
    // The sender whose messages restart the time limit. When it is dropped, the thread that waits for the limit exits.
    time: Sender<()>,
}

impl Runs {
    /// Starts to handle signals. From then on, SIGINT, SIGTERM, SIGHUP and the expiry of `limit` end every guest.
    ///
    /// # Errors
    /// Errors of installing signal handlers.
    pub fn start(limit: Duration) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(Shared::default()));
        let mut signals = Signals::new(signals::ending())?;
        let handle = signals.handle();
        let told = shared.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                cut(&told, Cut::Signalled(signal));
            }
        });
        let (time, waiting) = mpsc::channel();
        let told = shared.clone();
        thread::spawn(move || {
            loop {
                match waiting.recv_timeout(limit) {
                    Ok(()) => {}
                    Err(RecvTimeoutError::Timeout) => return cut(&told, Cut::TimedOut),
                    Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        });
        Ok(Self {
            shared,
            signals: handle,
            time,
        })
    }

    /// Adds a guest. If the other guests were already ended, the added guest is ended at once.
    pub fn add(&self, process: &Arc<Process>) {
        let mut shared = hold(&self.shared);
        if let Some(cut) = shared.cut {
            process.cut(cut);
        }
        shared.processes.push(process.clone());
    }

    /// Restarts the time limit for the guests of the next run.
    pub fn renew(&self) {
        // Sending fails only if the limit has expired and its thread has ended.
        let _ = self.time.send(());
    }

    /// Returns an error if a signal or the time limit ended the guests.
    ///
    /// # Errors
    /// [`Failure::Ended`], with the reason.
    pub fn check(&self) -> Result<(), Failure> {
        match self.was_cut() {
            Some(Cut::TimedOut) => Err(Failure::Ended(
                TIMEOUT,
                "--timeout expired: the guest gave no result in time".to_owned(),
            )),
            Some(Cut::Signalled(signal)) => Err(Failure::Ended(
                signal_code(signal),
                format!("ended by signal {signal}"),
            )),
            Some(Cut::OutputClosed | Cut::OutputFailed(_)) | None => Ok(()),
        }
    }

    /// Returns why the command ended the guests; `None` if it did not end them.
    pub fn was_cut(&self) -> Option<Cut> {
        hold(&self.shared).cut
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.signals.close();
    }
}

fn cut(shared: &Mutex<Shared>, reason: Cut) {
    let mut shared = hold(shared);
    let reason = *shared.cut.get_or_insert(reason);
    for process in &shared.processes {
        process.cut(reason);
    }
}

/// Locks the state, even if a thread panicked while it held the lock, because the guests must also be ended after a
/// panic.
fn hold(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
