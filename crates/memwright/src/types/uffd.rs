//! userfaultfd: contexts, modes, faults and the other events of registered memory (Linux 7.2 `fs/userfaultfd.c`:
//! `userfaultfd_unmap_prep`, `mremap_userfaultfd_prep`, `userfaultfd_remove`).

use bitflags::bitflags;
use core::sync::atomic::{AtomicBool, Ordering};
use memwright_table::{PAGE_SIZE, Page, PageRange, PageSize, Shared};

bitflags! {
    /// The events that a userfaultfd context receives.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WatchEvents: u8 {
        /// Fork: the child's areas are registered with a child context (`UFFD_FEATURE_EVENT_FORK`).
        const FORK = 1;
        /// Move: memory stays registered at its new address (`UFFD_FEATURE_EVENT_REMAP`).
        const REMAP = 1 << 1;
        /// Discard: contents are about to be discarded (`UFFD_FEATURE_EVENT_REMOVE`).
        const REMOVE = 1 << 2;
        /// Unmap: memory is unmapped (`UFFD_FEATURE_EVENT_UNMAP`).
        const UNMAP = 1 << 3;
    }
}

/// An event of registered memory. Faults are not events in this sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A range is unmapped. This is the complete range of the call, even if only a part of it is registered.
    Unmapped(PageRange),
    /// Pages are moved.
    Moved {
        /// The first page at the old address.
        from: Page,
        /// The first page at the new address.
        to: Page,
        /// The number of pages.
        pages: u64,
    },
    /// The contents of pages are about to be discarded.
    Removed(PageRange),
}

impl WatchEvent {
    /// Returns the flag of this event in [`WatchEvents`].
    const fn kind(self) -> WatchEvents {
        match self {
            Self::Unmapped(_) => WatchEvents::UNMAP,
            Self::Moved { .. } => WatchEvents::REMAP,
            Self::Removed(_) => WatchEvents::REMOVE,
        }
    }
}

impl Watcher {
    /// Returns whether accesses to read-write-protected pages are only recorded, without waiting for the handler
    /// (`UFFD_FEATURE_RWP_ASYNC`).
    pub fn counts_accesses(&self) -> bool {
        self.counts_accesses.load(Ordering::Relaxed)
    }

    /// Returns whether the context receives `event`.
    pub(crate) fn is_told_of(&self, event: WatchEvent) -> bool {
        self.events.contains(event.kind())
    }
}

/// The contents with which a userfaultfd ioctl fills a page.
#[derive(Clone, Copy, Debug)]
pub enum Fill<'a> {
    /// One page of bytes (`UFFDIO_COPY`).
    Bytes(&'a [u8; PAGE_SIZE]),
    /// Zeroes (`UFFDIO_ZEROPAGE`).
    Zeroes,
    /// The page that the object already has (`UFFDIO_CONTINUE`).
    Object,
    /// A poison marker: every access raises a bus error (`UFFDIO_POISON`).
    Poison,
}

/// A userfaultfd context. Each area that is registered with the context holds a reference to it.
#[derive(Debug)]
pub struct Watcher {
    /// The number of the context. With it, the personality finds the descriptor.
    pub number: u64,
    /// Whether stores to write-protected pages are only recorded, without waiting for the handler
    /// (`UFFD_FEATURE_WP_ASYNC`).
    pub asynchronous: bool,
    /// Whether unpopulated memory can be write-protected (`UFFD_FEATURE_WP_UNPOPULATED`).
    pub unpopulated: bool,
    /// Whether accesses to read-write-protected pages are only recorded, without waiting for the handler
    /// (`UFFD_FEATURE_RWP_ASYNC`). The flag changes only while the areas are locked for writing.
    pub counts_accesses: AtomicBool,
    /// The events that the context receives. When memory moves, it stays registered only if its context receives move
    /// events.
    pub events: WatchEvents,
}

/// A reference to a userfaultfd context.
pub type Watch = Shared<Watcher>;

bitflags! {
    /// The faults that an area is registered for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WatchModes: u8 {
        /// Faults at missing pages.
        const MISSING = 1;
        /// Stores to write-protected pages.
        const WRITE_PROTECT = 1 << 1;
        /// Faults at pages that are in the object but not mapped.
        const MINOR = 1 << 2;
        /// Accesses to read-write-protected pages. Cannot be combined with `WRITE_PROTECT`.
        const READ_WRITE_PROTECT = 1 << 3;
    }
}

/// The kind of a fault that a userfaultfd handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedFault {
    /// The page is missing.
    Missing,
    /// The page is in the object but not mapped.
    Minor,
    /// A store to a write-protected page.
    WriteProtected,
    /// An access to a read-write-protected page.
    ReadWriteProtected,
}

/// The userfaultfd context that handles the faults at an address.
#[derive(Clone, Debug)]
pub struct Watched {
    /// The context.
    pub watch: Watch,
    /// The range of the registered area.
    pub range: PageRange,
    /// The size of the pages with which a handler must fill the area.
    pub unit: PageSize,
}

/// The arguments of a move.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// The first page of the source.
    pub from: Page,
    /// The first page of the target.
    pub to: Page,
    /// The number of pages to move.
    pub pages: u64,
    /// Whether missing source pages are skipped. If not, a missing page is an error.
    pub holes: bool,
}
