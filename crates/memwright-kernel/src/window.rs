//! The window: memory that the guest shares with the command through a PCI device.
//!
//! Payloads are written to the window, and only their headers are sent on the output port. The output area is a ring.
//! The command does not acknowledge that it has read a payload. Instead, the kernel sends a number of pacing bytes on
//! the output port after each payload. QEMU blocks until the command reads enough of these bytes, so the kernel is
//! never ahead of the command by a complete ring.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use memwright_linux_abi::channel::{INPUT_AREA, OUTPUT_RING, WINDOW, WINDOW_SLOT};

use crate::boot::pvh::PhysicalRange;
use crate::memory::paging;
use crate::pci::{self, Device};

/// The offset in the ring of the next payload.
static END: AtomicU64 = AtomicU64::new(0);

/// The vendor 0x1af4 and the device 0x1110, which is `ivshmem-plain`.
const IDENTITY: u32 = 0x1110_1af4;
/// Number of the device's base address register for the shared memory.
const MEMORY_REGISTER: u8 = 2;

/// Finds the window. Called on the boot processor. Returns `None` if the machine has no window.
pub fn find() -> Option<PhysicalRange> {
    let device = Device::find(WINDOW_SLOT, IDENTITY)?;
    device.enable(pci::MEMORY);
    let start = device.memory(MEMORY_REGISTER);
    (start != 0).then_some(PhysicalRange {
        start,
        end: start + WINDOW as u64,
    })
}

/// Writes a payload into the ring. Called by one CPU at a time, which sends the header and the pacing bytes before the
/// next call.
pub fn put(payload: &[u8]) {
    let at = END.load(Ordering::Relaxed) as usize;
    let (first, rest) = payload.split_at(payload.len().min(OUTPUT_RING - at));
    for (at, part) in [(at, first), (0, rest)] {
        let to = (paging::WINDOW_MEMORY + at as u64) as *mut u8;
        // SAFETY: the part ends within the ring, which is mapped permanently and contains no Rust objects. The payload
        // is the kernel's own memory, which the ring does not overlap.
        unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
    }
    let end = (at + payload.len()) % OUTPUT_RING;
    END.store(end as u64, Ordering::Relaxed);
    // The command reads the payload after it has received the header.
    fence(Ordering::Release);
}

/// Copies the answer to an input request from the window to `to`. Called by one CPU at a time, after the command has
/// sent the answer's length.
pub fn take(to: &mut [u8]) {
    fence(Ordering::Acquire);
    let length = to.len().min(INPUT_AREA);
    let from = (paging::WINDOW_MEMORY + OUTPUT_RING as u64) as *const u8;
    // SAFETY: the area is mapped permanently, and the command does not write it before the next request.
    unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, length) };
}
