//! Earmarks of frames for page tables.
//!
//! A fork that shares page tables earmarks a frame for each further address space of a table (rule:
//! shared-table-has-one-rule). When one of these address spaces needs a table of its own,
//! [`Frames::allocate_earmarked`] allocates the frame, and cannot fail. Earmarked frames stay in the free lists of the
//! nodes, but no other allocation takes them.

use core::sync::atomic::Ordering;

use super::{FrameKind, Frames, OutOfFrames};
use crate::addr::Frame;
use crate::arch::Architecture;
use crate::machine::Machine;

impl<M: Machine> Frames<M> {
    /// Earmarks `tables` free frames for page tables.
    ///
    /// # Errors
    /// [`OutOfFrames`] if fewer frames are free, or only frames of the reserve. Nothing is earmarked then.
    pub(crate) fn earmark_tables(&self, tables: u64) -> Result<(), OutOfFrames> {
        // Frames are earmarked for copies of shared tables, one frame for each. Tables of two frames are not shared.
        const { assert!(M::Arch::TABLE_FRAMES == 1 || !M::Arch::SHARES_TABLES) };
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
            left -= node.lock().earmark(left);
        }
        self.earmarked.fetch_add(tables - left, Ordering::Relaxed);
        if left > 0 {
            // Another CPU has allocated frames that were counted above.
            self.release_earmarks(tables - left);
            return Err(OutOfFrames);
        }
        Ok(())
    }

    /// Releases the earmarks of `tables` frames, which no page table needs any more.
    pub(crate) fn release_earmarks(&self, tables: u64) {
        if tables == 0 {
            return;
        }
        let mut left = tables;
        for node in &self.nodes {
            left -= node.lock().release(left);
        }
        assert!(left == 0, "released an earmark that does not exist");
        self.earmarked.fetch_sub(tables, Ordering::Relaxed);
    }

    /// Allocates an earmarked frame for a page table, and releases the earmark. The contents are undefined; the caller must
    /// write every entry before it links the table.
    ///
    /// # Panics
    /// If no frame is earmarked.
    pub(crate) fn allocate_earmarked(&self) -> Frame {
        let home = self.topology.node_of(self.this_cpu());
        let near = self.topology.nearest(home, self.topology.all());
        let taken = near
            .filter_map(|node| {
                let mut node = self.nodes[node as usize].lock();
                (node.release(1) == 1).then(|| node.take(self.metas(), 0))?
            })
            .next();
        let Some(frame) = taken else {
            panic!("no frame is earmarked for a page table");
        };
        self.earmarked.fetch_sub(1, Ordering::Relaxed);
        let mut cache = self.cache().lock();
        cache.count_allocated(FrameKind::Table, 1);
        cache.count_elsewhere();
        drop(cache);
        self.prepare(frame, 0, FrameKind::Table);
        frame
    }

    /// The number of free frames that are earmarked for page tables.
    pub fn earmarked(&self) -> u64 {
        self.earmarked.load(Ordering::Relaxed)
    }
}
