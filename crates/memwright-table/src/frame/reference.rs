//! References of frames.

use core::fmt;
use core::sync::atomic::Ordering;

use super::{FrameKind, Frames, Meta, meta::State};
use crate::addr::Frame;
use crate::machine::Machine;
use crate::sync::Wait;

/// In the index of an anonymous page: the node of its last user that was seen, plus one. The rest is of a digest.
const USER: u64 = 0xf;
const _: () = assert!(super::MAX_NODES < USER as usize);

/// One counted reference of an allocated block. Dropping the last one frees the block.
#[must_use = "dropping it gives the reference up"]
pub struct FrameRef<'a, M: Machine> {
    frames: &'a Frames<M>,
    frame: Frame,
    /// Of the whole folio that the frame lies in.
    whole: bool,
}

impl<'a, M: Machine> FrameRef<'a, M> {
    #[inline]
    pub(super) fn from_raw(frames: &'a Frames<M>, frame: Frame, whole: bool) -> Self {
        Self {
            frames,
            frame,
            whole,
        }
    }

    /// The frame.
    #[inline]
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// Whether it is a reference of a whole folio.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Stores the reference elsewhere: in an entry, in a word of an object's store. Take it back
    /// with [`Frames::adopt`], or that of a folio with [`Frames::adopt_whole`].
    #[inline]
    #[must_use = "the reference is lost unless it is stored"]
    pub fn into_raw(self) -> Frame {
        let frame = self.frame;
        core::mem::forget(self);
        frame
    }
}

impl<M: Machine> Clone for FrameRef<'_, M> {
    #[inline]
    fn clone(&self) -> Self {
        if self.whole {
            return self.frames.share_in_folio(self.frame);
        }
        self.frames.share(self.frame)
    }
}

impl<M: Machine> Drop for FrameRef<'_, M> {
    #[inline]
    fn drop(&mut self) {
        if self.whole {
            self.frames.release_whole_of(self.frame);
        } else {
            self.frames.release(self.frame);
        }
    }
}

impl<M: Machine> fmt::Debug for FrameRef<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.frame.fmt(f)
    }
}

impl<M: Machine> Frames<M> {
    /// Takes over a reference that `into_raw` stored. In a folio it is one of the whole, as `share` gives it.
    ///
    /// # Panics
    /// If the frame has no reference, or is a table.
    #[inline]
    pub fn adopt(&self, frame: Frame) -> FrameRef<'_, M> {
        if self.may_be_in_folio(frame) && self.is_in_folio(frame) {
            return FrameRef::from_raw(self, frame, true);
        }
        let meta = self.first(frame);
        assert!(
            meta.references.load(Ordering::Relaxed) > 0,
            "{frame:?} has no reference to adopt"
        );
        assert!(meta.kind() != FrameKind::Table, "{frame:?} is a table");
        FrameRef::from_raw(self, frame, false)
    }

    /// Takes over a reference of a whole folio that `into_raw` stored.
    ///
    /// # Panics
    /// If no folio begins with `frame`.
    pub fn adopt_whole(&self, frame: Frame) -> FrameRef<'_, M> {
        let state = self.meta(frame).state();
        assert!(state.has(State::FOLIO), "{frame:?} begins no folio");
        FrameRef::from_raw(self, frame, true)
    }

    /// Adds a reference to a frame that has one already. In a folio it is one of the whole, which stays one until
    /// the reference goes.
    ///
    /// # Panics
    /// If it has none, or is a table.
    #[inline]
    pub fn share(&self, frame: Frame) -> FrameRef<'_, M> {
        if self.may_be_in_folio(frame) && self.is_in_folio(frame) {
            return self.share_in_folio(frame);
        }
        let meta = self.first(frame);
        assert!(meta.kind() != FrameKind::Table, "{frame:?} is a table");
        add_references(meta, 1);
        FrameRef::from_raw(self, frame, false)
    }

    /// Whether the frame is of a kind that comes in folios, or of one of which only the first frame says so.
    #[inline]
    fn may_be_in_folio(&self, frame: Frame) -> bool {
        match self.meta(frame).kind() {
            FrameKind::Anonymous
            | FrameKind::Object
            | FrameKind::Zero
            | FrameKind::Free
            | FrameKind::Pool
            | FrameKind::PoolAnonymous
            | FrameKind::PoolObject => true,
            FrameKind::Hole
            | FrameKind::Reserved
            | FrameKind::Kernel
            | FrameKind::Table
            | FrameKind::Slab
            | FrameKind::Merged => false,
        }
    }

    /// A reference of the whole folio that `frame` lies in, for its sake; of the frame alone if the folio's last
    /// reference has just gone.
    #[cold]
    fn share_in_folio(&self, frame: Frame) -> FrameRef<'_, M> {
        if self.share_folio_of(frame).is_some() {
            return FrameRef::from_raw(self, frame, true);
        }
        add_references(self.first(frame), 1);
        FrameRef::from_raw(self, frame, false)
    }

    /// Adds a reference of the whole folio that `frame` lies in, once that can be had, and returns its head.
    /// `None`: the frame lies in none any more.
    #[cold]
    fn share_folio_of(&self, frame: Frame) -> Option<Frame> {
        let mut wait = Wait::new();
        loop {
            let head = self.folio_of(frame)?;
            if self.try_share_whole(head) {
                return Some(head);
            }
            wait.turn();
        }
    }

    /// Gives up such a reference: the folio is one until then.
    #[cold]
    fn release_whole_of(&self, frame: Frame) {
        self.release_whole(self.folio_of(frame).unwrap_or(frame));
    }

    /// References of `frame`, or of the block that holds it; in a folio those of the frame and of the whole.
    #[inline]
    pub fn references(&self, frame: Frame) -> u32 {
        let meta = self.meta(frame);
        let references = meta.references.load(Ordering::Acquire);
        if references == 0 || meta.is_in_block() {
            return self.references_in_block(frame);
        }
        references
    }

    /// What `frame` is used for.
    #[inline]
    pub fn kind(&self, frame: Frame) -> FrameKind {
        match self.meta(frame).kind() {
            FrameKind::Free => self.kind_inside(frame),
            kind => kind,
        }
    }

    /// What the frame with this number is used for; none where there is no memory.
    pub fn kind_at(&self, number: u32) -> Option<FrameKind> {
        self.metas().find(number)?;
        let kind = self.kind(Frame::new(number));
        (kind != FrameKind::Hole).then_some(kind)
    }

    /// The number after that of the last frame.
    pub fn end(&self) -> u32 {
        self.metas().end()
    }

    /// How many entries show `frame`, as far as references tell: all of an anonymous page are entries, one of an
    /// object's page is the object's own, and one of a merged page that of whoever finds it by its contents.
    pub fn sharers(&self, frame: Frame) -> u32 {
        self.shown(frame).1
    }

    /// What `frame` is used for, and how many entries show it.
    #[inline]
    pub fn shown(&self, frame: Frame) -> (FrameKind, u32) {
        let meta = self.meta(frame);
        let (state, references) = (meta.state(), meta.references.load(Ordering::Acquire));
        let kind = state.kind();
        if references == 0 || state.has(State::IN_BLOCK) || kind == FrameKind::Free {
            return self.shown_in_block(frame);
        }
        (kind, sharers(kind, references))
    }

    #[cold]
    fn shown_in_block(&self, frame: Frame) -> (FrameKind, u32) {
        let kind = self.kind(frame);
        (kind, sharers(kind, self.references(frame)))
    }

    /// How many frames of objects an entry shows. Nobody keeps this number: the frames are looked at, but for
    /// free blocks, until all that objects have are found.
    pub fn objects_shown(&self) -> u64 {
        let metas = self.metas();
        let (mut left, mut shown) = (self.used_by(FrameKind::Object), 0);
        let mut number = metas.lowest;
        while let (1.., Some(meta)) = (left, metas.find(number)) {
            let state = meta.state();
            // Of a folio that is no more than one, the first frame alone has metadata.
            let block =
                state.has(State::LISTED) || state.has(State::FOLIO) && !state.has(State::PARTED);
            let frames = if block { 1 << state.order() } else { 1 };
            if state.kind() == FrameKind::Object {
                left = left.saturating_sub(frames.into());
                if self.sharers(Frame::new(number)) > 0 {
                    shown += u64::from(frames);
                }
            }
            number += frames;
        }
        shown
    }

    /// The order of the block that holds `frame`.
    pub fn order(&self, frame: Frame) -> u8 {
        match self.metas().folio_of(frame.number()) {
            Some((_, head)) => head.state().order(),
            None => self.first(frame).state().order(),
        }
    }

    /// Says what the page in `frame` belongs to, and which page of it it is. Both are 0 in a new
    /// frame, and mean what their writers agree on.
    ///
    /// # Panics
    /// If `frame` holds no data.
    #[inline]
    pub fn set_owner(&self, frame: Frame, owner: u64, index: u64) {
        let meta = self.meta(frame);
        assert!(meta.kind().is_data(), "{frame:?} has no owner to set");
        meta.owner.store(owner, Ordering::Relaxed);
        meta.index.store(index, Ordering::Relaxed);
    }

    /// What was said by `set_owner`.
    #[inline]
    pub fn owner(&self, frame: Frame) -> (u64, u64) {
        let meta = self.meta(frame);
        (
            meta.owner.load(Ordering::Relaxed),
            meta.index.load(Ordering::Relaxed),
        )
    }

    /// Remembers a digest of the contents of `frame`, but for its lowest bits; returns whether it is the one before,
    /// which is 0 in a new frame.
    ///
    /// # Panics
    /// If `frame` holds no anonymous page, whose index nobody else uses.
    pub fn remember_digest(&self, frame: Frame, digest: u64) -> bool {
        let digest = digest & !USER;
        self.remember(frame, !USER, digest) == digest
    }

    /// Remembers that a CPU of `node` was seen to use the page in `frame`, of a folio the first; returns whether the
    /// one that was seen before was of that node too.
    ///
    /// # Panics
    /// As [`remember_digest`](Self::remember_digest).
    pub fn remember_user(&self, frame: Frame, node: u8) -> bool {
        let user = u64::from(node) + 1;
        self.remember(frame, USER, user) == user
    }

    /// Remembers the bits of `part` in the index of an anonymous page; returns what they were.
    fn remember(&self, frame: Frame, part: u64, bits: u64) -> u64 {
        assert!(
            self.kind(frame) == FrameKind::Anonymous,
            "{frame:?} holds no anonymous page"
        );
        let index = &self.meta(frame).index;
        let before = index.load(Ordering::Relaxed);
        // Both parts are hints: what another CPU remembers at this moment may be forgotten.
        index.store(before & !part | bits, Ordering::Relaxed);
        before & part
    }

    /// Pins `frame`: a device, or the kernel, may write it at any time (design rule 6). Of a folio the
    /// whole is pinned, and held.
    #[inline]
    pub fn pin(&self, frame: Frame) {
        if let Some(head) = self.folio_of(frame) {
            let shared = if self.try_share_whole(head) {
                Some(head)
            } else {
                self.share_folio_of(frame)
            };
            if let Some(head) = shared {
                self.meta(head).pins.fetch_add(1, Ordering::AcqRel);
                return;
            }
        }
        self.first(frame).pins.fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one `pin`.
    ///
    /// # Panics
    /// If the frame is not pinned.
    #[inline]
    pub fn unpin(&self, frame: Frame) {
        let folio = self.folio_of(frame);
        let pinned = folio.map_or_else(|| self.first(frame), |head| self.meta(head));
        let before = pinned.pins.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "{frame:?} is not pinned");
        if let Some(head) = folio {
            self.release_whole(head);
        }
    }

    /// How often `frame` is pinned.
    #[inline]
    pub fn pins(&self, frame: Frame) -> u32 {
        let folio = self.folio_of(frame);
        let pinned = folio.map_or_else(|| self.first(frame), |head| self.meta(head));
        pinned.pins.load(Ordering::Acquire)
    }

    /// Drops a reference.
    #[inline]
    pub(crate) fn release(&self, frame: Frame) {
        let frame = self.first_frame(frame);
        if self.meta(frame).drop_reference() {
            self.free_block(frame);
        }
    }

    /// The first frame of the block that holds `frame`.
    #[inline]
    pub(crate) fn first_frame(&self, frame: Frame) -> Frame {
        let meta = self.meta(frame);
        if meta.is_tail() {
            Frame::new(meta.link())
        } else {
            frame
        }
    }

    #[inline]
    fn first(&self, frame: Frame) -> &Meta {
        let meta = self.meta(frame);
        if meta.is_tail() {
            self.meta(Frame::new(meta.link()))
        } else {
            meta
        }
    }
}

/// Adds references to a block that has some.
#[inline]
pub(crate) fn add_references(meta: &Meta, count: u32) {
    let before = meta.references.fetch_add(count, Ordering::Relaxed);
    // One test for both: a free frame has none, and half the range is never reached.
    assert!(
        before.wrapping_sub(1) < u32::MAX / 2,
        "frame shared while free, or too often"
    );
}

/// Of so many references of a frame of this kind, those that are entries.
#[inline]
const fn sharers(kind: FrameKind, references: u32) -> u32 {
    match kind {
        FrameKind::Anonymous | FrameKind::PoolAnonymous => references,
        FrameKind::Object | FrameKind::PoolObject | FrameKind::Merged => {
            references.saturating_sub(1)
        }
        FrameKind::Hole
        | FrameKind::Free
        | FrameKind::Reserved
        | FrameKind::Kernel
        | FrameKind::Table
        | FrameKind::Zero
        | FrameKind::Slab
        | FrameKind::Pool => 0,
    }
}
