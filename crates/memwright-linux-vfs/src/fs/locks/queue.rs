//! The requests that wait for locks of a file, and which of them a change wakes.
//!
//! A thread that releases or weakens a lock wakes the requests that no longer conflict with a held lock. Of requests
//! that conflict with each other, only the first is woken. When a woken request leaves the queue, with or without its
//! lock, its thread wakes further requests by the same rule. If ten thousand threads wait for one byte, each thread is
//! therefore woken once. Waking all of them at each release would take fifty million wake-ups.

use crate::fs::locks::record::{Record, Strength};
use alloc::collections::VecDeque;
use core::sync::atomic::{AtomicBool, Ordering};
use memwright_linux_sched::wait::WaitQueue;
use memwright_table::{OutOfMemory, Shared};

/// A blocked request for a lock.
pub(in crate::fs) struct Request {
    number: u64,
    /// The requested lock.
    pub(in crate::fs) wanted: Record,
    woken: AtomicBool,
    /// The queue on which the requesting thread sleeps.
    pub(in crate::fs) queue: WaitQueue,
}

impl Request {
    /// Returns whether the request was woken since its thread last began to wait.
    pub(in crate::fs) fn is_woken(&self) -> bool {
        self.woken.load(Ordering::Acquire)
    }

    /// Records that the thread of the request begins to wait, so that the next change can wake it.
    pub(in crate::fs) fn wait_again(&self) {
        self.woken.store(false, Ordering::Release);
    }
}

/// The smallest range that covers all ranges that were added; `None` if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hull(Option<(u64, u64)>);

impl Hull {
    fn add(&mut self, wanted: &Record) {
        let (first, last) = self.0.unwrap_or((wanted.first, wanted.last));
        self.0 = Some((first.min(wanted.first), last.max(wanted.last)));
    }

    fn overlaps(self, wanted: &Record) -> bool {
        self.0
            .is_some_and(|(first, last)| first <= wanted.last && wanted.first <= last)
    }

    fn holds(self, other: Self) -> bool {
        match (self.0, other.0) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(own), Some(other)) => own.0 <= other.0 && other.1 <= own.1,
        }
    }
}

/// The scan over the requests after one change: its position, and the ranges of those requests before the position that
/// were woken and are still in the queue.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::fs) struct Walk {
    from: u64,
    shared: Hull,
    exclusive: Hull,
}

impl Walk {
    fn add(&mut self, wanted: &Record) {
        match wanted.strength {
            Strength::Shared => self.shared.add(wanted),
            Strength::Exclusive => self.exclusive.add(wanted),
        }
    }

    /// Returns whether a woken request before the position can conflict with `wanted`. Can also return true if no
    /// request conflicts. `wanted` is then delayed until the woken requests leave the queue.
    fn may_exclude(&self, wanted: &Record) -> bool {
        let exclusive = wanted.strength == Strength::Exclusive;
        self.exclusive.overlaps(wanted) || exclusive && self.shared.overlaps(wanted)
    }
}

/// The blocked requests, in order of arrival.
pub(in crate::fs) struct Requests {
    list: VecDeque<Shared<Request>>,
    next: u64,
    /// Covers the ranges of all requests, and of requests that have left. It is reset when the queue becomes empty.
    hull: Hull,
}

impl Requests {
    pub(in crate::fs) const fn new() -> Self {
        Self {
            list: VecDeque::new(),
            next: 0,
            hull: Hull(None),
        }
    }

    /// Appends a request for the lock `wanted`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(in crate::fs) fn add(&mut self, wanted: Record) -> Result<Shared<Request>, OutOfMemory> {
        self.list.try_reserve(1).map_err(|_| OutOfMemory)?;
        let request = Shared::try_new(Request {
            number: self.next,
            wanted,
            woken: AtomicBool::new(false),
            queue: WaitQueue::named("a lock of a file"),
        })?;
        self.next += 1;
        self.hull.add(&wanted);
        #[expect(clippy::disallowed_methods, reason = "room was made")]
        self.list.push_back(request.clone());
        Ok(request)
    }

    /// Removes a request.
    pub(in crate::fs) fn remove(&mut self, request: &Request) {
        let place = self
            .list
            .binary_search_by_key(&request.number, |one| one.number);
        if let Ok(place) = place {
            // The caller holds another reference, so this drop does not free the request.
            let _ = self.list.remove(place);
        }
        if self.list.is_empty() {
            self.hull = Hull(None);
        }
    }

    /// Marks the next request to wake as woken and returns it, or returns `None` at the end of the scan. `is_held`
    /// returns whether a held lock conflicts with a request.
    pub(in crate::fs) fn next(
        &self,
        walk: &mut Walk,
        is_held: impl Fn(&Record) -> bool,
    ) -> Option<Shared<Request>> {
        let start = self.list.partition_point(|one| one.number < walk.from);
        for request in self.list.range(start..) {
            if walk.exclusive.holds(self.hull) {
                // A woken exclusive request can conflict with all further requests.
                return None;
            }
            walk.from = request.number + 1;
            let wanted = &request.wanted;
            if request.is_woken() {
                walk.add(wanted);
            } else if !walk.may_exclude(wanted) && !is_held(wanted) {
                walk.add(wanted);
                request.woken.store(true, Ordering::Release);
                return Some(request.clone());
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::locks::record::Holder;
    use Strength::{Exclusive, Shared as Sharing};
    use alloc::vec::Vec;

    fn wanted(process: u64, strength: Strength, first: u64, last: u64) -> Record {
        Record {
            holder: Holder::Process(process),
            strength,
            first,
            last,
        }
    }

    /// Returns the numbers of the requests that a change wakes. `is_held` returns whether a held lock conflicts with a
    /// request.
    fn woken(requests: &Requests, is_held: impl Fn(&Record) -> bool) -> Vec<u64> {
        let mut walk = Walk::default();
        let mut numbers = Vec::new();
        while let Some(request) = requests.next(&mut walk, &is_held) {
            numbers.push(request.number);
        }
        numbers
    }

    fn requests(all: &[(Strength, u64, u64)]) -> Requests {
        let mut requests = Requests::new();
        for (number, &(strength, first, last)) in all.iter().enumerate() {
            let record = wanted(number as u64, strength, first, last);
            requests.add(record).unwrap();
        }
        requests
    }

    #[test]
    fn of_those_that_exclude_each_other_the_first_is_woken() {
        for (all, held, expected) in [
            (
                &[(Exclusive, 0, 0), (Exclusive, 0, 0), (Sharing, 0, 0)][..],
                None,
                &[0][..],
            ),
            (
                &[(Sharing, 0, 0), (Exclusive, 0, 0), (Sharing, 0, 0)],
                None,
                &[0, 2],
            ),
            (
                &[(Exclusive, 0, 4), (Exclusive, 5, 9), (Sharing, 4, 5)],
                None,
                &[0, 1],
            ),
            (
                &[(Exclusive, 0, 4), (Exclusive, 5, 9), (Sharing, 5, 5)],
                Some(0),
                &[1],
            ),
            (
                &[(Sharing, 0, 9), (Sharing, 3, 4), (Exclusive, 20, 20)],
                Some(4),
                &[2],
            ),
            (&[], None, &[]),
        ] {
            let requests = requests(all);
            let overlaps =
                |record: &Record| held.is_some_and(|at| record.first <= at && at <= record.last);
            assert_eq!(woken(&requests, overlaps), expected, "{all:?}");
        }
    }

    #[test]
    fn the_next_is_woken_when_the_first_leaves() {
        let mut requests = requests(&[(Exclusive, 7, 7); 3]);
        assert_eq!(woken(&requests, |_| false), [0]);
        // A request that was already woken is not woken again. Requests that conflict with it are not woken either.
        assert_eq!(woken(&requests, |_| false), []);
        let first = requests.list[0].clone();
        requests.remove(&first);
        assert_eq!(woken(&requests, |_| true), []);
        assert_eq!(woken(&requests, |_| false), [1]);
        // A woken request whose attempt failed waits again, and the next change wakes it.
        requests.list[0].wait_again();
        assert_eq!(woken(&requests, |_| false), [1]);
    }

    #[test]
    fn ten_thousand_for_one_byte_are_looked_at_once_each() {
        let looked = core::cell::Cell::new(0);
        let mut requests = requests(&[(Exclusive, 3, 3); 10_000]);
        for number in 0..10_000 {
            let mut walk = Walk::default();
            let look = |_: &Record| {
                looked.set(looked.get() + 1);
                false
            };
            let next = requests.next(&mut walk, look).unwrap();
            assert_eq!(next.number, number);
            assert!(requests.next(&mut walk, look).is_none());
            assert_eq!(walk.from, number + 1);
            requests.remove(&next);
        }
        assert_eq!(looked.get(), 10_000);
        assert!(requests.list.is_empty() && requests.hull == Hull(None));
    }
}
