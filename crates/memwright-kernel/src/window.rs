//! The window: memory that the command sees too, behind a PCI device.
//!
//! What is to be carried stands here; the ports only say that it does. Output goes around in a ring. Nothing
//! says when the command has taken a payload: so many bytes follow each on the output port that QEMU, which waits there
//! for the command, cannot run ahead of it by a whole ring.

use core::sync::atomic::{AtomicU64, Ordering, fence};

use memwright_linux::channel::{INPUT_AREA, OUTPUT_RING, WINDOW, WINDOW_SLOT};

use crate::boot::pvh::PhysicalRange;
use crate::paging;
use crate::pci::{self, Device};

/// Where the next payload goes.
static END: AtomicU64 = AtomicU64::new(0);

/// `ivshmem-plain`: device 0x1110 of the vendor 0x1af4.
const IDENTITY: u32 = 0x1110_1af4;
/// Its address register for the memory.
const MEMORY_REGISTER: u8 = 2;

/// Finds the window, on the boot processor; `None` when the machine has none.
pub fn find() -> Option<PhysicalRange> {
    let device = Device::find(WINDOW_SLOT, IDENTITY)?;
    device.enable(pci::MEMORY);
    let start = device.memory(MEMORY_REGISTER);
    (start != 0).then_some(PhysicalRange {
        start,
        end: start + WINDOW as u64,
    })
}

/// Puts a payload into the ring. One CPU does so at a time, and announces it before the next does.
pub fn put(payload: &[u8]) {
    let at = END.load(Ordering::Relaxed) as usize;
    let (first, rest) = payload.split_at(payload.len().min(OUTPUT_RING - at));
    for (at, part) in [(at, first), (0, rest)] {
        let to = (paging::WINDOW_MEMORY + at as u64) as *mut u8;
        // SAFETY: the part ends within the ring, which is mapped for good and holds no objects; the payload is the
        // kernel's own memory, which the ring does not overlap.
        unsafe { to.copy_from_nonoverlapping(part.as_ptr(), part.len()) };
    }
    let end = (at + payload.len()) % OUTPUT_RING;
    END.store(end as u64, Ordering::Relaxed);
    // The command looks there once it has been told.
    fence(Ordering::Release);
}

/// Copies the answer to an input request. Called once the command has said how long it is, by one CPU at a time.
pub fn take(to: &mut [u8]) {
    fence(Ordering::Acquire);
    let length = to.len().min(INPUT_AREA);
    let from = (paging::WINDOW_MEMORY + OUTPUT_RING as u64) as *const u8;
    // SAFETY: the area is mapped for good, and the command leaves it alone until it is asked again.
    unsafe { to.as_mut_ptr().copy_from_nonoverlapping(from, length) };
}
