//! Output: frames on the debug port, one at a time.
//!
//! A frame is a kind, a length and the payload, one `out` each byte; the port never has to be polled,
//! so the instruction count of an output depends on its length alone. One CPU writes at a time. A panic
//! that strikes inside a frame of its own CPU pads it first, so that its own frame is read in step; another
//! CPU completes its frame before it stops.

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};

use memwright_linux::channel::{Channel, OUTPUT_PORT};

use crate::percpu::{self, PerCpu};
use crate::{arch, report};

/// Who writes a frame: one more than the CPU's index; 0 is nobody. No lock of the synchronisation layer:
/// NMIs and panics write too, and have to know whose frame they struck in.
static WRITER: AtomicU32 = AtomicU32::new(0);
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
    let cpu = percpu::current();
    let writer = mark(cpu);
    while WRITER
        .compare_exchange(0, writer, Ordering::Acquire, Ordering::Relaxed)
        .is_err()
    {
        // Without serving others: it may be an NMI that waits. Who writes waits for nothing.
        arch::pause();
    }
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
    WRITER.store(0, Ordering::Release);
    report::answer_late(cpu);
}

/// What stands for a CPU in [`WRITER`].
fn mark(cpu: &PerCpu) -> u32 {
    cpu.index.load(Ordering::Relaxed) + 1
}

/// Whether this CPU has a frame open: it may write no other then.
pub fn is_open() -> bool {
    WRITER.load(Ordering::Relaxed) == mark(percpu::current())
}

/// Completes a frame that a panic interrupted, if there is one. Whoever wrote it never runs again.
pub fn pad_open_frame() {
    for _ in 0..OWED.swap(0, Ordering::Relaxed) {
        put(b'?');
    }
    WRITER.store(0, Ordering::Release);
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
