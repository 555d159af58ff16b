//! The last events of each CPU, for the report of a panic. System calls are not recorded, because there are too many of
//! them; `--strace` prints them.

use core::sync::atomic::{AtomicU64, Ordering};

/// The number of events that are kept per CPU.
pub const LENGTH: usize = 64;

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// The slot of the ring has no event yet.
    Empty = 0,
    /// An exception or interrupt in user mode; the detail is its vector.
    UserTrap = 1,
    /// An exception or interrupt in the kernel; the detail is its vector.
    KernelTrap = 2,
    /// A context switch; the detail is the low part of the number of the new context.
    Switch = 3,
}

/// One event.
#[derive(Clone, Copy)]
pub struct Event {
    /// The kind of the event.
    pub kind: Kind,
    /// Further data, which depends on the kind.
    pub detail: u64,
    /// The instruction pointer; for a page fault, the faulting address; for a context switch, the number of the old
    /// context.
    pub address: u64,
    /// The value of the time-stamp counter.
    pub time: u64,
}

/// A ring of events that one CPU writes and a panic reads.
pub struct Ring {
    next: AtomicU64,
    events: [[AtomicU64; 3]; LENGTH],
}

impl Ring {
    /// Creates an empty ring.
    pub const fn new() -> Self {
        Self {
            next: AtomicU64::new(0),
            events: [const { [const { AtomicU64::new(0) }; 3] }; LENGTH],
        }
    }

    /// Records an event.
    #[inline(always)]
    pub fn record(&self, kind: Kind, detail: u64, address: u64, time: u64) {
        let next = self.next.load(Ordering::Relaxed);
        self.next.store(next.wrapping_add(1), Ordering::Relaxed);
        let slot = &self.events[next as usize % LENGTH];
        slot[0].store(detail << 8 | kind as u64, Ordering::Relaxed);
        slot[1].store(address, Ordering::Relaxed);
        slot[2].store(time, Ordering::Relaxed);
    }

    /// Iterates over the events, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = Event> + '_ {
        let next = self.next.load(Ordering::Relaxed) as usize;
        (next.saturating_sub(LENGTH)..next).map(|at| {
            let slot = &self.events[at % LENGTH];
            let word = slot[0].load(Ordering::Relaxed);
            Event {
                kind: match word as u8 {
                    1 => Kind::UserTrap,
                    2 => Kind::KernelTrap,
                    3 => Kind::Switch,
                    _ => Kind::Empty,
                },
                detail: word >> 8,
                address: slot[1].load(Ordering::Relaxed),
                time: slot[2].load(Ordering::Relaxed),
            }
        })
    }
}
