//! The two threads beside a run: one for signals, one for `--timeout`.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use memwright_linux::channel::CONTROL_INTERRUPT;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::qemu::process::{Cut, Process};
use crate::qemu::qmp;

/// How long the guest may take to begin its backtraces.
const FIRST_BACKTRACE: Duration = Duration::from_secs(5);
/// Silence after which they are complete.
const BACKTRACES_END: Duration = Duration::from_millis(300);

/// Time in which QEMU passes on a control byte.
const CONTROL_ARRIVES: Duration = Duration::from_millis(50);

/// Receives the command's signals while a run lasts.
pub struct SignalWatch {
    handle: Handle,
    forwarded: Arc<AtomicBool>,
}

impl SignalWatch {
    /// From now on the first SIGINT goes to PROGRAM; the second, SIGTERM and SIGHUP end the run.
    ///
    /// # Errors
    /// Those of installing signal handlers.
    pub fn start(
        process: Arc<Process>,
        control: PathBuf,
        withdraw_input: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let handle = signals.handle();
        let forwarded = Arc::new(AtomicBool::new(false));
        let was_forwarded = forwarded.clone();
        thread::spawn(move || {
            let mut connection = None;
            for signal in signals.forever() {
                let first = !was_forwarded.swap(true, Ordering::Relaxed);
                if signal == SIGINT && first {
                    connection = interrupt_program(&control);
                    // The control byte comes first; a guest that waits for input stands still until it is told.
                    thread::sleep(CONTROL_ARRIVES);
                    withdraw_input();
                }
                // QEMU that does not listen yet has started no PROGRAM either.
                if signal != SIGINT || !first || connection.is_none() {
                    process.cut(Cut::Signalled(signal));
                }
            }
        });
        Ok(Self { handle, forwarded })
    }

    /// Whether PROGRAM was interrupted, so that the run does not repeat.
    pub fn was_used(&self) -> bool {
        self.forwarded.load(Ordering::Relaxed)
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Sends the control byte; the connection must stay open until the guest has taken it.
fn interrupt_program(control: &PathBuf) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(control).ok()?;
    stream.write_all(&[CONTROL_INTERRUPT]).ok()?;
    Some(stream)
}

/// Ends the run when the time is over: asks the guest for its backtraces, lets them come, kills QEMU.
///
/// `progress` carries a message for every backtrace; its other end goes when the run is over.
pub fn start_timeout(
    limit: Duration,
    process: Arc<Process>,
    monitor: PathBuf,
    progress: Receiver<()>,
) {
    thread::spawn(move || {
        let end = std::time::Instant::now() + limit;
        loop {
            match progress.recv_timeout(end.saturating_duration_since(std::time::Instant::now())) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => break,
            }
        }
        process.note(Cut::TimedOut);
        if qmp::inject_nmi(&monitor).is_ok() {
            let mut patience = FIRST_BACKTRACE;
            while progress.recv_timeout(patience).is_ok() {
                patience = BACKTRACES_END;
            }
        }
        process.kill();
    });
}
