//! Receives control bytes, by which the command requests an action such as a signal to the program. The bytes arrive by
//! interrupts of the second serial port.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use memwright_linux_abi::channel::CONTROL_PORT;

use crate::arch;

/// Received bytes that were not taken yet, the oldest in the lowest byte. The highest byte contains the number of these
/// bytes. While it is seven, further bytes are dropped.
static RECEIVED: AtomicU64 = AtomicU64::new(0);
/// Whether a CPU is reading the port. While it reads, it has interrupts disabled, so other CPUs wait only briefly.
static READING: AtomicBool = AtomicBool::new(false);

const COUNT_SHIFT: u32 = 56;
const MOST: u64 = 7;

const INTERRUPT_ENABLE: u16 = CONTROL_PORT + 1;
const MODEM_CONTROL: u16 = CONTROL_PORT + 4;
const LINE_STATUS: u16 = CONTROL_PORT + 5;
const DATA_READY: u8 = 1;

/// Enables the port's receive interrupt.
pub fn start() {
    // SAFETY: only the kernel programs the registers of this 16550. The writes set terminal ready, request to send and
    // the interrupt gate, and then enable the receive interrupt.
    unsafe {
        arch::write_port(MODEM_CONTROL, 0x0b);
        arch::write_port(INTERRUPT_ENABLE, 1);
    }
}

/// Reads all bytes that have arrived. Called with interrupts disabled, by the interrupt handler and by code that runs
/// after a byte has arrived.
pub fn receive() {
    while READING.swap(true, Ordering::Acquire) {
        arch::pause();
    }
    // SAFETY: reads the status of the port, and reads the data only if the status permits it.
    while unsafe { arch::read_port(LINE_STATUS) } & DATA_READY != 0 {
        // SAFETY: the status permits reading the data.
        let byte = unsafe { arch::read_port(CONTROL_PORT) };
        let _ = RECEIVED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
            let count = old >> COUNT_SHIFT;
            let with_it = (old | u64::from(byte) << (8 * count)) + (1 << COUNT_SHIFT);
            (count < MOST).then_some(with_it)
        });
    }
    READING.store(false, Ordering::Release);
}

/// Returns whether a received byte has not been taken yet.
pub fn is_waiting() -> bool {
    RECEIVED.load(Ordering::Acquire) != 0
}

/// Takes the oldest byte, if there is one.
pub fn take() -> Option<u8> {
    let taken = RECEIVED.fetch_update(Ordering::AcqRel, Ordering::Acquire, |old| {
        let count = (old >> COUNT_SHIFT).checked_sub(1)?;
        let rest = (old & ((1 << COUNT_SHIFT) - 1)) >> 8;
        Some(rest | count << COUNT_SHIFT)
    });
    taken.ok().map(|old| old as u8)
}
