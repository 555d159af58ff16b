//! The disk: virtio-blk in its legacy form (Virtual I/O Device specification 1.2, sections 2.7 and 5.2, with the legacy
//! interface of section 4.1.4.10), with I/O ports and one queue.
//!
//! A request transfers one page and occupies one of a fixed number of slots, each with three descriptors. The device
//! never raises interrupts: the waiting CPU polls for completion. The host determines when a request completes and what
//! QEMU does meanwhile. Therefore, if the clock counts instructions, the kernel notifies the device only when a thread
//! waits for a request. From the notification until all requests are complete, the other CPUs and the clock are
//! stopped, as during a wait for input. So a transfer takes no guest time.

use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering, fence};

use memwright::{DeviceError, Direction, Submission, Ticket, Transfer};
use memwright_linux_abi::channel::{DISK_QUEUE as QUEUE, DISK_SLOT};
use memwright_linux_abi::host::BlockDevice;
use memwright_linux_base::sync::{Lock, Rank};
use memwright_table::PAGE_SIZE;

use crate::memory::frames;
use crate::memory::paging::DIRECT_BASE;
use crate::pci::{self, Device};
use crate::{arch, clock, ipi, percpu};

/// The vendor 0x1af4 and the device 0x1001, which is the transitional virtio-blk.
const IDENTITY: u32 = 0x1001_1af4;

/// Registers, by their offsets from the first port.
mod register {
    pub const DRIVER_FEATURES: u16 = 4;
    pub const QUEUE_PAGE: u16 = 8;
    pub const QUEUE_SIZE: u16 = 12;
    pub const QUEUE_CHOICE: u16 = 14;
    pub const QUEUE_NOTICE: u16 = 16;
    pub const STATUS: u16 = 18;
    /// Capacity in sectors, 64 bits.
    pub const CAPACITY: u16 = 20;
}

/// Bits of the device status. `FOUND`: the driver has found the device. `DRIVER`: it supports the device. `READY`: it
/// has set the device up.
const FOUND: u8 = 1;
const DRIVER: u8 = 2;
const READY: u8 = 4;

/// The maximum number of outstanding requests, and so of slots.
const PLACES: usize = QUEUE / 3;
const SECTORS: u64 = PAGE_SIZE as u64 / 512;

/// Offsets of the parts of the queue's memory.
const AVAILABLE: u64 = 16 * QUEUE as u64;
const USED: u64 = PAGE_SIZE as u64;
const HEADERS: u64 = 2 * PAGE_SIZE as u64;
const STATUSES: u64 = HEADERS + 16 * PLACES as u64;
/// The size of the queue's memory, as a power of two of frames.
const ORDER: u8 = 2;

/// Descriptor flags. `NEXT`: another descriptor follows. `WRITES`: the device writes to the buffer.
const NEXT: u16 = 1;
const WRITES: u16 = 2;
/// Flag of the available ring: the device should raise no interrupts.
const QUIET: u16 = 1;
/// Request types.
const READ: u32 = 0;
const WRITE: u32 = 1;

#[repr(C)]
struct Descriptor {
    address: u64,
    length: u32,
    flags: u16,
    next: u16,
}

#[repr(C)]
struct Header {
    kind: u32,
    reserved: u32,
    sector: u64,
}

/// The state of the queue.
struct Queue {
    /// The first of the device's ports.
    ports: u16,
    /// Address of the queue's memory in the direct map.
    memory: u64,
    /// Bit masks of the slots: `taken` contains the slots in use, and `over` the slots whose requests are complete.
    taken: u64,
    over: u64,
    /// The number of requests passed to the device so far (`asked`), and the number of completed requests that the
    /// kernel has recorded (`answered`). Both wrap.
    asked: u16,
    answered: u16,
}

/// The disk of the machine.
struct Disk {
    queue: Lock<Option<Queue>>,
    pages: AtomicU32,
}

static DISK: Disk = Disk {
    queue: Lock::new(Rank::Swap, None),
    pages: AtomicU32::new(0),
};

/// Returns the disk, if there is one.
pub fn get() -> Option<&'static dyn BlockDevice> {
    (DISK.pages() > 0).then_some(&DISK)
}

/// Finds the disk and sets up its queue. Called on the boot processor before other CPUs run.
pub fn start() {
    let Some(device) = Device::find(DISK_SLOT, IDENTITY) else {
        return;
    };
    device.enable(pci::PORTS | pci::MASTER);
    let ports = device.ports(0);
    let Some(memory) = frames::allocate(ORDER) else {
        panic!("no memory for the disk's queue");
    };
    // SAFETY: the frames belong to the queue and are never freed.
    unsafe { ptr::write_bytes(memory as *mut u8, 0, PAGE_SIZE << ORDER) };
    let queue_page = ((memory - DIRECT_BASE) / PAGE_SIZE as u64) as u32;
    // SAFETY: the ports belong to the device and are written in the order that its specification requires. The device
    // uses the queue's memory from now on; zeroes mean an empty queue.
    let (size, sectors) = unsafe {
        arch::write_port(ports + register::STATUS, 0);
        arch::write_port(ports + register::STATUS, FOUND);
        arch::write_port(ports + register::STATUS, FOUND | DRIVER);
        arch::write_port_word(ports + register::DRIVER_FEATURES, 0);
        arch::write_port_half(ports + register::QUEUE_CHOICE, 0);
        let size = arch::read_port_half(ports + register::QUEUE_SIZE);
        arch::write_port_word(ports + register::QUEUE_PAGE, queue_page);
        arch::write_port(ports + register::STATUS, FOUND | DRIVER | READY);
        let low = arch::read_port_word(ports + register::CAPACITY);
        let high = arch::read_port_word(ports + register::CAPACITY + 4);
        (size, u64::from(high) << 32 | u64::from(low))
    };
    assert!(
        usize::from(size) == QUEUE,
        "the disk's queue has {size} descriptors, not {QUEUE}"
    );
    let mut queue = Queue {
        ports,
        memory,
        taken: 0,
        over: 0,
        asked: 0,
        answered: 0,
    };
    queue.put(AVAILABLE, QUIET);
    *DISK.queue.lock() = Some(queue);
    let pages = u32::try_from(sectors / SECTORS).unwrap_or(u32::MAX);
    DISK.pages.store(pages, Ordering::Relaxed);
}

impl Queue {
    /// Writes `value` to the queue's memory at `offset`, which is inside it and aligned for the type.
    fn put<T>(&mut self, offset: u64, value: T) {
        // SAFETY: the offsets in this module are inside the memory and aligned. The access is volatile because the
        // device may read or write the memory at any time.
        unsafe { ptr::write_volatile((self.memory + offset) as *mut T, value) };
    }

    /// Reads a value of the queue's memory that [`put`](Self::put) or the device has written.
    fn get<T: Copy>(&self, offset: u64) -> T {
        // SAFETY: the argument of `put` applies; all bit patterns of the integers that are read are valid.
        unsafe { ptr::read_volatile((self.memory + offset) as *const T) }
    }

    fn bus_address(&self, offset: u64) -> u64 {
        self.memory - DIRECT_BASE + offset
    }

    /// Passes a request to the device. Returns `None` if all slots are in use.
    fn submit(&mut self, transfer: Transfer) -> Option<Ticket> {
        let place = (!self.taken).trailing_zeros() as usize;
        if place >= PLACES {
            return None;
        }
        self.taken |= 1 << place;
        let (header, status) = (HEADERS + 16 * place as u64, STATUSES + place as u64);
        let (kind, writes) = match transfer.direction {
            Direction::Out => (WRITE, 0),
            Direction::In => (READ, WRITES),
        };
        self.put(
            header,
            Header {
                kind,
                reserved: 0,
                sector: u64::from(transfer.slot) * SECTORS,
            },
        );
        let data = transfer.frame.address().as_u64();
        let first = 3 * place as u16;
        for (descriptor, address, length, flags) in [
            (first, self.bus_address(header), 16, NEXT),
            (first + 1, data, PAGE_SIZE as u32, NEXT | writes),
            (first + 2, self.bus_address(status), 1, WRITES),
        ] {
            self.put(
                16 * u64::from(descriptor),
                Descriptor {
                    address,
                    length,
                    flags,
                    next: descriptor + 1,
                },
            );
        }
        let at = u64::from(self.asked) % QUEUE as u64;
        self.put(AVAILABLE + 4 + 2 * at, first);
        self.asked = self.asked.wrapping_add(1);
        // The device must observe the request before the new index.
        fence(Ordering::SeqCst);
        self.put(AVAILABLE + 2, self.asked);
        Some(Ticket(place as u32))
    }

    /// Notifies the device that there are requests.
    fn notify(&mut self) {
        fence(Ordering::SeqCst);
        // SAFETY: the queue has requests, and its memory is valid for the device.
        unsafe { arch::write_port_half(self.ports + register::QUEUE_NOTICE, 0) };
    }

    /// Records the requests that the device has completed. Returns whether all requests are complete.
    fn take_back(&mut self) -> bool {
        while self.get::<u16>(USED + 2) != self.answered {
            // Read the device's entry after the index of the entry, not before it.
            fence(Ordering::SeqCst);
            let at = u64::from(self.answered) % QUEUE as u64;
            let first = self.get::<u32>(USED + 4 + 8 * at);
            self.over |= 1 << (first / 3);
            self.answered = self.answered.wrapping_add(1);
        }
        self.answered == self.asked
    }

    /// If the request in the slot `place` is complete, frees the slot and returns the result of the request.
    fn end(&mut self, place: u32) -> Option<Result<(), DeviceError>> {
        let bit = 1 << place;
        if self.over & bit == 0 {
            return None;
        }
        self.over &= !bit;
        self.taken &= !bit;
        let status = self.get::<u8>(STATUSES + u64::from(place));
        Some(if status == 0 {
            Ok(())
        } else {
            Err(DeviceError::Io)
        })
    }
}

impl Disk {
    /// Calls `act` with the queue. Only requests to an existing disk call this function, so the queue exists.
    fn with_queue<R>(&self, act: impl FnOnce(&mut Queue) -> R) -> R {
        let mut queue = self.queue.lock();
        let queue = queue.as_mut();
        act(queue.unwrap_or_else(|| panic!("a disk without a queue is used")))
    }

    /// Makes the device execute all requests while the other CPUs and the clock are stopped. Otherwise the host would
    /// determine how many requests are complete at a given guest time.
    fn take_all_back(&self) {
        ipi::hold_others();
        clock::stop();
        self.with_queue(Queue::notify);
        while !self.with_queue(Queue::take_back) {
            arch::pause();
        }
        if percpu::count() > 1 {
            clock::settle();
        }
        clock::go_on();
        ipi::let_go();
        ipi::remind(percpu::current());
    }
}

impl BlockDevice for Disk {
    fn pages(&self) -> u32 {
        self.pages.load(Ordering::Relaxed)
    }

    fn most_pending(&self) -> usize {
        PLACES
    }

    fn submit(&self, transfer: Transfer) -> Submission {
        self.with_queue(|queue| {
            let Some(ticket) = queue.submit(transfer) else {
                return Submission::Busy;
            };
            if !clock::counts_nanoseconds() {
                queue.notify();
            }
            Submission::Pending(ticket)
        })
    }

    fn complete(&self, ticket: Ticket) -> Result<(), DeviceError> {
        let mut end = self.with_queue(|queue| queue.end(ticket.0));
        if end.is_none() && clock::counts_nanoseconds() {
            self.take_all_back();
        }
        loop {
            if let Some(result) = end {
                return result;
            }
            end = self.with_queue(|queue| {
                queue.take_back();
                queue.end(ticket.0)
            });
            if end.is_none() {
                ipi::relax();
            }
        }
    }
}
