//! What one CPU keeps of free frames, and its share of the counts.

use super::meta::{END, Meta};
use super::{FrameKind, Metas};
use crate::addr::Frame;

/// Frames moved between a cache and its node at a time.
pub(super) const BATCH: u32 = 64;
/// The most frames a cache keeps: 1 MiB.
const MOST: u32 = 4 * BATCH;

/// A count and the highest it has been. One CPU's share may be negative: what one allocates
/// another may free.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) now: i64,
    pub(super) peak: i64,
}

impl Tally {
    #[inline]
    fn add(&mut self, frames: i64) {
        self.now += frames;
        if self.now > self.peak {
            self.peak = self.now;
        }
    }
}

/// One CPU's state. Whoever calls holds its lock.
pub(super) struct Cache {
    head: u32,
    count: u32,
    pub(super) allocations: u64,
    pub(super) used: Tally,
    pub(super) by_kind: [Tally; FrameKind::COUNT],
}

impl Cache {
    pub(super) const fn new() -> Self {
        const NONE: Tally = Tally { now: 0, peak: 0 };
        Self {
            head: END,
            count: 0,
            allocations: 0,
            used: NONE,
            by_kind: [NONE; FrameKind::COUNT],
        }
    }

    /// Free frames kept here.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Whether it keeps more than it should: move `BATCH` frames back to their nodes.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count >= MOST
    }

    #[inline]
    pub(super) fn push(&mut self, frame: Frame, meta: &Meta) {
        meta.set_link(self.head);
        self.head = frame.number();
        self.count += 1;
    }

    #[inline]
    pub(super) fn pop(&mut self, metas: Metas<'_>) -> Option<Frame> {
        if self.head == END {
            return None;
        }
        let number = self.head;
        self.head = metas.get(number).link();
        self.count -= 1;
        Some(Frame::new(number))
    }

    /// Counts an allocation of `frames` frames.
    #[inline]
    pub(super) fn count_allocated(&mut self, kind: FrameKind, frames: i64) {
        self.allocations += 1;
        self.used.add(frames);
        self.by_kind[kind.index()].add(frames);
    }

    /// Counts their return.
    #[inline]
    pub(super) fn count_freed(&mut self, kind: FrameKind, frames: i64) {
        self.used.now -= frames;
        self.by_kind[kind.index()].now -= frames;
    }
}
