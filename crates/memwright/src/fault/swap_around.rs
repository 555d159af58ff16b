//! Swap readahead: a fault also reads the pages that follow its page (Linux 7.2 `mm/swap_state.c`,
//! `swap_vma_readahead`). Aligned pages are read into folios (`mm/memory.c`, `alloc_swap_folio`).

use memwright_table::{
    Bits, Cursor, Entry, Frame, FrameKind, FrameRef, Machine, OutOfFrames, Page, PageRange,
    PageSize, Present, Swapped,
};

use crate::fault::attempt::Fault;
use crate::mm::object::Object;
use crate::mm::swap_folio::ComingFrames;
use crate::swap::device::Direction;
use crate::swap::place::Place;
use crate::swap::transfers::Transfers;
use crate::types::access::FaultKind;
use crate::types::error::{FaultError, ObjectError};
use crate::types::stats::Row;
use crate::types::swap_window::{MOST, Window};

/// The number of pages that a lowest-level page table maps.
const TABLE_PAGES: u64 = 512;

/// Pages that are being read, with consecutive addresses and slots. The first is the page that faulted.
struct Run<'a, M: Machine> {
    pages: [Option<(Swapped, FrameRef<'a, M>)>; MOST as usize],
    transfers: Transfers<M, { MOST as usize }>,
    /// The number of reads submitted.
    count: usize,
    /// The slot of the first page.
    slot: u64,
}

impl<'a, M: Machine> Fault<'a, M> {
    /// Swaps in the page of the entry under the cursor, and the pages after it as long as their slots are consecutive.
    /// Reads that the device does not finish at once are completed together. Must not be called for a store to a page
    /// that a userfaultfd write-protects.
    #[inline(never)]
    pub(super) fn swap_in_around(
        self,
        cursor: Cursor<'a, M>,
        swapped: Swapped,
    ) -> Result<FaultKind, FaultError> {
        let core = self.core;
        let window = self.area.window.get();
        let (first, ahead) = window.ahead();
        // Drop the cursor: `hits` locks page tables, and one of them can be the table that the cursor locks.
        drop(cursor);
        let came_again = self.page.number().wrapping_sub(first.number()) < ahead;
        let hits = self.hits(window, 0) + u64::from(came_again);
        let wanted = window.pages_at(self.page, hits);
        // The cursor holds the lock of one page table, so the range ends where that table ends.
        let table_end = (self.page.number() | (TABLE_PAGES - 1)) + 1;
        let end = (self.page.number() + wanted).min(table_end);
        let end = Page::new(end).min(self.area.end());
        let mut cursor = core.table.cursor(PageRange::new(self.page, end));
        if cursor.peek() != Entry::Swapped(swapped) {
            // Another thread has changed the entry: the caller retries the access.
            return Err(FaultError::WouldBlock);
        }
        let (frames, ahead_here) = (core.memory.frames(), cursor.range().len() as u32 - 1);
        let found = (core.memory.swap()).find(frames, swapped.slot, ahead_here)?;
        let (uses, stores) = (found.uses, self.access.write);
        if let Some(frame) = found.frame {
            let back = self.bring_cached(swapped, frame, stores)?;
            let kind = back.kind;
            self.show(&mut cursor, swapped, back, stores);
            return Ok(kind);
        }
        let mut run = self.ask_for(&mut cursor, swapped, uses == 1, found.alone)?;
        let kind = if run.transfers.is_pending() {
            self.put_run_off(&mut run)
        } else {
            self.show_run(&mut cursor, &mut run, uses)
        };
        core.memory.count_ahead(self.cpu, ahead, hits);
        let next = Window::after_read(self.page, wanted, run.count as u64);
        self.area.window.set(next);
        kind
    }

    /// Submits the reads of the page that faulted and of the pages after it in the cursor's range. Stops before a page
    /// whose slot is not one of the `ahead` slots after that of the page that faulted, and when no frame is available.
    /// `alone` is true if only one entry refers to the slot of the page that faulted.
    ///
    /// # Errors
    /// No frame is available for the page that faulted, or the device is busy.
    fn ask_for(
        self,
        cursor: &mut Cursor<'_, M>,
        swapped: Swapped,
        alone: bool,
        ahead: u32,
    ) -> Result<Run<'a, M>, FaultError> {
        let (memory, swap) = (&*self.core.memory, self.core.memory.swap());
        let frames = memory.frames();
        let mut run = Run {
            pages: [const { None }; MOST as usize],
            transfers: Transfers::NONE,
            count: 0,
            slot: swapped.slot,
        };
        let (entries, count) = entries_from(cursor, swapped, 1 + ahead);
        let mut coming = ComingFrames::new(memory, FrameKind::Anonymous);
        for (number, swapped) in (0..count).zip(entries) {
            // If the page has several owners, they will share its frame. A page of a folio cannot be shared, so the
            // frame is a single one.
            let left = if number == 0 && !alone {
                1
            } else {
                count - number
            };
            let frame = match coming.next(self.page.number() + number, left) {
                Ok(frame) => frame,
                Err(error) if number == 0 => return Err(error.into()),
                Err(OutOfFrames) => break,
            };
            let to = (swapped.slot, frame.frame());
            let transfers = &mut run.transfers;
            if !transfers.try_begin(swap, frames, run.count, Direction::In, to) {
                if number == 0 {
                    return Err(FaultError::WouldBlock);
                }
                break;
            }
            run.pages[run.count] = Some((swapped, frame));
            run.count += 1;
        }
        Ok(run)
    }

    /// Puts the submitted reads off until the caller has released its locks.
    #[cold]
    fn put_run_off(self, run: &mut Run<'a, M>) -> Result<FaultKind, FaultError> {
        for (number, page) in run.pages.iter_mut().enumerate().take(run.count) {
            if let Some((swapped, frame)) = page.take() {
                let answer = run.transfers.take(number);
                self.put_off(self.page.add(number as u64), swapped, frame, answer);
            }
        }
        Err(FaultError::WouldBlock)
    }

    /// Maps the pages of a run after its reads have finished. The page-table lock has been held since the reads were
    /// submitted, so the entries are unchanged. A page whose read failed stays in swap. Returns the outcome for the
    /// first page, which is the outcome of the fault.
    fn show_run(
        self,
        cursor: &mut Cursor<'_, M>,
        run: &mut Run<'a, M>,
        uses: u32,
    ) -> Result<FaultKind, FaultError> {
        let core = self.core;
        let (frames, swap) = (core.memory.frames(), core.memory.swap());
        let mut result = Err(FaultError::Io);
        let read = run.transfers.finish(frames, 0);
        if let Some((swapped, frame)) = run.pages[0].take() {
            cursor.seek(self.page);
            result = self.map_read(cursor, swapped, (frame, read), uses, self.access.write);
        }
        let came = self.others_read(run);
        let others = came.iter().flatten().count() as u64;
        if others == 0 {
            return result;
        }
        swap.keep_run(frames, run.slot, &came[..run.count]);
        for (number, page) in (0..).zip(&mut run.pages[..run.count]) {
            let Some((swapped, frame)) = page.take() else {
                continue;
            };
            let bits = self.bits_of(swapped.bits, true, false) - Bits::ACCESSED;
            cursor.seek(self.page.add(number));
            cursor.swap_in(Present {
                frame: frame.into_raw(),
                size: PageSize::Size4K,
                bits,
            });
        }
        core.memory.count_on(self.cpu, Row::SwapIn, others);
        core.memory.count_on(self.cpu, Row::SwapAround, others);
        core.note_filled(self.cpu, others);
        core.note_swapped(-(others as i64));
        result
    }

    /// Returns the frames of the pages that were read, except the first page, each at its index in the run. Frees the
    /// frames of the pages whose reads failed.
    fn others_read(self, run: &mut Run<'a, M>) -> [Option<Frame>; MOST as usize] {
        let memory = &*self.core.memory;
        let mut came = [None; MOST as usize];
        let others = came.iter_mut().zip(&mut run.pages);
        for (number, (came, page)) in others.enumerate().take(run.count).skip(1) {
            let read = run.transfers.finish(memory.frames(), number);
            if read.is_err() {
                memory.count_on(self.cpu, Row::SwapFailed, 1);
                *page = None;
            }
            *came = page.as_ref().map(|(_, frame)| frame.frame());
        }
        came
    }

    /// Swaps in page `index` of the object, which is the page that faulted, and pages that follow it in the area.
    /// Returns whether a swap device was read.
    #[cold]
    pub(super) fn bring_object_in(
        self,
        object: &dyn Object<M>,
        index: u64,
    ) -> Result<bool, ObjectError> {
        let memory = &*self.core.memory;
        if !memory.policy().swapin_around() {
            return Ok(object.begin_bring_in(memory, index, 1, self.asker(1))? > 0);
        }
        let window = self.area.window.get();
        let (first, ahead) = window.ahead();
        let seen = self.area.range().contains(first) && ahead > 0;
        let asked = if seen {
            object.asked_for(self.area.offset_of(first), ahead)
        } else {
            0
        };
        let hits = self.hits(window, asked);
        let wanted = window.pages_at(self.page, hits);
        let most = wanted.min(self.area.end().number() - self.page.number());
        let brought = object.begin_bring_in(memory, index, most, self.asker(wanted));
        let read = brought.inspect_err(|error| {
            if *error == ObjectError::WouldBlock {
                memory.count_ahead(self.cpu, ahead, hits);
            }
        })?;
        memory.count_ahead(self.cpu, ahead, hits);
        let next = Window::after_read(self.page, wanted, read);
        self.area.window.set(next);
        memory.count_on(self.cpu, Row::SwapAround, read.saturating_sub(1));
        Ok(read > 0)
    }

    /// Counts the pages of the last readahead that were accessed after the readahead, through this address space or
    /// through the object. Bit `i` of `asked` is set if page `i` of the last readahead was accessed through the object.
    fn hits(self, window: Window, asked: u64) -> u64 {
        let core = self.core;
        let (first, ahead) = window.ahead();
        let range = PageRange::new(first, first.add(ahead)).intersect(self.area.range());
        if range.is_empty() {
            return 0;
        }
        let used = Bits::ACCESSED | Bits::FOLDED_ACCESSED;
        let mut hits = 0;
        let mut cursor = core.table.cursor(range);
        let mut next = range.start;
        while next < range.end {
            cursor.seek(next);
            let page = cursor.peek().present();
            let is_used = page.is_some_and(|page| page.bits.intersects(used))
                || asked >> (next.number() - first.number()) & 1 != 0;
            hits += u64::from(is_used);
            next = next.add(1);
        }
        hits
    }
}

/// Returns the entries of the cursor's range whose slots are consecutive, starting with `swapped`, and their number, at
/// most `most`.
fn entries_from<M: Machine>(
    cursor: &mut Cursor<'_, M>,
    swapped: Swapped,
    most: u32,
) -> ([Swapped; MOST as usize], u64) {
    let mut entries = [swapped; MOST as usize];
    let range = cursor.range();
    let most = entries.len().min(most as usize);
    let mut count = 1;
    while count < most {
        cursor.seek(range.start.add(count as u64));
        let slot = Place::of(swapped.slot).after(count as u32).slot();
        match cursor.peek() {
            Entry::Swapped(next) if next.slot == slot => entries[count] = next,
            Entry::Swapped(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Migrating(_)
            | Entry::Present(_) => break,
        }
        count += 1;
    }
    (entries, count as u64)
}
