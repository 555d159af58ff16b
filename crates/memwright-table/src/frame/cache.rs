//! What one CPU keeps of free frames, and its share of the counts.

use super::meta::{END, Meta};
use super::node::NodeChoice;
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
    /// It keeps fewer than so many. None where each frame that comes is to be looked at: on the CPUs of all nodes but
    /// the first, while somebody chooses where allocations come from, and while the nodes have no more than the
    /// reserve.
    most: u32,
    /// The CPU's node.
    home: u8,
    /// A chooser is asked each time.
    asking: bool,
    /// The nodes have no more than the reserve: each frame that comes is theirs.
    short: bool,
    /// Where the next allocation of data comes from.
    once: Option<NodeChoice>,
    /// What it kept before somebody chose: the first frame, and how many.
    aside: (u32, u32),
    /// Allocations that did not come out of the cache.
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

    /// Free frames kept here.
    pub(super) fn count(&self) -> u32 {
        self.count + self.aside.1
    }

    /// Whether it keeps more than it should, or has to look where what came last belongs.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.count >= self.most
    }

    /// Says on which node the CPU is.
    pub(super) fn set_home(&mut self, home: u8) {
        self.home = home;
        self.settle();
    }

    /// Whether somebody says where allocations come from.
    pub(super) fn is_choosing(&self) -> bool {
        self.asking || self.once.is_some()
    }

    /// Says where the next allocation of data comes from.
    pub(super) fn choose_next(&mut self, choice: NodeChoice) {
        if !self.is_choosing() {
            self.aside = (self.head, self.count);
            (self.head, self.count) = (END, 0);
        }
        self.once = Some(choice);
        self.settle();
    }

    /// What was said so, if anything was; from now on nothing is.
    pub(super) fn chosen(&mut self) -> Option<NodeChoice> {
        let chosen = self.once.take()?;
        if !self.asking {
            self.bring_back();
        }
        self.settle();
        Some(chosen)
    }

    /// Makes what was kept before somebody chose the cache's again. There is nothing else in it then.
    pub(super) fn bring_back(&mut self) {
        if self.aside.1 > 0 {
            debug_assert_eq!(self.count, 0, "a frame was kept while somebody chose");
            (self.head, self.count) = self.aside;
            self.aside = (END, 0);
        }
    }

    /// Whether each frame that comes goes on to its node.
    pub(super) fn is_short(&self) -> bool {
        self.short
    }

    /// Says whether each frame that comes goes on to its node. The cache is empty when that begins.
    pub(super) fn set_short(&mut self, short: bool) {
        self.short = short;
        self.settle();
    }

    /// Lets a chooser be asked for each allocation. The cache is empty.
    pub(super) fn ask_always(&mut self) {
        self.asking = true;
        self.settle();
    }

    fn settle(&mut self) {
        let looks = self.home != 0 || self.is_choosing() || self.short;
        self.most = if looks { 0 } else { MOST };
    }

    /// Whether a frame of `node` may stay here.
    pub(super) fn keeps(&self, node: u8) -> bool {
        node == self.home && !self.is_choosing() && !self.short && self.count < MOST
    }

    /// Counts an allocation that does not come out of the cache.
    pub(super) fn count_elsewhere(&mut self) {
        self.elsewhere += 1;
    }

    /// Allocations served out of the cache.
    pub(super) fn served_at_home(&self) -> u64 {
        self.allocations.saturating_sub(self.elsewhere)
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
