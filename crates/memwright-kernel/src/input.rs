//! Standard input: asked for by a frame, answered in the window and then, with its length, on the first serial port.
//!
//! The answer comes whenever the host gets to it. So the guest stands still meanwhile: the other CPUs
//! are held, the clock is paused from the request to the last byte, and the same input gives the same run. The CPU sleeps
//! until a byte is there; polling would keep the host from bringing it.

use core::sync::atomic::Ordering;

use memwright_linux::channel::{Channel, INPUT_AREA, INPUT_PORT, INPUT_WITHDRAWN};

use crate::{apic, arch, clock, console, control, ipi, percpu, window};

const INTERRUPT_ENABLE: u16 = INPUT_PORT + 1;
const FIFO_CONTROL: u16 = INPUT_PORT + 2;
const MODEM_CONTROL: u16 = INPUT_PORT + 4;
const LINE_STATUS: u16 = INPUT_PORT + 5;
const DATA_READY: u8 = 1;
/// Queues enabled and emptied, an interrupt at 14 bytes or when no more come.
const QUEUES: u8 = 0xc7;
/// Terminal ready, request to send, and the interrupt gate.
const READY: u8 = 0x0b;

/// Turns the port's queue on.
pub fn start() {
    empty_queues();
    // SAFETY: a register of a 16550 that the kernel alone programs.
    unsafe { arch::write_port(MODEM_CONTROL, READY) };
}

/// Empties the queues. That also stops the port's clock, which runs from the last byte on: when it came
/// depends on the host, and with several CPUs every event of the virtual machine can end a CPU's turn.
fn empty_queues() {
    // SAFETY: as in `start`; nothing is in them that anybody waits for.
    unsafe { arch::write_port(FIFO_CONTROL, QUEUES) };
}

/// Says whether a byte that arrives interrupts.
fn interrupt(wanted: bool) {
    // SAFETY: as in `start`.
    unsafe { arch::write_port(INTERRUPT_ENABLE, u8::from(wanted)) };
}

fn receive() -> u8 {
    // SAFETY: reading the status and, once it says so, the data of the port.
    unsafe {
        while arch::read_port(LINE_STATUS) & DATA_READY == 0 {
            arch::wait_for_interrupt();
        }
        arch::read_port(INPUT_PORT)
    }
}

/// Asks for at most `to.len()` bytes, or what the window holds, and waits for the answer; 0 is the end of the input. `None` when the command
/// withdraws the request because it has sent a control byte.
pub fn read(to: &mut [u8]) -> Option<usize> {
    if to.is_empty() {
        return Some(0);
    }
    ipi::hold_others();
    clock::stop();
    if percpu::count() > 1 {
        apic::route_input(percpu::current().index.load(Ordering::Relaxed) as usize);
    }
    interrupt(true);
    let wanted = to.len().min(INPUT_AREA) as u32;
    console::frame(Channel::InputRequest, &wanted.to_le_bytes());
    let kept = answer(to);
    interrupt(false);
    empty_queues();
    // How many interrupts the bytes caused depends on the host: the last may still be pending. It is
    // taken here, while the clock stands still, and not by the user's next instruction.
    arch::take_pending_interrupts();
    if percpu::count() > 1 {
        clock::settle();
    }
    clock::go_on();
    ipi::let_go();
    ipi::remind(percpu::current());
    kept
}

/// Receives the answer to a request.
fn answer(to: &mut [u8]) -> Option<usize> {
    let length = u32::from_le_bytes([receive(), receive(), receive(), receive()]);
    if length == INPUT_WITHDRAWN {
        // The byte's interrupt may not have come yet.
        control::receive();
        return None;
    }
    // An answer longer than the request breaks the protocol; what exceeds it is dropped.
    let kept = to.len().min(length as usize).min(INPUT_AREA);
    window::take(&mut to[..kept]);
    Some(kept)
}
