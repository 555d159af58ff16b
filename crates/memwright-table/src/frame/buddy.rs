//! The free blocks of one node, in lists by order, linked through metadata.

use core::sync::atomic::Ordering;

use super::meta::{END, Meta, UNLINKED};
use super::{FrameKind, MAX_ORDER};
use crate::addr::Frame;

/// Metadata of every frame from `lowest` on.
#[derive(Clone, Copy)]
pub(super) struct Metas<'a> {
    pub(super) lowest: u32,
    pub(super) all: &'a [Meta],
}

impl<'a> Metas<'a> {
    pub(super) fn get(self, number: u32) -> &'a Meta {
        &self.all[number.wrapping_sub(self.lowest) as usize]
    }

    fn find(self, number: u32) -> Option<&'a Meta> {
        self.all.get(number.wrapping_sub(self.lowest) as usize)
    }
}

/// The free blocks of one node. Whoever calls holds the node's lock.
pub(super) struct Buddy {
    node: u8,
    /// The first free block of each order.
    heads: [u32; MAX_ORDER as usize + 1],
    free: u64,
}

impl Buddy {
    pub(super) const fn new(node: u8) -> Self {
        Self {
            node,
            heads: [END; MAX_ORDER as usize + 1],
            free: 0,
        }
    }

    /// Free frames.
    pub(super) fn free(&self) -> u64 {
        self.free
    }

    /// Takes a block of `order`, the lowest address of what was freed last: deterministic.
    pub(super) fn take(&mut self, metas: Metas<'_>, order: u8) -> Option<Frame> {
        let found = (order..=MAX_ORDER).find(|&o| self.heads[o as usize] != END)?;
        let number = self.heads[found as usize];
        self.unlink(metas, number, found);
        for half in (order..found).rev() {
            self.link(metas, number + (1 << half), half);
        }
        metas.get(number).order.store(order, Ordering::Relaxed);
        self.free -= 1 << order;
        Some(Frame::new(number))
    }

    /// Puts a block back and joins it with its free buddies.
    pub(super) fn put(&mut self, metas: Metas<'_>, frame: Frame, order: u8) {
        self.free += 1 << order;
        let (mut number, mut order) = (frame.number(), order);
        while order < MAX_ORDER {
            let buddy = number ^ (1 << order);
            if !self.is_free_block(metas, buddy, order) {
                break;
            }
            self.unlink(metas, buddy, order);
            number = number.min(buddy);
            order += 1;
        }
        self.link(metas, number, order);
    }

    fn is_free_block(&self, metas: Metas<'_>, number: u32, order: u8) -> bool {
        metas.find(number).is_some_and(|meta| {
            meta.kind() == FrameKind::Free
                && meta.order() == order
                // In a buddy list, not in a CPU's cache, whose frames have no way back.
                && meta.back.load(Ordering::Relaxed) != UNLINKED
                && meta.node.load(Ordering::Relaxed) == self.node
        })
    }

    fn link(&mut self, metas: Metas<'_>, number: u32, order: u8) {
        let head = self.heads[order as usize];
        let meta = metas.get(number);
        meta.order.store(order, Ordering::Relaxed);
        meta.set_link(head);
        meta.back.store(END, Ordering::Relaxed);
        if head != END {
            metas.get(head).back.store(number, Ordering::Relaxed);
        }
        self.heads[order as usize] = number;
    }

    fn unlink(&mut self, metas: Metas<'_>, number: u32, order: u8) {
        let meta = metas.get(number);
        let (next, previous) = (meta.link(), meta.back.load(Ordering::Relaxed));
        match previous {
            END => self.heads[order as usize] = next,
            previous => metas.get(previous).set_link(next),
        }
        if next != END {
            metas.get(next).back.store(previous, Ordering::Relaxed);
        }
        meta.set_link(UNLINKED);
        meta.back.store(UNLINKED, Ordering::Relaxed);
    }
}
