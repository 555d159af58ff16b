//! Collects events from the ready list of an epoll, for `epoll_wait`.

use crate::fs::{
    caller::Caller,
    epoll::{Epoll, Event, Item},
    watch::{items::Position, ready::ENTRIES},
};
use alloc::sync::Arc;
use core::sync::atomic::Ordering;
use memwright_linux_abi::errno::Errno;
use memwright_linux_base::{
    short_list::ShortList,
    sync::{PausePoints, relax},
};
use memwright_linux_sched::wait::WaitError;

/// An event, and the entry to which it belongs.
pub struct Found {
    /// The event in the format in which it is copied to user space.
    pub event: Event,
    item: Arc<Item>,
}

/// The events that one `epoll_wait` returns.
pub type FoundEvents = ShortList<Found, 8>;

impl Epoll {
    /// Waits until an entry is ready or the deadline passes. Adds up to `most` events to `found`, which must be empty.
    /// If the deadline passes first, adds no events.
    ///
    /// # Errors
    /// `EINTR` if a signal arrives first, `ENOMEM` if there is no memory for the first event.
    pub fn wait(
        &self,
        caller: &dyn Caller,
        most: usize,
        deadline: Option<u64>,
        found: &mut FoundEvents,
    ) -> Result<(), Errno> {
        self.enlist_looked_at();
        let result = loop {
            match self.collect(caller, most, found) {
                Ok(has_candidates) if !found.is_empty() => {
                    self.wake_next(has_candidates);
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) => break Err(error),
            }
            if caller.interrupted() {
                break Err(Errno::EINTR);
            }
            let candidates = || self.ready.has_candidates().then_some(());
            match caller.wait_until(&[&self.queue], deadline, candidates) {
                // Another thread is collecting events. When it finishes, it puts the entries that are still ready back
                // on the list.
                Ok(()) if self.ready.is_looked_at() => {
                    relax();
                    caller.yield_now();
                }
                Ok(()) => {}
                Err(WaitError::TimedOut) => break Ok(()),
                Err(WaitError::Interrupted) => break Err(Errno::EINTR),
            }
        };
        self.wake_next(self.ready.has_candidates());
        result
    }

    /// Wakes another waiting thread if the list has candidates. The wake-up that this thread received can have been for
    /// an entry whose event this thread does not return.
    fn wake_next(&self, has_candidates: bool) {
        if has_candidates {
            self.queue.wake_one();
        }
    }

    /// Puts the entries of `found` back on the ready list, because their events could not be copied to user space.
    pub fn return_events<'a>(&self, found: impl Iterator<Item = &'a Found>) {
        for Found { item, .. } in found {
            item.restore();
            self.make_ready(item);
        }
    }

    /// Puts the entries with `looked_at` on the ready list. Their files wake no queue, so each `epoll_wait` must poll
    /// these files.
    fn enlist_looked_at(&self) {
        if !self.has_looked_at.load(Ordering::Relaxed) {
            return;
        }
        let enlisted = self.each_item(|item| {
            if item.looked_at {
                self.enlist(item);
            }
            Ok(())
        });
        debug_assert_eq!(enlisted, Ok(()));
    }

    /// Calls `act` for each entry until `act` fails. Holds the lock of the entries during the calls, and releases it
    /// after each block of entries.
    ///
    /// # Locks
    /// The caller holds no lock except those that [sleep](memwright_linux_base::sync::Rank::sleeps).
    pub(super) fn each_item(
        &self,
        mut act: impl FnMut(&Arc<Item>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut points = PausePoints::every(1);
        let mut from = Some(Position::START);
        while let Some(position) = from {
            from = self.items.lock().visit_some(position, &mut act)?;
            points.round();
        }
        Ok(())
    }

    /// Takes entries off the ready list, polls their files, and adds the events to `found` until `found` has `most`
    /// events. `found` must be empty at first. Returns whether the list has candidates for another thread.
    ///
    /// # Errors
    /// `ENOMEM` if there is no memory for the first event.
    fn collect(
        &self,
        caller: &dyn Caller,
        most: usize,
        found: &mut FoundEvents,
    ) -> Result<bool, Errno> {
        let mut look = self.ready.look();
        let mut points = PausePoints::every(ENTRIES);
        let mut wanted = most;
        while wanted > 0
            && let Some(item) = look.take_next()
        {
            points.round();
            let Some(item) = item.upgrade() else {
                continue;
            };
            // If the file's readiness changes from here on, the entry is put on the list again.
            item.delist();
            let Some(open) = item.open() else {
                continue;
            };
            let ready = item.found(caller, &open);
            if ready.is_empty() {
                continue;
            }
            let interest = item.interest;
            if interest.is_one_shot() && !item.spend() {
                continue;
            }
            let event = Event {
                events: ready.bits(),
                data: interest.data,
            };
            let event = Found {
                event,
                item: item.clone(),
            };
            if found.try_push(event).is_err() {
                item.restore();
                self.enlist(&item);
                if found.is_empty() {
                    return Err(Errno::ENOMEM);
                }
                // No memory for this event: return the events found so far.
                break;
            }
            wanted -= 1;
        }
        // Put the level-triggered entries back on the list, so that the next call polls their files again.
        found.iter().for_each(|Found { item, .. }| {
            points.round();
            let interest = item.interest;
            if !interest.is_one_shot() && !interest.is_edge_triggered() {
                self.enlist(item);
            }
        });
        Ok(look.finish())
    }

    /// Returns whether any entry is ready, which makes the epoll itself readable.
    pub(super) fn has_ready(&self, caller: &dyn Caller) -> bool {
        let look = self.ready.look();
        while let Some(item) = look.take_first() {
            item.delist();
            let ready = item
                .open()
                .is_some_and(|open| !item.found(caller, &open).is_empty());
            if ready {
                self.enlist(&item);
                return true;
            }
        }
        false
    }
}
