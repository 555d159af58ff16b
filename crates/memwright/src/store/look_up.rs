//! Looking up pages of a store to access them, and filling an index where the lookup found none.

use core::sync::atomic::Ordering;
use memwright_table::{Frame, Frames, Machine, NodeWords};

use crate::store::pages::{ASKED, Pages, SLOTS, found, set_word, slot_at};
use crate::types::error::ObjectError;

/// The result of looking up a page to access it.
pub(crate) enum Lookup<'f> {
    /// The page is in this frame, to which the store has a reference.
    InMemory(Frame),
    /// The page is in swap.
    InSwap,
    /// The store has no page at the index.
    Vacant(Vacancy<'f>),
}

/// An index without a page, and the result of the walk to it, for [`Pages::fill`]. It is valid until the store changes.
pub(crate) struct Vacancy<'f> {
    pub(crate) index: u64,
    /// The lowest node on the path to the index, if it exists.
    node: Option<NodeWords<'f>>,
}

impl<M: Machine> Pages<M> {
    /// Looks up page `index` like [`get`](Self::get), and also distinguishes a page in swap from an index without a
    /// page. `frames` are the frames of the store.
    #[inline(always)]
    pub(crate) fn look_up<'f>(&self, frames: &'f Frames<M>, index: u64) -> Lookup<'f> {
        debug_assert!(core::ptr::eq(frames, &*self.frames));
        let node = self.lowest(index).map(|node| frames.node_words(node));
        if let Some(node) = node {
            let word = node.word(slot_at(index, 0));
            // This check comes first, because most lookups by faults are of pages that do not exist yet.
            if word.load(Ordering::Relaxed) != 0 {
                return found(word, ASKED).map_or(Lookup::InSwap, Lookup::InMemory);
            }
        }
        Lookup::Vacant(Vacancy { index, node })
    }

    /// Stores a frame, with its reference, at the vacant index that a lookup returned as `vacancy`.
    ///
    /// # Errors
    /// As for [`insert`](Self::insert).
    #[inline(always)]
    pub(crate) fn fill(&mut self, vacancy: &Vacancy<'_>, frame: Frame) -> Result<(), ObjectError> {
        let Vacancy { index, node } = *vacancy;
        let Some(node) = node else {
            return self.insert(index, frame);
        };
        self.take_room(1)?;
        debug_assert!(self.stored(index).is_none() && self.lowest(index).is_some());
        set_word(node, slot_at(index, 0), Some(frame));
        self.note_stored(index);
        Ok(())
    }

    /// Returns a bitmap of the pages that are stored, in memory or in swap, among the pages `first + i` for which bit
    /// `i` is set in `wanted`.
    #[inline(always)]
    pub(crate) fn stored_of(&self, first: u64, wanted: u64) -> u64 {
        if self.ends_before(first + u64::from(wanted.trailing_zeros())) {
            0
        } else {
            self.stored_before_end(first, wanted)
        }
    }

    /// Implements [`stored_of`](Self::stored_of) for pages that the store may have.
    #[inline(never)]
    fn stored_before_end(&self, first: u64, wanted: u64) -> u64 {
        let slot = slot_at(first, 0);
        if slot > SLOTS - 64 && slot + u64::from(64 - wanted.leading_zeros()) > SLOTS {
            return self.stored_of_two(first, wanted);
        }
        self.lowest(first)
            .map_or(0, |node| self.frames.node_words(node).filled(slot, wanted))
    }

    /// Like [`stored_of`](Self::stored_of), for pages that extend over two lowest nodes.
    #[cold]
    fn stored_of_two(&self, first: u64, wanted: u64) -> u64 {
        let here = SLOTS - slot_at(first, 0);
        let there = self.stored_of(first + here, wanted >> here) << here;
        self.stored_of(first, wanted & ((1 << here) - 1)) | there
    }

    /// Like [`get_unasked`](Self::get_unasked), for each page `first + i` for which bit `i` is set in `wanted`. Writes
    /// the frame of a page in memory to element `i` of `frames`. Returns a bitmap of these pages.
    pub(crate) fn get_run_unasked(&self, first: u64, wanted: u64, frames: &mut [Frame]) -> u64 {
        let (mut left, mut there) = (wanted, 0);
        while left != 0 {
            let place = left.trailing_zeros();
            let index = first + u64::from(place);
            let rest = SLOTS - slot_at(index, 0);
            // The wanted pages in the lowest node that covers `index`.
            let mut here = match rest + u64::from(place) {
                end @ 0..64 => left & ((1 << end) - 1),
                64.. => left,
            };
            left &= !here;
            let Some(node) = self.lowest(index) else {
                continue;
            };
            let words = self.frames.words64(node);
            while here != 0 {
                let place = here.trailing_zeros();
                here &= here - 1;
                let word = &words[slot_at(first + u64::from(place), 0) as usize];
                if let Some(frame) = found(word, 0) {
                    frames[place as usize] = frame;
                    there |= 1 << place;
                }
            }
        }
        there
    }
}
