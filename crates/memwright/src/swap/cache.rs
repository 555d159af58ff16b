//! Pages that are in a slot and in memory.

use memwright_table::mistake::{Mistake, planted};
use memwright_table::{Frame, FrameRef, Frames, Machine, Slots};

use super::slot::{Record, SlotMap};
use super::{Place, Swap, SwapPayer};

/// What a fault finds of a page whose entry names a slot.
pub(crate) struct Found<'a, M: Machine> {
    /// The frame in which it is, for another of its owners.
    pub(crate) frame: Option<FrameRef<'a, M>>,
    /// Entries that name the slot.
    pub(crate) uses: u32,
}

/// Where the owners of a page find it that one of them had read.
pub(crate) enum Cached<'a, M: Machine> {
    /// In his frame.
    Here,
    /// There are no others any more.
    Alone,
    /// In the frame of another of them, who was faster; so many entries name the slot.
    Elsewhere(FrameRef<'a, M>, u32),
}

/// How a page goes out.
pub(super) struct Way {
    /// Where to.
    pub(super) slot: u64,
    /// The slot has it already.
    pub(super) kept: bool,
}

/// How a page that several entries show goes out.
pub(super) struct Shared {
    /// Where to.
    pub(super) slot: u64,
    /// The device was given it just now.
    pub(super) written: bool,
}

impl<M: Machine> Swap<M> {
    /// What is known of the page in `slot`.
    pub(crate) fn find<'a>(&self, frames: &'a Frames<M>, slot: u64) -> Found<'a, M> {
        self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            Found {
                frame: record.frame().map(|frame| frames.share(frame)),
                uses: record.uses,
            }
        })
    }

    /// How many slots from `slot` on, `most` at most, one entry alone names whose page is not in memory.
    pub(crate) fn count_alone(&self, slot: u64, most: u64) -> u64 {
        if most == 0 {
            return 0;
        }
        self.with_slots(slot, |slots, offset| {
            let end = offset.saturating_add(most as u32);
            let alone = |offset: &u32| {
                let record = slots.record(*offset);
                record.uses == 1 && record.frame().is_none()
            };
            (offset..end).take_while(alone).count() as u64
        })
    }

    /// The only entry that named `slot` maps `frame` from now on: the slot stays while nobody writes to the page,
    /// unless slots are scarce, or the device is to go.
    pub(crate) fn keep(&self, frames: &Frames<M>, slot: u64, frame: Frame) {
        let scarce = self.with_slots(slot, |slots, offset| {
            let scarce = are_scarce(slots);
            let kept = (!scarce).then_some(slot);
            note_kept(frames, slots.record(offset), kept, frame);
            scarce
        });
        self.end_keeping(frames, slot, scarce);
    }

    /// The same for the entries that named `first` and the slots that follow it, but those where there is no frame.
    pub(crate) fn keep_run(&self, frames: &Frames<M>, first: u64, run: &[Option<Frame>]) {
        let places = || {
            let run = (0..).zip(run);
            run.filter_map(|(number, frame)| Some((Place::of(first).after(number), (*frame)?)))
        };
        let scarce = self.with_slots(first, |slots, _| {
            let scarce = are_scarce(slots);
            for (place, frame) in places() {
                let kept = (!scarce).then_some(place.slot());
                note_kept(frames, slots.record(place.offset), kept, frame);
            }
            scarce
        });
        if scarce || planted(Mistake::FreeCleanSlot) {
            for (place, _) in places() {
                self.end_keeping(frames, place.slot(), scarce);
            }
        }
    }

    /// Frees a slot that is not kept.
    #[inline(always)]
    fn end_keeping(&self, frames: &Frames<M>, slot: u64, scarce: bool) {
        if scarce {
            self.free(frames, slot);
        } else if planted(Mistake::FreeCleanSlot) {
            self.device_of(slot).discard(frames, Place::of(slot).offset);
        }
    }

    /// One of the entries that name `slot` is to map `frame`, into which its page was read. What the others did
    /// meanwhile decides: none of them waited.
    pub(crate) fn cache<'a>(
        &self,
        frames: &'a Frames<M>,
        slot: u64,
        frame: Frame,
    ) -> Cached<'a, M> {
        let cached = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            if let Some(first) = record.frame() {
                return Cached::Elsewhere(frames.share(first), record.uses);
            }
            if record.uses == 1 {
                return Cached::Alone;
            }
            record.uses -= 1;
            record.set_frame(Some(frames.share(frame).into_raw()));
            frames.set_slot(frame, Some(slot));
            Cached::Here
        });
        if matches!(cached, Cached::Alone) {
            self.keep(frames, slot, frame);
        }
        cached
    }

    /// How the page in `frame`, which one entry shows, goes out. That entry names the slot from now on.
    pub(super) fn way_out(
        &self,
        frames: &Frames<M>,
        frame: Frame,
        dirty: bool,
        payer: SwapPayer,
    ) -> Option<Way> {
        let copy = self.with_copy(frames, frame, |copy| {
            debug_assert_eq!(copy.record.uses, 0, "the slot has a reference too");
            if copy.is_closed {
                return None;
            }
            copy.record.uses = 1;
            copy.record.set_frame(None);
            frames.set_slot(frame, None);
            Some(copy.slot)
        });
        match copy.flatten() {
            Some(slot) => Some(Way { slot, kept: !dirty }),
            None => Some(Way {
                slot: self.reserve(payer)?,
                kept: false,
            }),
        }
    }

    /// Sees to it that the page in `frame`, which several entries show and nobody can write, is in a slot, and lets the
    /// caller's entry name that; `dirty` says that a copy that no entry names is out of date. The slot has a reference
    /// of the frame from now on, through which the others that come for the page find it. `None` if it cannot be.
    pub(super) fn share_out(
        &self,
        frames: &Frames<M>,
        frame: Frame,
        dirty: bool,
        payer: SwapPayer,
    ) -> Option<Shared> {
        if let Some(slot) = self.use_copy(frames, frame, dirty) {
            return Some(Shared {
                slot,
                written: false,
            });
        }
        self.forget(frames, frame);
        let slot = self.reserve(payer)?;
        if self.write(frames, slot, frame).is_err() {
            self.release(frames, slot);
            return None;
        }
        let published = self.with_slots(slot, |slots, offset| {
            // Another owner of the page may have been faster.
            let first = frames.slot_of(frame).is_none();
            if first {
                let record = slots.record(offset);
                record.set_frame(Some(frames.share(frame).into_raw()));
                frames.set_slot(frame, Some(slot));
            }
            first
        });
        if published {
            return Some(Shared {
                slot,
                written: true,
            });
        }
        self.release(frames, slot);
        let slot = self.use_copy(frames, frame, false)?;
        Some(Shared {
            slot,
            written: true,
        })
    }

    /// Names the slot that has the page in `frame`, if one has it as it is.
    fn use_copy(&self, frames: &Frames<M>, frame: Frame, dirty: bool) -> Option<u64> {
        self.with_copy(frames, frame, |copy| {
            let uses = &mut copy.record.uses;
            // While entries name the slot nobody can write to the page.
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

    /// Gives up the frame of a page that all of its owners have sent out.
    pub(super) fn shed(&self, frames: &Frames<M>, slot: u64) {
        let shed = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            let frame = record.frame().filter(|_| record.uses > 0)?;
            // Whoever finds the frame here takes a reference under this lock.
            if frames.references(frame) != 1 && !planted(Mistake::ShedUsed) {
                return None;
            }
            record.set_frame(None);
            frames.set_slot(frame, None);
            Some(frame)
        });
        if let Some(frame) = shed {
            drop(frames.adopt(frame));
        }
    }

    /// The same for pages whose other owners are gone. Returns how many frames that freed.
    pub fn shed_all(&self, frames: &Frames<M>) -> u64 {
        let before = frames.used();
        let mut from = 0;
        loop {
            let (some, next) = self.cached_from(from);
            for slot in some.into_iter().flatten() {
                self.shed(frames, slot);
            }
            match next {
                Some(next) => from = next,
                None => return before.saturating_sub(frames.used()),
            }
        }
    }

    /// The page in `old`, which one entry shows, is in `new` from now on: its copy is the copy of that one.
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

    /// The page in `frame` was written, or will be by somebody who does not say so: the slot that has it has it no
    /// more.
    pub(crate) fn forget(&self, frames: &Frames<M>, frame: Frame) {
        let unused = self.with_copy(frames, frame, |copy| {
            (copy.record.uses == 0).then(|| {
                copy.record.set_frame(None);
                frames.set_slot(frame, None);
                copy.slot
            })
        });
        if let Some(slot) = unused.flatten() {
            self.free(frames, slot);
        }
    }
}

/// Whether slots are too few to keep those of pages in memory.
fn are_scarce(slots: &SlotMap) -> bool {
    slots.is_closed() || slots.free() < slots.slots() / 2
}

/// Nobody names the slot any more, for its page is in `frame`; `kept` is the slot if it stays.
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
    fn share(&self, _frames: &Frames<M>, slot: u64) {
        self.with_slots(slot, |slots, offset| slots.record(offset).uses += 1);
    }

    fn release(&self, frames: &Frames<M>, slot: u64) {
        let (unused, frame) = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            assert!(record.uses > 0, "slot {slot:#x} has no use to give up");
            record.uses -= 1;
            (record.uses == 0, record.frame())
        });
        match frame {
            _ if !unused => {}
            None => self.free(frames, slot),
            // The slot's own reference goes: whoever shows the frame has it alone again.
            Some(frame) => drop(frames.adopt(frame)),
        }
    }

    fn leave(&self, frames: &Frames<M>, frame: Frame, _slot: u64) {
        let left = self.with_copy(frames, frame, |copy| {
            debug_assert_eq!(copy.record.uses, 0, "the slot has a reference too");
            copy.record.set_frame(None);
            frames.set_slot(frame, None);
            copy.slot
        });
        if let Some(slot) = left {
            self.free(frames, slot);
        }
    }
}
