//! The second half of a swap-in whose device did not finish the read at once. The first half held the locks of the
//! areas and of the page table, and [put the read off](crate::swap::reads). The second half waits for the device with
//! no lock held, takes the locks again, and maps the page if its entry still refers to the slot that was read.

use memwright_table::sync::{Threads, pause_point, relax};
use memwright_table::{Bits, Cursor, Entry, FrameRef, Machine, Page, PageRange, Slots, Swapped};

use crate::fault::attempt::Fault;
use crate::mm::core::Core;
use crate::swap::asker::Asker;
use crate::swap::device::{DeviceError, Submission};
use crate::swap::reads::Begun;
use crate::types::access::{Access, FaultKind};
use crate::types::error::FaultError;
use crate::types::purpose::{Finished, Purpose};
use crate::types::stats::Row;
use crate::types::swap_window::{MOST, Window};

/// A completed read. `Swap::end_read` has not been called for it yet.
struct Read<M: Machine> {
    begun: Begun<M>,
    result: Result<(), DeviceError>,
}

/// The reads of one fault.
type Reads<M> = [Option<Read<M>>; MOST as usize];

impl<'a, M: Machine> Fault<'a, M> {
    /// Puts the read of a page off until the caller has released its locks. Returns `FaultError::WouldBlock`.
    #[cold]
    pub(super) fn put_off(
        self,
        page: Page,
        swapped: Swapped,
        frame: FrameRef<'_, M>,
        answer: Submission,
    ) -> FaultError {
        let memory = &*self.core.memory;
        let begun = Begun {
            asker: self.asker(1),
            page,
            slot: swapped.slot,
            frame: frame.into_raw(),
            answer,
            object: None,
        };
        memory.swap().put_off(memory.frames(), begun);
        FaultError::WouldBlock
    }

    /// Returns the key under which the reads that this fault puts off are stored. `wanted` is the number of pages of
    /// the readahead.
    pub(super) fn asker(self, wanted: u64) -> Asker {
        Asker {
            space: self.core.space_number(),
            page: self.page,
            wanted,
        }
    }

    /// Ends those of `reads` whose pages are in the area, and maps the pages whose entries still refer to the slots
    /// that were read. `self.page` is the page that faulted. `stores` states whether the fault is a store, or `None` to
    /// map the page as not accessed. Returns the outcome for the page that faulted, or `None` if the fault must be
    /// repeated.
    fn map_reads(
        self,
        reads: &mut Reads<M>,
        stores: Option<bool>,
    ) -> Option<Result<FaultKind, FaultError>> {
        let last = reads.iter().flatten().map(|read| read.begun.page).max()?;
        let range = PageRange::new(self.page, last.add(1)).intersect(self.area.range());
        let mut cursor = self.core.table.cursor(range);
        let mut asked = None;
        for read in reads.iter_mut() {
            let Some(Read { begun, result }) = read.take_if(|read| range.contains(read.begun.page))
            else {
                continue;
            };
            cursor.seek(begun.page);
            let entry = cursor.peek();
            let frames = self.core.memory.frames();
            let swap = self.core.memory.swap();
            let (uses, frame) = swap.end_read(frames, begun.slot, begun.frame);
            let Entry::Swapped(swapped) = entry else {
                continue;
            };
            // If the slot got another owner during the read, the entry cannot map a page of a folio, because such a
            // page cannot be shared.
            let is_fit = uses == 1 || !frames.is_in_folio(frame.frame());
            if swapped.slot != begun.slot || !is_fit {
                continue;
            }
            if begun.page == self.page {
                asked = Some((swapped, (frame, result), uses));
            } else if uses == 1 {
                let page = Self {
                    page: begun.page,
                    ..self
                };
                let mapped = page.map_unasked(&mut cursor, swapped, (frame, result), uses);
                let count = u64::from(mapped.is_ok());
                self.core.memory.count_on(self.cpu, Row::SwapAround, count);
            }
        }
        let (swapped, read, uses) = asked?;
        cursor.seek(self.page);
        let Some(is_store) = stores else {
            return Some(self.map_unasked(&mut cursor, swapped, read, uses));
        };
        let protected = is_store && swapped.bits.contains(Bits::UFFD_WP);
        let mapped = self.map_read(&mut cursor, swapped, read, uses, is_store && !protected);
        if protected && mapped.is_ok() {
            // The fault is repeated, and reports the store to the userfaultfd.
            return None;
        }
        Some(mapped)
    }

    /// Completes the swap-in of a page that was read, and maps it at the cursor as not accessed.
    fn map_unasked(
        self,
        cursor: &mut Cursor<'_, M>,
        swapped: Swapped,
        read: (FrameRef<'a, M>, Result<(), DeviceError>),
        uses: u32,
    ) -> Result<FaultKind, FaultError> {
        let back = self.take_over(swapped, read, uses, false)?;
        Ok(self.show_unasked(cursor, swapped, back))
    }

    /// Returns whether the area permits the access now. Its rights may have changed during the read.
    fn is_permitted(self) -> bool {
        let rights = self.area.rights();
        self.access.allowed_by(rights) && self.core.check_key(rights, self.access).is_ok()
    }
}

impl<M: Machine> Core<M> {
    /// Completes the reads that a fault on `asked` has put off, and maps the pages. The caller has released its locks
    /// after the fault returned [`FaultError::WouldBlock`].
    #[cold]
    pub(crate) fn finish_reads(&self, asked: Page, purpose: Purpose) -> Finished {
        let memory = &*self.memory;
        let (frames, swap) = (memory.frames(), memory.swap());
        let mut finished = Finished::Nothing;
        loop {
            let mut reads: Reads<M> = [const { None }; MOST as usize];
            for read in &mut reads {
                let Some(mut begun) = swap.take_read(self.space_number(), asked) else {
                    break;
                };
                let answer = core::mem::replace(&mut begun.answer, Submission::Busy);
                let result = swap.complete_read(frames, begun.slot, answer);
                *read = Some(Read { begun, result });
            }
            if reads[0].is_none() {
                return finished;
            }
            let failed = self.end_object_reads(asked, &mut reads);
            let outcome = failed.or_else(|| self.map_again(asked, purpose, &mut reads));
            for Read { begun, .. } in reads.into_iter().flatten() {
                // The area at `asked` does not contain this page any more: drop the page's frame.
                let _ = swap.end_read(frames, begun.slot, begun.frame);
            }
            finished = match outcome {
                Some(outcome) if outcome != Err(FaultError::WouldBlock) => Finished::Over(outcome),
                Some(_) | None if finished == Finished::Nothing => Finished::Again,
                Some(_) | None => finished,
            };
        }
    }

    /// Ends those of `reads` that read pages of objects, and removes them from `reads`. The pages are not mapped: the
    /// repeated fault finds them in memory. Returns an error if the read of the page that faulted failed.
    fn end_object_reads(
        &self,
        asked: Page,
        reads: &mut Reads<M>,
    ) -> Option<Result<FaultKind, FaultError>> {
        let (frames, swap) = (self.memory.frames(), self.memory.swap());
        let (mut count, mut failed, mut wanted) = (0, false, 0);
        for read in reads {
            let Some(Read { begun, result }) = read.take_if(|read| read.begun.object.is_some())
            else {
                continue;
            };
            if let Some((store, index)) = &begun.object {
                let frame = frames.adopt_part(begun.frame);
                store.end_read(&self.memory, *index, begun.slot, (frame, result));
                swap.release(frames, &[begun.slot]);
            }
            count += u64::from(result.is_ok());
            failed |= result.is_err() && begun.page == asked;
            wanted = begun.asker.wanted;
        }
        if failed {
            return Some(Err(FaultError::Io));
        }
        if count > 0 && self.memory.policy().swapin_around() {
            let areas = self.areas.read(self.cpu());
            if let Some(area) = areas.map.find(asked) {
                area.window.set(Window::after_read(asked, wanted, count));
            }
            self.memory.count(Row::SwapAround, count - 1);
        }
        None
    }

    /// Takes the locks again. Removes from `reads` the pages in the area at `asked`, and maps those whose entries still
    /// refer to the slots that were read. Returns the outcome for `asked`, or `None` if the fault must be repeated.
    fn map_again(
        &self,
        asked: Page,
        purpose: Purpose,
        reads: &mut Reads<M>,
    ) -> Option<Result<FaultKind, FaultError>> {
        let cpu = self.cpu();
        let areas = self.areas.read(cpu);
        let area = areas.map.find(asked)?;
        let (access, is_forced) = match purpose {
            Purpose::Access(access) => (Some(access), false),
            Purpose::Forced(access) => (Some(access), true),
            Purpose::Unasked => (None, false),
        };
        let fault = Fault {
            core: self,
            cpu,
            areas: &areas,
            area,
            page: asked,
            access: access.unwrap_or(Access::READ),
        };
        let is_accessed = access.is_some() && (is_forced || fault.is_permitted());
        let outcome = fault.map_reads(reads, is_accessed.then_some(fault.access.write));
        if access.is_some() && !is_accessed {
            // The repeated fault reports that the access is denied.
            return None;
        }
        outcome
    }

    /// Like [`finish_reads`](Self::finish_reads), for a kernel access whose caller does not wait. If the page is in
    /// swap because another thread reads it or the device is busy, waits for a moment and returns [`Finished::Again`].
    pub(crate) fn await_reads(&self, asked: Page, purpose: Purpose) -> Finished {
        let finished = self.finish_reads(asked, purpose);
        if finished != Finished::Nothing || !self.is_in_swap(asked) {
            return finished;
        }
        wait_a_moment::<M::Threads>();
        Finished::Again
    }

    /// Returns whether the page, or the page of the object that is mapped there, is in swap.
    pub(super) fn is_in_swap(&self, page: Page) -> bool {
        if let Entry::Swapped(_) = self.table.look(PageRange::single(page)).peek() {
            return true;
        }
        let areas = self.areas.read(self.cpu());
        areas.map.find(page).is_some_and(|area| {
            let object = area.object();
            object.is_some_and(|object| object.swapped(area.offset_of(page), 1) > 0)
        })
    }
}

/// Performs one step of a wait for another thread, which may be reading a page from swap.
pub(super) fn wait_a_moment<H: Threads>() {
    pause_point::<H>();
    relax::<H>();
}
