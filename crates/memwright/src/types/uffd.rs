//! userfaultfd: contexts, modes, faults and the other events of registered memory (Linux 7.2 `fs/userfaultfd.c`:
//! `userfaultfd_unmap_prep`, `mremap_userfaultfd_prep`, `userfaultfd_remove`).

use alloc::vec::Vec;
use bitflags::bitflags;
use core::sync::atomic::{AtomicBool, Ordering};
use memwright_table::{PAGE_SIZE, Page, PageRange, Shared, TryPush};

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

/// An event of registered memory other than a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// A range is unmapped: the complete range of the call, not only its registered part.
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
    /// Returns the flag that a context must have to receive this event.
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

    /// Returns whether the context receives this event.
    pub(crate) fn is_told_of(&self, event: WatchEvent) -> bool {
        self.events.contains(event.kind())
    }
}

/// The events of one operation, in order, each with the context that receives it. An event that cannot be added for
/// lack of memory is dropped, as if the descriptor had been closed.
#[derive(Debug, Default)]
pub(crate) struct Notices(Vec<(Watch, WatchEvent)>);

impl Notices {
    /// An empty list. This allocates nothing.
    pub(crate) const NONE: Self = Self(Vec::new());

    /// Returns the number of events, which is the index of the next one.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds an event for this context, if the context receives events of its kind and the list does not have the event
    /// yet.
    pub(crate) fn add(&mut self, watch: Option<&Watch>, event: WatchEvent) {
        self.add_at(self.len(), watch, event);
    }

    /// Like [`add`](Self::add), but inserts the event at `index`, before the events from that index on.
    pub(crate) fn add_at(&mut self, index: usize, watch: Option<&Watch>, event: WatchEvent) {
        let Some(watch) = watch.filter(|watch| watch.is_told_of(event)) else {
            return;
        };
        let same = |(who, what): &(Watch, WatchEvent)| Watch::ptr_eq(who, watch) && *what == event;
        if !self.0.iter().any(same) {
            let _ = self.0.try_insert(index, (watch.clone(), event));
        }
    }

    /// Calls `witness` with each event.
    pub(crate) fn tell(&self, witness: &mut dyn FnMut(&Watch, WatchEvent)) {
        for (watch, event) in &self.0 {
            witness(watch, *event);
        }
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
    /// The number of the context, by which the personality finds the descriptor.
    pub number: u64,
    /// Whether stores to write-protected pages are only recorded, without waiting for the handler
    /// (`UFFD_FEATURE_WP_ASYNC`).
    pub asynchronous: bool,
    /// Whether unpopulated memory can be write-protected (`UFFD_FEATURE_WP_UNPOPULATED`).
    pub unpopulated: bool,
    /// Whether accesses to read-write-protected pages are only recorded, without waiting for the handler
    /// (`UFFD_FEATURE_RWP_ASYNC`). It changes only while the areas are locked for writing.
    pub counts_accesses: AtomicBool,
    /// The events that the context receives. Memory that moves stays registered only with a context that receives move
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
        /// Accesses to read-write-protected pages. Excludes `WRITE_PROTECT`.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(events: WatchEvents) -> Watch {
        let watcher = Watcher {
            number: 1,
            asynchronous: false,
            unpopulated: false,
            counts_accesses: AtomicBool::new(false),
            events,
        };
        Watch::try_new(watcher).unwrap()
    }

    #[test]
    fn who_wants_to_know_is_told_once_and_in_order() {
        let range = |start, end| PageRange::new(Page::new(start), Page::new(end));
        let (one, two) = (
            WatchEvent::Unmapped(range(1, 3)),
            WatchEvent::Unmapped(range(1, 4)),
        );
        let moved = WatchEvent::Moved {
            from: Page::new(1),
            to: Page::new(9),
            pages: 2,
        };
        let removed = WatchEvent::Removed(range(1, 3));
        for (events, told) in [
            (WatchEvents::all(), &[one, moved, two][..]),
            (WatchEvents::UNMAP, &[one, two]),
            (WatchEvents::REMAP, &[moved]),
            (WatchEvents::FORK | WatchEvents::REMOVE, &[]),
        ] {
            let watch = watch(events);
            let mut notices = Notices::NONE;
            for event in [one, two, one] {
                notices.add(Some(&watch), event);
            }
            notices.add(None, removed);
            notices.add_at(notices.len().min(1), Some(&watch), moved);
            let mut heard = Vec::new();
            notices.tell(&mut |_, event| heard.try_push(event).unwrap());
            assert_eq!(heard, told, "{events:?}");
            assert_eq!(
                watch.is_told_of(removed),
                events.contains(WatchEvents::REMOVE)
            );
        }
    }
}
