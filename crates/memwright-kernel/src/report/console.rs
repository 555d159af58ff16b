//! Writes output to the command in frames, one at a time.
//!
//! The payload is written to the window. Then the kind, the length and the pacing bytes are written to the debug port
//! by `out` instructions. The port never has to be polled, so the instruction count of an output depends only on its
//! length. One CPU writes at a time. A panic uses only the port, to which it writes its payload as well. If a panic
//! interrupts its own CPU while that CPU writes a frame, the panic first fills up that frame, so that the reader finds
//! the next header. Any other CPU that is writing a frame completes the frame before it stops.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use memwright_linux_abi::channel::{Channel, LONGEST_FRAME, OUTPUT_PORT, PACE};

use super::answer_late;
use crate::percpu::{self, PerCpu};
use crate::{arch, window};

/// The CPU that writes a frame, as its index plus one; 0 for none. This is not a lock of the synchronisation layer,
/// because NMIs and panics also write frames, and must detect whether they have interrupted a frame of their own CPU.
static WRITER: AtomicU32 = AtomicU32::new(0);
/// The number of bytes of the open frame that have not been sent yet.
static OWED: AtomicU32 = AtomicU32::new(0);

/// The pacing bytes of the longest frame (see [`window`]).
static PACING: [u8; LONGEST_FRAME / PACE] = [0; LONGEST_FRAME / PACE];

/// Writes bytes to the debug port.
#[inline(always)]
fn send(bytes: &[u8]) {
    // SAFETY: the debug port accepts any bytes at any time.
    unsafe { arch::write_port_all(OUTPUT_PORT, bytes) };
}

/// Writes `payload` as one or more frames.
pub fn frame(kind: Channel, payload: &[u8]) {
    let (first, rest) = payload.split_at(payload.len().min(LONGEST_FRAME));
    one_frame(kind, first);
    rest.chunks(LONGEST_FRAME)
        .for_each(|part| one_frame(kind, part));
}

fn one_frame(kind: Channel, payload: &[u8]) {
    let cpu = percpu::current();
    let writer = mark(cpu);
    while WRITER
        .compare_exchange(0, writer, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        // Do not serve requests while waiting, because this code can run in an NMI. The CPU that is writing a frame
        // waits for no other CPU.
        arch::pause();
    }
    let follows = if kind.is_inline() {
        payload
    } else {
        window::put(payload);
        &PACING[..payload.len() / PACE]
    };
    let [a, b, c, d] = (payload.len() as u32).to_le_bytes();
    send(&[kind as u8, a, b, c, d]);
    OWED.store(follows.len() as u32, Ordering::Relaxed);
    send(follows);
    OWED.store(0, Ordering::Relaxed);
    WRITER.store(0, Ordering::Release);
    answer_late(cpu);
}

/// Returns the value that [`WRITER`] has while this CPU writes a frame.
fn mark(cpu: &PerCpu) -> u32 {
    cpu.index.load(Ordering::Relaxed) + 1
}

/// Returns whether this CPU has an open frame. While it has one, it must not begin another.
pub fn is_open() -> bool {
    WRITER.load(Ordering::Relaxed) == mark(percpu::current())
}

/// Completes the frame that a panic interrupted, if there is one. The code that was writing the frame never continues.
pub fn pad_open_frame() {
    for _ in 0..OWED.swap(0, Ordering::Relaxed) {
        send(b"?");
    }
    WRITER.store(0, Ordering::Release);
}

/// Text that is collected in a fixed buffer and sent as frames of one kind. It allocates no memory, so it works in a
/// panic.
pub struct Text {
    kind: Channel,
    used: usize,
    buffer: [u8; 256],
}

impl Text {
    /// Creates an empty text to be sent in frames of `kind`.
    pub const fn new(kind: Channel) -> Self {
        Self {
            kind,
            used: 0,
            buffer: [0; 256],
        }
    }

    /// Sends the collected text.
    pub fn flush(&mut self) {
        if self.used > 0 {
            frame(self.kind, &self.buffer[..self.used]);
            self.used = 0;
        }
    }
}

impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.used == self.buffer.len() {
                self.flush();
            }
            self.buffer[self.used] = byte;
            self.used += 1;
            if byte == b'\n' {
                self.flush();
            }
        }
        Ok(())
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes a line of kernel text to the log.
#[macro_export]
macro_rules! log {
    ($($argument:tt)*) => {{
        use core::fmt::Write as _;
        let mut text = $crate::report::console::Text::new(memwright_linux_abi::channel::Channel::Log);
        let _ = writeln!(text, $($argument)*);
    }};
}
