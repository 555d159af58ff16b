//! Serves the guest's requests: for standard input, which is the command's own, and for files from the tree of
//! `--root`.
//!
//! The guest's CPUs are stopped until the answer arrives, so the guest cannot observe how long the answer takes. If
//! standard input is a pipe or a file, the answer has the requested length unless the input ends. Every run then
//! receives the same bytes in the same pieces. If standard input is a terminal, the answer is one line, as for a read
//! of the terminal, and the run is not repeatable. Ctrl-C withdraws a pending request, so that the guest continues and
//! PROGRAM receives the signal.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use memwright_linux_abi::channel::{INPUT_AREA, INPUT_WITHDRAWN};
use rustix::event::{PollFd, PollFlags, poll};
use sha2::{Digest, Sha256};

use crate::guestfs::root::RootServer;
use crate::memwright::window::AnswerArea;
use crate::model::hash::hexadecimal;

/// The source of the program's standard input.
#[derive(Debug)]
pub enum Source {
    /// This command's standard input.
    Descriptor,
    /// These bytes, which are read in place of standard input.
    Bytes(Vec<u8>),
}

/// A request of the guest.
enum Request {
    /// A request for at most this many bytes of standard input.
    Input(u32),
    /// A request about the tree of `--root`. The value is its payload.
    Root(Vec<u8>),
}

/// The handle of the input server, with which the session sends requests to the server's thread.
#[derive(Debug)]
pub struct InputServer {
    requests: Sender<Request>,
    live: Arc<AtomicBool>,
    given: Arc<Mutex<Sha256>>,
    waker: Arc<UnixStream>,
}

impl InputServer {
    /// Starts the server's thread. The thread writes answers into the window, and the lengths of the answers into the
    /// socket of the guest's COM1.
    ///
    /// # Errors
    /// Errors of creating a socket pair.
    pub fn start(
        socket: PathBuf,
        area: AnswerArea,
        source: Source,
        root: Option<Arc<Mutex<RootServer>>>,
    ) -> io::Result<Self> {
        let (requests, waiting) = mpsc::channel::<Request>();
        let (waker, woken) = UnixStream::pair()?;
        woken.set_nonblocking(true)?;
        let live = Arc::new(AtomicBool::new(false));
        let told = live.clone();
        let given = Arc::new(Mutex::new(Sha256::new()));
        let hash = given.clone();
        // The thread can still be blocked in a read when the run ends. In that state, it ends when this process exits.
        thread::spawn(move || {
            let is_descriptor = matches!(source, Source::Descriptor);
            let (taken, ended) = match source {
                Source::Descriptor => (Vec::new(), false),
                Source::Bytes(bytes) => (bytes, true),
            };
            let mut server = Server {
                woken,
                taken,
                ended,
            };
            let mut connection = None;
            for request in waiting {
                let answer = match request {
                    Request::Input(wanted) => {
                        let terminal = is_descriptor && io::stdin().is_terminal();
                        told.fetch_or(terminal, Ordering::Relaxed);
                        let answer = server.answer(wanted as usize, terminal);
                        // If another thread panicked while it held this lock, the hash is still updated.
                        let mut hash = hash.lock().unwrap_or_else(PoisonError::into_inner);
                        hash.update(answer.as_deref().unwrap_or_default());
                        answer
                    }
                    // A guest without a tree of `--root` sends no such request.
                    Request::Root(payload) => root.as_ref().map(|root| {
                        let mut root = root.lock().unwrap_or_else(PoisonError::into_inner);
                        root.answer(&payload)
                    }),
                };
                if send(&socket, &mut connection, &area, answer.as_deref()).is_err() {
                    // The guest has exited and needs no further answers.
                    return;
                }
            }
        });
        Ok(Self {
            requests,
            live,
            given,
            waker: Arc::new(waker),
        })
    }

    /// Sends a request for at most `wanted` bytes of standard input.
    pub fn request(&self, wanted: u32) {
        // Sending fails only if the server has ended, and then QEMU has exited.
        let wanted = wanted.min(INPUT_AREA as u32);
        let _ = self.requests.send(Request::Input(wanted));
    }

    /// Sends a request about the tree of `--root`.
    pub fn request_root(&self, payload: &[u8]) {
        // As in `request`, sending fails only if the server has ended.
        let _ = self.requests.send(Request::Root(payload.to_vec()));
    }

    /// Returns a function that withdraws the request that is pending when the function is called. Later requests are
    /// not affected.
    pub fn withdrawer(&self) -> impl Fn() + Send + use<> {
        let waker = self.waker.clone();
        // The write fails only if the server's thread has ended and closed its end of the socket pair.
        move || drop((&*waker).write_all(&[0]))
    }

    /// Returns the SHA-256 of the input that the guest has received.
    pub fn hash(&self) -> String {
        let given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        hexadecimal(&given.clone().finalize())
    }

    /// Returns whether input was requested from a terminal.
    pub fn was_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }
}

/// The state of the input server's thread, which answers requests.
struct Server {
    woken: UnixStream,
    /// Bytes for the next requests: the rest of [`Source::Bytes`], or bytes that were read for a request that was then
    /// withdrawn.
    taken: Vec<u8>,
    ended: bool,
}

impl Server {
    /// Reads at most `wanted` bytes of standard input. The result is empty at the end of the input or if the input
    /// cannot be read, and `None` if the request is withdrawn.
    fn answer(&mut self, wanted: usize, terminal: bool) -> Option<Vec<u8>> {
        self.forget_wakes();
        loop {
            if self.taken.len() >= wanted || self.ended || terminal && !self.taken.is_empty() {
                let rest = self.taken.split_off(self.taken.len().min(wanted));
                // After an end of input at a terminal (Ctrl-D), more input can follow.
                self.ended &= !terminal;
                return Some(std::mem::replace(&mut self.taken, rest));
            }
            if !self.wait() {
                return None;
            }
            let start = self.taken.len();
            self.taken.resize(wanted, 0);
            // `io::stdin()` would read ahead. Input that PROGRAM does not read must remain for the next process that
            // reads this standard input.
            let got = rustix::io::retry_on_intr(|| {
                rustix::io::read(rustix::stdio::stdin(), &mut self.taken[start..])
            });
            let got = got.unwrap_or(0);
            self.taken.truncate(start + got);
            self.ended = got == 0;
        }
    }

    /// Waits until input is available. Returns false if the request is withdrawn first.
    fn wait(&mut self) -> bool {
        let mut events = [
            PollFd::new(&self.woken, PollFlags::IN),
            PollFd::from_borrowed_fd(rustix::stdio::stdin(), PollFlags::IN),
        ];
        // If polling fails, the following read returns the error.
        let waited = rustix::io::retry_on_intr(|| poll(&mut events, None));
        waited.is_err() || events[0].revents().is_empty()
    }

    fn forget_wakes(&mut self) {
        let mut buffer = [0; 16];
        while matches!(self.woken.read(&mut buffer), Ok(1..)) {}
    }
}

/// Writes an answer into the window and sends its length to the guest. For a withdrawn request, whose answer is `None`,
/// sends [`INPUT_WITHDRAWN`] in place of the length.
fn send(
    socket: &Path,
    connection: &mut Option<UnixStream>,
    area: &AnswerArea,
    answer: Option<&[u8]>,
) -> io::Result<()> {
    area.put(answer.unwrap_or_default())?;
    let length = answer.map_or(INPUT_WITHDRAWN, |bytes| bytes.len() as u32);
    let stream = match connection {
        Some(stream) => stream,
        None => connection.insert(UnixStream::connect(socket)?),
    };
    stream.write_all(&length.to_le_bytes())
}
