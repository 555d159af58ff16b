//! Moves free frames between the nodes and the CPU caches.

use core::sync::atomic::Ordering;

use super::cache::{BATCH, Cache};
use super::frames::{CpuCache, Frames};
use super::kind::FrameKind;
use super::order::MAX_ORDER;
use crate::addr::Frame;
use crate::machine::Machine;
use crate::sync::Wait;

/// Why a cache could not be refilled.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refused {
    /// No frame is free, or only the reserve is left.
    Empty,
    /// Another CPU's cache was locked and may hold free frames.
    Busy,
}

/// The result of draining the caches of other CPUs.
pub(super) struct Drained {
    /// The number of frames that were moved to their nodes.
    moved: u64,
    /// Whether a cache was skipped because another CPU had locked it.
    pub(super) busy: bool,
}

impl<M: Machine> Frames<M> {
    /// Refills an empty cache, allocates one frame from it, and counts the allocation.
    #[cold]
    pub(super) fn refill(&self, cache: &mut Cache, kind: FrameKind) -> Result<Frame, Refused> {
        let frame = self.take_refilling(cache, kind)?;
        cache.count_allocated(kind, 1);
        Ok(frame)
    }

    /// Refills an empty cache and takes one frame from it.
    fn take_refilling(&self, cache: &mut Cache, kind: FrameKind) -> Result<Frame, Refused> {
        let [node] = &self.nodes[..] else {
            return self.refill_near(cache, kind);
        };
        let metas = self.metas();
        let mut free = node.lock().free();
        let mut refused = Refused::Empty;
        if free <= self.reserve() {
            // Before refusing the allocation, move the frames in other CPUs' caches to the node.
            let drained = self.drain_others();
            cache.set_short(true);
            free += drained.moved;
            if drained.busy {
                refused = Refused::Busy;
            }
        }
        let wanted = self.batch(kind, free);
        let mut blocks = [(Frame::new(0), 0); BATCH as usize];
        let (mut count, mut taken) = (0, 0);
        if wanted > 0 {
            // If the loop below gets no frame, another CPU has allocated the frames that were counted in `free`, so the
            // caller must try again.
            refused = Refused::Busy;
        }
        let mut node = node.lock();
        while taken < wanted {
            let Some(block) = node.take_some(metas, wanted - taken) else {
                break;
            };
            blocks[count] = block;
            count += 1;
            taken += block.1;
        }
        drop(node);
        // The frame that is pushed last is popped first. Push in reverse order, so that frames are allocated in the
        // order in which the node returned them.
        for &(first, frames) in blocks[..count].iter().rev() {
            for number in (first.number()..first.number() + frames).rev() {
                cache.push(Frame::new(number), metas.get(number));
            }
        }
        cache.pop(metas).ok_or(refused)
    }

    /// The number of frames that an allocation of `kind` moves into its CPU's cache when the nodes have `free` free
    /// frames. While only the reserve is left, that is one frame for a kind that may use the reserve, because an
    /// allocation of any kind could use further frames in the cache.
    pub(super) fn batch(&self, kind: FrameKind, free: u64) -> u32 {
        let beyond = free.saturating_sub(self.reserve());
        let wanted = if beyond == 0 && kind.may_use_reserve() {
            free.min(1)
        } else {
            beyond.min(u64::from(BATCH))
        };
        wanted as u32
    }

    #[cold]
    pub(super) fn take_block(&self, order: u8, kind: FrameKind) -> Option<Frame> {
        assert!(order <= MAX_ORDER, "no block is that large");
        if self.nodes.len() > 1 {
            return self.take_block_near(order, kind);
        }
        let mut wait = Wait::new::<M::Threads>();
        let mut drained_all = false;
        loop {
            let low_water = if kind.may_use_reserve() {
                0
            } else {
                self.low_water.load(Ordering::Relaxed)
            };
            let free = self.free_on_nodes();
            if free >= low_water + (1 << order) {
                for node in &self.nodes {
                    if let Some(frame) = node.lock().take(self.metas(), order) {
                        return Some(frame);
                    }
                }
            }
            if drained_all {
                return None;
            }
            // A locked cache may hold frames that complete a block.
            drained_all = !self.drain_others().busy;
            if !drained_all {
                wait.turn();
            }
        }
    }

    /// Moves the frames in other CPUs' caches to the nodes. These CPUs then return freed frames to the nodes as long as
    /// only the reserve is left. Skips a cache that is locked, because its CPU is allocating or freeing at that moment.
    pub(super) fn drain_others(&self) -> Drained {
        let mut drained = Drained {
            moved: 0,
            busy: false,
        };
        for CpuCache { free: other, .. } in &self.caches {
            if let Some(mut other) = other.try_lock() {
                other.bring_back();
                let count = other.count();
                self.drain(&mut other, count);
                other.set_short(true);
                drained.moved += u64::from(count);
            } else {
                drained.busy |= !core::ptr::eq(other, self.cache());
            }
        }
        drained
    }

    /// Moves up to `frames` frames from a cache to their nodes. Frames allocated together are usually freed together,
    /// so adjacent frames are returned as the largest blocks that they form.
    pub(super) fn drain(&self, cache: &mut Cache, frames: u32) {
        let metas = self.metas();
        let (mut start, mut end, mut node) = (0, 0, 0);
        for _ in 0..frames {
            let Some(frame) = cache.pop(metas) else {
                break;
            };
            let number = frame.number();
            let its_node = metas.get(number).state().node();
            if number == end && its_node == node {
                end += 1;
            } else if number + 1 == start && its_node == node {
                start = number;
            } else {
                self.put_run(node, start, end);
                (start, end, node) = (number, number + 1, its_node);
            }
        }
        self.put_run(node, start, end);
    }

    /// Returns the free frames from `start` up to but not including `end` to their node.
    pub(super) fn put_run(&self, node: u8, start: u32, end: u32) {
        if start < end {
            let mut buddy = self.nodes[node as usize].lock();
            buddy.put_run(self.metas(), start, end);
        }
    }
}
