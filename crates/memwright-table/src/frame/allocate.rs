//! The allocation of blocks of frames.

use core::sync::atomic::Ordering;

use super::frames::Frames;
use super::kind::FrameKind;
use super::meta::{State, UNLINKED};
use super::order::FOLIO_ORDER;
use super::out_of_frames::OutOfFrames;
use super::reference::FrameRef;
use super::refill::Refused;
use super::topology::NodeChoice;
use crate::addr::{Frame, FrameRange};
use crate::arch::{Architecture, Tables};
use crate::machine::Machine;
use crate::sync::Wait;

impl<M: Machine> Frames<M> {
    /// Allocates 2^`order` frames, aligned to their size, with one reference. The contents are undefined; debug builds
    /// check that they have not changed since the frames were freed. A data block of [`FOLIO_ORDER`] is a folio, and
    /// the reference is to the whole folio.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no such block, or if only the reserve is left and `kind` may
    /// not use it.
    ///
    /// # Panics
    /// If `order` is above [`MAX_ORDER`](super::MAX_ORDER); if `kind` is `Hole`, `Free`, `Reserved` or `Table`; in
    /// debug builds, if a free frame was written to.
    #[inline]
    pub fn allocate(&self, order: u8, kind: FrameKind) -> Result<FrameRef<'_, M>, OutOfFrames> {
        assert!(
            kind.is_data() || kind == FrameKind::Kernel,
            "frames of this kind are not for you"
        );
        let frame = self.allocate_raw(order, kind)?;
        let whole = order == FOLIO_ORDER && kind.is_data();
        Ok(FrameRef::from_raw(self, frame, whole))
    }

    /// Like `allocate`, and fills the frames with zeroes.
    ///
    /// # Errors
    /// As for `allocate`.
    ///
    /// # Panics
    /// As for `allocate`.
    #[inline]
    pub fn allocate_zeroed(
        &self,
        order: u8,
        kind: FrameKind,
    ) -> Result<FrameRef<'_, M>, OutOfFrames> {
        let block = self.allocate(order, kind)?;
        if order == 0 {
            self.machine.clear_frame(block.frame());
        } else {
            self.machine.clear_frames(FrameRange {
                start: block.frame(),
                count: 1 << order,
            });
        }
        Ok(block)
    }

    /// Allocates 2^`order` frames from the nodes that `choice` names, with one reference. The contents are undefined.
    ///
    /// # Errors
    /// [`OutOfFrames`] if none of the nodes of `choice` has such a block, or if only the reserve is left and `kind` may
    /// not use it.
    ///
    /// # Panics
    /// If `kind` is neither data nor `Kernel`; in debug builds, if a free frame was written to.
    pub fn allocate_on(
        &self,
        order: u8,
        kind: FrameKind,
        choice: NodeChoice,
    ) -> Result<FrameRef<'_, M>, OutOfFrames> {
        assert!(
            kind.is_data() || kind == FrameKind::Kernel,
            "frames of this kind are not for you"
        );
        if self.is_to_fail() {
            return Err(OutOfFrames);
        }
        let frame = self.take_by(order, kind, choice).ok_or(OutOfFrames)?;
        let mut cache = self.cache().lock();
        cache.count_allocated(kind, 1 << order);
        cache.count_elsewhere();
        drop(cache);
        self.prepare(frame, order, kind);
        let whole = order == FOLIO_ORDER && kind.is_data();
        Ok(FrameRef::from_raw(self, frame, whole))
    }

    /// Allocates an empty page table. Returns its first frame.
    pub(crate) fn allocate_table(&self) -> Result<Frame, OutOfFrames> {
        let table = self.allocate_bare_table()?;
        for frame in 0..M::Arch::TABLE_FRAMES {
            self.machine.clear_frame(Frame::new(table.number() + frame));
        }
        Ok(table)
    }

    /// Allocates a page table without clearing it. The caller must write every entry before it links the table. Returns
    /// its first frame.
    pub(crate) fn allocate_bare_table(&self) -> Result<Frame, OutOfFrames> {
        self.allocate_raw(M::Arch::TABLE_ORDER, FrameKind::Table)
    }

    #[inline]
    fn allocate_raw(&self, order: u8, kind: FrameKind) -> Result<Frame, OutOfFrames> {
        if self.is_to_fail() {
            return Err(OutOfFrames);
        }
        let frame = if order == 0 {
            let mut cache = self.cache().lock();
            match cache.allocate(self.metas(), kind) {
                Some(frame) => frame,
                None => match self.refill(&mut cache, kind) {
                    Ok(frame) => frame,
                    Err(Refused::Empty) => return Err(OutOfFrames),
                    Err(Refused::Busy) => {
                        drop(cache);
                        return self.allocate_later(kind);
                    }
                },
            }
        } else {
            let frame = self.take_block(order, kind).ok_or(OutOfFrames)?;
            self.cache().lock().count_allocated(kind, 1 << order);
            frame
        };
        self.prepare(frame, order, kind);
        Ok(frame)
    }

    /// Allocates one frame if a previous attempt failed while other CPUs had locked their caches, which may contain
    /// free frames. Retries until it gets a frame, or until no other CPU has locked its cache and no frame is free.
    #[cold]
    fn allocate_later(&self, kind: FrameKind) -> Result<Frame, OutOfFrames> {
        let mut wait = Wait::new::<M::Threads>();
        loop {
            wait.turn();
            let mut cache = self.cache().lock();
            let frame = match cache.allocate(self.metas(), kind) {
                Some(frame) => Ok(frame),
                None => self.refill(&mut cache, kind),
            };
            match frame {
                Ok(frame) => {
                    self.prepare(frame, 0, kind);
                    return Ok(frame);
                }
                Err(Refused::Empty) => return Err(OutOfFrames),
                Err(Refused::Busy) => {}
            }
        }
    }

    /// Initializes the metadata of a block that was just removed from the free lists. The block then has one reference.
    #[inline]
    pub(super) fn prepare(&self, frame: Frame, order: u8, kind: FrameKind) {
        let meta = self.meta(frame);
        debug_assert_eq!(
            meta.kind(),
            FrameKind::Free,
            "allocated a frame that is not free"
        );
        if cfg!(debug_assertions) {
            for number in 0..1 << order {
                self.check_poison(Frame::new(frame.number() + number));
            }
        }
        meta.set_state(meta.state().become_block(kind, order));
        meta.set_link(UNLINKED);
        meta.owner.store(0, Ordering::Relaxed);
        meta.index.store(0, Ordering::Relaxed);
        if order > 0 {
            if order == FOLIO_ORDER && kind.is_data() {
                self.prepare_folio(meta, kind);
            } else {
                self.prepare_tails(frame, order, kind);
            }
        }
        meta.references.store(1, Ordering::Release);
    }

    /// Initializes the metadata of the tails of a new block, which are all of its frames except the first. The link of
    /// each tail is the number of the first frame.
    #[cold]
    fn prepare_tails(&self, frame: Frame, order: u8, kind: FrameKind) {
        for number in 1..1u32 << order {
            let tail = self.meta(Frame::new(frame.number() + number));
            tail.set_state(tail.state().become_block(kind, 0).with(State::TAIL));
            tail.set_link(frame.number());
        }
    }
}
