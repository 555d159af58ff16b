//! References to frames.

use core::fmt;
use core::sync::atomic::Ordering;

use super::meta::{Left, State};
use super::{FrameKind, Frames, Meta};
use crate::addr::{Frame, FrameRange};
use crate::machine::Machine;
use crate::sync::{PausePoints, Wait};

/// The bits in the index of an anonymous page that record the number of the node whose CPU last accessed the page, plus
/// 1; 0 for none. The other bits are part of a content digest.
const USER: u64 = 0xf;
const _: () = assert!(super::MAX_NODES < USER as usize);

/// A counted reference to an allocated block. The block is freed when its last reference is dropped.
#[must_use = "dropping it gives the reference up"]
pub struct FrameRef<'a, M: Machine> {
    frames: &'a Frames<M>,
    frame: Frame,
    /// Whether the reference is to the whole folio that contains the frame.
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

    #[inline]
    pub(super) fn frames(&self) -> &'a Frames<M> {
        self.frames
    }

    /// The frame.
    #[inline]
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// Whether the reference is to a whole folio.
    #[inline]
    pub fn is_whole(&self) -> bool {
        self.whole
    }

    /// Converts the reference into a raw frame, to be stored in an entry or in an object's page store.
    /// [`Frames::adopt`] converts it back, or [`Frames::adopt_whole`] for a folio.
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
    /// Takes over a reference that `into_raw` converted. For a frame in a folio, this is a whole-folio reference, as
    /// returned by `share`.
    ///
    /// # Panics
    /// If the frame has no reference, or is a table.
    #[inline]
    pub fn adopt(&self, frame: Frame) -> FrameRef<'_, M> {
        self.adopt_inlined(frame)
    }

    /// Like [`adopt`](Self::adopt), and always inlined: for the path of a fault, where the call would cost as much as
    /// the checks.
    ///
    /// # Panics
    /// As for `adopt`.
    #[cfg_attr(feature = "inline", inline(always))]
    pub fn adopt_inlined(&self, frame: Frame) -> FrameRef<'_, M> {
        let meta = self.meta(frame);
        let state = meta.state();
        if !state.is_alone() {
            return self.adopt_in_block(frame);
        }
        check_adopted(frame, meta, state.kind());
        FrameRef::from_raw(self, frame, false)
    }

    /// Like [`adopt`](Self::adopt), for a frame that may be in a folio or in another block of several frames.
    #[cold]
    fn adopt_in_block(&self, frame: Frame) -> FrameRef<'_, M> {
        if self.is_in_folio(frame) {
            return FrameRef::from_raw(self, frame, true);
        }
        let meta = self.first(frame);
        check_adopted(frame, meta, meta.kind());
        FrameRef::from_raw(self, frame, false)
    }

    /// Takes over a whole-folio reference that `into_raw` converted.
    ///
    /// # Panics
    /// If no folio begins at `frame`.
    pub fn adopt_whole(&self, frame: Frame) -> FrameRef<'_, M> {
        let state = self.meta(frame).state();
        assert!(state.has(State::FOLIO), "{frame:?} begins no folio");
        FrameRef::from_raw(self, frame, true)
    }

    /// Adds a reference to a frame that already has one. For a frame in a folio, the new reference is to the whole
    /// folio, which cannot be dissolved until the reference is dropped.
    ///
    /// # Panics
    /// If the frame has no reference, or is a table.
    #[inline]
    pub fn share(&self, frame: Frame) -> FrameRef<'_, M> {
        let meta = self.meta(frame);
        let state = meta.state();
        if !state.is_alone() {
            return self.share_in_block(frame);
        }
        let kind = state.kind();
        assert!(kind != FrameKind::Table, "{frame:?} is a table");
        if add_references(meta, 1) == 1 && kind == FrameKind::Object {
            self.count_mapped_objects(1);
        }
        FrameRef::from_raw(self, frame, false)
    }

    /// Like [`share`](Self::share), for a frame that may be in a folio or in another block of several frames.
    #[cold]
    fn share_in_block(&self, frame: Frame) -> FrameRef<'_, M> {
        if self.is_in_folio(frame) {
            return self.share_in_folio(frame);
        }
        let meta = self.first(frame);
        assert!(meta.kind() != FrameKind::Table, "{frame:?} is a table");
        self.share_single(meta);
        FrameRef::from_raw(self, frame, false)
    }

    /// Takes a reference to the whole folio that contains `frame`, or to the frame alone if the folio's last reference
    /// has just been dropped.
    #[cold]
    fn share_in_folio(&self, frame: Frame) -> FrameRef<'_, M> {
        if self.share_folio_of(frame).is_some() {
            return FrameRef::from_raw(self, frame, true);
        }
        self.share_single(self.first(frame));
        FrameRef::from_raw(self, frame, false)
    }

    /// Adds a reference to a frame. If the frame belongs to an object and becomes mapped by this, counts it as mapped.
    #[cold]
    pub(super) fn share_single(&self, meta: &Meta) {
        if add_references(meta, 1) == 1 && meta.kind() == FrameKind::Object {
            self.count_mapped_objects(1);
        }
    }

    /// Adds a reference to the whole folio that contains `frame`, and returns the folio's head. Waits while another CPU
    /// dissolves the folio. Returns `None` if the frame is no longer in a folio.
    #[cold]
    fn share_folio_of(&self, frame: Frame) -> Option<Frame> {
        let mut wait = Wait::new::<M::Threads>();
        loop {
            let head = self.folio_of(frame)?;
            if self.try_share_whole(head) {
                return Some(head);
            }
            wait.turn();
        }
    }

    /// Drops a reference to the whole folio that contains `frame`.
    #[cold]
    fn release_whole_of(&self, frame: Frame) {
        self.release_whole(self.folio_of(frame).unwrap_or(frame));
    }

    /// The number of references to `frame`, or to the block that contains it. For a frame in a folio, the sum of the
    /// references to the frame and to the whole folio.
    #[inline]
    pub fn references(&self, frame: Frame) -> u32 {
        let Some(meta) = self.metas().find(frame.number()) else {
            return 0;
        };
        let references = meta.references.load(Ordering::Acquire);
        if references == 0 || meta.is_in_block() {
            return self.references_in_block(frame);
        }
        references
    }

    /// The use of `frame`.
    #[inline]
    pub fn kind(&self, frame: Frame) -> FrameKind {
        let Some(meta) = self.metas().find(frame.number()) else {
            return FrameKind::Hole;
        };
        match meta.kind() {
            FrameKind::Free => self.kind_inside(frame),
            kind => kind,
        }
    }

    /// The kind of frame `number`, or `None` if there is no memory at `number`.
    pub fn kind_at(&self, number: u32) -> Option<FrameKind> {
        let kind = self.kind(Frame::new(number));
        (kind != FrameKind::Hole).then_some(kind)
    }

    /// Whether `frame` is in one of the regions that the allocator was created with.
    ///
    /// Methods that only look up a frame accept any frame: outside of the regions, its kind is [`Hole`](FrameKind::Hole),
    /// and it has no references and no pins. Methods that access contents, a reference or the owner of a frame panic.
    pub fn manages(&self, frame: Frame) -> bool {
        self.kind_at(frame.number()).is_some()
    }

    /// The first frame of `range` that the allocator [manages](Self::manages), if any. The caller holds only locks that
    /// [sleep](crate::sync::Rank::sleeps).
    pub fn first_managed(&self, range: FrameRange) -> Option<Frame> {
        let metas = self.metas();
        let start = range.start.number().max(metas.lowest);
        let end = range.end_number().min(u64::from(metas.end())) as u32;
        let mut points = PausePoints::<M::Threads>::every(512);
        (start..end).map(Frame::new).find(|&frame| {
            points.round();
            self.manages(frame)
        })
    }

    /// The number of the last frame plus 1.
    pub fn end(&self) -> u32 {
        self.metas().end()
    }

    /// The number of entries that map `frame`, computed from the number of its references. Every reference to an
    /// anonymous page counts as an entry. One reference to an object's page belongs to the object, and one reference to
    /// a KSM page belongs to the KSM index, so these are not counted.
    pub fn sharers(&self, frame: Frame) -> u32 {
        self.shown(frame).1
    }

    /// Returns the kind of `frame`, and the number of entries that map it.
    #[inline]
    pub fn shown(&self, frame: Frame) -> (FrameKind, u32) {
        let Some(meta) = self.metas().find(frame.number()) else {
            return (FrameKind::Hole, 0);
        };
        let (state, references) = (meta.state(), meta.references.load(Ordering::Acquire));
        let kind = state.kind();
        if references == 0 || !state.is_alone() {
            return self.shown_in_block(frame);
        }
        (kind, sharers(kind, references))
    }

    #[cold]
    fn shown_in_block(&self, frame: Frame) -> (FrameKind, u32) {
        let kind = self.kind(frame);
        (kind, sharers(kind, self.references(frame)))
    }

    /// The order of the block that contains `frame`; 0 if the allocator does not manage the frame.
    pub fn order(&self, frame: Frame) -> u8 {
        match self.metas().folio_of(frame.number()) {
            Some((_, head)) => head.state().order(),
            None if self.metas().find(frame.number()).is_none() => 0,
            None => self.first(frame).state().order(),
        }
    }

    /// Records the owner of the page in `frame`, and the index of the page in that owner. Both are 0 in a new frame.
    /// The callers define their meaning.
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

    /// Calls `change` with the owner of the page in `frame`, and stores the result as the owner. The index stays. The
    /// caller must prevent simultaneous changes of the owner, because one of them could be lost.
    ///
    /// # Panics
    /// If `frame` holds no data.
    #[inline]
    pub fn change_owner(&self, frame: Frame, change: impl FnOnce(u64) -> u64) {
        let meta = self.meta(frame);
        assert!(meta.kind().is_data(), "{frame:?} has no owner to change");
        let owner = change(meta.owner.load(Ordering::Relaxed));
        meta.owner.store(owner, Ordering::Relaxed);
    }

    /// Returns the owner and the index that `set_owner` recorded.
    #[inline]
    pub fn owner(&self, frame: Frame) -> (u64, u64) {
        let meta = self.meta(frame);
        (
            meta.owner.load(Ordering::Relaxed),
            meta.index.load(Ordering::Relaxed),
        )
    }

    /// Records a digest of the contents of `frame`, without the digest's lowest 4 bits. Returns whether it equals the
    /// previous digest, which is 0 in a new frame.
    ///
    /// # Panics
    /// If `frame` does not hold an anonymous page: the digest is stored in the index of the page, which is free for this
    /// use only in anonymous pages.
    pub fn remember_digest(&self, frame: Frame, digest: u64) -> bool {
        let digest = digest & !USER;
        self.remember(frame, !USER, digest) == digest
    }

    /// Records that a CPU of `node` accessed the page in `frame`; for a folio, `frame` is its head. Returns whether the
    /// previous record was of the same node.
    ///
    /// # Panics
    /// As for [`remember_digest`](Self::remember_digest).
    pub fn remember_user(&self, frame: Frame, node: u8) -> bool {
        let user = u64::from(node) + 1;
        self.remember(frame, USER, user) == user
    }

    /// Replaces the bits `part` of an anonymous page's index by `bits`. Returns the previous value of these bits.
    fn remember(&self, frame: Frame, part: u64, bits: u64) -> u64 {
        assert!(
            self.kind(frame) == FrameKind::Anonymous,
            "{frame:?} holds no anonymous page"
        );
        let index = &self.meta(frame).index;
        let before = index.load(Ordering::Relaxed);
        // The digest and the node are hints, so a simultaneous update by another CPU may be lost.
        index.store(before & !part | bits, Ordering::Relaxed);
        before & part
    }

    /// Pins `frame`: until it is unpinned, a device or the kernel can write it at any time (rule:
    /// exclusive-before-pin). For a frame in a folio, pins the whole folio and takes a reference to it.
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

    /// Removes one pin of `frame`, which [`pin`](Self::pin) added.
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

    /// The number of pins of `frame`, or of its folio.
    #[inline]
    pub fn pins(&self, frame: Frame) -> u32 {
        let pinned = match self.folio_of(frame) {
            Some(head) => self.meta(head),
            None if self.metas().find(frame.number()).is_none() => return 0,
            None => self.first(frame),
        };
        pinned.pins.load(Ordering::Acquire)
    }

    /// Drops a reference to `frame` or to its block, and frees the block if this was its last reference.
    #[inline]
    pub(crate) fn release(&self, frame: Frame) {
        let frame = self.first_frame(frame);
        match self.meta(frame).drop_reference() {
            Left::None => self.free_block(frame),
            Left::Object => self.count_mapped_objects(-1),
            Left::Others => {}
        }
    }

    /// The first frame of the block that contains `frame`.
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

/// Checks that the block of `frame`, whose references `meta` counts, has a reference and is no table.
#[inline]
fn check_adopted(frame: Frame, meta: &Meta, kind: FrameKind) {
    assert!(
        meta.references.load(Ordering::Relaxed) > 0,
        "{frame:?} has no reference to adopt"
    );
    assert!(kind != FrameKind::Table, "{frame:?} is a table");
}

/// Adds references to a block that has at least one. Returns the previous number.
#[inline]
pub(crate) fn add_references(meta: &Meta, count: u32) -> u32 {
    let before = meta.references.fetch_add(count, Ordering::Relaxed);
    // One comparison checks both that the block has a reference and that the count is below half of its range.
    assert!(
        before.wrapping_sub(1) < u32::MAX / 2,
        "frame shared while free, or too often"
    );
    before
}

/// Returns how many of the `references` to a frame of `kind` belong to entries.
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
