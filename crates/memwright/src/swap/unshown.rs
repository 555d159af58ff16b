//! Pages of objects that nobody shows leave when memory is short: those that calls write and read, and those that were
//! unmapped (Linux 7.2 `mm/vmscan.c`, `folio_check_references` of what no entry refers to).
//!
//! No walk of a space passes them: a hand goes round the objects instead. Who asks for a page leaves a mark in its store; the
//! hand takes the mark away, and sends the page out when it comes by again and there is none.

use core::sync::atomic::Ordering;

use memwright_table::sync::pause_point;
use memwright_table::{Frame, Machine};

use super::{Effort, ObjectPlace, SwapPayer};
use crate::memory::Memory;
use crate::object::{Cluster, Store, Stored};

/// Pages of one store that are passed before others may have its lock.
const AT_A_TIME: usize = 512;

/// Some pages that are to leave, and the page to go on with, if there is one.
struct Found {
    pages: Cluster,
    next: Option<u64>,
}

impl<M: Machine> Store<M> {
    /// Looks at pages from `from` on, and finds some that nobody shows and nobody asked for since they were looked at
    /// before.
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
    /// Calls `visit` with each frame of the objects for which `payer` pays.
    pub fn visit_objects(&self, payer: SwapPayer, visit: &mut dyn FnMut(Frame)) {
        let mut number = 0;
        while let Some((found, store)) = self.swap().listed(number) {
            number = found + 1;
            let state = store.lock();
            let mut next = state.pages.next(0).filter(|_| state.payer == payer);
            while let Some((index, stored)) = next {
                if let Stored::InMemory(frame) = stored {
                    visit(frame);
                }
                next = state.pages.next(index + 1);
            }
        }
    }

    /// Ages the pages of objects from `place` on, which becomes where to go on, and sends those out that nobody shows and
    /// nobody asked for since they were looked at before. With `payer` only those of objects for which he pays. Takes what
    /// it did off `effort`. Whether the round is over. The caller holds no lock; other threads may run meanwhile.
    pub fn reclaim_objects(
        &self,
        place: &mut ObjectPlace,
        payer: Option<SwapPayer>,
        effort: &mut Effort,
    ) -> bool {
        while let Some((number, store)) = self.swap().listed(place.number) {
            if number != place.number {
                *place = ObjectPlace { number, index: 0 };
            }
            let pays = store.lock().payer;
            let locked = store.locked.load(Ordering::Relaxed);
            let asked = !locked && payer.is_none_or(|payer| payer == pays);
            let mut next = Some(place.index).filter(|_| asked);
            while let Some(from) = next {
                place.index = from;
                pause_point();
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
