//! The swap cache: the pages that are both in a slot and in memory. The owners of such a page are the entries that map
//! its frame or name its slot.

use memwright_table::{Frame, FrameRef, Frames, Machine, Slots};

use crate::swap::Swap;
use crate::swap::place::Place;
use crate::swap::slot::{Record, SlotMap};
use crate::types::error::FaultError;
use crate::types::memcg::Memcg;

/// The state of a page in a slot that an entry names.
pub(crate) struct Found<'a, M: Machine> {
    /// The frame that holds the page in memory for another owner, if there is one.
    pub(crate) frame: Option<FrameRef<'a, M>>,
    /// The number of entries that name the slot.
    pub(crate) uses: u32,
    /// If the page is not in memory, the number of consecutive slots after this one that each are named by a single
    /// entry and have no page in memory.
    pub(crate) alone: u32,
}

/// The outcome of adding a page that was read to the swap cache.
pub(crate) enum Cached<'a, M: Machine> {
    /// The frame was added to the cache, where the other owners find it.
    Here,
    /// The caller's entry is the only owner: no other owner needs to find the frame in the cache.
    Alone,
    /// Another owner has already added its frame for the page. The caller uses that frame.
    Elsewhere(FrameRef<'a, M>),
}

/// The slot for a page that is swapped out.
pub(crate) struct Way {
    /// The number of the slot.
    pub(crate) slot: u64,
    /// Whether the slot already holds the contents of the page.
    pub(crate) kept: bool,
}

/// The outcome of freeing the frame of a page that all of its owners have swapped out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shed {
    /// Whether the frame was freed.
    pub(crate) freed: bool,
    /// Whether the page was written to the device.
    pub(crate) written: bool,
    /// Whether the device rejected the page, which stays in memory.
    pub(crate) refused: bool,
}

/// The maximum number of slots whose uses are released per acquisition of the lock of the devices.
const TOGETHER: usize = 8;

/// The state of a slot after one of its uses has ended.
#[derive(Clone, Copy)]
pub(super) enum Remains {
    /// The slot has other uses.
    Used,
    /// The slot has no use and keeps no copy. The caller frees the slot, and drops the slot's reference to the frame,
    /// if it had one.
    Nothing(Option<Frame>),
    /// The slot has no use, but keeps a copy of the page, which is also in this frame. The caller drops the slot's
    /// reference to the frame.
    Copy(Frame),
}

impl<M: Machine> Swap<M> {
    /// Calls `act` with the slot map of the device of `slot`.
    ///
    /// # Panics
    /// If there is no such device: an entry names a slot that was never allocated.
    pub(super) fn with_slots<R>(&self, slot: u64, act: impl FnOnce(&mut SlotMap, u32) -> R) -> R {
        let place = Place::of(slot);
        let mut devices = self.devices.lock();
        let active = devices.get_mut(place.device).and_then(Option::as_mut);
        let active = active.unwrap_or_else(|| panic!("slot {slot:#x} is of no device"));
        act(&mut active.slots, place.offset)
    }

    /// Returns the state of the page in `slot`, and of up to `ahead` slots after it.
    ///
    /// # Errors
    /// `WouldBlock` if another thread is reading the page.
    pub(crate) fn find<'a>(
        &self,
        frames: &'a Frames<M>,
        slot: u64,
        ahead: u32,
    ) -> Result<Found<'a, M>, FaultError> {
        self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            let uses = record.uses;
            let frame = frame_with_page(frames, record, slot)?;
            let alone = match frame {
                Some(_) => 0,
                None => count_alone(slots, offset.saturating_add(1), ahead),
            };
            Ok(Found { frame, uses, alone })
        })
    }

    /// Ends the use of `slot` by its only entry, which now maps `frame`. The slot keeps its copy of the page while the
    /// page is clean. If slots are scarce or the device is closed, the slot is freed instead.
    pub(crate) fn keep(&self, frames: &Frames<M>, slot: u64, frame: Frame) {
        let scarce = self.with_slots(slot, |slots, offset| {
            let scarce = are_scarce(slots);
            let kept = (!scarce).then_some(slot);
            note_kept(frames, slots.record(offset), kept, frame);
            self.cached.add(u64::from(!scarce));
            scarce
        });
        if scarce {
            self.free(frames, slot);
        }
    }

    /// Like `keep`, for consecutive slots from `first` on. Element `i` of `run` is the frame that now holds the page of
    /// slot `first + i`. Slots without a frame are skipped.
    pub(crate) fn keep_run(&self, frames: &Frames<M>, first: u64, run: &[Option<Frame>]) {
        let places = || {
            let run = (0..).zip(run);
            run.filter_map(|(number, frame)| Some((Place::of(first).after(number), (*frame)?)))
        };
        let scarce = self.with_slots(first, |slots, _| {
            let scarce = are_scarce(slots);
            let mut count = 0;
            for (place, frame) in places() {
                let kept = (!scarce).then_some(place.slot());
                note_kept(frames, slots.record(place.offset), kept, frame);
                count += 1;
            }
            if !scarce {
                self.cached.add(count);
            }
            scarce
        });
        if scarce {
            for (place, _) in places() {
                self.free(frames, place.slot());
            }
        }
    }

    /// Adds `frame`, into which the page of `slot` was read, to the swap cache, for one of the entries that name
    /// `slot`. The outcome depends on whether the other owners have read the page or dropped their entries during the
    /// read.
    ///
    /// # Errors
    /// `WouldBlock` if another owner is still reading the page.
    pub(crate) fn cache<'a>(
        &self,
        frames: &'a Frames<M>,
        slot: u64,
        frame: Frame,
    ) -> Result<Cached<'a, M>, FaultError> {
        let cached = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            if let Some(first) = frame_with_page(frames, record, slot)? {
                return Ok(Cached::Elsewhere(first));
            }
            if record.uses == 1 {
                return Ok(Cached::Alone);
            }
            record.uses -= 1;
            record.set_frame(Some(frames.share(frame).into_raw()));
            frames.set_slot(frame, Some(slot));
            self.cached.add(1);
            Ok(Cached::Here)
        });
        if matches!(cached, Ok(Cached::Alone)) {
            self.keep(frames, slot, frame);
        }
        cached
    }

    /// Returns whether the page in `slot` is exclusive to the caller's entry (rule: exclusive-in-the-entry). The caller
    /// holds a reference to its frame. Another owner that swaps the page out adds its use of the slot before it drops
    /// its reference to the frame. A check under the lock of the devices therefore finds that owner's use or its
    /// reference.
    pub(crate) fn is_of_one(&self, frames: &Frames<M>, slot: u64) -> bool {
        self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            let alone = |frame| frames.references(frame) == 2;
            record.uses == 1 && record.frame().is_some_and(alone)
        })
    }

    /// Returns the slot to which the page in `frame` is to be swapped out, and adds a use to the slot, for the only
    /// entry that maps the page. If a slot of an open device holds a copy of the page, uses that slot. Otherwise
    /// allocates one. Returns `None` if no slot can be allocated.
    pub(crate) fn way_out(
        &self,
        frames: &Frames<M>,
        frame: Frame,
        dirty: bool,
        memcg: Memcg,
    ) -> Option<Way> {
        let copy = self.with_copy(frames, frame, |copy| {
            debug_assert_eq!(copy.record.uses, 0, "the slot has a reference too");
            if copy.is_closed {
                return None;
            }
            copy.record.uses = 1;
            self.take_frame(frames, copy.record);
            Some(copy.slot)
        });
        match copy.flatten() {
            Some(slot) => Some(Way { slot, kept: !dirty }),
            None => Some(Way {
                slot: self.reserve(memcg)?,
                kept: false,
            }),
        }
    }

    /// Returns a slot for the page in `frame`, which several entries map, none of them writable. Adds a use for the
    /// caller's entry. `dirty` states whether the page was written: if it was, a copy in a slot that no entry names is
    /// out of date. The slot gets a reference to the frame, through which the faults of the other owners find the
    /// frame. The page is written to the device only when no entry maps the frame any more ([`shed`](Self::shed)),
    /// because an earlier write would take memory and free none. Returns `None` if there is no slot.
    pub(crate) fn share_out(
        &self,
        frames: &Frames<M>,
        frame: Frame,
        dirty: bool,
        memcg: Memcg,
    ) -> Option<u64> {
        if let Some(slot) = self.use_copy(frames, frame, dirty) {
            return Some(slot);
        }
        self.forget(frames, frame);
        let slot = self.reserve(memcg)?;
        let published = self.with_slots(slot, |slots, offset| {
            // Whether this is the first owner that swaps the page out. If another owner was first, the page has a slot
            // already.
            let first = frames.slot_of(frame).is_none();
            if first {
                let shared = frames.share(frame).into_raw();
                slots.record(offset).set_unwritten(shared);
                frames.set_slot(frame, Some(slot));
                // From now on the page must not be discarded: entries that map it again are clean, even if the page was
                // written since it was lazily freed (Linux 7.2 `folio_set_swapbacked` in `try_to_unmap_one`).
                frames.set_lazy(frame, false);
                self.cached.add(1);
            }
            first
        });
        if published {
            return Some(slot);
        }
        self.release(frames, &[slot]);
        self.use_copy(frames, frame, false)
    }

    /// Adds a use to the slot that holds a copy of the page in `frame`, if there is such a slot and the copy is up to
    /// date.
    fn use_copy(&self, frames: &Frames<M>, frame: Frame, dirty: bool) -> Option<u64> {
        self.with_copy(frames, frame, |copy| {
            let uses = &mut copy.record.uses;
            // While entries name the slot, no entry maps the page writable, so the copy is up to date.
            if copy.is_closed || (*uses == 0 && dirty) {
                return None;
            }
            if *uses == 0 {
                let _ = frames.share(frame).into_raw();
            }
            *uses += 1;
            Some(copy.slot)
        })
        .flatten()
    }

    /// Frees the frame of the page in `slot`, if all owners have swapped the page out. Writes the page to the device
    /// first, if needed.
    pub(crate) fn shed(&self, frames: &Frames<M>, slot: u64) -> Shed {
        let unmapped = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            // If only the slot has a reference to the frame, no entry maps the frame. No fault can take a new reference
            // during this check: a fault that finds the frame in the record takes its reference under this lock.
            let unmapped = |frame: &Frame| record.uses > 0 && frames.references(*frame) == 1;
            let frame = record.frame().filter(unmapped)?;
            let unwritten = record.is_unwritten().then(|| {
                // The added use keeps the slot allocated, and the added reference keeps the frame allocated. Because of
                // them, a fault during the write finds that the page is not exclusive, and another call of `shed` does
                // nothing.
                record.uses += 1;
                frames.share(frame)
            });
            if unwritten.is_none() {
                self.take_frame(frames, record);
            }
            Some((frame, unwritten))
        });
        match unmapped {
            None => Shed::default(),
            Some((_, Some(frame))) => self.shed_unwritten(frames, slot, &frame),
            Some((frame, None)) => {
                drop(frames.adopt(frame));
                Shed {
                    freed: true,
                    ..Shed::default()
                }
            }
        }
    }

    /// Writes the page in `frame` to the slot, to which the caller has added a use, and frees the frame if the page was
    /// not faulted in during the write.
    fn shed_unwritten(&self, frames: &Frames<M>, slot: u64, frame: &FrameRef<'_, M>) -> Shed {
        let written = self.write(frames, slot, frame.frame()).is_ok();
        let (remains, freed) = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            if written {
                record.set_frame(Some(frame.frame()));
            }
            let remains = self.end_use(frames, record);
            // The two remaining references are the caller's and the slot's: no entry maps the frame.
            let freed = written && record.uses > 0 && frames.references(frame.frame()) == 2;
            if freed {
                self.take_frame(frames, record);
            }
            (remains, freed)
        });
        self.finish_use(frames, slot, remains);
        if freed {
            drop(frames.adopt(frame.frame()));
        }
        Shed {
            freed,
            written,
            refused: !written,
        }
    }

    /// Completes `end_use`. If `remains` states that the slot is unused, frees the slot. Drops the slot's reference to
    /// the frame that `remains` names, if any. This function is inlined because most uses of a slot end while others
    /// remain, and there is then nothing to do.
    #[inline(always)]
    pub(super) fn finish_use(&self, frames: &Frames<M>, slot: u64, remains: Remains) {
        match remains {
            Remains::Used => {}
            Remains::Nothing(frame) => {
                self.free(frames, slot);
                drop(frame.map(|frame| frames.adopt(frame)));
            }
            // Drop the slot's reference, so that the frame can be exclusive to an entry again.
            Remains::Copy(frame) => drop(frames.adopt(frame)),
        }
    }

    /// Records that the page in frame `old`, which one entry maps, was migrated to `new`. The slot that holds a copy of
    /// the page then refers to `new`.
    pub(crate) fn follow(&self, frames: &Frames<M>, old: Frame, new: Frame) {
        let Some(slot) = frames.slot_of(old) else {
            return;
        };
        self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            if record.uses == 0 && record.frame() == Some(old) {
                record.set_frame(Some(new));
                frames.set_slot(old, None);
                frames.set_slot(new, Some(slot));
            }
        });
    }

    /// Frees the slot that holds a copy of the page in `frame`, if there is such a slot and no entry names it. Called
    /// if the copy is out of date or must not be used any more.
    pub(crate) fn forget(&self, frames: &Frames<M>, frame: Frame) {
        let unused = self.with_copy(frames, frame, |copy| {
            (copy.record.uses == 0).then(|| {
                self.take_frame(frames, copy.record);
                copy.slot
            })
        });
        if let Some(slot) = unused.flatten() {
            self.free(frames, slot);
        }
    }

    /// Removes the frame from a slot's record. The caller holds the lock of the devices, and takes over the slot's
    /// reference to the frame, if the slot has one.
    pub(super) fn take_frame(&self, frames: &Frames<M>, record: &mut Record) {
        if let Some(frame) = record.frame() {
            record.set_frame(None);
            frames.set_slot(frame, None);
            self.cached.subtract(1);
        }
    }

    /// Ends one use of a slot. The caller passes the result to [`Self::finish_use`].
    ///
    /// # Panics
    /// If the slot is not used.
    pub(super) fn end_use(&self, frames: &Frames<M>, record: &mut Record) -> Remains {
        assert!(record.uses > 0, "a slot has no use to give up");
        record.uses -= 1;
        match record.frame() {
            _ if record.uses > 0 => Remains::Used,
            None => Remains::Nothing(None),
            Some(frame) if record.is_unwritten() => {
                self.take_frame(frames, record);
                Remains::Nothing(Some(frame))
            }
            Some(frame) => Remains::Copy(frame),
        }
    }
}

/// Returns the frame of the page in `slot`, if the page is in memory.
///
/// # Errors
/// `WouldBlock` if the page is still being read. The record then has the frame, but the frame does not record the slot.
#[inline(always)]
fn frame_with_page<'a, M: Machine>(
    frames: &'a Frames<M>,
    record: &Record,
    slot: u64,
) -> Result<Option<FrameRef<'a, M>>, FaultError> {
    let Some(frame) = record.frame() else {
        return Ok(None);
    };
    if frames.slot_of(frame) != Some(slot) {
        return Err(FaultError::WouldBlock);
    }
    Ok(Some(frames.share(frame)))
}

/// Returns how many consecutive slots from `first` on, at most `most`, are each named by a single entry and have no page
/// in memory.
fn count_alone(slots: &mut SlotMap, first: u32, most: u32) -> u32 {
    let end = first.saturating_add(most).min(slots.slots());
    let is_alone = |offset: &u32| {
        let record = slots.record(*offset);
        record.uses == 1 && record.frame().is_none()
    };
    (first..end).take_while(is_alone).count() as u32
}

/// Returns whether slots are too scarce to keep copies of pages that are in memory: fewer than half are free, or the
/// device is closed.
fn are_scarce(slots: &SlotMap) -> bool {
    slots.is_closed() || slots.free() < slots.slots() / 2
}

/// Ends the only use of a slot whose page is now in `frame`. `kept` is the number of the slot if it keeps its copy of
/// the page, otherwise `None`.
#[inline(always)]
fn note_kept<M: Machine>(frames: &Frames<M>, record: &mut Record, kept: Option<u64>, frame: Frame) {
    debug_assert_eq!(record.uses, 1, "a page of several owners is kept for one");
    record.uses = 0;
    if kept.is_some() {
        record.set_frame(Some(frame));
        frames.set_slot(frame, kept);
    }
}

impl<M: Machine> Slots<M> for Swap<M> {
    fn share(&self, _frames: &Frames<M>, slots: &[u64]) {
        self.with_records(slots, |_, record| record.uses += 1);
    }

    fn release(&self, frames: &Frames<M>, slots: &[u64]) {
        for slots in slots.chunks(TOGETHER) {
            let mut remains = [Remains::Used; TOGETHER];
            self.with_records(slots, |number, record| {
                remains[number] = self.end_use(frames, record);
            });
            for (slot, remains) in slots.iter().zip(remains) {
                self.finish_use(frames, *slot, remains);
            }
        }
    }

    fn leave(&self, frames: &Frames<M>, frame: Frame, _slot: u64) {
        let left = self.with_copy(frames, frame, |copy| {
            debug_assert_eq!(copy.record.uses, 0, "the slot has a reference too");
            self.take_frame(frames, copy.record);
            copy.slot
        });
        if let Some(slot) = left {
            self.free(frames, slot);
        }
    }
}
