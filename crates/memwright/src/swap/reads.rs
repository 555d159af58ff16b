//! Reads of pages that a fault has begun while it held locks, and that are completed after it has released them.
//!
//! If the device finishes the transfer in `submit`, the read is not put off. Otherwise the fault [puts the read
//! off](Swap::put_off): it records the read in the list of this module, adds a use to the slot, and publishes the frame
//! in the slot's record. The page-table entry stays a swap entry. The fault then releases its locks, [takes the
//! read](Swap::take_read), waits for it, takes the locks again, [ends the read](Swap::end_read), and maps the page if
//! the entry still names the slot.
//!
//! Until the fault ends the read, any operation may change the entry. The added use keeps the slot allocated even if no
//! entry names it. Another fault may [find](Swap::find) the frame in the slot's record. As long as the frame does not
//! record the slot, that fault must not use the frame, and is repeated. The slot has a reference to the frame besides
//! that of the read, so reclaim does not regard the frame as unmapped.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frame, FrameRef, Frames, Machine, OutOfMemory, Page, Shared, TryPush};

use crate::store::page_store::Store;
use crate::swap::Swap;
use crate::swap::asker::Asker;
use crate::swap::device::{DeviceError, Submission};
use crate::swap::slot::SlotMap;

/// A read that was put off.
pub(crate) struct Begun<M: Machine> {
    pub(crate) asker: Asker,
    /// The page that is read: the page that faulted, or one that readahead expects.
    pub(crate) page: Page,
    pub(crate) slot: u64,
    /// The frame into which the page is read. The read owns one reference to this frame, but not to the rest of its
    /// folio.
    pub(crate) frame: Frame,
    /// The device's result for the submission: a ticket, or the result of a transfer that was submitted together with a
    /// pending one and has finished.
    pub(crate) answer: Submission,
    /// For a page of shared memory, its page store and its index in the store. The read of such a page already has a
    /// use of the slot, and its frame is not published. `None` for a page of a page-table entry.
    pub(crate) object: Option<(Shared<Store<M>>, u64)>,
}

/// The reads that were put off and that no thread has taken yet.
pub(super) struct Reads<M: Machine> {
    list: Lock<Vec<Begun<M>>, M::Threads>,
    /// The length of the list.
    count: AtomicUsize,
}

impl<M: Machine> Reads<M> {
    pub(super) const fn new() -> Self {
        Self {
            list: Lock::new(Rank::Lists, Vec::new()),
            count: AtomicUsize::new(0),
        }
    }

    /// Reserves space for `count` reads in total.
    pub(super) fn make_room(&self, count: usize) -> Result<(), OutOfMemory> {
        let mut list = self.list.lock();
        let more = count.saturating_sub(list.len());
        list.try_make_room(more)
    }
}

impl<M: Machine> Swap<M> {
    /// Records a read that the calling fault has begun. The caller holds the lock of the entry that names the slot.
    /// Afterwards the caller releases its locks, and calls `take_read` until `take_read` returns `None`.
    pub(crate) fn put_off(&self, frames: &Frames<M>, begun: Begun<M>) {
        let (slot, frame) = (begun.slot, begun.frame);
        let publish = |slots: &mut SlotMap, offset| {
            let record = slots.record(offset);
            record.uses += 1;
            // A fault on another entry that names the slot may already have put off a read of the slot. Each of the two
            // faults then reads the page into a frame of its own, and the record has the frame of the first fault.
            if record.frame().is_none() {
                record.set_frame(Some(frames.share(frame).into_raw()));
            }
        };
        if begun.object.is_none() {
            self.with_slots(slot, publish);
        }
        let mut list = self.reads.list.lock();
        if list.len() < list.capacity() || list.try_make_room(1).is_ok() {
            let pushed = list.try_push(begun);
            debug_assert!(pushed.is_ok(), "there is room");
            self.reads.count.store(list.len(), Ordering::Relaxed);
            return;
        }
        drop(list);
        // The list has space for as many reads as the devices can have transfers pending. If there is no space for a
        // transfer that has finished, drop its page: the fault is repeated, and reads the page again.
        let answer = begun.answer;
        debug_assert!(
            matches!(answer, Submission::Done(_)),
            "a device has more transfers pending than it announced"
        );
        let _ = self.complete_read(frames, slot, answer);
        let _ = self.end_read(frames, slot, frame);
    }

    /// Removes and returns a read that a fault on page `asked` in address space `space` has put off, for the caller to
    /// complete. If another thread faulted on the same page, the returned read can be the other thread's, and the other
    /// thread then finds no read.
    pub(crate) fn take_read(&self, space: u64, asked: Page) -> Option<Begun<M>> {
        if self.reads.count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut list = self.reads.list.lock();
        let is_wanted = |begun: &Begun<M>| begun.asker.space == space && begun.asker.page == asked;
        let place = list.iter().position(is_wanted)?;
        let begun = list.swap_remove(place);
        self.reads.count.store(list.len(), Ordering::Relaxed);
        Some(begun)
    }

    /// Waits for a read. The caller holds no lock.
    pub(crate) fn complete_read(
        &self,
        frames: &Frames<M>,
        slot: u64,
        answer: Submission,
    ) -> Result<(), DeviceError> {
        match answer {
            Submission::Done(read) => read,
            // The read has a use of the slot, so the device has not been removed.
            Submission::Pending(ticket) => self.device_of(slot).complete(frames, ticket),
            Submission::Busy => Err(DeviceError::Io),
        }
    }

    /// Ends a read that was put off: removes the frame from the slot's record and drops the use of the slot. Frees the
    /// slot if no entry names it any more. Returns the number of remaining uses, and the caller's reference to the
    /// frame.
    pub(crate) fn end_read<'a>(
        &self,
        frames: &'a Frames<M>,
        slot: u64,
        frame: Frame,
    ) -> (u32, FrameRef<'a, M>) {
        let (uses, remains, shared) = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            let is_here = record.frame() == Some(frame);
            if is_here {
                record.set_frame(None);
            }
            let remains = self.end_use(frames, record);
            (record.uses, remains, is_here)
        });
        if shared {
            drop(frames.adopt(frame));
        }
        self.finish_use(frames, slot, remains);
        (uses, frames.adopt_part(frame))
    }
}
