//! Reclaim of object pages that no entry maps: pages that system calls access, and pages that were unmapped (Linux 7.2
//! `mm/vmscan.c`, `folio_check_references` for folios without referencing entries).
//!
//! No walk of page tables finds these pages, so reclaim scans all objects with a cursor instead. A lookup of a page
//! sets a mark in the object's page store. The scan clears the mark, and swaps the page out if the mark is still clear
//! on the next pass.

use core::sync::atomic::Ordering;
use memwright_table::sync::pause_point;
use memwright_table::{Frame, Machine};

use crate::mm::memory::Memory;
use crate::reclaim::effort::Effort;
use crate::store::cluster::Cluster;
use crate::store::page_store::Store;
use crate::store::pages::Stored;
use crate::types::memcg::Memcg;

/// The number of pages of a store that are scanned per acquisition of its lock.
const AT_A_TIME: usize = 512;

/// The pages to swap out, and the index of the page at which the scan continues. The index is `None` at the end of the
/// store.
struct Found {
    pages: Cluster,
    next: Option<u64>,
}

/// The position of a pass over the objects that have reclaimable pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectPlace {
    /// The number of the object to continue with. If that object was dropped, the pass continues with the next one.
    pub(super) number: u64,
    /// The index of the page to continue with in that object.
    pub(super) index: u64,
}

impl<M: Machine> Store<M> {
    /// Scans the store's pages from index `from` on. Returns pages, all within one `Cluster`, that no entry maps and
    /// that were not accessed since the previous scan.
    fn look_for_unused(&self, memory: &Memory<M>, from: u64, effort: &mut Effort) -> Found {
        let frames = memory.frames();
        let mut pages = Cluster::default();
        let state = self.lock();
        let mut next = state.pages.next(from);
        for _ in 0..AT_A_TIME {
            let Some((index, stored)) = next else { break };
            if effort.is_over() {
                break;
            }
            if let Stored::InMemory(frame) = stored {
                let is_used = state.pages.age(index);
                let is_held = frames.references(frame) != 1 || frames.pins(frame) != 0;
                if !is_used && !is_held && !pages.insert(index) {
                    break;
                }
            }
            effort.look -= 1;
            next = state.pages.next(index + 1);
        }
        Found {
            pages,
            next: next.map(|(index, _)| index),
        }
    }
}

impl<M: Machine> Memory<M> {
    /// Returns the number of pages in memory of the objects that are charged to `memcg` or to a memcg below it.
    /// Examines every object that has pages.
    pub fn object_pages(&self, memcg: Memcg) -> u64 {
        let (mut number, mut pages) = (0, 0);
        while let Some((found, store)) = self.swap().listed(number) {
            number = found + 1;
            let state = store.lock();
            if self.swap().bills.is_within(state.memcg, memcg) {
                pages += state.pages.len() - state.pages.swapped();
            }
        }
        pages
    }

    /// Calls `visit` with the frame of each page in memory of the objects that are charged to `memcg` or to a memcg
    /// below it. The lock of the object's store is held during each call.
    pub fn visit_objects(&self, memcg: Memcg, visit: &mut dyn FnMut(Frame)) {
        let mut number = 0;
        while let Some((found, store)) = self.swap().listed(number) {
            number = found + 1;
            let state = store.lock();
            let mut next = state.pages.next(0);
            next = next.filter(|_| self.swap().bills.is_within(state.memcg, memcg));
            while let Some((index, stored)) = next {
                if let Stored::InMemory(frame) = stored {
                    visit(frame);
                }
                next = state.pages.next(index + 1);
            }
        }
    }

    /// Ages the pages of objects from `place` on, and swaps out those that no entry maps and that were not accessed
    /// since the previous scan. If `memcg` is given, scans only the objects that are charged to it or to a memcg below
    /// it. Sets `place` to the position at which the next call continues, and subtracts the work done from `effort`.
    /// Returns true if the pass is complete, or if no swap slot is free.
    ///
    /// # Locks
    /// The caller holds no lock. Other threads may run meanwhile.
    pub fn reclaim_objects(
        &self,
        place: &mut ObjectPlace,
        memcg: Option<Memcg>,
        effort: &mut Effort,
    ) -> bool {
        while let Some((number, store)) = self.swap().listed(place.number) {
            if number != place.number {
                *place = ObjectPlace { number, index: 0 };
            }
            let pays = store.lock().memcg;
            let locked = store.locked.load(Ordering::Relaxed);
            let asked =
                !locked && memcg.is_none_or(|memcg| self.swap().bills.is_within(pays, memcg));
            let mut next = Some(place.index).filter(|_| asked);
            while let Some(from) = next {
                place.index = from;
                pause_point::<M::Threads>();
                let (slots, used) = self.swap().totals();
                if effort.is_over() || used == slots {
                    return used == slots;
                }
                let found = store.look_for_unused(self, from, effort);
                if !found.pages.is_empty() {
                    let left = store.write_out(self, found.pages, pays);
                    effort.wanted = effort.wanted.saturating_sub(left.pages);
                }
                next = found.next;
            }
            *place = ObjectPlace {
                number: number + 1,
                index: 0,
            };
        }
        *place = ObjectPlace::default();
        true
    }
}
