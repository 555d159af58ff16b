//! Folios: blocks of 2 MiB that huge entries map as a whole, or 4 KiB entries map in parts. A part is one frame.
//!
//! # Reference counts
//! A folio is *closed* as long as only huge entries map it. While it is closed, only the metadata of its first frame,
//! the head, is in use, so that allocating a folio costs no more than allocating a frame. Two words count references:
//!
//! | Word | Counts |
//! |---|---|
//! | `whole`, in the head | huge entries of all tables, [`FrameRef`]s, and pins |
//! | `references`, in each frame of a *parted* folio | 4 KiB entries of that frame, and 1 for the folio |
//!
//! Splitting a huge entry converts its whole-folio reference into one reference to each part. If it was the only
//! reference, the folio becomes 512 ordinary frames at once, each with one reference. Otherwise the folio becomes
//! *parted*. The count of each part then includes 1 for the folio, so that no part is freed while a whole-folio
//! reference exists. The number of references to a part is the sum of both words, without that 1. When the last
//! whole-folio reference is dropped, the 1 for the folio is subtracted from each part's count, each part becomes an
//! ordinary frame, and parts that no entry maps are freed. A partially unmapped folio is thus freed without a search
//! for the mappings of its other parts. Former parts form a folio that is mapped by pages (`pages.rs`) as long as all
//! of them are allocated.
//!
//! # Exclusivity
//! Exclusivity is stored in the entries. A split copies it to each of the 512 new entries, because no other entry maps
//! a part of a folio that one entry mapped exclusively. An entry that holds the only reference can become exclusive
//! again: a huge entry if `whole` is 1 and no part has a reference, and a 4 KiB entry if `whole` and the part's count
//! add up to one reference.
//!
//! # Locks
//! A CPU that makes a folio parted holds the lock in the head's metadata, of rank `Folio`, because two CPUs can split
//! entries of different tables that map the folio at the same time. All other changes are atomic operations. A CPU that
//! sets the `PARTED` flag holds a whole-folio reference at that time, so the CPU that drops the last such reference
//! finds the flag set. The last reference to a part is dropped after the last one to the folio.

use core::sync::atomic::{AtomicU64, Ordering};

use super::meta::{Left, Meta, State, UNLINKED};
use super::order::{FOLIO_FRAMES, FOLIO_ORDER};
use super::{FrameKind, FrameRef, Frames, Metas, add_references};
use crate::addr::Frame;
use crate::machine::Machine;
use crate::sync::Rank;

impl<'a> Metas<'a> {
    /// Returns the number and the metadata of the first frame of the folio that contains frame `number`; `None` if the
    /// frame is in no folio.
    pub(crate) fn folio_of(self, number: u32) -> Option<(u32, &'a Meta)> {
        let head = number & !(FOLIO_FRAMES - 1);
        let meta = self.find(head)?;
        meta.state().has(State::FOLIO).then_some((head, meta))
    }

    /// Returns the metadata in which a 4 KiB entry's reference to frame `number` is counted, and the number of pins of
    /// the frame. The frame must be in a folio or in another block of several frames.
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
    /// Initializes the metadata of a new folio. The folio is closed, so only the metadata of its first frame is in use.
    pub(super) fn prepare_folio(&self, head: &Meta, kind: FrameKind) {
        if let Some(count) = self.folios_of(kind) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        head.set_state(head.state().with(State::FOLIO));
        head.back.store(UNLINKED, Ordering::Relaxed);
        head.whole.store(1, Ordering::Relaxed);
    }

    fn uncount_folio(&self, kind: FrameKind) {
        if let Some(count) = self.folios_of(kind) {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Returns the counter of folios of `kind`, or `None` if folios of this kind are not counted.
    fn folios_of(&self, kind: FrameKind) -> Option<&AtomicU64> {
        match kind {
            FrameKind::Anonymous => Some(&self.folios),
            FrameKind::Object => Some(&self.object_folios),
            FrameKind::Hole
            | FrameKind::Free
            | FrameKind::Reserved
            | FrameKind::Kernel
            | FrameKind::Table
            | FrameKind::Zero
            | FrameKind::Slab
            | FrameKind::Merged
            | FrameKind::Pool
            | FrameKind::PoolAnonymous
            | FrameKind::PoolObject => None,
        }
    }

    /// Whether `frame` is in a folio.
    pub fn is_in_folio(&self, frame: Frame) -> bool {
        self.metas().folio_of(frame.number()).is_some()
    }

    /// The first frame of the folio that contains `frame`; `None` if the frame is in no folio.
    pub fn folio_of(&self, frame: Frame) -> Option<Frame> {
        let (head, _) = self.metas().folio_of(frame.number())?;
        Some(Frame::new(head))
    }

    /// Adds a whole-folio reference to the folio that begins at `head`, which already has one.
    ///
    /// # Panics
    /// If no folio begins at `head`.
    pub(crate) fn share_whole_raw(&self, head: Frame) {
        let meta = self.meta(head);
        assert!(meta.state().has(State::FOLIO), "{head:?} begins no folio");
        let before = meta.whole.fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "a folio shared while free");
    }

    /// Like `share_whole_raw`, but the folio may have no whole-folio reference. The caller holds a reference to a part.
    /// Returns `false` if the last whole-folio reference was dropped, so that the folio is about to be dissolved.
    pub(super) fn try_share_whole(&self, head: Frame) -> bool {
        let whole = &self.meta(head).whole;
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let more = |count| (count > 0).then_some(count + 1);
        whole.fetch_update(order.0, order.1, more).is_ok()
    }

    /// Converts a whole-folio reference `page` into a reference to its frame alone, which is the kind of reference that
    /// a 4 KiB entry holds. Returns any other `page` unchanged.
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
        meta.lock.lock::<M::Threads>(Rank::Folio);
        if !meta.state().has(State::PARTED) {
            self.count_parts(head, 0);
        }
        self.share_single(self.meta(frame));
        meta.lock.unlock::<M::Threads>(Rank::Folio);
        FrameRef::from_raw(self, frame, false)
    }

    /// Makes the folio that begins at `head` parted: from now on the references to each part are counted separately.
    /// Each count starts at 1 for the folio plus `references`.
    ///
    /// # Locks
    /// The caller holds the lock in the head's metadata.
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
        if references > 0 && state.kind() == FrameKind::Object {
            self.count_mapped_objects(i64::from(FOLIO_FRAMES));
        }
        meta.set_state(meta.state().with(State::PARTED));
    }

    /// Takes over a reference to `frame` alone, which a 4 KiB entry or the page store of an object held.
    ///
    /// # Panics
    /// If the frame has no reference of its own.
    pub fn adopt_part(&self, frame: Frame) -> FrameRef<'_, M> {
        let references = self.meta(frame).references.load(Ordering::Relaxed);
        assert!(references > 0, "{frame:?} has no reference to adopt");
        FrameRef::from_raw(self, frame, false)
    }

    /// Drops a whole-folio reference to the folio that begins at `head`.
    ///
    /// # Panics
    /// If the folio has no whole-folio reference.
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

    /// Frees a closed folio.
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

    /// Converts the parts of a folio whose last whole-folio reference was dropped into ordinary frames, and frees the
    /// parts that no entry maps.
    fn dissolve(&self, head: Frame, state: State) {
        let plain = state.become_block(state.kind(), 0).as_page_of(FOLIO_ORDER);
        self.uncount_folio(state.kind());
        let metas = self.metas();
        let mut cache = self.cache().lock();
        let (mut freed, mut unmapped) = (0, 0);
        for number in head.number()..head.number() + FOLIO_FRAMES {
            let meta = metas.get(number);
            // Set the state before dropping the folio's reference to the part. The CPU that drops the part's last
            // reference must find the state of a single frame.
            meta.set_state(plain);
            match meta.drop_reference() {
                Left::None => {
                    freed += 1;
                    self.free_uncounted(&mut cache, Frame::new(number), meta);
                }
                Left::Object => unmapped += 1,
                Left::Others => {}
            }
        }
        cache.count_freed(state.kind(), freed);
        drop(cache);
        self.count_mapped_objects(-unmapped);
    }

    /// Converts one whole-folio reference to the folio that begins at `head` into one reference to each part.
    ///
    /// # Panics
    /// If no folio begins at `head`, or it belongs to the huge page pool.
    pub fn part(&self, head: Frame) {
        let meta = self.meta(head);
        let state = meta.state();
        assert!(state.has(State::FOLIO), "{head:?} begins no folio");
        assert!(!state.kind().is_pool(), "a page of the pool is split");
        let tails = head.number() + 1..head.number() + FOLIO_FRAMES;
        // No CPU can take a reference now, because that requires the lock of the table whose entry is being split.
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
        meta.lock.lock::<M::Threads>(Rank::Folio);
        if meta.state().has(State::PARTED) {
            for number in head.number()..head.number() + FOLIO_FRAMES {
                self.share_single(self.meta(Frame::new(number)));
            }
        } else {
            self.count_parts(head, 1);
        }
        meta.lock.unlock::<M::Threads>(Rank::Folio);
        self.release_whole(head);
    }

    /// Returns whether a huge entry of the caller holds the only reference of any kind to the folio that begins at
    /// `head`. Closes a parted folio again if its parts have no references.
    ///
    /// # Locks
    /// The caller holds the lock of the table that contains the entry, so that no reference can be taken through the
    /// entry.
    pub fn is_sole_whole(&self, head: Frame) -> bool {
        let Some(meta) = self.metas().find(head.number()) else {
            return false;
        };
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

    /// Returns the number of whole-folio references to the folio that begins at `head`. Returns `None` if no folio
    /// begins there, or if a part has references besides those to the whole folio.
    pub fn references_of_whole(&self, head: Frame) -> Option<u32> {
        let meta = self.metas().find(head.number())?;
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

    /// Returns the number of references to a frame inside a block: those to the frame itself plus those to the whole
    /// block.
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

    /// Returns the kind of a frame whose metadata has the kind `Free`: the kind of its folio if the frame is in one,
    /// otherwise `Free`.
    #[cold]
    pub(super) fn kind_inside(&self, frame: Frame) -> FrameKind {
        let folio = self.metas().folio_of(frame.number());
        folio.map_or(FrameKind::Free, |(_, head)| head.kind())
    }
}
