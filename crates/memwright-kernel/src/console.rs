//! Output: frames on the debug port, one at a time.
//!
//! A frame is a kind, a length and the payload, one `out` each byte; the port never has to be polled,
//! so the instruction count of an output depends on its length alone. A panic that strikes inside a
//! frame pads it first, so that its own frame is read in step.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use memwright_linux::channel::{Channel, OUTPUT_PORT};

use crate::{arch, panic};

/// Bytes of the open frame that are still owed to the reader.
static OWED: AtomicU32 = AtomicU32::new(0);

/// Bytes that are written by one instruction. Nothing but a failing machine interrupts it, and then
/// at most so much of the frame is padded in vain.
const PART: usize = 4096;

#[inline(always)]
fn put(byte: u8) {
    // SAFETY: the debug port takes any byte at any time.
    unsafe { arch::write_port(OUTPUT_PORT, byte) };
}

/// Writes one frame. Payloads of 4 GiB and more do not occur: callers pass bounded buffers.
pub fn frame(kind: Channel, payload: &[u8]) {
    if payload.len() > u32::MAX as usize {
        return;
    }
    let length = payload.len() as u32;
    put(kind as u8);
    for byte in length.to_le_bytes() {
        put(byte);
    }
    let mut owed = length;
    for part in payload.chunks(PART) {
        OWED.store(owed, Ordering::Relaxed);
        // SAFETY: the debug port takes any bytes at any time.
        unsafe { arch::write_port_all(OUTPUT_PORT, part) };
        owed -= part.len() as u32;
    }
    OWED.store(0, Ordering::Relaxed);
    panic::answer_request();
}

/// Whether a frame is open on this CPU: nothing else may be written then.
pub fn is_open() -> bool {
    OWED.load(Ordering::Relaxed) != 0
}

/// Completes a frame that a panic interrupted. Whoever wrote it never runs again.
pub fn pad_open_frame() {
    for _ in 0..OWED.swap(0, Ordering::Relaxed) {
        put(b'?');
    }
}

/// Text collected in a fixed buffer and sent as frames of one kind: no allocation, so it works in a
/// panic.
pub struct Text {
    kind: Channel,
    used: usize,
    buffer: [u8; 256],
}

impl Text {
    /// An empty text that will travel in frames of `kind`.
    pub const fn new(kind: Channel) -> Self {
        Self {
            kind,
            used: 0,
            buffer: [0; 256],
        }
    }

    /// Sends what is collected.
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
        let mut text = $crate::console::Text::new(memwright_linux::channel::Channel::Log);
        let _ = writeln!(text, $($argument)*);
    }};
}
