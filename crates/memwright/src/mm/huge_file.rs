//! Files of huge pages, which hugetlb mappings map (Linux 7.2 `fs/hugetlbfs/inode.c` and `mm/hugetlb.c`).
//!
//! Pages are of 2 MiB and come from the hugetlb pool ([`memwright_table::Frames::take_huge`]). The [`Object`] interface
//! counts indices in 4 KiB pages. This module counts them in huge pages.
//!
//! # Reservations
//! A mapping without `MAP_NORESERVE` succeeds only if the pool has all pages that the mapping can need. The pages of a
//! shared mapping are reserved for the file, until the file is truncated. The pages of a private mapping are reserved
//! for the mapping, which refers to the file through a [`PrivateHuge`]. A forked child does not inherit the
//! reservation.
//!
//! # Locks
//! The lock of the file is held for the complete fault, and the page-table lock is nested inside. Therefore only one of
//! two concurrent faults creates a page, and a truncation finds every page that a fault mapped before it.

use alloc::sync::Arc;
use core::ops::Range;
use memwright_table::sync::{Lock, LockGuard, Rank};
use memwright_table::{
    FOLIO_ORDER, Frame, FrameKind, FrameRange, FrameRef, Machine, NoHugePage, OutOfMemory,
    SubpoolId,
};

use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::mm::object::{Object, ObjectIdentity};
use crate::mm::subpool::HugeSubpool;
use crate::store::pages::Pages;
use crate::store::runs::Runs;
use crate::types::error::ObjectError;
use crate::types::huge::HUGE_PAGES;
use crate::types::stats::Row;

/// The size of a huge page in bytes.
pub const HUGE_BYTES: u64 = HUGE_PAGES << 12;

/// The data that the lock of a file guards.
pub(crate) struct HugeState<M: Machine> {
    pub(crate) pages: Pages<M>,
    /// The size of the file in bytes. After `fallocate`, a file of a hugetlbfs mount can end inside a huge page. The
    /// bytes of such a last page can be read but not mapped.
    pub(crate) size: u64,
    /// The indices of huge pages that are reserved and do not exist yet.
    pub(crate) reserved: Runs,
    /// The indices of huge pages that userfaultfd calls are filling. Only one call at a time fills a page.
    filling: Runs,
}

/// A file of huge pages.
pub struct HugeFile<M: Machine> {
    pub(crate) memory: Arc<Memory<M>>,
    pub(crate) state: Lock<HugeState<M>, M::Threads>,
    pub(crate) mappings: Mappings<M>,
    pub(crate) identity: ObjectIdentity,
    pub(crate) name: &'static str,
    /// The subpool of the mount, if the mount limits or guarantees pages.
    subpool: Option<Arc<HugeSubpool<M>>>,
}

/// The hugetlb file that an area maps, and the reservation of the mapping.
pub struct HugeView<'a, M: Machine> {
    /// The file.
    pub(crate) file: &'a HugeFile<M>,
    /// The reservation of the mapping, if it is private and has one.
    pub(crate) own: Option<&'a Reservation<M>>,
}

impl<M: Machine> HugeView<'_, M> {
    /// Reserves huge pages of the file: see [`HugeFile::reserve`].
    ///
    /// # Errors
    /// See [`HugeFile::reserve`].
    pub fn reserve(&self, range: Range<u64>) -> Result<(), ObjectError> {
        self.file.reserve(range)
    }

    /// Raises the size of the file: see [`HugeFile::grow_to`].
    pub fn grow_to(&self, size: u64) {
        self.file.grow_to(size);
    }
}

impl<M: Machine> HugeState<M> {
    /// Returns huge page `index`, if it exists.
    ///
    /// # Errors
    /// [`ObjectError::BeyondEnd`] if the file ends before the page.
    pub(crate) fn page(&self, index: u64) -> Result<Option<Frame>, ObjectError> {
        if index >= self.size / HUGE_BYTES {
            return Err(ObjectError::BeyondEnd);
        }
        Ok(self.pages.get(index))
    }

    /// Returns whether page `index` is reserved and does not exist yet.
    pub(crate) fn is_promised(&self, index: u64) -> bool {
        self.reserved.count(&(index..index + 1)) > 0
    }

    /// Marks huge page `index` as being filled by a userfaultfd call, for a shared or a private mapping. Returns false
    /// if another call is already filling the page.
    ///
    /// # Errors
    /// [`OutOfMemory`] if there is no heap memory for the record.
    pub(crate) fn begin_filling(&mut self, index: u64) -> Result<bool, OutOfMemory> {
        Ok(self.filling.insert(index..index + 1)? == 1)
    }

    /// Ends the filling of page `index`, successful or not.
    pub(crate) fn end_filling(&mut self, index: u64) {
        let ended = self.filling.remove(index..index + 1);
        debug_assert_eq!(ended, Ok(1));
    }

    /// Stores `page` as page `index`, which must not exist yet, and takes over its reference.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] if there is no memory for the index. The page is freed.
    pub(crate) fn put(&mut self, index: u64, page: FrameRef<'_, M>) -> Result<(), ObjectError> {
        self.pages.insert(index, page.frame())?;
        let _ = page.into_raw();
        Ok(())
    }

    /// Removes page `index`, which the caller stored since it took the lock of the file.
    pub(crate) fn take_back(&mut self, index: u64) {
        self.pages.remove_range(index, index + 1);
    }
}

impl<M: Machine> HugeFile<M> {
    /// Creates a file of `size` bytes, a multiple of [`HUGE_BYTES`], all zero. `name` is its path in /proc/PID/maps.
    pub fn new(
        memory: Arc<Memory<M>>,
        size: u64,
        identity: ObjectIdentity,
        name: &'static str,
    ) -> Self {
        let pages = Pages::new(memory.frames().clone());
        let state = HugeState {
            pages,
            size,
            reserved: Runs::new(),
            filling: Runs::new(),
        };
        Self {
            memory,
            state: Lock::new(Rank::Object, state),
            mappings: Mappings::new(),
            identity,
            name,
            subpool: None,
        }
    }

    /// Makes the file use the subpool of the mount that it is in, and returns the file.
    #[must_use]
    pub fn in_subpool(mut self, subpool: Option<Arc<HugeSubpool<M>>>) -> Self {
        self.subpool = subpool;
        self
    }

    /// Returns the subpool against which the huge pages of the file and of its private mappings count.
    pub(crate) fn within(&self) -> SubpoolId {
        let subpool = self.subpool.as_ref();
        subpool.map_or(SubpoolId::NONE, |subpool| subpool.id())
    }

    pub(crate) fn lock(&self) -> LockGuard<'_, HugeState<M>, M::Threads> {
        self.state.lock()
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.state.lock().size
    }

    /// Returns the number of huge pages that exist.
    pub fn resident(&self) -> u64 {
        self.state.lock().pages.len()
    }

    /// Reserves the huge pages `range` for a shared mapping (`hugetlb_reserve_pages`).
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] if the pool or the subpool has too few pages. Nothing is reserved then.
    pub fn reserve(&self, range: Range<u64>) -> Result<(), ObjectError> {
        let (frames, within) = (self.memory.frames(), self.within());
        let mut state = self.state.lock();
        // The length of `range` minus `there` is a lower bound of the number of missing pages. Before the walk over the
        // indices of `range`, reject a range that needs more huge pages than the machine has.
        let there = state.pages.len() + state.reserved.count(&range);
        if (range.end - range.start).saturating_sub(there) > frames.total() / HUGE_PAGES {
            return Err(ObjectError::OutOfMemory);
        }
        let is_missing = |state: &HugeState<M>, index: u64| {
            state.pages.get(index).is_none() && !state.is_promised(index)
        };
        let (mut missing, mut runs, mut before) = (0, 0, false);
        for index in range.clone() {
            let now = is_missing(&state, index);
            missing += u64::from(now);
            runs += usize::from(now && !before);
            before = now;
        }
        state.reserved.make_room(runs)?;
        frames.reserve_huge(within, missing)?;
        for index in range {
            if is_missing(&state, index) {
                state.reserved.insert(index..index + 1)?;
            }
        }
        Ok(())
    }

    /// Takes a page from the pool for page `index`, which must not exist yet. Its contents are undefined. Uses the
    /// file's reservation for `index`, if any.
    ///
    /// # Errors
    /// The pool has no free page.
    pub(crate) fn take_page(
        &self,
        state: &mut HugeState<M>,
        index: u64,
    ) -> Result<FrameRef<'_, M>, NoHugePage> {
        let promised = take_promise(&mut state.reserved, index);
        let frames = self.memory.frames();
        frames.take_huge(promised, FrameKind::PoolObject, self.within())
    }

    /// Like [`take_page`](Self::take_page), but the page is zeroed.
    ///
    /// # Errors
    /// The pool has no free page.
    pub(crate) fn new_page(
        &self,
        state: &mut HugeState<M>,
        index: u64,
    ) -> Result<FrameRef<'_, M>, NoHugePage> {
        let page = self.take_page(state, index)?;
        self.memory.clear_huge(page.frame());
        Ok(page)
    }

    /// Stores `page`, which was taken from the pool, as page `index`, which must not exist yet. If the file cannot
    /// store the page and `promised` is set, reserves page `index` again, provided that the pool has a free page.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] if there is no memory for the index. The page is freed.
    pub(crate) fn put_new(
        &self,
        state: &mut HugeState<M>,
        index: u64,
        page: FrameRef<'_, M>,
        promised: bool,
    ) -> Result<(), ObjectError> {
        let put = state.put(index, page);
        if put.is_err() && promised {
            self.promise_again(state, index);
        }
        put
    }

    /// Reserves page `index` again after it was taken and freed, if the pool has a free page.
    pub(crate) fn restore(&self, index: u64) {
        self.promise_again(&mut self.state.lock(), index);
    }

    fn promise_again(&self, state: &mut HugeState<M>, index: u64) {
        let (frames, within) = (self.memory.frames(), self.within());
        if state.pages.get(index).is_some() || frames.reserve_free_huge(within).is_err() {
            return;
        }
        if state.reserved.insert(index..index + 1) != Ok(1) {
            frames.unreserve_huge(within, 1);
        }
    }

    /// Raises the size to `size` bytes. Does nothing if the file is at least that large.
    pub fn grow_to(&self, size: u64) {
        let mut state = self.state.lock();
        state.size = state.size.max(size);
    }

    /// Creates every page of the bytes `start..end` (`hugetlbfs_fallocate`).
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] if the pool has too few pages. Pages created so far stay.
    pub fn allocate(&self, start: u64, end: u64) -> Result<(), ObjectError> {
        for index in start / HUGE_BYTES..end.div_ceil(HUGE_BYTES) {
            let mut state = self.state.lock();
            if state.pages.get(index).is_none() {
                let promised = state.is_promised(index);
                let page = self.new_page(&mut state, index)?;
                self.put_new(&mut state, index, page, promised)?;
            }
        }
        Ok(())
    }

    /// Returns the frame of 4 KiB page `index`, with one reference to the huge page, if the page exists.
    ///
    /// # Errors
    /// [`ObjectError::BeyondEnd`] if the file ends before the page.
    pub fn frame_at(&self, index: u64) -> Result<Option<Frame>, ObjectError> {
        let state = self.state.lock();
        if index >= state.size.div_ceil(4096) {
            return Err(ObjectError::BeyondEnd);
        }
        let page = state.pages.get(index / HUGE_PAGES);
        Ok(page.map(|head| {
            let frame = Frame::new(head.number() + (index % HUGE_PAGES) as u32);
            self.memory.frames().share(frame).into_raw()
        }))
    }

    /// Zeroes the bytes `start..end`, which are in one page, if the page exists.
    pub(crate) fn clear_part(&self, state: &HugeState<M>, start: u64, end: u64) {
        let Some(head) = state.pages.get(start / HUGE_BYTES) else {
            return;
        };
        let frames = self.memory.frames();
        let mut at = start;
        while at < end {
            let step = (4096 - at % 4096).min(end - at);
            let inside = (at % HUGE_BYTES / 4096) as u32;
            let frame = Frame::new(head.number() + inside);
            frames.fill(frame, (at % 4096) as usize, step as usize, 0);
            at += step;
        }
    }
}

impl<M: Machine> Drop for HugeFile<M> {
    fn drop(&mut self) {
        let unused = self.state.lock().reserved.len();
        (self.memory.frames()).unreserve_huge(self.within(), unused);
    }
}

/// The huge pages reserved for a private mapping. If the mapping is split, its areas share the reservation.
pub(crate) struct Reservation<M: Machine> {
    memory: Arc<Memory<M>>,
    /// The subpool of the file.
    within: SubpoolId,
    /// Indices of huge pages that are reserved and not taken yet.
    pages: Lock<Runs, M::Threads>,
}

impl<M: Machine> Reservation<M> {
    /// Takes a page from the pool for page `index`. Its contents are undefined. Uses the reservation, if it still
    /// contains `index`.
    pub(crate) fn take(&self, index: u64) -> Result<FrameRef<'_, M>, NoHugePage> {
        let promised = take_promise(&mut self.pages.lock(), index);
        let frames = self.memory.frames();
        frames.take_huge(promised, FrameKind::PoolAnonymous, self.within)
    }

    /// Reserves again those pages of `range` that were taken and freed, as long as the pool has free pages.
    pub(crate) fn restore(&self, range: Range<u64>) {
        let frames = self.memory.frames();
        for index in range {
            if self.pages.lock().count(&(index..index + 1)) > 0 {
                continue;
            }
            if frames.reserve_free_huge(self.within).is_err() {
                return;
            }
            let promised = self.pages.lock().insert(index..index + 1);
            if promised != Ok(1) {
                // Another thread has reserved the page in the meantime, or there is no heap memory for the record.
                frames.unreserve_huge(self.within, 1);
            }
            if promised.is_err() {
                return;
            }
        }
    }

    /// Drops the reservation of the pages of `range`, which the caller unmaps. If there is no heap memory to change the
    /// record, the reservation lasts until the mapping is dropped.
    pub(crate) fn forget(&self, range: Range<u64>) {
        let unused = self.pages.lock().remove(range).unwrap_or(0);
        (self.memory.frames()).unreserve_huge(self.within, unused);
    }
}

impl<M: Machine> Drop for Reservation<M> {
    fn drop(&mut self) {
        let unused = self.pages.lock().len();
        (self.memory.frames()).unreserve_huge(self.within, unused);
    }
}

/// Removes `index` from the reservation and returns whether it was reserved.
fn take_promise(promised: &mut Runs, index: u64) -> bool {
    promised.remove(index..index + 1) == Ok(1)
}

/// The object of a private mapping with a reservation, backed by a hugetlb file.
pub struct PrivateHuge<M: Machine> {
    /// Must be the first field, because fields are dropped in order: dropping the reservation needs the subpool, which
    /// `object` keeps alive.
    pub(crate) reservation: Reservation<M>,
    pub(crate) object: Arc<dyn Object<M>>,
}

impl<M: Machine> PrivateHuge<M> {
    /// Reserves the huge pages `range` of `object`, a hugetlb file, for a private mapping of it.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] if the pool has too few pages.
    pub fn new(
        memory: Arc<Memory<M>>,
        object: Arc<dyn Object<M>>,
        range: Range<u64>,
    ) -> Result<Self, ObjectError> {
        let mut pages = Runs::new();
        let count = pages.insert(range)?;
        let view = object.huge();
        let within = view.map_or(SubpoolId::NONE, |view| view.file.within());
        memory.frames().reserve_huge(within, count)?;
        Ok(Self {
            reservation: Reservation {
                memory,
                within,
                pages: Lock::new(Rank::Lists, pages),
            },
            object,
        })
    }
}

impl<M: Machine> Memory<M> {
    /// Zeroes a huge page.
    pub(crate) fn clear_huge(&self, head: Frame) {
        self.frames().machine().clear_frames(FrameRange {
            start: head,
            count: 1 << FOLIO_ORDER,
        });
        self.count(Row::FramesZeroed, HUGE_PAGES);
    }

    /// Copies a huge page.
    pub(crate) fn copy_huge(&self, from: Frame, to: Frame) {
        for part in 0..HUGE_PAGES as u32 {
            let part = |head: Frame| Frame::new(head.number() + part);
            self.frames().copy(part(from), part(to));
        }
        self.count(Row::FramesCopied, HUGE_PAGES);
    }
}
