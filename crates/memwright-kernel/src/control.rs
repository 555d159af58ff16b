//! Control bytes: the second serial port, by interrupt.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use memwright_linux::channel::CONTROL_PORT;

use crate::arch;

/// Received bytes that nobody took, the oldest lowest; more than eight are dropped.
static RECEIVED: AtomicU64 = AtomicU64::new(0);
/// How many of them there are.
static COUNT: AtomicU32 = AtomicU32::new(0);

const INTERRUPT_ENABLE: u16 = CONTROL_PORT + 1;
const MODEM_CONTROL: u16 = CONTROL_PORT + 4;
const LINE_STATUS: u16 = CONTROL_PORT + 5;
const DATA_READY: u8 = 1;

/// Lets the port interrupt when a byte arrives.
pub fn start() {
    // SAFETY: the registers of a 16550 that the kernel alone programs: terminal ready, request to
    // send, and the interrupt gate; then the receive interrupt.
    unsafe {
        arch::write_port(MODEM_CONTROL, 0x0b);
        arch::write_port(INTERRUPT_ENABLE, 1);
    }
}

/// Takes over what has arrived. Called by the interrupt, with interrupts disabled.
pub fn receive() {
    // SAFETY: reading the status and, if it says so, the data of the port.
    while unsafe { arch::read_port(LINE_STATUS) } & DATA_READY != 0 {
        // SAFETY: as above.
        let byte = unsafe { arch::read_port(CONTROL_PORT) };
        let count = COUNT.load(Ordering::Relaxed);
        if count < 8 {
            let bytes = RECEIVED.load(Ordering::Relaxed) | u64::from(byte) << (8 * count);
            RECEIVED.store(bytes, Ordering::Relaxed);
            COUNT.store(count + 1, Ordering::Relaxed);
        }
    }
}

/// The oldest byte that nobody took yet.
pub fn take() -> Option<u8> {
    let count = COUNT.load(Ordering::Relaxed).checked_sub(1)?;
    let bytes = RECEIVED.load(Ordering::Relaxed);
    COUNT.store(count, Ordering::Relaxed);
    RECEIVED.store(bytes >> 8, Ordering::Relaxed);
    Some(bytes as u8)
}
