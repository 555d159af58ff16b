//! The guests that run side by side, and what ends them all: a signal, or the end of their time.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::iterator::{Handle, Signals};

use crate::qemu::process::{Cut, Process};
use crate::signals;

/// What can end the guests.
#[derive(Debug, Default)]
struct Shared {
    cut: Option<Cut>,
    processes: Vec<Arc<Process>>,
}

/// The guests of a command. When it goes, nobody listens for signals any more.
pub struct Runs {
    shared: Arc<Mutex<Shared>>,
    signals: Handle,
    // Its end ends the thread that waits for the time to pass.
    _over: Sender<()>,
}

impl Runs {
    /// From now on SIGINT, SIGTERM, SIGHUP and the passing of `limit` end every guest.
    ///
    /// # Errors
    /// Those of installing signal handlers.
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
        let (over, waiting) = mpsc::channel();
        let told = shared.clone();
        thread::spawn(move || {
            if waiting.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                cut(&told, Cut::TimedOut);
            }
        });
        Ok(Self {
            shared,
            signals: handle,
            _over: over,
        })
    }

    /// Adds a guest; one that comes too late ends at once.
    pub fn add(&self, process: &Arc<Process>) {
        let mut shared = hold(&self.shared);
        if let Some(cut) = shared.cut {
            process.cut(cut);
        }
        shared.processes.push(process.clone());
    }

    /// Why the guests were ended, if they were.
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

/// A panic elsewhere must not keep a guest alive.
fn hold(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
