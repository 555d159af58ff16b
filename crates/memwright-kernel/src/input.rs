//! Reads standard input and the lower tree (`--root`) from the host. The kernel sends each request as an output frame.
//! The command writes the answer to the window, and then sends the length of the answer on the first serial port.
//!
//! The time at which an answer arrives depends on the host. To make runs with equal input equal, the other CPUs and the
//! clock are stopped from the request to the last byte. The requesting CPU halts until a byte arrives: if it polled, it
//! would delay the host's delivery of the byte.

use core::sync::atomic::Ordering;

use memwright_linux_abi::channel::{Channel, INPUT_AREA, INPUT_PORT, INPUT_WITHDRAWN};

use crate::report::console;
use crate::{apic, arch, clock, control, ipi, percpu, window};

const INTERRUPT_ENABLE: u16 = INPUT_PORT + 1;
const FIFO_CONTROL: u16 = INPUT_PORT + 2;
const MODEM_CONTROL: u16 = INPUT_PORT + 4;
const LINE_STATUS: u16 = INPUT_PORT + 5;
const DATA_READY: u8 = 1;
/// The value of FIFO control. It enables and clears the FIFOs, and requests an interrupt at 14 bytes or when no more
/// bytes arrive.
const QUEUES: u8 = 0xc7;
/// The value of modem control: terminal ready, request to send, and the interrupt gate.
const READY: u8 = 0x0b;

/// Enables the port's FIFOs.
pub fn start() {
    empty_queues();
    // SAFETY: only the kernel programs the registers of this 16550.
    unsafe { arch::write_port(MODEM_CONTROL, READY) };
}

/// Clears the FIFOs. This also stops the port's timer, which starts when the last byte arrives. The host determines
/// when that timer would expire, and with several CPUs every event of the virtual machine can end a CPU's turn.
fn empty_queues() {
    // SAFETY: the argument of `start` applies; the FIFOs contain no byte that is still needed.
    unsafe { arch::write_port(FIFO_CONTROL, QUEUES) };
}

/// Sets whether a received byte raises an interrupt.
fn interrupt(wanted: bool) {
    // SAFETY: the argument of `start` applies.
    unsafe { arch::write_port(INTERRUPT_ENABLE, u8::from(wanted)) };
}

fn receive() -> u8 {
    // SAFETY: reads the status of the port, and reads the data only once the status permits it.
    unsafe {
        while arch::read_port(LINE_STATUS) & DATA_READY == 0 {
            arch::wait_for_interrupt();
        }
        arch::read_port(INPUT_PORT)
    }
}

/// Requests at most `to.len()` bytes, limited to the size of the input area, and waits for the answer. Returns the
/// number of bytes; 0 at the end of the input. Returns `None` if the command has sent a control byte, which withdraws
/// the request.
pub fn read(to: &mut [u8]) -> Option<usize> {
    if to.is_empty() {
        return Some(0);
    }
    let wanted = to.len().min(INPUT_AREA) as u32;
    ask(Channel::InputRequest, &wanted.to_le_bytes(), to)
}

/// Sends the request `request` with `payload` and waits for the answer, which it stores in `to`. Returns the length of
/// the answer; `None` if the command has withdrawn the request.
pub fn ask(request: Channel, payload: &[u8], to: &mut [u8]) -> Option<usize> {
    ipi::hold_others();
    clock::stop();
    if percpu::count() > 1 {
        apic::route_input(percpu::current().index.load(Ordering::Relaxed) as usize);
    }
    interrupt(true);
    console::frame(request, payload);
    let kept = answer(to);
    interrupt(false);
    empty_queues();
    // The host determines how many interrupts the bytes raise, and the last of them may still be pending. Take it here,
    // while the clock is stopped. Otherwise it would interrupt the next instruction of user mode.
    arch::take_pending_interrupts();
    if percpu::count() > 1 {
        clock::settle();
    }
    clock::go_on();
    ipi::let_go();
    ipi::remind(percpu::current());
    kept
}

/// Receives the answer to a request, and stores it in `to`. Returns the length of the answer, or `None` if the request
/// was withdrawn.
fn answer(to: &mut [u8]) -> Option<usize> {
    let length = u32::from_le_bytes([receive(), receive(), receive(), receive()]);
    if length == INPUT_WITHDRAWN {
        // The interrupt for the control byte may not have arrived yet, so read the byte here.
        control::receive();
        return None;
    }
    // An answer longer than the request violates the protocol; the excess is dropped.
    let kept = to.len().min(length as usize).min(INPUT_AREA);
    window::take(&mut to[..kept]);
    Some(kept)
}
