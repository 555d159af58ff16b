//! Files of huge pages as objects, and their truncation (Linux 7.2 `fs/hugetlbfs/inode.c`).

use alloc::sync::Arc;
use core::fmt;
use memwright_table::{Frame, Machine, PageSize};

use crate::mm::huge_file::{HUGE_BYTES, HugeFile, HugeView, PrivateHuge};
use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::mm::object::{Object, ObjectIdentity};
use crate::types::error::ObjectError;
use crate::types::huge::HUGE_PAGES;

impl<M: Machine> HugeFile<M> {
    /// Sets the size to `size` bytes, a multiple of [`HUGE_BYTES`]. If the file shrinks, the pages beyond the new end
    /// are freed and unmapped in all address spaces, including private copies, and their reservations are dropped.
    pub fn set_size(&self, size: u64) {
        {
            let mut state = self.state.lock();
            let shrunk = size < state.size;
            state.size = size;
            if !shrunk {
                return;
            }
            let end = size / HUGE_BYTES;
            state.pages.remove_range(end, u64::MAX);
            // The removal cannot fail for lack of memory: it reaches the end of the last run, so it splits no run.
            let unused = state.reserved.remove(end..u64::MAX).unwrap_or(0);
            (self.memory.frames()).unreserve_huge(self.within(), unused);
            self.mappings.stale();
        }
        self.mappings.unmap(size / 4096, u64::MAX, true);
    }

    /// Zeroes the bytes `start..end`, and frees the huge pages that are completely in this range. The size of the file
    /// does not change (`hugetlbfs_punch_hole`).
    pub fn punch(&self, start: u64, end: u64) {
        let (first, last) = (start.div_ceil(HUGE_BYTES), end / HUGE_BYTES);
        {
            let mut state = self.state.lock();
            if first > last {
                self.clear_part(&state, start, end);
                return;
            }
            self.clear_part(&state, start, first * HUGE_BYTES);
            self.clear_part(&state, last * HUGE_BYTES, end);
            if first == last {
                return;
            }
            state.pages.remove_range(first, last);
            self.mappings.stale();
        }
        self.mappings
            .unmap(first * HUGE_PAGES, last * HUGE_PAGES, true);
    }
}

impl<M: Machine> Object<M> for HugeFile<M> {
    fn frame(&self, _memory: &Memory<M>, index: u64, _write: bool) -> Result<Frame, ObjectError> {
        // Returns only existing pages and creates none: a fault in an area that maps the file gets the huge page
        // through `huge` instead.
        self.frame_at(index)?.ok_or(ObjectError::Io)
    }

    fn cached(&self, _memory: &Memory<M>, index: u64) -> Option<Frame> {
        self.frame_at(index).ok().flatten()
    }

    fn contains(&self, index: u64) -> bool {
        index / HUGE_PAGES < self.state.lock().size / HUGE_BYTES
    }

    fn identity(&self) -> ObjectIdentity {
        self.identity
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str(self.name)
    }

    fn mappings(&self) -> &Mappings<M> {
        &self.mappings
    }

    fn remove(&self, _memory: &Memory<M>, first: u64, pages: u64) -> Result<bool, ObjectError> {
        self.punch(first << 12, (first + pages) << 12);
        Ok(true)
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn exchange(
        &self,
        _memory: &Memory<M>,
        index: u64,
        _size: PageSize,
        exchange: &mut dyn FnMut(Frame) -> Option<Frame>,
    ) {
        let state = self.state.lock();
        let frames = self.memory.frames();
        state.pages.exchange(index / HUGE_PAGES, &mut |old| {
            let new = exchange(old)?;
            frames.follow_subpool(old, new);
            Some(new)
        });
        self.mappings.stale();
    }

    fn huge(&self) -> Option<HugeView<'_, M>> {
        Some(HugeView {
            file: self,
            own: None,
        })
    }
}

impl<M: Machine> Object<M> for PrivateHuge<M> {
    fn frame(&self, memory: &Memory<M>, index: u64, write: bool) -> Result<Frame, ObjectError> {
        self.object.frame(memory, index, write)
    }

    fn cached(&self, memory: &Memory<M>, index: u64) -> Option<Frame> {
        self.object.cached(memory, index)
    }

    fn contains(&self, index: u64) -> bool {
        self.object.contains(index)
    }

    fn identity(&self) -> ObjectIdentity {
        self.object.identity()
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        self.object.describe(out)
    }

    fn mappings(&self) -> &Mappings<M> {
        self.object.mappings()
    }

    fn is_memory(&self) -> bool {
        true
    }

    fn exchange(
        &self,
        memory: &Memory<M>,
        index: u64,
        size: PageSize,
        exchange: &mut dyn FnMut(Frame) -> Option<Frame>,
    ) {
        self.object.exchange(memory, index, size, exchange);
    }

    fn huge(&self) -> Option<HugeView<'_, M>> {
        let view = self.object.huge()?;
        Some(HugeView {
            file: view.file,
            own: Some(&self.reservation),
        })
    }

    fn unreserved(&self) -> Option<&Arc<dyn Object<M>>> {
        Some(&self.object)
    }
}
