//! Pages that are in a slot and in memory.

use core::sync::atomic::{AtomicU64, Ordering};

use memwright_table::sync::pause_point;
use memwright_table::{Frame, FrameRef, Frames, Machine, Slots};

use super::slot::{Record, SlotMap};
use super::{Place, Swap, SwapPayer};
use crate::memory::Memory;
use crate::stats::Row;

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
    /// In the frame of another of them, who was faster.
    Elsewhere(FrameRef<'a, M>),
}

/// How a page goes out.
pub(super) struct Way {
    /// Where to.
    pub(super) slot: u64,
    /// The slot has it already.
    pub(super) kept: bool,
}

/// What became of the frame of a page whose owners have all sent it out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shed {
    /// It is free.
    pub(super) freed: bool,
    /// The device was given its page just now.
    pub(super) written: bool,
    /// The device did not take it: the page stays in memory.
    pub(super) refused: bool,
}

/// What is left of a slot when one of those that used it does so no more.
#[derive(Clone, Copy)]
enum Remains {
    /// Others use it.
    Used,
    /// Nothing: the slot is free, and so is the reference of the frame that it had.
    Nothing(Option<Frame>),
    /// A copy of the page in this frame, of which the slot has no reference any more.
    Copy(Frame),
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
            self.cached.add(u64::from(!scarce));
            scarce
        });
        if scarce {
            self.free(frames, slot);
        }
    }

    /// The same for the entries that named `first` and the slots that follow it, but those where there is no frame.
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
                return Cached::Elsewhere(frames.share(first));
            }
            if record.uses == 1 {
                return Cached::Alone;
            }
            record.uses -= 1;
            record.set_frame(Some(frames.share(frame).into_raw()));
            frames.set_slot(frame, Some(slot));
            self.cached.add(1);
            Cached::Here
        });
        if matches!(cached, Cached::Alone) {
            self.keep(frames, slot, frame);
        }
        cached
    }

    /// Whether nobody else can reach the page in `slot`, or will (design rule 5), when the caller's is the entry that it
    /// comes back for and he holds a reference of its frame. Another owner who sends it out names the slot before he gives
    /// up his reference: one look under the lock sees one or the other.
    pub(crate) fn is_of_one(&self, frames: &Frames<M>, slot: u64) -> bool {
        self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            let alone = |frame| frames.references(frame) == 2;
            record.uses == 1 && record.frame().is_some_and(alone)
        })
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
            self.take_frame(frames, copy.record);
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

    /// Finds a slot for the page in `frame`, which several entries show and nobody can write, and lets the caller's entry
    /// name it; `dirty` says that a copy that no entry names is out of date. The slot has a reference of the frame from now
    /// on, through which the others that come for the page find it. The device gets the page when nobody shows the frame
    /// any more ([`shed`](Self::shed)): until then it would take memory and free none. `None` if there is no slot.
    pub(super) fn share_out(
        &self,
        frames: &Frames<M>,
        frame: Frame,
        dirty: bool,
        payer: SwapPayer,
    ) -> Option<u64> {
        if let Some(slot) = self.use_copy(frames, frame, dirty) {
            return Some(slot);
        }
        self.forget(frames, frame);
        let slot = self.reserve(payer)?;
        let published = self.with_slots(slot, |slots, offset| {
            // Another owner of the page may have been faster.
            let first = frames.slot_of(frame).is_none();
            if first {
                let shared = frames.share(frame).into_raw();
                slots.record(offset).set_unwritten(shared);
                frames.set_slot(frame, Some(slot));
                // Entries that come back for it are clean, whatever was stored since its contents might be lost
                // (Linux 7.2 `folio_set_swapbacked` in `try_to_unmap_one`).
                frames.set_lazy(frame, false);
                self.cached.add(1);
            }
            first
        });
        if published {
            return Some(slot);
        }
        self.release(frames, slot);
        self.use_copy(frames, frame, false)
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

    /// Gives up the frame of a page that all of its owners have sent out, when the device has the page.
    pub(super) fn shed(&self, frames: &Frames<M>, slot: u64) -> Shed {
        let unshown = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            // Whoever finds the frame in the record takes a reference under the same lock.
            let unshown = |frame: &Frame| record.uses > 0 && frames.references(*frame) == 1;
            let frame = record.frame().filter(unshown)?;
            let unwritten = record.is_unwritten().then(|| {
                // Keeps the slot and the frame, says to whoever comes for the page that he is not alone with it, and to
                // another owner who sheds it that somebody does.
                record.uses += 1;
                frames.share(frame)
            });
            if unwritten.is_none() {
                self.take_frame(frames, record);
            }
            Some((frame, unwritten))
        });
        match unshown {
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

    /// Hands the page in `frame` to the device, for whose slot the caller has noted a use, and gives the frame up if nobody
    /// came for it meanwhile.
    fn shed_unwritten(&self, frames: &Frames<M>, slot: u64, frame: &FrameRef<'_, M>) -> Shed {
        let written = self.write(frames, slot, frame.frame()).is_ok();
        let (remains, freed) = self.with_slots(slot, |slots, offset| {
            let record = slots.record(offset);
            if written {
                record.set_frame(Some(frame.frame()));
            }
            let remains = self.end_use(frames, record);
            // The caller's reference and the slot's.
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

    /// Sheds frames that slots alone refer to, for example of pages whose other owners have ended, until `wanted` are free;
    /// goes on where it stopped before. Returns how many frames are free, and what else became of them in the account of
    /// `memory`.
    pub fn shed_some(&self, memory: &Memory<M>, wanted: u64) -> u64 {
        let frames = memory.frames();
        let start = *self.shed_next.lock();
        let (mut place, mut has_turned, mut freed) = (start, false, 0);
        while freed < wanted {
            let (some, next) = self.cached_from(place);
            for slot in some.into_iter().flatten() {
                pause_point();
                let shed = self.shed(frames, slot);
                freed += u64::from(shed.freed);
                memory.count(Row::SwapWritten, u64::from(shed.written));
                memory.count(Row::SwapRefused, u64::from(shed.refused));
            }
            place = next.unwrap_or_default();
            let turns = next.is_none();
            if (has_turned && (turns || place >= start)) || (turns && start == Place::default()) {
                break;
            }
            has_turned |= turns;
        }
        *self.shed_next.lock() = place;
        freed
    }

    /// Gives back what nobody uses of a slot any more.
    fn finish_use(&self, frames: &Frames<M>, slot: u64, remains: Remains) {
        match remains {
            Remains::Used => {}
            Remains::Nothing(frame) => {
                self.free(frames, slot);
                drop(frame.map(|frame| frames.adopt(frame)));
            }
            // Whoever shows the frame has it alone again.
            Remains::Copy(frame) => drop(frames.adopt(frame)),
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
                self.take_frame(frames, copy.record);
                copy.slot
            })
        });
        if let Some(slot) = unused.flatten() {
            self.free(frames, slot);
        }
    }

    /// Takes the frame from a slot. The caller, who holds the lock of the devices, gets the slot's reference, if it has one.
    pub(super) fn take_frame(&self, frames: &Frames<M>, record: &mut Record) {
        if let Some(frame) = record.frame() {
            record.set_frame(None);
            frames.set_slot(frame, None);
            self.cached.subtract(1);
        }
    }

    /// Ends one use of a slot. What is left is for [`Self::finish_use`].
    ///
    /// # Panics
    /// If the slot is not used.
    fn end_use(&self, frames: &Frames<M>, record: &mut Record) -> Remains {
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

/// How many slots have a copy of their page in memory. Only a CPU that holds the lock of the devices changes it, so that a
/// change needs no locked instruction.
pub(super) struct CachedPages(AtomicU64);

impl CachedPages {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline(always)]
    fn add(&self, count: u64) {
        self.0
            .store(self.get().wrapping_add(count), Ordering::Relaxed);
    }

    #[inline(always)]
    fn subtract(&self, count: u64) {
        self.0
            .store(self.get().wrapping_sub(count), Ordering::Relaxed);
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
        let left = self.with_slots(slot, |slots, offset| {
            self.end_use(frames, slots.record(offset))
        });
        self.finish_use(frames, slot, left);
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
