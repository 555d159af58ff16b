//! The number of frames of objects that are mapped.
//!
//! A frame of an object has one reference from its object and one from each entry that maps it. So the frame becomes
//! mapped when its second reference is taken, and unmapped when only one reference remains. The CPU that causes either
//! change counts it in its own counter, so the sum over all CPUs needs no walk over frame metadata. Linux 7.2 updates
//! `NR_FILE_MAPPED` when a page's map count leaves or returns to its lowest value (`mm/rmap.c`).
//!
//! A part of a folio is mapped by references to the whole folio and by references to the part (`folio.rs`), so no
//! single count determines whether it is mapped. The counters treat a part like an ordinary frame, and
//! [`Frames::mapped_objects`] corrects the sum for each folio of an object. If any object has folios, that function
//! reads the metadata of the first frame of each 2 MiB of memory, and of all parts of each parted folio.

use core::sync::atomic::Ordering;

use super::meta::{Meta, State};
use super::order::FOLIO_FRAMES;
use super::{FrameKind, Frames};
use crate::addr::Frame;
use crate::machine::Machine;

/// Counts over the folios that belong to objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ObjectFolios {
    /// The number of folios of objects.
    count: u64,
    /// The number of folios that have whole-folio references besides the object's.
    mapped: u64,
    /// The number of frames in folios of objects that at least one entry maps.
    frames: u64,
    /// The number of parts of folios of objects that the per-CPU counters include as mapped frames.
    counted: u64,
}

impl<M: Machine> Frames<M> {
    /// Adds `by`, which can be negative, to the calling CPU's count of mapped frames of objects.
    pub(super) fn count_mapped_objects(&self, by: i64) {
        self.cpu_cache()
            .mapped_objects
            .fetch_add(by, Ordering::Relaxed);
    }

    /// Returns the number of frames of objects that at least one entry maps. A [`FrameRef`](super::FrameRef) besides
    /// the object's counts as an entry.
    pub fn mapped_objects(&self) -> u64 {
        let folios = self.folios_of_objects();
        let sum = self.counted_as_mapped() + folios.frames as i64 - folios.counted as i64;
        // The sum can be negative, because other CPUs change the counters at the same time.
        sum.max(0) as u64
    }

    /// The sum of the counters of all CPUs, in which the parts of folios are not corrected yet.
    fn counted_as_mapped(&self) -> i64 {
        let counters = self.caches.iter().map(|cpu| &cpu.mapped_objects);
        counters
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }

    /// Returns whether the counters agree with the metadata of all frames. No other CPU may use frames during the call.
    pub fn are_mapped_objects_counted(&self) -> bool {
        let metas = self.metas();
        let (mut number, mut counted) = (metas.lowest, 0);
        while let Some(meta) = metas.find(number) {
            let state = meta.state();
            counted += i64::from(meta.is_counted_as_mapped());
            let closed = state.has(State::FOLIO) && !state.has(State::PARTED);
            number += if closed { FOLIO_FRAMES } else { 1 };
        }
        counted == self.counted_as_mapped()
    }

    /// Returns the number of folios that belong to objects, and the number of those that are mapped by huge entries. A
    /// folio counts as mapped if it has whole-folio references besides the object's, because the references of entries
    /// and of pins cannot be distinguished.
    pub fn object_folios(&self) -> (u64, u64) {
        let folios = self.folios_of_objects();
        (folios.count, folios.mapped)
    }

    /// Counts the folios that belong to objects, with a walk over the frames at which a folio can begin. Skips the walk
    /// if no folio belongs to an object.
    fn folios_of_objects(&self) -> ObjectFolios {
        let mut folios = ObjectFolios::default();
        if self.object_folios.load(Ordering::Relaxed) == 0 {
            return folios;
        }
        let metas = self.metas();
        let first = metas.lowest.next_multiple_of(FOLIO_FRAMES);
        for number in (first..metas.end()).step_by(FOLIO_FRAMES as usize) {
            let meta = metas.get(number);
            let state = meta.state();
            if !state.has(State::FOLIO) || state.kind() != FrameKind::Object {
                continue;
            }
            let is_mapped = meta.whole.load(Ordering::Relaxed) > 1;
            folios.count += 1;
            folios.mapped += u64::from(is_mapped);
            if state.has(State::PARTED) {
                self.add_parts(number, &mut folios);
            } else if is_mapped {
                folios.frames += u64::from(FOLIO_FRAMES);
            }
        }
        folios
    }

    /// Adds the parts of the parted folio that begins at frame `head` to `folios`.
    fn add_parts(&self, head: u32, folios: &mut ObjectFolios) {
        for number in head..head + FOLIO_FRAMES {
            folios.frames += u64::from(self.sharers(Frame::new(number)) > 0);
            folios.counted += u64::from(self.metas().get(number).is_counted_as_mapped());
        }
    }
}

impl Meta {
    /// Whether the frame belongs to an object and has more than one reference to itself.
    fn is_counted_as_mapped(&self) -> bool {
        self.kind() == FrameKind::Object && self.references.load(Ordering::Relaxed) > 1
    }
}
