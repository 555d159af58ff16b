//! Folios: blocks of 2 MiB that entries map whole, or by their parts.
//!
//! # Who counts what
//! A folio is *closed* as long as only huge entries map it. Then nothing but its first frame's
//! metadata is written: making one costs no more than making a frame. Two words of that count:
//!
//! | Word | Counts |
//! |---|---|
//! | `whole`, of the first frame | huge entries of any table, [`FrameRef`](super::FrameRef)s, and pins |
//! | `references`, of each frame, once *parted* | 4 KiB entries of that frame, and 1 for the folio |
//!
//! A huge entry that is split turns its one reference of the whole into one of each part. If it was
//! the only one, the folio is at once 512 frames like any other, each with one reference. Else
//! it is *parted*: each frame's count begins with 1 for the folio, so that no part is free while
//! somebody has the whole, and what is said of a part adds both words. With the last reference of the
//! whole each part loses that 1, is a frame like any other, and is free if nobody maps it: what is unmapped in
//! part is given back then, without a search for who maps the rest. Frames that were parts and are all there still make
//! up a folio that is mapped by its pages (`pages.rs`).
//!
//! # Exclusivity
//! It is in the entries, and a split copies it to each of the 512, for what one entry could reach
//! alone nobody else reaches by parts. It is gained again by the only reference: of a huge entry, if `whole` is 1
//! and no part is referenced; of a 4 KiB entry, if `whole` and the part's count come to one.
//!
//! # Locks
//! Parting is done under the lock of the first frame's metadata, of rank `Folio`, since two tables may split
//! their entries at the same time. All else is atomic: who has a reference of the whole reads `PARTED`
//! from before he gives it up, and a part's last reference is dropped after the folio's.

use core::sync::atomic::Ordering;

use super::meta::{Meta, State, UNLINKED};
use super::{FrameKind, FrameRef, Frames, Metas, add_references};
use crate::addr::Frame;
use crate::machine::Machine;
use crate::sync::Rank;

/// The order of a folio: 2 MiB.
pub const FOLIO_ORDER: u8 = 9;
/// Frames of a folio.
pub const FOLIO_FRAMES: u32 = 1 << FOLIO_ORDER;

impl<'a> Metas<'a> {
    /// The first frame of the folio that `number` belongs to.
    pub(crate) fn folio_of(self, number: u32) -> Option<(u32, &'a Meta)> {
        let head = number & !(FOLIO_FRAMES - 1);
        let meta = self.find(head)?;
        meta.state().has(State::FOLIO).then_some((head, meta))
    }

    /// Of a frame in a block: whose metadata counts an entry's reference of it, and how often it is
    /// pinned.
    #[cold]
    pub(crate) fn counted_in_block(self, number: u32) -> (&'a Meta, u32) {
        let meta = self.get(number);
        let (counted, pinned) = match self.folio_of(number) {
            Some((_, head)) => (meta, head),
            None if meta.is_tail() => {
                let first = self.get(meta.link());
                (first, first)
            }
            None => (meta, meta),
        };
        (counted, pinned.pins.load(Ordering::Acquire))
    }
}

impl<M: Machine> Frames<M> {
    /// Makes the metadata of a new folio: of its first frame alone.
    pub(super) fn prepare_folio(&self, head: &Meta, kind: FrameKind) {
        if kind == FrameKind::Anonymous {
            self.folios.fetch_add(1, Ordering::Relaxed);
        }
        head.set_state(head.state().with(State::FOLIO));
        head.back.store(UNLINKED, Ordering::Relaxed);
        head.whole.store(1, Ordering::Relaxed);
    }

    fn uncount_folio(&self, kind: FrameKind) {
        if kind == FrameKind::Anonymous {
            self.folios.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many folios objects have, and how many of these somebody has but the object: as one huge page, as far as
    /// references tell. Nobody keeps these numbers: all frames where a folio may begin are looked at.
    pub fn object_folios(&self) -> (u64, u64) {
        let metas = self.metas();
        let first = metas.lowest.next_multiple_of(FOLIO_FRAMES);
        let (mut folios, mut mapped) = (0, 0);
        for number in (first..metas.end()).step_by(FOLIO_FRAMES as usize) {
            let meta = metas.get(number);
            let state = meta.state();
            if state.has(State::FOLIO) && state.kind() == FrameKind::Object {
                folios += 1;
                mapped += u64::from(meta.whole.load(Ordering::Relaxed) > 1);
            }
        }
        (folios, mapped)
    }

    /// Whether `frame` lies in a folio.
    pub fn is_in_folio(&self, frame: Frame) -> bool {
        self.metas().folio_of(frame.number()).is_some()
    }

    /// The first frame of the folio that `frame` lies in.
    pub fn folio_of(&self, frame: Frame) -> Option<Frame> {
        let (head, _) = self.metas().folio_of(frame.number())?;
        Some(Frame::new(head))
    }

    /// Adds a reference of the whole folio that begins with `head`, which has one.
    ///
    /// # Panics
    /// If there is no folio.
    pub(crate) fn share_whole_raw(&self, head: Frame) {
        let meta = self.meta(head);
        assert!(meta.state().has(State::FOLIO), "{head:?} begins no folio");
        let before = meta.whole.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "a folio shared while free");
    }

    /// The same for who has a reference of a part, but perhaps none of the whole. False if the last reference of
    /// the whole has gone: soon there will be no folio.
    pub(super) fn try_share_whole(&self, head: Frame) -> bool {
        let whole = &self.meta(head).whole;
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let more = |count| (count > 0).then_some(count + 1);
        whole.fetch_update(order.0, order.1, more).is_ok()
    }

    /// Turns a reference of the whole folio that `page` lies in into one of this frame alone, which is what a 4 KiB
    /// entry holds. A reference of a frame that lies in no folio stays as it is.
    pub fn for_entry<'a>(&'a self, page: FrameRef<'a, M>) -> FrameRef<'a, M> {
        if page.is_whole() {
            self.for_entry_of_part(&page)
        } else {
            page
        }
    }

    #[cold]
    fn for_entry_of_part(&self, page: &FrameRef<'_, M>) -> FrameRef<'_, M> {
        let frame = page.frame();
        let head = self.folio_of(frame).unwrap_or(frame);
        let meta = self.meta(head);
        meta.lock.lock(Rank::Folio);
        if !meta.state().has(State::PARTED) {
            self.count_parts(head, 0);
        }
        add_references(self.meta(frame), 1);
        meta.lock.unlock(Rank::Folio);
        FrameRef::from_raw(self, frame, false)
    }

    /// Begins to count the parts of a folio by themselves, `references` each beside the folio's own. The lock of the
    /// first frame's metadata is held.
    fn count_parts(&self, head: Frame, references: u32) {
        let meta = self.meta(head);
        let state = meta.state();
        let part = state.become_block(state.kind(), 0).with(State::PART);
        for number in head.number() + 1..head.number() + FOLIO_FRAMES {
            let tail = self.meta(Frame::new(number));
            tail.set_state(part);
            tail.set_link(UNLINKED);
            tail.references.store(1 + references, Ordering::Relaxed);
        }
        add_references(meta, references);
        meta.set_state(meta.state().with(State::PARTED));
    }

    /// Takes over a reference that an entry of 4 KiB, or the store of an object, had of this frame alone.
    ///
    /// # Panics
    /// If the frame has no reference of its own.
    pub fn adopt_part(&self, frame: Frame) -> FrameRef<'_, M> {
        let references = self.meta(frame).references.load(Ordering::Relaxed);
        assert!(references > 0, "{frame:?} has no reference to adopt");
        FrameRef::from_raw(self, frame, false)
    }

    /// Drops a reference of the whole folio that begins with `head`.
    ///
    /// # Panics
    /// If there was none.
    pub(crate) fn release_whole(&self, head: Frame) {
        let meta = self.meta(head);
        let before = meta.whole.fetch_sub(1, Ordering::AcqRel);
        assert!(
            before > 0,
            "a reference of a folio was given up that does not exist"
        );
        if before > 1 {
            return;
        }
        debug_assert_eq!(meta.pins.load(Ordering::Relaxed), 0, "freed a pinned folio");
        let state = meta.state();
        if state.kind().is_pool() {
            self.return_to_pool(head, meta);
        } else if state.has(State::PARTED) {
            self.dissolve(head, state);
        } else {
            self.free_folio(head, meta, state);
        }
    }

    /// Frees a folio of which no part was ever referenced by itself.
    pub(super) fn free_folio(&self, head: Frame, meta: &Meta, state: State) {
        let kind = state.kind();
        self.uncount_folio(kind);
        self.cache()
            .lock()
            .count_freed(kind, i64::from(FOLIO_FRAMES));
        meta.references.store(0, Ordering::Relaxed);
        meta.set_state(state.become_block(FrameKind::Free, 0));
        if cfg!(debug_assertions) {
            for number in head.number()..head.number() + FOLIO_FRAMES {
                self.poison(Frame::new(number));
            }
        }
        let node = &self.nodes[state.node() as usize];
        node.lock().put(self.metas(), head, FOLIO_ORDER);
    }

    /// Makes the parts of a folio whose last whole reference went frames like any other; frees those that
    /// nobody maps.
    fn dissolve(&self, head: Frame, state: State) {
        let plain = state.become_block(state.kind(), 0).as_page_of(FOLIO_ORDER);
        self.uncount_folio(state.kind());
        let metas = self.metas();
        let mut cache = self.cache().lock();
        let mut freed = 0;
        for number in head.number()..head.number() + FOLIO_FRAMES {
            let meta = metas.get(number);
            // Before the folio's reference goes: whoever drops the last one frees a single frame.
            meta.set_state(plain);
            if meta.drop_reference() {
                freed += 1;
                self.free_uncounted(&mut cache, Frame::new(number), meta);
            }
        }
        cache.count_freed(state.kind(), freed);
    }

    /// Turns one reference of the whole folio that begins with `head` into one of each part.
    ///
    /// # Panics
    /// If there is no folio, or it is of the pool.
    pub fn part(&self, head: Frame) {
        let meta = self.meta(head);
        let state = meta.state();
        assert!(state.has(State::FOLIO), "{head:?} begins no folio");
        assert!(!state.kind().is_pool(), "a page of the pool is split");
        let tails = head.number() + 1..head.number() + FOLIO_FRAMES;
        // Nobody can win another reference meanwhile: that takes the lock of the entry that is split.
        if !state.has(State::PARTED) && meta.whole.load(Ordering::Acquire) == 1 {
            let plain = state.become_block(state.kind(), 0).as_page_of(FOLIO_ORDER);
            self.uncount_folio(state.kind());
            for number in tails {
                let tail = self.meta(Frame::new(number));
                tail.set_state(plain);
                tail.set_link(UNLINKED);
                tail.references.store(1, Ordering::Relaxed);
            }
            meta.set_state(plain);
            return;
        }
        meta.lock.lock(Rank::Folio);
        if meta.state().has(State::PARTED) {
            for number in head.number()..head.number() + FOLIO_FRAMES {
                add_references(self.meta(Frame::new(number)), 1);
            }
        } else {
            self.count_parts(head, 1);
        }
        meta.lock.unlock(Rank::Folio);
        self.release_whole(head);
    }

    /// Whether the huge entry that asks, under whose lock nobody can win a reference through it, has the only
    /// reference of any kind of the folio that begins with `head`. A folio whose parts nobody references any
    /// more is closed again.
    pub fn is_sole_whole(&self, head: Frame) -> bool {
        let meta = self.meta(head);
        let state = meta.state();
        if meta.whole.load(Ordering::Acquire) != 1 {
            return false;
        }
        if !state.has(State::PARTED) {
            return true;
        }
        let parts = head.number()..head.number() + FOLIO_FRAMES;
        let referenced = |number| {
            self.meta(Frame::new(number))
                .references
                .load(Ordering::Acquire)
                != 1
        };
        if parts.clone().any(referenced) {
            return false;
        }
        for number in parts.skip(1) {
            let tail = self.meta(Frame::new(number));
            tail.references.store(0, Ordering::Relaxed);
            tail.set_state(state.become_block(FrameKind::Free, 0));
        }
        meta.set_state(state.without(State::PARTED));
        true
    }

    /// References of the whole folio that begins with `head`; `None` if it is none, or one of its parts is referenced by
    /// itself.
    pub fn references_of_whole(&self, head: Frame) -> Option<u32> {
        let meta = self.meta(head);
        let state = meta.state();
        if !state.has(State::FOLIO) {
            return None;
        }
        let part = |number| &self.meta(Frame::new(number)).references;
        let mut parts = head.number()..head.number() + FOLIO_FRAMES;
        let referenced = state.has(State::PARTED)
            && parts.any(|number| part(number).load(Ordering::Acquire) != 1);
        (!referenced).then(|| meta.whole.load(Ordering::Acquire))
    }

    /// References of a frame that lies in a block: of it, and of the whole.
    #[cold]
    pub(super) fn references_in_block(&self, frame: Frame) -> u32 {
        let meta = self.meta(frame);
        let Some((_, head)) = self.metas().folio_of(frame.number()) else {
            let first = if meta.is_tail() {
                self.meta(Frame::new(meta.link()))
            } else {
                meta
            };
            return first.references.load(Ordering::Acquire);
        };
        let whole = head.whole.load(Ordering::Acquire);
        if head.state().has(State::PARTED) {
            whole + meta.references.load(Ordering::Acquire).saturating_sub(1)
        } else {
            whole
        }
    }

    /// The kind of a frame whose own metadata says that it is free.
    #[cold]
    pub(super) fn kind_inside(&self, frame: Frame) -> FrameKind {
        let folio = self.metas().folio_of(frame.number());
        folio.map_or(FrameKind::Free, |(_, head)| head.kind())
    }
}
