//! The window: memory shared with the command through a PCI device.
//!
//! Payloads are stored here; the ports only announce them. The output area is a ring. There is no acknowledgement that
//! the command has taken a payload. Instead, each payload is followed by a number of bytes on the output port, on which
//! QEMU waits for the command, so that it cannot run ahead by a complete ring.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use memwright_linux::channel::{INPUT_AREA, OUTPUT_RING, WINDOW, WINDOW_SLOT};

use crate::boot::pvh::PhysicalRange;
use crate::paging;
use crate::pci::{self, Device};

/// Offset of the next payload.
static END: AtomicU64 = AtomicU64::new(0);

/// `ivshmem-plain`: device 0x1110 of the vendor 0x1af4.
const IDENTITY: u32 = 0x1110_1af4;
/// Number of its base address register for the memory.
const MEMORY_REGISTER: u8 = 2;

/// Finds the window, on the boot processor. Returns `None` if the machine has none.
pub fn find() -> Option<PhysicalRange> {
    let device = Device::find(WINDOW_SLOT, IDENTITY)?;
    device.enable(pci::MEMORY);
    let start = device.memory(MEMORY_REGISTER);
    (start != 0).then_some(PhysicalRange {
        start,
        end: start + WINDOW as u64,
    })
}

/// Writes a payload into the ring. One CPU does so at a time, and announces the payload before the next one does.
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
    // The command reads it after the announcement.
    fence(Ordering::Release);
}

/// Copies the answer to an input request. Called after the command has sent its length, by one CPU at a time.
pub fn take(to: &mut [u8]) {
    fence(Ordering::Acquire);
    let length = to.len().min(INPUT_AREA);
    let from = (paging::WINDOW_MEMORY + OUTPUT_RING as u64) as *const u8;
    // SAFETY: the area is mapped permanently, and the command does not write it before the next request.
    unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, length) };
}
