//! What happens to watched memory other than faults, of which its watcher may want to know (Linux 7.2
//! `fs/userfaultfd.c`: `userfaultfd_unmap_prep`, `mremap_userfaultfd_prep`, `userfaultfd_remove`).

use alloc::vec::Vec;

use bitflags::bitflags;
use memwright_table::{Page, PageRange, TryPush};

use super::{Watch, Watcher};

bitflags! {
    /// Of which events a watcher is told.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WatchEvents: u8 {
        /// A child is watched by somebody of its own (`UFFD_FEATURE_EVENT_FORK`).
        const FORK = 1;
        /// Memory is watched where it moves to (`UFFD_FEATURE_EVENT_REMAP`).
        const REMAP = 1 << 1;
        /// Contents go (`UFFD_FEATURE_EVENT_REMOVE`).
        const REMOVE = 1 << 2;
        /// Memory goes (`UFFD_FEATURE_EVENT_UNMAP`).
        const UNMAP = 1 << 3;
    }
}

/// One thing that happens to watched memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// All of a range is unmapped: what was asked for, not only what is watched of it.
    Unmapped(PageRange),
    /// So many pages move.
    Moved {
        /// From here.
        from: Page,
        /// To there.
        to: Page,
        /// How many there were.
        pages: u64,
    },
    /// The contents of pages are about to go.
    Removed(PageRange),
}

impl WatchEvent {
    /// What a watcher that is told of it has asked for.
    const fn kind(self) -> WatchEvents {
        match self {
            Self::Unmapped(_) => WatchEvents::UNMAP,
            Self::Moved { .. } => WatchEvents::REMAP,
            Self::Removed(_) => WatchEvents::REMOVE,
        }
    }
}

impl Watcher {
    /// Whether it is told of this.
    pub(crate) fn is_told_of(&self, event: WatchEvent) -> bool {
        self.events.contains(event.kind())
    }
}

/// Who is told of what by one operation, in this order. Without memory for it a watcher is not told, as when its
/// descriptor is closed.
#[derive(Debug, Default)]
pub(crate) struct Notices(Vec<(Watch, WatchEvent)>);

impl Notices {
    /// None, without an allocation.
    pub(crate) const NONE: Self = Self(Vec::new());

    /// How many there are: where the next is.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds what happens to memory of this watcher, if it wants to know and has not been told the same.
    pub(crate) fn add(&mut self, watch: Option<&Watch>, event: WatchEvent) {
        self.add_at(self.len(), watch, event);
    }

    /// The same before the others from `index` on.
    pub(crate) fn add_at(&mut self, index: usize, watch: Option<&Watch>, event: WatchEvent) {
        let Some(watch) = watch.filter(|watch| watch.is_told_of(event)) else {
            return;
        };
        let same = |(who, what): &(Watch, WatchEvent)| Watch::ptr_eq(who, watch) && *what == event;
        if !self.0.iter().any(same) {
            let _ = self.0.try_insert(index, (watch.clone(), event));
        }
    }

    /// Tells of each.
    pub(crate) fn tell(&self, witness: &mut dyn FnMut(&Watch, WatchEvent)) {
        for (watch, event) in &self.0 {
            witness(watch, *event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(events: WatchEvents) -> Watch {
        let watcher = Watcher {
            number: 1,
            asynchronous: false,
            unpopulated: false,
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
