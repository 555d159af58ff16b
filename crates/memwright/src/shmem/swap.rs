//! Swap-out and swap-in of shared memory (Linux 7.2 `mm/shmem.c`, `shmem_writeout` and `shmem_swapin_folio`).
//!
//! The swap entries of shared memory are in the object's store, not in page tables. Usually the store has the only use
//! of a slot. The lock of the store is not held during a transfer. Each thread that reads a page therefore adds a use
//! to the slot, so that the slot is not reallocated to another page. If several threads read the page, the store gets
//! the frame of the first thread that finishes. A page that is being written to its slot is marked in the store. A
//! lookup clears the mark, and the page then stays in memory. As on Linux, a page that was swapped in no longer has a
//! slot.

use memwright_table::sync::Threads;
use memwright_table::{FrameKind, FrameRef, Machine, Page, Shared, Slots};

use crate::mm::mappings::Mappings;
use crate::mm::memory::Memory;
use crate::mm::object::CollapseError;
use crate::mm::swap_folio::ComingFrames;
use crate::shmem::Shmem;
use crate::shmem::unmapped::ObjectPlace;
use crate::store::cluster::{CLUSTER, Cluster};
use crate::store::leaving::Left;
use crate::store::page_store::Store;
use crate::store::pages::Stored;
use crate::swap::Swap;
use crate::swap::asker::Asker;
use crate::swap::device::{DeviceError, Direction};
use crate::swap::place::Place;
use crate::swap::reads::Begun;
use crate::swap::transfers::Transfers;
use crate::types::error::ObjectError;
use crate::types::huge::HUGE_PAGES;
use crate::types::memcg::{Memcg, NoMemcg};
use crate::types::stats::Row;
use crate::types::swap_window::{MOST, Window};

impl<M: Machine> Swap<M> {
    /// Opens a memcg below `parent`, with no charges and no limit. `parent` is [`Memcg::NOBODY`] for a memcg at the top
    /// of the hierarchy.
    ///
    /// # Errors
    /// The charge records cannot be allocated, or there are too many memcgs.
    pub fn open_memcg(&self, parent: Memcg) -> Result<Memcg, NoMemcg> {
        let mut devices = self.devices.lock();
        let opened = self.bills.open(parent)?;
        for active in devices.iter_mut().flatten() {
            if active.slots.note_memcgs().is_err() {
                self.bills.close(opened);
                return Err(NoMemcg::OutOfMemory);
            }
        }
        Ok(opened)
    }

    /// Closes a memcg. Slots and objects that are charged to it stay charged to the memcgs above it.
    pub fn close_memcg(&self, memcg: Memcg) {
        self.bills.close(memcg);
    }
}

/// A page that is being swapped out.
struct OnItsWay<'a, M: Machine> {
    index: u64,
    /// The frame of the page. The reference keeps the frame allocated while the device reads from it.
    frame: FrameRef<'a, M>,
    slot: u64,
}

/// A page that is being swapped in.
struct OnItsWayBack<'a, M: Machine> {
    index: u64,
    slot: u64,
    /// The frame into which the page is read, or `None` if its read was not submitted.
    frame: Option<FrameRef<'a, M>>,
    /// Whether the store has replaced the page's slot by `frame`.
    came: bool,
}

/// Pages that are swapped in together.
struct Coming<'a, M: Machine> {
    pages: [Option<OnItsWayBack<'a, M>>; MOST as usize],
    transfers: Transfers<M, { MOST as usize }>,
}

impl<'a, M: Machine> Coming<'a, M> {
    const fn new() -> Self {
        Self {
            pages: [const { None }; MOST as usize],
            transfers: Transfers::NONE,
        }
    }

    /// Submits the reads of the pages in order, until no frame can be allocated. If the device is busy, waits for
    /// earlier reads if `waits` is set. Otherwise submits no more.
    ///
    /// # Errors
    /// No frame is available for the first page, or the device is busy and `waits` is not set.
    #[inline(always)]
    fn begin(&mut self, memory: &'a Memory<M>, waits: bool) -> Result<(), ObjectError> {
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        let count = self.pages.iter().flatten().count();
        let mut coming = ComingFrames::new(memory, FrameKind::Object);
        for (number, way) in self.pages.iter_mut().flatten().enumerate() {
            let frame = match coming.next(way.index, (count - number) as u64) {
                Ok(frame) => frame,
                Err(error) if number == 0 => return Err(error.into()),
                Err(_) => break,
            };
            let page = (way.slot, frame.frame());
            let transfers = &mut self.transfers;
            if waits {
                transfers.begin(swap, frames, number, Direction::In, page);
            } else if !transfers.try_begin(swap, frames, number, Direction::In, page) {
                if number == 0 {
                    return Err(ObjectError::WouldBlock);
                }
                break;
            }
            way.frame = Some(frame);
        }
        Ok(())
    }

    /// Waits for the reads, and returns how many succeeded.
    ///
    /// # Errors
    /// The first page could not be read.
    fn finish(&mut self, memory: &Memory<M>) -> Result<u64, ObjectError> {
        let mut result = Ok(());
        let mut read = 0;
        for (number, way) in self.pages.iter_mut().flatten().enumerate() {
            if way.frame.is_none() {
                continue;
            }
            if self.transfers.finish(memory.frames(), number).is_ok() {
                read += 1;
                continue;
            }
            memory.count(Row::SwapFailed, 1);
            way.frame = None;
            if number == 0 {
                result = Err(ObjectError::Io);
            }
        }
        memory.count(Row::SwapIn, read);
        result.map(|()| read)
    }

    /// Records the submitted reads. The fault of `asker` completes them after it has released its locks.
    #[cold]
    fn put_off(mut self, store: &Shared<Store<M>>, memory: &Memory<M>, asker: Asker) {
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        for (number, way) in self.pages.into_iter().flatten().enumerate() {
            let Some(frame) = way.frame else {
                swap.release(frames, &[way.slot]);
                continue;
            };
            let begun = Begun {
                asker,
                page: asker.page.add(number as u64),
                slot: way.slot,
                frame: frame.into_raw(),
                answer: self.transfers.take(number),
                object: Some((store.clone(), way.index)),
            };
            swap.put_off(frames, begun);
        }
    }

    /// Drops the slot uses that the reads held. For each page that was swapped in, also drops the store's use of the
    /// slot. For the other pages, frees the frame.
    fn settle(self, memory: &Memory<M>) {
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        for way in self.pages.into_iter().flatten() {
            if way.came {
                let _ = way.frame.map(FrameRef::into_raw);
                // The page is in memory: drop the store's use of the slot.
                swap.release(frames, &[way.slot]);
            }
            // Drop the use that the read held.
            swap.release(frames, &[way.slot]);
        }
    }
}

impl<M: Machine> Store<M> {
    /// Swaps in page `index`, if it is in swap, and pages that follow it, as long as their slots are consecutive and
    /// frames are available. Reads at most `most` pages in total. Submits all reads before it waits for the first one.
    /// Returns the number of pages read.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`]: page `index` is still in its slot. The pages that follow it
    /// may have been swapped in.
    pub(crate) fn bring_in(
        &self,
        memory: &Memory<M>,
        index: u64,
        most: u64,
    ) -> Result<u64, ObjectError> {
        let Some(mut coming) = self.claim(memory, index, most) else {
            return Ok(0);
        };
        let begun = coming.begin(memory, true);
        self.take_in(memory, coming, begun)
    }

    /// Like [`bring_in`](Self::bring_in), for a fault, which holds locks. Reads that the device does not finish at once
    /// are put off: the fault [completes](Self::end_read) them after it has released its locks.
    ///
    /// # Errors
    /// The errors of `bring_in`, and [`ObjectError::WouldBlock`] if the reads were put off or the device is busy.
    pub(super) fn begin_bring_in(
        store: &Shared<Self>,
        memory: &Memory<M>,
        index: u64,
        most: u64,
        asker: Asker,
    ) -> Result<u64, ObjectError> {
        let Some(mut coming) = store.claim(memory, index, most) else {
            return Ok(0);
        };
        let begun = coming.begin(memory, false);
        if coming.transfers.is_pending() {
            coming.put_off(store, memory, asker);
            return Err(ObjectError::WouldBlock);
        }
        store.take_in(memory, coming, begun)
    }

    /// Waits for the reads. For each page that was read, replaces the page's slot in the store by its frame.
    #[inline(always)]
    fn take_in(
        &self,
        memory: &Memory<M>,
        mut coming: Coming<'_, M>,
        begun: Result<(), ObjectError>,
    ) -> Result<u64, ObjectError> {
        let read = coming.finish(memory);
        {
            let mut state = self.lock();
            for way in coming.pages.iter_mut().flatten() {
                way.came = way
                    .frame
                    .as_ref()
                    .is_some_and(|frame| state.pages.come_back(way.index, way.slot, frame.frame()));
            }
        }
        coming.settle(memory);
        begun?;
        read
    }

    /// Ends a read that a fault had put off. Replaces the slot of page `index` by `frame`, unless the read failed or
    /// another thread has swapped the page in or discarded it meanwhile. The read keeps its use of the slot.
    pub(crate) fn end_read(
        &self,
        memory: &Memory<M>,
        index: u64,
        slot: u64,
        (frame, read): (FrameRef<'_, M>, Result<(), DeviceError>),
    ) {
        if read.is_err() {
            memory.count(Row::SwapFailed, 1);
            return;
        }
        memory.count(Row::SwapIn, 1);
        let came = self.lock().pages.come_back(index, slot, frame.frame());
        if came {
            let _ = frame.into_raw();
            // The page is in memory: drop the store's use of the slot.
            memory.swap().release(memory.frames(), &[slot]);
        }
    }

    /// Selects page `index` and the pages after it that are to be read with it, and adds a use to the slot of each. The
    /// slots then cannot be reallocated during the reads. Returns `None` if page `index` is not in swap.
    fn claim(&self, memory: &Memory<M>, index: u64, most: u64) -> Option<Coming<'_, M>> {
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        let state = self.lock();
        let Some(Stored::InSwap(first)) = state.pages.stored(index) else {
            return None;
        };
        state.choose(memory, index);
        let mut coming = Coming::new();
        let ways = coming.pages.iter_mut().zip(index..);
        for (number, (way, index)) in ways.take(most.clamp(1, MOST) as usize).enumerate() {
            let slot = Place::of(first).after(number as u32).slot();
            if state.pages.stored(index) != Some(Stored::InSwap(slot)) {
                break;
            }
            swap.share(frames, &[slot]);
            *way = Some(OnItsWayBack {
                index,
                slot,
                frame: None,
                came: false,
            });
        }
        Some(coming)
    }

    /// Swaps in page `index`, and pages that follow it, for a system call, which accesses the object without a mapping.
    /// The number of pages depends on how many pages of the last readahead were accessed.
    pub(crate) fn bring_in_for_call(
        &self,
        memory: &Memory<M>,
        index: u64,
    ) -> Result<(), ObjectError> {
        if !memory.policy().swapin_around() {
            return self.bring_in(memory, index, 1).map(|_| ());
        }
        let (window, page) = (self.window.get(), Page::new(index));
        let (first, ahead) = window.ahead();
        let hits = self.asked_for(first.number(), ahead).count_ones();
        let wanted = window.pages_at(page, hits.into());
        let read = self.bring_in(memory, index, wanted)?;
        let cpu = M::Threads::cpu();
        memory.count_ahead(cpu, ahead, hits.into());
        self.window.set(Window::after_read(page, wanted, read));
        memory.count_on(cpu, Row::SwapAround, read.saturating_sub(1));
        Ok(())
    }

    /// Returns a bit mask of the `pages` pages from `first` on, at most 64: bit `i` is set if page `first + i` was
    /// looked up in the object since it was stored, swapped in, or last aged.
    pub(crate) fn asked_for(&self, first: u64, pages: u64) -> u64 {
        if pages == 0 {
            return 0;
        }
        let state = self.lock();
        let asked = |bit: &u64| state.pages.was_asked(first.wrapping_add(*bit));
        let bits = (0..pages.min(u64::BITS.into())).filter(asked);
        bits.fold(0, |found, bit| found | 1 << bit)
    }

    /// Swaps in the pages at or after index `from` whose slots are on device `device`, and subtracts their number from
    /// `left`. Returns the index at which to continue when `left` is used up, or `None` at the end of the object.
    fn bring_back(
        &self,
        memory: &Memory<M>,
        device: usize,
        from: u64,
        left: &mut u64,
    ) -> Result<Option<u64>, ObjectError> {
        let mut next = from;
        while let Some(index) = self.next_on(device, next) {
            if *left == 0 {
                return Ok(Some(index));
            }
            let read = self.bring_in(memory, index, (*left).min(MOST))?;
            *left = left.saturating_sub(read.max(1));
            next = index + 1;
        }
        Ok(None)
    }

    /// Returns the index of the first page at or after `from` whose slot is on device `device`.
    fn next_on(&self, device: usize, from: u64) -> Option<u64> {
        let state = self.lock();
        if state.pages.swapped() == 0 {
            return None;
        }
        let mut next = state.pages.next(from);
        while let Some((index, stored)) = next {
            match stored {
                Stored::InSwap(slot) if Place::of(slot).device == device => return Some(index),
                Stored::InSwap(_) | Stored::InMemory(_) => {}
            }
            next = state.pages.next(index + 1);
        }
        None
    }

    /// Unmaps `pages` in every address space. Then swaps out the pages to whose frames only the store has a reference.
    ///
    /// # Locks
    /// The caller holds no lock of an address space.
    pub(crate) fn send_out(
        &self,
        memory: &Memory<M>,
        mappings: &Mappings<M>,
        pages: Cluster,
        memcg: Memcg,
    ) -> Left {
        // A fault that looked up a page of the object before this call of `stale` repeats the lookup. A fault that
        // looks up a page later either holds a reference to the frame or clears the swap-out mark of the page. In both
        // cases the page stays in memory.
        mappings.stale();
        for run in pages.runs() {
            mappings.withdraw(run.start, run.end);
        }
        self.write_out(memory, pages, memcg)
    }

    /// Swaps out the pages of `pages` to whose frames only the store has a reference. No entry may map the pages.
    pub(super) fn write_out(&self, memory: &Memory<M>, pages: Cluster, memcg: Memcg) -> Left {
        let (ways, mut is_full) = self.begin(memory, pages, memcg);
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        let mut transfers = Transfers::<M, CLUSTER>::NONE;
        for (number, way) in ways.iter().enumerate() {
            if let Some(way) = way {
                let page = (way.slot, way.frame.frame());
                transfers.begin(swap, frames, number, Direction::Out, page);
            }
        }
        let (mut out, mut written) = (0, 0);
        for (number, way) in ways.into_iter().enumerate() {
            let Some(way) = way else { continue };
            let taken = transfers.finish(frames, number);
            written += u64::from(taken.is_ok());
            is_full |= taken == Err(DeviceError::Full);
            memory.count(Row::SwapRefused, u64::from(taken.is_err()));
            out += u64::from(self.end(memory, &way, taken.is_ok()));
        }
        memory.count(Row::SwapOut, out);
        memory.count(Row::SwapWritten, written);
        Left {
            pages: out,
            written_back: 0,
            is_full,
        }
    }

    /// Selects the pages to be written, marks them as being swapped out, and allocates a slot for each. Returns these
    /// pages, and whether slots ran out.
    fn begin<'a>(
        &self,
        memory: &'a Memory<M>,
        pages: Cluster,
        memcg: Memcg,
    ) -> ([Option<OnItsWay<'a, M>>; CLUSTER], bool) {
        let mut ways = [const { None }; CLUSTER];
        let (frames, swap) = (&**memory.frames(), &**memory.swap());
        let state = self.lock();
        for (way, index) in ways.iter_mut().zip(pages.iter()) {
            let Some(Stored::InMemory(frame)) = state.pages.stored(index) else {
                continue;
            };
            state.pages.part_at(index);
            if frames.references(frame) != 1 || frames.pins(frame) != 0 {
                continue;
            }
            let Some(slot) = swap.reserve(memcg) else {
                return (ways, true);
            };
            state.pages.begin_leaving(index);
            *way = Some(OnItsWay {
                index,
                frame: frames.share(frame),
                slot,
            });
        }
        (ways, false)
    }

    /// Ends the swap-out of a page. If the device has stored the page (`taken`) and the page was not looked up
    /// meanwhile, replaces its frame in the store by its slot. Otherwise keeps the page and frees the slot. Returns
    /// whether the page was swapped out.
    fn end(&self, memory: &Memory<M>, way: &OnItsWay<'_, M>, taken: bool) -> bool {
        let frames = &**memory.frames();
        let frame = way.frame.frame();
        let mut state = self.lock();
        let left = taken && state.pages.leave(way.index, frame, way.slot);
        if left {
            // Drop the store's reference. The caller holds another reference to the frame.
            drop(frames.adopt(frame));
        } else {
            state.pages.end_leaving(way.index, frame);
            memory.swap().release(frames, &[way.slot]);
        }
        left
    }
}

impl<M: Machine> Shmem<M> {
    /// Swaps in the pages that are in swap, among the 512 pages from index `first` on, before they are collapsed.
    pub(super) fn gather_swapped(&self, first: u64) -> Result<(), CollapseError> {
        for index in first..first + HUGE_PAGES {
            let brought = self.store.bring_in(&self.memory, index, MOST);
            brought.map_err(|error| match error {
                ObjectError::OutOfMemory => CollapseError::NoFrames,
                ObjectError::BeyondEnd
                | ObjectError::NoRoom
                | ObjectError::Io
                | ObjectError::WouldBlock
                | ObjectError::InSwap => CollapseError::NotEligible,
            })?;
        }
        Ok(())
    }
}

impl<M: Machine> Swap<M> {
    /// Returns the number of slots that hold pages of objects.
    pub fn slots_of_objects(&self) -> u64 {
        self.stores.sum(|store| store.lock().pages.swapped())
    }
}

impl<M: Machine> Memory<M> {
    /// Swaps in, from `place` on, about `most` pages of objects whose slots are on device `device`. Sets `place` to the
    /// position at which the next call continues. Returns whether the pass is complete.
    ///
    /// # Errors
    /// [`ObjectError::OutOfMemory`] or [`ObjectError::Io`]; pages that were swapped in before stay in memory.
    pub fn bring_objects_back(
        &self,
        device: usize,
        place: &mut ObjectPlace,
        most: u64,
    ) -> Result<bool, ObjectError> {
        let mut left = most;
        while let Some((number, store)) = self.swap().listed(place.number) {
            if number != place.number {
                *place = ObjectPlace { number, index: 0 };
            }
            if let Some(next) = store.bring_back(self, device, place.index, &mut left)? {
                place.index = next;
                return Ok(false);
            }
            *place = ObjectPlace {
                number: number + 1,
                index: 0,
            };
        }
        Ok(true)
    }
}
