//! References of frames.

use core::fmt;
use core::sync::atomic::Ordering;

use super::{FrameKind, Frames, Meta, meta::State};
use crate::addr::Frame;
use crate::machine::Machine;

/// One counted reference of an allocated block. Dropping the last one frees the block.
#[must_use = "dropping it gives the reference up"]
pub struct FrameRef<'a, M: Machine> {
    frames: &'a Frames<M>,
    frame: Frame,
}

impl<'a, M: Machine> FrameRef<'a, M> {
    pub(super) fn from_raw(frames: &'a Frames<M>, frame: Frame) -> Self {
        Self { frames, frame }
    }

    /// The frame.
    #[inline]
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// Stores the reference elsewhere: in an entry, in a word of an object's store. Take it back
    /// with [`Frames::adopt`].
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
        self.frames.share(self.frame)
    }
}

impl<M: Machine> Drop for FrameRef<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.frames.release(self.frame);
    }
}

impl<M: Machine> fmt::Debug for FrameRef<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.frame.fmt(f)
    }
}

impl<M: Machine> Frames<M> {
    /// Takes over a reference that `into_raw` stored.
    ///
    /// # Panics
    /// If the frame has no reference, or is a table.
    #[inline]
    pub fn adopt(&self, frame: Frame) -> FrameRef<'_, M> {
        let meta = self.first(frame);
        assert!(
            meta.references.load(Ordering::Relaxed) > 0,
            "{frame:?} has no reference to adopt"
        );
        assert!(meta.kind() != FrameKind::Table, "{frame:?} is a table");
        FrameRef::from_raw(self, frame)
    }

    /// Adds a reference to a frame that has one already.
    ///
    /// # Panics
    /// If it has none, or is a table.
    #[inline]
    pub fn share(&self, frame: Frame) -> FrameRef<'_, M> {
        let meta = self.first(frame);
        assert!(meta.kind() != FrameKind::Table, "{frame:?} is a table");
        add_references(meta, 1);
        FrameRef::from_raw(self, frame)
    }

    /// References of the block that holds `frame`.
    #[inline]
    pub fn references(&self, frame: Frame) -> u32 {
        self.first(frame).references.load(Ordering::Acquire)
    }

    /// What `frame` is used for.
    #[inline]
    pub fn kind(&self, frame: Frame) -> FrameKind {
        self.meta(frame).kind()
    }

    /// What the frame with this number is used for; none where there is no memory.
    pub fn kind_at(&self, number: u32) -> Option<FrameKind> {
        let kind = self.metas().find(number)?.kind();
        (kind != FrameKind::Hole).then_some(kind)
    }

    /// The number after that of the last frame.
    pub fn end(&self) -> u32 {
        self.metas().end()
    }

    /// How many entries show `frame`, as far as references tell: all of an anonymous page are entries, one of an
    /// object's page is the object's own.
    pub fn sharers(&self, frame: Frame) -> u32 {
        let references = self.references(frame);
        match self.kind(frame) {
            FrameKind::Anonymous => references,
            FrameKind::Object => references.saturating_sub(1),
            FrameKind::Hole
            | FrameKind::Free
            | FrameKind::Reserved
            | FrameKind::Kernel
            | FrameKind::Table
            | FrameKind::Zero
            | FrameKind::Slab => 0,
        }
    }

    /// How many frames of objects an entry shows. Nobody keeps this number: the frames are looked at, but for
    /// free blocks, until all that objects have are found.
    pub fn objects_shown(&self) -> u64 {
        let metas = self.metas();
        let (mut left, mut shown) = (self.used_by(FrameKind::Object), 0);
        let mut number = metas.lowest;
        while let (1.., Some(meta)) = (left, metas.find(number)) {
            let state = meta.state();
            if state.kind() == FrameKind::Object {
                left -= 1;
                shown += u64::from(self.sharers(Frame::new(number)) > 0);
            }
            let free = state.has(State::LISTED);
            number += if free { 1 << state.order() } else { 1 };
        }
        shown
    }

    /// The order of the block that holds `frame`.
    #[inline]
    pub fn order(&self, frame: Frame) -> u8 {
        self.first(frame).state().order()
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

    /// Pins `frame`: a device, or the kernel, may write it at any time (design rule 6).
    #[inline]
    pub fn pin(&self, frame: Frame) {
        self.first(frame).pins.fetch_add(1, Ordering::AcqRel);
    }

    /// Undoes one `pin`.
    ///
    /// # Panics
    /// If the frame is not pinned.
    #[inline]
    pub fn unpin(&self, frame: Frame) {
        let before = self.first(frame).pins.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "{frame:?} is not pinned");
    }

    /// How often `frame` is pinned.
    #[inline]
    pub fn pins(&self, frame: Frame) -> u32 {
        self.first(frame).pins.load(Ordering::Acquire)
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
