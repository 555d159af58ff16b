//! Promises of frames to page tables.
//!
//! A fork that shares page tables promises a frame for each further address space of a table (rule:
//! shared-table-has-one-rule). When one of them needs a table of its own, the frame is allocated by
//! [`Frames::allocate_promised`], which cannot fail. Promised frames stay in the free lists of the nodes, but no other
//! allocation takes them.

use core::sync::atomic::Ordering;

use super::{FrameKind, Frames, OutOfFrames};
use crate::addr::Frame;
use crate::machine::Machine;

impl<M: Machine> Frames<M> {
    /// Promises `tables` free frames to page tables.
    ///
    /// # Errors
    /// [`OutOfFrames`] if fewer frames are free, or only frames of the reserve. Nothing is promised then.
    pub(crate) fn promise_tables(&self, tables: u64) -> Result<(), OutOfFrames> {
        if self.is_to_fail() {
            return Err(OutOfFrames);
        }
        if self.free_on_nodes() < self.reserve() + tables {
            self.drain_others();
            let mut own = self.cache().lock();
            own.bring_back();
            let count = own.count();
            self.drain(&mut own, count);
        }
        if self.free_on_nodes() < self.reserve() + tables {
            return Err(OutOfFrames);
        }
        let mut left = tables;
        for node in &self.nodes {
            left -= node.lock().promise(left);
        }
        self.promised.fetch_add(tables - left, Ordering::Relaxed);
        if left > 0 {
            // Another CPU has allocated frames that were counted above.
            self.take_back_promises(tables - left);
            return Err(OutOfFrames);
        }
        Ok(())
    }

    /// Takes back promises of `tables` frames, which no page table needs any more.
    pub(crate) fn take_back_promises(&self, tables: u64) {
        if tables == 0 {
            return;
        }
        let mut left = tables;
        for node in &self.nodes {
            left -= node.lock().take_back(left);
        }
        assert!(left == 0, "took back a promise that was not made");
        self.promised.fetch_sub(tables, Ordering::Relaxed);
    }

    /// Allocates a promised frame for a page table, and ends the promise. The contents are undefined; the caller must
    /// write every entry before it links the table.
    ///
    /// # Panics
    /// If no frame is promised.
    pub(crate) fn allocate_promised(&self) -> Frame {
        let home = self.topology.node_of(self.this_cpu());
        let near = self.topology.nearest(home, self.topology.all());
        let taken = near
            .filter_map(|node| {
                let mut node = self.nodes[node as usize].lock();
                (node.take_back(1) == 1).then(|| node.take(self.metas(), 0))?
            })
            .next();
        let Some(frame) = taken else {
            panic!("no frame is promised to a page table");
        };
        self.promised.fetch_sub(1, Ordering::Relaxed);
        let mut cache = self.cache().lock();
        cache.count_allocated(FrameKind::Table, 1);
        cache.count_elsewhere();
        drop(cache);
        self.prepare(frame, 0, FrameKind::Table);
        frame
    }

    /// The number of free frames that are promised to page tables.
    pub fn promised(&self) -> u64 {
        self.promised.load(Ordering::Relaxed)
    }
}
