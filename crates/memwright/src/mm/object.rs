//! Objects that areas map: files, shared memory, anything with pages.

use alloc::sync::Arc;
use core::fmt;
use memwright_table::{Frame, Machine, OutOfMemory, PageSize};

use crate::mm::huge_file::HugeView;
use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::store::leaving::{Leaving, Left};
use crate::swap::asker::Asker;
use crate::types::error::ObjectError;
use crate::types::error_text::error_text;
use crate::types::folio_orders::FolioOrders;
use crate::types::numa_policy::PolicyId;

/// The device and inode numbers of an object, as /proc/PID/maps prints them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ObjectIdentity {
    /// The number of the file system, 0 if there is none.
    pub device: u64,
    /// The inode number in the file system.
    pub inode: u64,
}

/// The result of adding a frame to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The frame is now a page of the object.
    Stored,
    /// The object already has a page at this index.
    Exists,
    /// The page was not mapped, and was removed again.
    Removed,
}

/// Limits on an object's pages for a collapse into a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollapseLimits {
    /// The maximum number of missing pages.
    pub missing: u64,
    /// The maximum number of pages in swap.
    pub swapped: u64,
}

/// The reason why an object's pages were not collapsed into a huge page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CollapseError {
    /// The object has no huge pages or ends too early, too many pages are missing or in swap, or a page cannot be read.
    NotEligible,
    /// A page has extra references: a retry may succeed.
    Busy,
    /// No 2 MiB of frames are free.
    NoFrames,
}

error_text!(CollapseError {
    Self::NotEligible => "the pages of the object cannot become a huge page";
    Self::Busy => "a page has extra references";
    Self::NoFrames => "no 2 MiB of frames are free";
});

/// Neighbouring pages that fault-around looks up, for [`Object::frame_and_run`].
pub struct CachedRun {
    /// The index of the first page.
    pub first: u64,
    /// A bitmap of the pages to look up; bit 0 is page `first`. They are among the first [`MOST`](Self::MOST).
    pub wanted: u64,
    /// A bitmap of the pages that are in memory, which the object sets.
    pub found: u64,
    /// The frames of the pages that are found. `None` until the first use, because most faults find no neighbours.
    frames: Option<[Frame; Self::MOST]>,
}

impl CachedRun {
    /// The maximum number of pages in a run.
    pub const MOST: usize = 16;

    /// Returns the run of the pages `wanted` from page `first` on, of which none is found.
    #[inline(always)]
    pub fn new(first: u64, wanted: u64) -> Self {
        Self {
            first,
            wanted,
            found: 0,
            frames: None,
        }
    }

    /// Returns the frames of the pages that are found, with one reference each. Bit `i` of `found` stands for element
    /// `i`.
    #[inline]
    pub fn frames(&mut self) -> &mut [Frame] {
        self.frames.get_or_insert([Frame::new(0); Self::MOST])
    }
}

/// Something with pages that areas can map.
///
/// An area holds the object as `Arc<dyn Object<M>>`. Two neighbouring areas merge only if they hold the same `Arc` (as
/// Linux requires the same open file). Several objects can share one [`Mappings`]: they are then one set of pages.
///
/// # Locks
/// Unless the comment of a method says otherwise, it can be called with the locks of the areas of address spaces held,
/// and must not touch user memory or sleep. No page-table lock is held, except during calls that only return a property
/// of the object, such as [`mappings`](Self::mappings). A method that would have to wait returns
/// [`ObjectError::WouldBlock`]; the caller waits and retries the access.
pub trait Object<M: Machine>: Send + Sync {
    /// Returns the frame of page `index`, reading or creating the page if it is not in memory. The frame carries one
    /// reference, as from `FrameRef::into_raw`.
    ///
    /// `write` states whether a store through a shared mapping is about to happen.
    ///
    /// # Errors
    /// See [`ObjectError`]. For a page in swap, returns [`ObjectError::InSwap`] without waiting for the device.
    fn frame(&self, memory: &Memory<M>, index: u64, write: bool) -> Result<Frame, ObjectError>;

    /// Returns whether page `index` exists, in memory or in swap.
    fn holds(&self, memory: &Memory<M>, index: u64) -> bool {
        let cached = self.cached(memory, index);
        cached.map(|frame| memory.frames().adopt(frame)).is_some()
    }

    /// Returns the frame of page `index` if the page exists, swapping it in if needed. The frame carries one reference.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`].
    fn find(&self, memory: &Memory<M>, index: u64) -> Result<Option<Frame>, ObjectError> {
        Ok(self.cached(memory, index))
    }

    /// Returns how many of the `pages` pages from `first` on are in swap.
    fn swapped(&self, first: u64, pages: u64) -> u64 {
        let _ = (first, pages);
        0
    }

    /// Swaps in page `index` if it is in swap. Also swaps in following pages, up to `most` pages in total, where this
    /// is cheap. Returns the number of pages read from a device. May wait for the device: the caller holds no lock.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`].
    fn bring_in(&self, memory: &Memory<M>, index: u64, most: u64) -> Result<u64, ObjectError> {
        let _ = (memory, index, most);
        Ok(0)
    }

    /// Swaps in pages like [`bring_in`](Self::bring_in), for a fault, which has the address space locked. Does not wait
    /// for the device.
    ///
    /// # Errors
    /// The errors of `bring_in`, and [`ObjectError::WouldBlock`] if the device takes time: the fault completes the
    /// reads after it has released its locks.
    fn begin_bring_in(
        &self,
        memory: &Memory<M>,
        index: u64,
        most: u64,
        asker: Asker,
    ) -> Result<u64, ObjectError> {
        let _ = asker;
        self.bring_in(memory, index, most)
    }

    /// Returns a bitmap of the pages that have been looked up since they were stored or swapped in, among the `pages`
    /// pages from `first` on. `pages` is at most 64.
    fn asked_for(&self, first: u64, pages: u64) -> u64 {
        let _ = (first, pages);
        0
    }

    /// Reclaims those pages of `leaving` that can be reclaimed. Afterwards no entry maps the reclaimed pages, and the
    /// next access faults them in again. The caller holds no lock of any address space.
    ///
    /// An object of a file system first removes from its copy of `leaving` the pages that must stay
    /// ([`Mappings::keep`]), and writes back dirty pages. It calls [`Mappings::clean`] before it copies the contents of
    /// a page, so that it is notified of later stores. Then it calls [`Mappings::stale`] and [`Mappings::withdraw`].
    /// Finally it frees each page to which it has the only reference, unless the page was stored to in the meantime.
    fn send_out(&self, memory: &Memory<M>, leaving: &Leaving) -> Left {
        let _ = (memory, leaving);
        Left::default()
    }

    /// Returns the frame of page `index` if it is in memory. The frame carries one reference.
    fn cached(&self, memory: &Memory<M>, index: u64) -> Option<Frame>;

    /// Like [`cached`](Self::cached), for several pages: bit `i` of `wanted` selects page `first + i`. Writes the frame
    /// of that page to element `i` of `frames`, and returns a bitmap of the pages that are in memory. The other
    /// elements keep their values.
    ///
    /// # Panics
    /// If `frames` has no element for a page in `wanted`.
    fn cached_run(&self, memory: &Memory<M>, first: u64, wanted: u64, frames: &mut [Frame]) -> u64 {
        let (mut left, mut found) = (wanted, 0);
        while left != 0 {
            let place = left.trailing_zeros();
            left &= left - 1;
            if let Some(frame) = self.cached(memory, first + u64::from(place)) {
                frames[place as usize] = frame;
                found |= 1 << place;
            }
        }
        found
    }

    /// Returns the frame of page `index`, like [`frame`](Self::frame) for a load, and then finds neighbouring pages,
    /// like [`cached_run`](Self::cached_run). An object can do these two steps under one acquisition of its lock.
    ///
    /// # Errors
    /// Those of [`frame`](Self::frame).
    ///
    /// # Panics
    /// As for [`cached_run`](Self::cached_run).
    fn frame_and_run(
        &self,
        memory: &Memory<M>,
        index: u64,
        run: &mut CachedRun,
    ) -> Result<Frame, ObjectError> {
        let frame = self.frame(memory, index, false)?;
        run.found = self.cached_run(memory, run.first, run.wanted, run.frames());
        Ok(frame)
    }

    /// Returns whether page `index` exists or could be created. If neither is true, an access to the page fails with
    /// SIGBUS.
    fn contains(&self, index: u64) -> bool;

    /// Adds `frame` as page `index`, unless the object already has that page, and calls `map` before another thread can
    /// find the page. If `map` returns false, removes the page again. On [`Put::Stored`] the object takes over one
    /// reference to the frame.
    ///
    /// # Locks
    /// `map` is called with the object's lock held. It acquires only locks that are ordered after it, such as a page
    /// table's.
    ///
    /// # Errors
    /// The object accepts no frames ([`ObjectError::Io`]), ends before the page, or has no memory for it.
    fn put(
        &self,
        memory: &Memory<M>,
        index: u64,
        frame: Frame,
        map: &mut dyn FnMut() -> bool,
    ) -> Result<Put, ObjectError> {
        let _ = (memory, index, frame, map);
        Err(ObjectError::Io)
    }

    /// Returns whether the object must be notified of the first store to a clean page.
    fn notify_first_write(&self) -> bool {
        false
    }

    /// Notifies the object that a store to the clean page `index` is about to happen through a shared mapping.
    ///
    /// # Errors
    /// The store is denied.
    fn first_write(&self, index: u64) -> Result<(), ObjectError> {
        let _ = index;
        Ok(())
    }

    /// Returns the device and inode of the object.
    fn identity(&self) -> ObjectIdentity;

    /// Writes the path of the object to `out`, as in /proc/PID/maps.
    ///
    /// # Errors
    /// Those of `out`.
    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result;

    /// Returns the list of areas that map the object.
    fn mappings(&self) -> &Mappings<M>;

    /// Writes the `pages` pages from `first` on back to the backing store.
    ///
    /// # Errors
    /// The write failed.
    fn sync(&self, memory: &Memory<M>, first: u64, pages: u64) -> Result<(), ObjectError> {
        let _ = (memory, first, pages);
        Ok(())
    }

    /// Frees the `pages` pages from `first` on (`MADV_REMOVE`). Returns false if the object does not support that.
    ///
    /// # Errors
    /// The backing store failed.
    fn remove(&self, memory: &Memory<M>, first: u64, pages: u64) -> Result<bool, ObjectError> {
        let _ = (memory, first, pages);
        Ok(false)
    }

    /// Returns whether the object is shared anonymous memory, which has no file name.
    fn is_anonymous(&self) -> bool {
        false
    }

    /// Returns whether the object is memory rather than a file. Resident pages of memory count as `RssShmem`.
    fn is_memory(&self) -> bool {
        false
    }

    /// Returns the huge page that consists of the 512 pages from `first` on, a multiple of 512. Creates it if the
    /// settings allow it and none of the pages exists. `asked` states whether the area has `MADV_HUGEPAGE`. The frame
    /// carries one reference to the folio.
    fn folio(&self, memory: &Memory<M>, first: u64, asked: bool) -> Option<Frame> {
        let _ = (memory, first, asked);
        None
    }

    /// If the 512 pages from `first` on, a multiple of 512, are a huge page, splits it in the object: from now on the
    /// object stores and returns single pages. Huge entries that map the page stay.
    fn part(&self, first: u64) {
        let _ = first;
    }

    /// Fills the hole around page `index`, if there is one, with a zeroed folio: the largest of the orders `fitting`
    /// that fits into the hole and that the settings allow. `asked` states whether the area has `MADV_HUGEPAGE`. The
    /// object stores the frames of the folio as single pages. Returns the order, or `None` if the caller must fill the
    /// page alone.
    fn fill_folio(
        &self,
        memory: &Memory<M>,
        index: u64,
        fitting: FolioOrders,
        asked: bool,
    ) -> Option<u8> {
        let _ = (memory, index, fitting, asked);
        None
    }

    /// Returns the order of the largest folio that the settings allow for the object in any area.
    fn largest_folio(&self, memory: &Memory<M>) -> Option<u8> {
        let _ = memory;
        None
    }

    /// Returns whether the settings allow huge pages for the object. `asked` states whether the area has
    /// `MADV_HUGEPAGE`.
    fn may_be_huge(&self, memory: &Memory<M>, asked: bool) -> bool {
        let _ = (memory, asked);
        false
    }

    /// Replaces the 512 pages from `first` on, a multiple of 512, by one huge page, unless more of them are missing or
    /// in swap than `limits` allows. Afterwards no entry maps the old pages. The caller holds no lock of any address
    /// space.
    ///
    /// # Errors
    /// See [`CollapseError`]. On error the contents are unchanged.
    fn collapse(&self, first: u64, limits: CollapseLimits) -> Result<(), CollapseError> {
        let _ = (first, limits);
        Err(CollapseError::NotEligible)
    }

    /// Sets the NUMA policy of new pages among the `pages` pages from `first` on, or removes their policy if `policy`
    /// is none. The policy applies to all mappings of the object. Returns whether the object supports policies. If it
    /// does not, the policies of the areas apply.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no heap memory. Nothing has changed.
    fn place(&self, first: u64, pages: u64, policy: PolicyId) -> Result<bool, OutOfMemory> {
        let _ = (first, pages, policy);
        Ok(false)
    }

    /// Returns the policy of page `index`, if the object has policies.
    fn placement(&self, index: u64) -> Option<PolicyId> {
        let _ = index;
        None
    }

    /// Replaces the frame of page `index`, or the huge page that begins at that index. The object calls `exchange` with
    /// the old frame once the frame can no longer be looked up in the object. `exchange` returns the new frame with a
    /// reference, which the object takes over. The object then drops its reference to the old frame. Nothing changes if
    /// `exchange` returns `None`, or if the object has no page of that size at `index`. The caller holds the area locks
    /// of every address space that maps the page.
    fn exchange(
        &self,
        memory: &Memory<M>,
        index: u64,
        size: PageSize,
        exchange: &mut dyn FnMut(Frame) -> Option<Frame>,
    ) {
        let _ = (memory, index, size, exchange);
    }

    /// Returns the hugetlb file, if the object is one or is backed by one. Areas that map such an object can be split
    /// only at huge page boundaries.
    fn huge(&self) -> Option<HugeView<'_, M>> {
        None
    }

    /// Returns whether neighbouring areas that map the object may merge. Areas of hugetlb files and of device memory never
    /// do (Linux 7.2 `mm/vma.c`, `VM_SPECIAL`).
    fn merges_areas(&self) -> bool {
        self.huge().is_none()
    }

    /// Returns the object that a forked child maps instead of this one, if this one has a reservation of huge pages.
    fn unreserved(&self) -> Option<&Arc<dyn Object<M>>> {
        None
    }
}
