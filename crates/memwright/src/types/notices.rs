//! The list of the userfaultfd events of an operation.

use alloc::vec::Vec;
use memwright_table::TryPush;

use crate::types::uffd::{Watch, WatchEvent};

/// The events of one operation, in order, each with the userfaultfd context that receives it. If there is no memory to
/// add an event, the event is dropped, as if the descriptor had been closed.
#[derive(Debug, Default)]
pub(crate) struct Notices(Vec<(Watch, WatchEvent)>);

impl Notices {
    /// An empty list. This allocates nothing.
    pub(crate) const NONE: Self = Self(Vec::new());

    /// Returns the number of events, which is the index of the next event.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Adds `event` for the context `watch`, if the context receives events of its kind and the list does not have the
    /// event yet.
    pub(crate) fn add(&mut self, watch: Option<&Watch>, event: WatchEvent) {
        self.add_at(self.len(), watch, event);
    }

    /// Like [`add`](Self::add), but inserts the event at `index`, before the events that are at this index or later.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::uffd::{WatchEvents, Watcher};
    use core::sync::atomic::AtomicBool;
    use memwright_table::{Page, PageRange};

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
