//! The per-CPU cache of free frames, with the CPU's share of the counters.

use super::meta::{END, Meta};
use super::{FrameKind, Metas, NodeChoice};
use crate::addr::Frame;

/// The number of frames moved between a cache and its node at a time.
pub(super) const BATCH: u32 = 64;
/// The maximum number of frames in a cache: 1 MiB.
const MOST: u32 = 4 * BATCH;

/// One CPU's share of a counter, and the highest value of this share. The share can be negative, because a CPU can free
/// frames that another CPU allocated.
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

/// The cache of one CPU. The caller of each method holds the cache's lock.
pub(super) struct Cache {
    head: u32,
    count: u32,
    /// The number of frames at which the cache is full. A limit of 0 sends each freed frame to the slow path, which
    /// decides whether the cache keeps the frame. The limit is 0 on each CPU that is not on the first node, on each CPU
    /// with a choice or policy, and on each CPU while only the reserve is left on the nodes.
    most: u32,
    /// The CPU's node.
    home: u8,
    /// Whether the NUMA policy selects the nodes of each data allocation.
    asking: bool,
    /// Whether only the reserve is left on the nodes. While it is, the CPU returns freed frames to their nodes.
    short: bool,
    /// The nodes chosen for the next data allocation, if any.
    once: Option<NodeChoice>,
    /// The second list: the frames that were in the cache when `choose_next` set a choice. Allocations do not use them
    /// while the choice is set. The values are the first frame of the list and its length.
    aside: (u32, u32),
    /// The number of allocations that were not served from the cache.
    elsewhere: u64,
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
            most: MOST,
            home: 0,
            asking: false,
            short: false,
            once: None,
            aside: (END, 0),
            elsewhere: 0,
            allocations: 0,
            used: NONE,
            by_kind: [NONE; FrameKind::COUNT],
        }
    }

    /// The number of free frames in the cache, including those in the second list.
    pub(super) fn count(&self) -> u32 {
        self.count + self.aside.1
    }

    /// Whether the cache has reached its limit. If the limit is 0, the caller must check whether the cache keeps the
    /// frame that was freed last.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count >= self.most
    }

    /// Sets the node of the CPU.
    pub(super) fn set_home(&mut self, home: u8) {
        self.home = home;
        self.settle();
    }

    /// Whether a choice or policy decides which nodes serve allocations.
    pub(super) fn is_choosing(&self) -> bool {
        self.asking || self.once.is_some()
    }

    /// Sets the nodes for the next data allocation.
    pub(super) fn choose_next(&mut self, choice: NodeChoice) {
        if !self.is_choosing() {
            self.aside = (self.head, self.count);
            (self.head, self.count) = (END, 0);
        }
        self.once = Some(choice);
        self.settle();
    }

    /// Returns the choice for the next data allocation, if any, and clears it.
    pub(super) fn chosen(&mut self) -> Option<NodeChoice> {
        let chosen = self.once.take()?;
        if !self.asking {
            self.bring_back();
        }
        self.settle();
        Some(chosen)
    }

    /// Moves the frames of the second list back to the cache, which is otherwise empty at that time.
    pub(super) fn bring_back(&mut self) {
        if self.aside.1 > 0 {
            debug_assert_eq!(self.count, 0, "a frame was kept while somebody chose");
            (self.head, self.count) = self.aside;
            self.aside = (END, 0);
        }
    }

    /// Whether freed frames are returned to their nodes, because only the reserve is left on the nodes.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    /// Sets whether freed frames are returned to their nodes. If `short` is true, the cache must be empty, or the
    /// caller must move its frames to the nodes next.
    pub(super) fn set_short(&mut self, short: bool) {
        self.short = short;
        self.settle();
    }

    /// Makes the NUMA policy select the nodes of each data allocation. The cache must be empty.
    pub(super) fn ask_always(&mut self) {
        self.asking = true;
        self.settle();
    }

    fn settle(&mut self) {
        let looks = self.home != 0 || self.is_choosing() || self.short;
        self.most = if looks { 0 } else { MOST };
    }

    /// Whether the cache keeps a freed frame of `node`.
    pub(super) fn keeps(&self, node: u8) -> bool {
        node == self.home && !self.is_choosing() && !self.short && self.count < MOST
    }

    /// Counts an allocation that was not served from the cache.
    pub(super) fn count_elsewhere(&mut self) {
        self.elsewhere += 1;
    }

    /// The number of allocations that were served from the cache.
    pub(super) fn served_at_home(&self) -> u64 {
        self.allocations.saturating_sub(self.elsewhere)
    }

    #[inline]
    pub(super) fn push(&mut self, frame: Frame, meta: &Meta) {
        meta.set_link(self.head);
        self.head = frame.number();
        // A full cache is drained at once, so the count does not wrap.
        self.count = self.count.wrapping_add(1);
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

    /// Removes a frame from the cache for an allocation of `kind`, and counts the allocation. Returns `None` if the
    /// cache is empty.
    #[inline]
    pub(super) fn allocate(&mut self, metas: Metas<'_>, kind: FrameKind) -> Option<Frame> {
        let frame = self.pop(metas)?;
        self.count_allocated(kind, 1);
        Some(frame)
    }

    /// Counts an allocation of `frames` frames.
    #[inline]
    pub(super) fn count_allocated(&mut self, kind: FrameKind, frames: i64) {
        self.allocations += 1;
        self.used.add(frames);
        self.by_kind[kind.index()].add(frames);
    }

    /// Counts `frames` frames as freed.
    #[inline]
    pub(super) fn count_freed(&mut self, kind: FrameKind, frames: i64) {
        self.used.now -= frames;
        self.by_kind[kind.index()].now -= frames;
    }
}
