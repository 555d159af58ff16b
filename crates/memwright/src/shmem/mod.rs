//! Objects whose contents exist only in memory and swap: shared anonymous memory, and the files of a tmpfs.

pub(crate) mod fill;
pub(crate) mod look_up;
pub(crate) mod store;
#[cfg_attr(not(feature = "swap"), path = "swap_off.rs")]
pub(crate) mod swap;
pub(crate) mod unmapped;
pub(crate) mod write;

use alloc::sync::Arc;
use core::fmt;
use core::sync::atomic::Ordering;
use memwright_table::sync::pause_point;
use memwright_table::{
    FOLIO_ORDER, Frame, FrameKind, Machine, OutOfMemory, PAGE_SIZE, PageSize, Shared,
};

use crate::mm::commit::Overcommit;
use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::mm::object::{CachedRun, CollapseError, CollapseLimits, Object, ObjectIdentity, Put};
use crate::store::leaving::{Leaving, Left};
use crate::store::look_up::{Lookup, Vacancy};
use crate::store::page_store::{State, Store};
use crate::store::pages::Stored;
use crate::store::room::Room;
use crate::swap::asker::Asker;
use crate::types::error::ObjectError;
use crate::types::folio_orders::FolioOrders;
use crate::types::huge::{HUGE_PAGES, SharedMode, SharedSetting};
use crate::types::memcg::Memcg;
use crate::types::numa_policy::PolicyId;
use crate::types::stats::Row;

/// The number of pages created or dropped between two scheduling points.
const TOGETHER: u64 = 512;

/// The number of pages removed between two scheduling points. It is smaller than `TOGETHER`, because removing a page
/// takes ten times as long if the page is the last one in its node of the page store and the node is freed too.
const REMOVED: u64 = 128;

/// An object whose pages exist only in memory and swap, and are initially zero (Linux 7.2 `mm/shmem.c`).
///
/// It is sparse: a page that does not exist yet uses no memory and reads as zero. An access through a mapping creates
/// the page, but [`read_at`](Self::read_at) does not.
pub struct Shmem<M: Machine> {
    memory: Arc<Memory<M>>,
    /// The pages and the size.
    store: Shared<Store<M>>,
    mappings: Mappings<M>,
    identity: ObjectIdentity,
    /// The number of pages that are accounted as committed until the object is dropped.
    promised: u64,
    /// The setting that controls the huge pages of the object. `None` if no setting or only that of the mount controls
    /// them.
    huge: Option<SharedSetting>,
    /// Whether the pages can be swapped out. If they cannot, the object has no NUMA policies either.
    leaves: bool,
}

impl<M: Machine> Shmem<M> {
    /// Creates an object of `size` bytes, all zero.
    ///
    /// # Errors
    /// There is no heap memory.
    pub fn new(
        memory: Arc<Memory<M>>,
        size: u64,
        identity: ObjectIdentity,
    ) -> Result<Self, OutOfMemory> {
        Self::make(memory, size, identity, None)
    }

    /// Like [`new`](Self::new), for a file of a mounted tmpfs. All files of the mount share `room`, which limits the
    /// number of their pages and controls their huge pages.
    ///
    /// # Errors
    /// There is no heap memory.
    pub fn in_room(
        memory: Arc<Memory<M>>,
        size: u64,
        identity: ObjectIdentity,
        room: Arc<Room>,
    ) -> Result<Self, OutOfMemory> {
        Self::make(memory, size, identity, Some(room))
    }

    fn make(
        memory: Arc<Memory<M>>,
        size: u64,
        identity: ObjectIdentity,
        room: Option<Arc<Room>>,
    ) -> Result<Self, OutOfMemory> {
        let store = Store::new(&memory, size, room)?;
        memory.swap().list(&store)?;
        Ok(Self {
            store,
            memory,
            mappings: Mappings::new(),
            identity,
            promised: 0,
            huge: None,
            leaves: true,
        })
    }

    /// Makes `setting` control the huge pages of the object. Without a setting, faults create no huge pages, but a
    /// program can still collapse pages (`MADV_COLLAPSE`).
    #[must_use]
    pub fn with_huge_pages(mut self, setting: SharedSetting) -> Self {
        self.huge = Some(setting);
        self
    }

    /// Returns the setting that currently controls the huge pages, or `None` if there is none.
    fn setting(&self) -> Option<SharedSetting> {
        let of_room = |room: &Arc<Room>| SharedSetting::Mount(room.huge());
        self.huge.or_else(|| self.store.room.as_ref().map(of_room))
    }

    /// Excludes the pages from swap-out.
    #[must_use]
    pub fn staying(mut self) -> Self {
        self.leaves = false;
        self.memory.swap().delist(&self.store);
        self
    }

    /// Locks the pages in memory, or unlocks them (`shmem_lock`). Pages already in swap stay there until they are
    /// accessed.
    pub fn lock_pages(&self, on: bool) {
        self.store.locked.store(on, Ordering::Relaxed);
    }

    /// Charges the object to the memcg `memcg`, unless it is already charged to one. The memcg is charged for the swap
    /// slots of pages that are swapped out while no address space maps them. The resident pages of the object count in
    /// the memcg's usage.
    pub fn charge_to(&self, memcg: Memcg) {
        let mut state = self.store.lock();
        if state.memcg == Memcg::NOBODY {
            state.memcg = memcg;
            self.memory.swap().bills.charge_object(memcg);
        }
    }

    /// Accounts the complete size as committed memory until the object is dropped, for shared anonymous memory (Linux
    /// 7.2 `shmem_acct_size`).
    ///
    /// # Errors
    /// The overcommit policy denies the size.
    pub fn promised(mut self) -> Result<Self, Overcommit> {
        let pages = pages_of(self.size());
        self.memory.promise(pages)?;
        self.promised = pages;
        Ok(self)
    }

    /// Returns the size in bytes.
    pub fn size(&self) -> u64 {
        self.store.lock().size
    }

    /// Returns the number of pages in memory.
    pub fn resident(&self) -> u64 {
        let state = self.store.lock();
        state.pages.len() - state.pages.swapped()
    }

    /// Returns the number of pages in swap.
    pub fn pages_in_swap(&self) -> u64 {
        self.store.lock().pages.swapped()
    }

    /// Changes the size. If the object shrinks, the pages past the new end are unmapped everywhere, including private
    /// copies. If the object grows again later, the range past the former end reads as zero. The call has scheduling
    /// points, at which other threads can run. The caller must ensure that no other thread changes the size before the
    /// call returns.
    ///
    /// # Errors
    /// The new end is inside a page that is in swap and cannot be swapped in. The size is unchanged.
    pub fn set_size(&self, size: u64) -> Result<(), ObjectError> {
        let shrunk = {
            let mut state = self.store.lock_in_memory(&self.memory, &[cut_at(size)])?;
            let shrunk = size < state.size;
            state.size = size;
            if shrunk {
                self.clear_part(&state, size, size.next_multiple_of(PAGE_SIZE as u64));
            }
            shrunk
        };
        if shrunk {
            self.remove_pages(pages_of(size), u64::MAX);
            self.mappings.unmap(pages_of(size), u64::MAX, true);
        }
        Ok(())
    }

    /// Raises the size to `size` if it is smaller.
    pub fn grow_to(&self, size: u64) {
        let mut state = self.store.lock();
        state.size = state.size.max(size);
    }

    /// Fills `bytes` with the contents from byte `offset` on, up to the end of the object, and returns how many bytes
    /// were read.
    ///
    /// # Errors
    /// A page is in swap and cannot be swapped in.
    pub fn read_at(&self, offset: u64, bytes: &mut [u8]) -> Result<usize, ObjectError> {
        let available = self.size().saturating_sub(offset).min(bytes.len() as u64) as usize;
        for (index, within, part) in parts(offset, available) {
            let target = &mut bytes[part];
            let state = self.store.lock_in_memory(&self.memory, &[Some(index)])?;
            match state.pages.get(index) {
                Some(frame) => self.memory.frames().read(frame, within, target),
                None => target.fill(0),
            }
        }
        Ok(available)
    }

    /// Writes `bytes` at `offset`, growing the object if needed, and returns the number of bytes written. If a page
    /// after the first one fails, only the bytes before that page are written.
    ///
    /// # Errors
    /// Nothing was written, because no frame is free, the limit of the mount is reached, or the page is in swap and
    /// cannot be swapped in.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<usize, ObjectError> {
        let mut written = 0;
        for (index, within, part) in parts(offset, bytes.len()) {
            let whole = part.len() == PAGE_SIZE;
            let stored = self
                .store
                .lock_in_memory(&self.memory, &[Some(index)])
                .and_then(|mut state| {
                    let frame = self.page(&mut state, index, !whole)?;
                    let end = part.end;
                    self.memory.frames().write(frame, within, &bytes[part]);
                    state.size = state.size.max(offset + end as u64);
                    Ok(end)
                });
            match stored {
                Ok(end) => written = end,
                Err(error) if written == 0 => return Err(error),
                Err(_) => break,
            }
        }
        Ok(written)
    }

    /// Returns the frame of page `index` with an additional reference. The page is swapped in if needed, and created if
    /// it does not exist and `create` is set.
    ///
    /// # Errors
    /// [`ObjectError::BeyondEnd`], [`ObjectError::OutOfMemory`], [`ObjectError::NoRoom`] or [`ObjectError::Io`].
    pub fn frame_for(&self, index: u64, create: bool) -> Result<Option<Frame>, ObjectError> {
        loop {
            match self.frame_in_memory(index, create) {
                Err(ObjectError::InSwap) => self.store.bring_in_for_call(&self.memory, index)?,
                found => return found,
            };
        }
    }

    /// Zeroes the bytes `start..end` and frees the pages that are completely within them. The size does not change. The
    /// call has scheduling points, at which other threads can run.
    ///
    /// # Errors
    /// A page that is to be zeroed in part is in swap and cannot be swapped in. Nothing has changed.
    pub fn punch(&self, start: u64, end: u64) -> Result<(), ObjectError> {
        let page = PAGE_SIZE as u64;
        let (first, last) = (start.div_ceil(page), end / page);
        {
            let edges = [cut_at(start), cut_at(end)];
            let state = self.store.lock_in_memory(&self.memory, &edges)?;
            if first > last {
                self.clear_part(&state, start, end);
                return Ok(());
            }
            self.clear_part(&state, start, first * page);
            self.clear_part(&state, last * page, end);
        }
        if first < last {
            self.remove_pages(first, last);
            self.mappings.unmap(first, last, false);
        }
        Ok(())
    }

    /// Drops the pages `first..end`. The call has scheduling points, at which another thread can create a page in the
    /// range, which may then stay.
    fn remove_pages(&self, first: u64, end: u64) {
        let mut next = Some(first);
        while let Some(from) = next {
            {
                let mut state = self.store.lock();
                next = state.pages.remove_some(from, end, REMOVED);
                self.mappings.stale();
            }
            if next.is_some() {
                pause_point::<M::Threads>();
            }
        }
    }

    /// Creates every missing page of the bytes `start..end`, without changing the size. The call has scheduling points,
    /// at which other threads can run.
    ///
    /// # Errors
    /// No frame is free, or the limit of the mount is reached. The new pages beyond the end of the object are freed
    /// again.
    pub fn allocate(&self, start: u64, end: u64) -> Result<(), ObjectError> {
        let mut state = self.store.lock();
        let mut made: Option<(u64, u64)> = None;
        for index in start / PAGE_SIZE as u64..pages_of(end) {
            if index % TOGETHER == 0 {
                drop(state);
                pause_point::<M::Threads>();
                state = self.store.lock();
            }
            if state.pages.stored(index).is_some() {
                continue;
            }
            if let Some(order) = self.fill_for_call(&mut state, index, end) {
                made = Some((
                    made.map_or(index, |(first, _)| first),
                    index | ((1 << order) - 1),
                ));
                continue;
            }
            if let Err(error) = self.page(&mut state, index, true) {
                // Free the new pages beyond the size. Other threads cannot have accessed them yet.
                if let Some((first, last)) = made {
                    let unseen = first.max(pages_of(state.size));
                    drop(state);
                    self.remove_pages(unseen, last + 1);
                }
                return Err(error);
            }
            made = Some((made.map_or(index, |(first, _)| first), index));
        }
        Ok(())
    }

    /// Returns the offset of the first byte at or after `offset` that is in a hole if `hole` is set, otherwise of the
    /// first one that is in a page. The end of the object counts as a hole. Returns `None` if `offset` is at or past
    /// the end, or if `hole` is not set and no page follows before the end.
    pub fn seek(&self, offset: u64, hole: bool) -> Option<u64> {
        let mut state = self.store.lock();
        if offset >= state.size {
            return None;
        }
        let mut index = offset / PAGE_SIZE as u64;
        if hole {
            while state.pages.stored(index).is_some() {
                index += 1;
                if index % (8 * TOGETHER) == 0 {
                    drop(state);
                    pause_point::<M::Threads>();
                    state = self.store.lock();
                }
            }
            return Some(offset.max(index * PAGE_SIZE as u64).min(state.size));
        }
        let (index, _) = state.pages.next(index)?;
        let found = offset.max(index * PAGE_SIZE as u64);
        (found < state.size).then_some(found)
    }

    /// Returns the frame of page `index`, which must not be in swap. Creates the page if it does not exist. A new page
    /// is zeroed only if `zeroed` is set.
    fn page(&self, state: &mut State<M>, index: u64, zeroed: bool) -> Result<Frame, ObjectError> {
        match state.pages.look_up(self.memory.frames(), index) {
            Lookup::InMemory(frame) => Ok(frame),
            Lookup::InSwap => Err(ObjectError::InSwap),
            Lookup::Vacant(vacancy) => self.create(state, &vacancy, zeroed),
        }
    }

    /// Creates the page at the vacant index that a lookup returned as `vacancy`.
    #[inline(always)]
    fn create(
        &self,
        state: &mut State<M>,
        vacancy: &Vacancy<'_>,
        zeroed: bool,
    ) -> Result<Frame, ObjectError> {
        state.pages.check_room(1)?;
        let frames = self.memory.frames();
        state.choose(&self.memory, vacancy.index);
        let frame = if zeroed {
            let frame = frames.allocate_zeroed(0, FrameKind::Object)?;
            self.memory.count(Row::FramesZeroed, 1);
            frame
        } else {
            frames.allocate(0, FrameKind::Object)?
        };
        state.pages.fill(vacancy, frame.frame())?;
        Ok(frame.into_raw())
    }

    /// Creates a zeroed huge page for the pages from `first` on, if none of them exists and the limit of the mount
    /// allows it.
    fn make_folio(&self, state: &mut State<M>, first: u64) -> Option<Frame> {
        let end = first + HUGE_PAGES;
        let next = state.pages.next(first);
        if next.is_some_and(|(index, _)| index < end) {
            return None;
        }
        state.pages.check_room(HUGE_PAGES).ok()?;
        let frames = self.memory.frames();
        let counts = self.memory.huge().sizes.counts(FOLIO_ORDER);
        state.choose(&self.memory, first);
        let Ok(folio) = frames.allocate_zeroed(FOLIO_ORDER, FrameKind::Object) else {
            self.memory.count(Row::HugeFallbacks, 1);
            counts.shared_refused.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        state.pages.insert_folio(first, folio.frame()).ok()?;
        self.memory.count(Row::FramesZeroed, HUGE_PAGES);
        counts.shared_filled.fetch_add(1, Ordering::Relaxed);
        Some(folio.into_raw())
    }

    /// Returns how many of the 512 pages from `first` on are missing. Returns an error if they extend past the end of
    /// the object.
    fn missing(&self, state: &State<M>, first: u64) -> Result<u64, CollapseError> {
        let pages = first..first + HUGE_PAGES;
        if pages.end > pages_of(state.size) {
            return Err(CollapseError::NotEligible);
        }
        Ok(pages
            .filter(|index| state.pages.stored(*index).is_none())
            .count() as u64)
    }

    /// Replaces the 512 pages from `first` on, which no entry maps, by a huge page with the same contents.
    fn gather_folio(&self, first: u64, most_missing: u64) -> Result<(), CollapseError> {
        let mut state = self.store.lock();
        let end = first + HUGE_PAGES;
        let frames = self.memory.frames();
        let there = |index| state.pages.get(index);
        let missing = self.missing(&state, first)?;
        if missing > most_missing {
            return Err(CollapseError::NotEligible);
        }
        let alone = |frame| frames.references(frame) == 1;
        let in_use = !(first..end).filter_map(there).all(alone);
        if (first..end).any(|index| state.is_in_swap(index)) {
            // A page was swapped out again after `gather_swapped`.
            return Err(CollapseError::Busy);
        }
        if in_use {
            // A page has an extra reference: a system call or a device may be reading or writing it.
            return Err(CollapseError::Busy);
        }
        state.choose(&self.memory, first);
        let Ok(folio) = frames.allocate(FOLIO_ORDER, FrameKind::Object) else {
            self.memory.count(Row::HugeFallbacks, 1);
            return Err(CollapseError::NoFrames);
        };
        for (index, part) in (first..end).zip(folio.frame().number()..) {
            match state.pages.get(index) {
                Some(page) => frames.copy(page, Frame::new(part)),
                None => frames.clear(Frame::new(part)),
            }
        }
        let head = folio.frame();
        state
            .pages
            .insert_folio(first, head)
            .map_err(|error| match error {
                ObjectError::NoRoom => CollapseError::NotEligible,
                ObjectError::OutOfMemory
                | ObjectError::BeyondEnd
                | ObjectError::Io
                | ObjectError::WouldBlock
                | ObjectError::InSwap => CollapseError::NoFrames,
            })?;
        let _ = folio.into_raw();
        self.mappings.stale();
        drop(state);
        self.memory.count(Row::FramesCopied, HUGE_PAGES - missing);
        self.memory.count(Row::FramesZeroed, missing);
        self.memory.count(Row::HugeCollapses, 1);
        Ok(())
    }

    /// Zeroes the bytes `start..end`, which are all in one page, if that page is in memory.
    fn clear_part(&self, state: &State<M>, start: u64, end: u64) {
        if start >= end {
            return;
        }
        const ZEROES: [u8; 256] = [0; 256];
        if let Some(frame) = state.pages.get(start / PAGE_SIZE as u64) {
            let mut within = (start % PAGE_SIZE as u64) as usize;
            let mut left = (end - start) as usize;
            while left > 0 {
                let step = left.min(ZEROES.len());
                self.memory.frames().write(frame, within, &ZEROES[..step]);
                within += step;
                left -= step;
            }
        }
    }
}

impl<M: Machine> Drop for Shmem<M> {
    fn drop(&mut self) {
        self.remove_pages(0, u64::MAX);
        self.memory.swap().delist(&self.store);
        let memcg = core::mem::replace(&mut self.store.lock().memcg, Memcg::NOBODY);
        self.memory.swap().bills.release_object(memcg);
        self.memory.take_back(self.promised);
    }
}

impl<M: Machine> Object<M> for Shmem<M> {
    fn frame(&self, _memory: &Memory<M>, index: u64, _write: bool) -> Result<Frame, ObjectError> {
        let frame = self.frame_in_memory(index, true)?;
        Ok(frame.expect("created above"))
    }

    fn holds(&self, _memory: &Memory<M>, index: u64) -> bool {
        let state = self.store.lock();
        index < pages_of(state.size) && state.pages.stored(index).is_some()
    }

    fn find(&self, _memory: &Memory<M>, index: u64) -> Result<Option<Frame>, ObjectError> {
        match self.frame_for(index, false) {
            Err(ObjectError::BeyondEnd) => Ok(None),
            found => found,
        }
    }

    fn swapped(&self, first: u64, pages: u64) -> u64 {
        let state = self.store.lock();
        if state.pages.swapped() == 0 {
            return 0;
        }
        let mut count = 0;
        let mut next = state.pages.next(first);
        while let Some((index, stored)) = next.filter(|(index, _)| *index < first + pages) {
            count += u64::from(matches!(stored, Stored::InSwap(_)));
            next = state.pages.next(index + 1);
        }
        count
    }

    fn bring_in(&self, memory: &Memory<M>, index: u64, most: u64) -> Result<u64, ObjectError> {
        self.store.bring_in(memory, index, most)
    }

    fn begin_bring_in(
        &self,
        memory: &Memory<M>,
        index: u64,
        most: u64,
        asker: Asker,
    ) -> Result<u64, ObjectError> {
        Store::begin_bring_in(&self.store, memory, index, most, asker)
    }

    fn asked_for(&self, first: u64, pages: u64) -> u64 {
        self.store.asked_for(first, pages)
    }

    fn send_out(&self, memory: &Memory<M>, leaving: &Leaving) -> Left {
        let locked = self.store.locked.load(Ordering::Relaxed);
        if !self.leaves || locked || !memory.swap().is_on() {
            return Left::default();
        }
        let mut pages = leaving.pages;
        self.mappings.keep(&mut pages, leaving.unused);
        if pages.is_empty() {
            return Left::default();
        }
        self.store
            .send_out(memory, &self.mappings, pages, leaving.memcg)
    }

    fn cached(&self, _memory: &Memory<M>, index: u64) -> Option<Frame> {
        self.frame_in_memory(index, false).ok().flatten()
    }

    fn cached_run(&self, _: &Memory<M>, first: u64, wanted: u64, frames: &mut [Frame]) -> u64 {
        let state = self.store.lock();
        let stored = self.stored_run(&state, first, wanted);
        self.take_run(&state, first, stored, frames)
    }

    fn frame_and_run(
        &self,
        _memory: &Memory<M>,
        index: u64,
        run: &mut CachedRun,
    ) -> Result<Frame, ObjectError> {
        let mut state = self.store.lock();
        let frame = self.shared_frame(&mut state, index, true)?;
        let stored = self.stored_run(&state, run.first, run.wanted);
        if stored != 0 {
            run.found = self.take_run(&state, run.first, stored, run.frames());
        }
        Ok(frame.expect("created above"))
    }

    fn contains(&self, index: u64) -> bool {
        index < pages_of(self.store.lock().size)
    }

    fn folio(&self, memory: &Memory<M>, first: u64, asked: bool) -> Option<Frame> {
        let mut state = self.store.lock();
        let make = || self.may_be_huge(memory, asked);
        let head = match state.pages.folio(first) {
            Some(head) => head,
            // Create a huge page only if it is completely within the object: no mapping could reach the pages beyond
            // the end.
            None if first + HUGE_PAGES <= pages_of(state.size) && make() => {
                self.make_folio(&mut state, first)?
            }
            None => return None,
        };
        Some(memory.frames().share(head).into_raw())
    }

    fn part(&self, first: u64) {
        let state = self.store.lock();
        state.pages.part_at(first);
        self.mappings.stale();
    }

    fn fill_folio(
        &self,
        memory: &Memory<M>,
        index: u64,
        fitting: FolioOrders,
        asked: bool,
    ) -> Option<u8> {
        let allowed = memory.huge().shared_orders(self.setting()?, asked);
        let orders = fitting.and(allowed);
        if orders.is_empty() {
            return None;
        }
        let mut state = self.store.lock();
        let end = pages_of(state.size);
        self.fill_hole(&mut state, index, orders, end)
    }

    fn largest_folio(&self, memory: &Memory<M>) -> Option<u8> {
        memory.huge().largest_shared(self.setting()?)
    }

    fn may_be_huge(&self, memory: &Memory<M>, asked: bool) -> bool {
        let allows = |setting| memory.huge().allows_shared(setting, asked);
        self.setting().is_some_and(allows)
    }

    fn collapse(&self, first: u64, limits: CollapseLimits) -> Result<(), CollapseError> {
        if self.memory.huge().shared_mode() == SharedMode::Deny {
            return Err(CollapseError::NotEligible);
        }
        {
            let state = self.store.lock();
            if state.pages.folio(first).is_some() {
                return Ok(());
            }
            let missing = self.missing(&state, first)?;
            let swapped = (first..first + HUGE_PAGES)
                .filter(|index| state.is_in_swap(*index))
                .count() as u64;
            // Do not collapse a range without any page: it may have been truncated in the meantime (`collapse_file`).
            if missing == HUGE_PAGES || missing > limits.missing || swapped > limits.swapped {
                return Err(CollapseError::NotEligible);
            }
        }
        self.gather_swapped(first)?;
        // From here on, a fault that looked up one of these pages before this call of `stale` repeats the lookup. A
        // fault that looks up a page after it either still holds its reference to the frame when `gather_folio` checks
        // for extra references, or repeats the lookup because `gather_folio` replaces the page.
        self.mappings.stale();
        self.mappings.moved(first, first + HUGE_PAGES);
        self.gather_folio(first, limits.missing)
    }

    fn place(&self, first: u64, pages: u64, policy: PolicyId) -> Result<bool, OutOfMemory> {
        if self.leaves {
            let mut state = self.store.lock();
            state.placed.set(first..first + pages, policy)?;
        }
        Ok(self.leaves)
    }

    fn placement(&self, index: u64) -> Option<PolicyId> {
        self.leaves.then(|| self.store.lock().placed.get(index))
    }

    fn exchange(
        &self,
        _memory: &Memory<M>,
        index: u64,
        size: PageSize,
        exchange: &mut dyn FnMut(Frame) -> Option<Frame>,
    ) {
        let mut state = self.store.lock();
        match size {
            PageSize::Size4K => {
                state.pages.part_at(index);
                state.pages.exchange(index, exchange);
            }
            PageSize::Size2M | PageSize::Size1G => state.pages.exchange_folio(index, exchange),
        }
        self.mappings.stale();
    }

    fn put(
        &self,
        _memory: &Memory<M>,
        index: u64,
        frame: Frame,
        map: &mut dyn FnMut() -> bool,
    ) -> Result<Put, ObjectError> {
        let mut state = self.store.lock();
        if index >= pages_of(state.size) {
            return Err(ObjectError::BeyondEnd);
        }
        if state.pages.stored(index).is_some() {
            return Ok(Put::Exists);
        }
        state.pages.insert(index, frame)?;
        if map() {
            return Ok(Put::Stored);
        }
        // The caller keeps its reference to the frame.
        let _ = state.pages.remove(index);
        Ok(Put::Removed)
    }

    fn identity(&self) -> ObjectIdentity {
        self.identity
    }

    fn is_anonymous(&self) -> bool {
        true
    }

    fn describe(&self, out: &mut dyn fmt::Write) -> fmt::Result {
        out.write_str("/dev/zero (deleted)")
    }

    fn mappings(&self) -> &Mappings<M> {
        &self.mappings
    }

    fn remove(&self, _memory: &Memory<M>, first: u64, pages: u64) -> Result<bool, ObjectError> {
        self.punch(first * PAGE_SIZE as u64, (first + pages) * PAGE_SIZE as u64)?;
        Ok(true)
    }

    fn is_memory(&self) -> bool {
        true
    }
}

/// Returns the index of the page that `offset` is inside, or `None` if `offset` is on a page boundary.
fn cut_at(offset: u64) -> Option<u64> {
    (offset % PAGE_SIZE as u64 != 0).then_some(offset / PAGE_SIZE as u64)
}

/// Returns how many pages are needed for `bytes` bytes.
fn pages_of(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE_SIZE as u64)
}

/// Splits the range of `length` bytes that begins at `offset` at page boundaries. Returns for each part the index of
/// its page, its offset in the page, and its range relative to `offset`.
fn parts(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (u64, usize, core::ops::Range<usize>)> {
    let mut done = 0;
    core::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_SIZE as u64) as usize;
        let step = (PAGE_SIZE - within).min(length - done);
        let part = done..done + step;
        done += step;
        Some((at / PAGE_SIZE as u64, within, part))
    })
}
