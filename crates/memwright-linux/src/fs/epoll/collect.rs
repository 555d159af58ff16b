//! Collecting events from the ready list.

use super::{Epoll, Event, Item};
use crate::{context::Context, errno::Errno, sync::relax, wait::WaitError};
use alloc::{sync::Arc, vec::Vec};

/// An event, and the entry that it is of.
pub struct Found {
    /// What is stored for the program.
    pub event: Event,
    item: Arc<Item>,
}

impl Epoll {
    /// Waits until an entry is ready, or the deadline; returns up to `most` events, none after the
    /// deadline.
    ///
    /// # Errors
    /// `EINTR` when a signal came first.
    pub fn wait(
        &self,
        context: &Context<'_>,
        most: usize,
        deadline: Option<u64>,
    ) -> Result<Vec<Found>, Errno> {
        self.enlist_looked_at();
        let result = loop {
            let found = self.collect(context, most);
            if !found.is_empty() {
                break Ok(found);
            }
            if context.interrupted() {
                break Err(Errno::EINTR);
            }
            let candidates = || self.ready.has_candidates().then_some(());
            match context.wait_until(&[&self.queue], deadline, candidates) {
                // On another CPU; what stays ready is there again in a moment.
                Ok(()) if self.ready.is_looked_at() => relax(),
                Ok(()) => {}
                Err(WaitError::TimedOut) => break Ok(Vec::new()),
                Err(WaitError::Interrupted) => break Err(Errno::EINTR),
            }
        };
        // Whoever leaves may have been woken for an event that another thread should see.
        if self.ready.has_candidates() {
            self.queue.wake_one(context.kernel);
        }
        result
    }

    /// Gives back events that could not be stored.
    pub fn return_events(&self, context: &Context<'_>, found: &[Found]) {
        for Found { item, .. } in found {
            item.restore();
            self.make_ready(context.kernel, item);
        }
    }

    /// Nobody tells when these are ready.
    fn enlist_looked_at(&self) {
        let items = self.items.lock();
        for item in items.values().filter(|item| item.looked_at) {
            self.enlist(item);
        }
    }

    /// Looks at every entry that stood on the ready list, until there are `most` events.
    fn collect(&self, context: &Context<'_>, most: usize) -> Vec<Found> {
        let mut found = Vec::new();
        // Those that are put back wait for the next call.
        let mut again = Vec::new();
        let look = self.ready.look();
        let mut candidates = look.take_all();
        while found.len() < most {
            let Some(item) = candidates.pop_front() else {
                break;
            };
            let Some(item) = item.upgrade() else {
                continue;
            };
            // What changes from here on puts it on the list again.
            item.delist();
            let Some(open) = item.open() else {
                continue;
            };
            let ready = item.found(context, &open);
            if ready.is_empty() {
                continue;
            }
            let interest = item.interest;
            if interest.is_one_shot() {
                if !item.spend() {
                    continue;
                }
            } else if !interest.is_edge_triggered() {
                again.push(item.clone());
            }
            let event = Event {
                events: ready.bits(),
                data: interest.data,
            };
            found.push(Found { event, item });
        }
        if !candidates.is_empty() {
            look.put_back(candidates);
        }
        for item in &again {
            self.enlist(item);
        }
        found
    }

    /// Some entry is ready: who waits for the epoll itself is told.
    pub(super) fn has_ready(&self, context: &Context<'_>) -> bool {
        let look = self.ready.look();
        while let Some(item) = look.take_first() {
            item.delist();
            let ready = item
                .open()
                .is_some_and(|open| !item.found(context, &open).is_empty());
            if ready {
                self.enlist(&item);
                return true;
            }
        }
        false
    }
}
