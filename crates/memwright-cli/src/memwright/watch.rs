//! The two threads that can end a run early: one handles signals, one implements `--timeout`.

use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::exit;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use memwright_linux_abi::channel::CONTROL_INTERRUPT;
use signal_hook::consts::SIGINT;
use signal_hook::iterator::{Handle, Signals};

use crate::host::output::say;
use crate::host::signals;
use crate::model::failure::{Failure, TIMEOUT, signal_code};
use crate::qemu::process::{Cut, Process};
use crate::qemu::qmp;

/// How long to wait for the guest's first backtrace.
const FIRST_BACKTRACE: Duration = Duration::from_secs(5);
/// The time without a further backtrace after which the backtraces count as complete.
const BACKTRACES_END: Duration = Duration::from_millis(300);

/// How long to wait after a timeout until the guest's last output is written. The write blocks if the process at the
/// other end does not read.
const OUTPUT_PASSES: Duration = Duration::from_secs(10);

/// The time within which QEMU delivers a control byte to the guest.
const CONTROL_ARRIVES: Duration = Duration::from_millis(50);

/// Handles the signals of this command. Create this value before any file that the command must remove when a signal
/// ends it.
pub struct SignalWatch {
    handle: Handle,
    state: Arc<Mutex<State>>,
}

/// The state that the signal thread shares with the run.
#[derive(Default)]
struct State {
    /// A signal that arrived before the guest was started.
    early: Option<i32>,
    guest: Option<Running>,
    forwarded: bool,
}

/// A guest to which the signal thread forwards signals.
struct Running {
    process: Arc<Process>,
    control: PathBuf,
    withdraw_input: Box<dyn Fn() + Send>,
    // The connection over which the control byte was sent. It must stay open until the guest has received the byte.
    connection: Option<UnixStream>,
}

impl SignalWatch {
    /// Starts to handle signals. From then on, the first signal ends the command after the command has removed its
    /// files, and a second signal ends it at once.
    ///
    /// # Errors
    /// Errors of installing signal handlers.
    pub fn start() -> io::Result<Self> {
        let mut signals = Signals::new(signals::ending())?;
        let handle = signals.handle();
        let state = Arc::new(Mutex::new(State::default()));
        let received = state.clone();
        thread::spawn(move || {
            for signal in signals.forever() {
                hold(&received).receive(signal);
            }
        });
        Ok(Self { handle, state })
    }

    /// Registers the guest. From then on, the first SIGINT is forwarded to PROGRAM. A second SIGINT, a SIGTERM or a
    /// SIGHUP ends the run.
    pub fn watch(
        &self,
        process: &Arc<Process>,
        control: PathBuf,
        withdraw_input: impl Fn() + Send + 'static,
    ) {
        let mut state = hold(&self.state);
        if let Some(signal) = state.early {
            process.cut(Cut::Signalled(signal));
        }
        state.guest = Some(Running {
            process: process.clone(),
            control,
            withdraw_input: Box::new(withdraw_input),
            connection: None,
        });
    }

    /// Returns an error if a signal arrived before the guest was started.
    ///
    /// # Errors
    /// [`Failure::Ended`], with the signal's exit code.
    pub fn check(&self) -> Result<(), Failure> {
        match hold(&self.state).early {
            None => Ok(()),
            Some(signal) => Err(Failure::Ended(
                signal_code(signal),
                format!("ended by signal {signal}"),
            )),
        }
    }

    /// Returns whether a signal was forwarded to PROGRAM. A run with a forwarded signal does not repeat.
    pub fn was_used(&self) -> bool {
        hold(&self.state).forwarded
    }
}

impl State {
    fn receive(&mut self, signal: i32) {
        let Some(guest) = &mut self.guest else {
            if self.early.replace(signal).is_some() {
                exit(signal_code(signal).into());
            }
            return;
        };
        if guest.process.was_cut().is_some() {
            // The command has already ended the run, but is blocked because its output is not read. Exiting now also
            // ends QEMU, which exits when this command exits.
            exit(signal_code(signal).into());
        }
        let first = !std::mem::replace(&mut self.forwarded, true);
        if signal == SIGINT && first {
            guest.connection = interrupt_program(&guest.control);
            // The control byte must arrive before the request is withdrawn, because a guest that waits for input is
            // stopped until the withdrawal.
            thread::sleep(CONTROL_ARRIVES);
            (guest.withdraw_input)();
        }
        // Without a connection, QEMU has not started PROGRAM yet, so the signal ends the run.
        if signal != SIGINT || !first || guest.connection.is_none() {
            guest.process.cut(Cut::Signalled(signal));
        }
    }
}

impl Drop for SignalWatch {
    fn drop(&mut self) {
        self.handle.close();
    }
}

/// Locks the state, even if a thread panicked while it held the lock, because a signal must still be able to end QEMU.
fn hold(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends the control byte to the guest. The returned connection must stay open until the guest has received it.
fn interrupt_program(control: &PathBuf) -> Option<UnixStream> {
    let mut stream = UnixStream::connect(control).ok()?;
    stream.write_all(&[CONTROL_INTERRUPT]).ok()?;
    Some(stream)
}

/// Ends the run when its time limit expires: requests backtraces from the guest, waits for them, and kills QEMU.
///
/// `progress` receives a message for every backtrace. The sender of `progress` is dropped when the run has ended.
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
        thread::sleep(OUTPUT_PASSES);
        say("--timeout expired: what the guest wrote last is not read");
        exit(TIMEOUT.into());
    });
}
