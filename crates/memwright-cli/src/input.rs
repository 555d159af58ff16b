//! Answers the guest's requests for input from the command's own standard input.
//!
//! The guest stands still until the answer has come, so how long it takes cannot be noticed in there. From a pipe or
//! file the answer is as long as was asked for, unless the end comes first: the same bytes in the same pieces on every
//! run. From a terminal it is a line, as a terminal's own reads are; then the run does not repeat.

use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::thread;

use crate::channel::read_up_to;

/// The longest answer, whatever the guest asks for.
const LONGEST: u32 = 1 << 20;

/// The requesting end of the input server.
#[derive(Debug)]
pub struct InputServer {
    requests: Sender<u32>,
    live: Arc<AtomicBool>,
}

impl InputServer {
    /// Starts a server that answers to the socket of COM1.
    pub fn start(socket: PathBuf) -> Self {
        let (requests, waiting) = mpsc::channel::<u32>();
        let live = Arc::new(AtomicBool::new(false));
        let told = live.clone();
        // The thread may sit in a read of a terminal when the run ends; the end of the process ends it.
        thread::spawn(move || {
            let mut connection = None;
            let mut answer = Vec::new();
            for wanted in waiting {
                let terminal = io::stdin().is_terminal();
                told.fetch_or(terminal, Ordering::Relaxed);
                answer.clear();
                answer.extend([0; 4]);
                take_input(wanted, terminal, &mut answer);
                let length = (answer.len() - 4) as u32;
                answer[..4].copy_from_slice(&length.to_le_bytes());
                if connection.is_none() {
                    connection = UnixStream::connect(&socket).ok();
                }
                // A guest that has gone needs no answer.
                let Some(stream) = connection.as_mut() else {
                    return;
                };
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        });
        Self { requests, live }
    }

    /// Passes on a request for at most so many bytes.
    pub fn request(&self, wanted: u32) {
        // The server ends before its requests do only when QEMU has gone.
        let _ = self.requests.send(wanted.min(LONGEST));
    }

    /// Whether a terminal has been asked for input.
    pub fn was_live(&self) -> bool {
        self.live.load(Ordering::Relaxed)
    }
}

/// Appends at most `wanted` bytes of standard input; none at its end, or where it cannot be read.
fn take_input(wanted: u32, terminal: bool, answer: &mut Vec<u8>) {
    let start = answer.len();
    answer.resize(start + wanted as usize, 0);
    // Not `io::stdin()`, which reads ahead: what PROGRAM leaves unread belongs to whoever comes after.
    let mut input = RawInput;
    let got = if terminal {
        input.read(&mut answer[start..])
    } else {
        read_up_to(&mut input, &mut answer[start..])
    };
    answer.truncate(start + got.unwrap_or(0));
}

/// Standard input without a buffer.
struct RawInput;

impl Read for RawInput {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| {
            rustix::io::read(rustix::stdio::stdin(), &mut *buffer)
        })?)
    }
}
