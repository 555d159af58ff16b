//! KSM: pages with equal contents share one frame (Linux 7.2 `mm/ksm.c`).
//!
//! ksmd scans the memory that programs have made mergeable. It keeps two indexes by a digest of contents. The first has
//! the KSM pages, which are never written, so their digests stay valid (the stable tree). The second has pages that
//! this pass has examined and that have not changed since the previous pass; their digests are only hints (the unstable
//! tree). If a page has the digest of a KSM page, its entry is changed to map the KSM frame. If two pages that are not
//! KSM pages have equal digests, their entries are changed to map a new KSM frame.
//!
//! **The comparison decides**, and it is made while the page cannot be written: the entry is write-protected and
//! flushed on every CPU, then the bytes are compared, and only then the entry maps the other frame. If the bytes
//! differ, write permission is restored where [`writable`](crate::writable) permits it. A page that is pinned, has an
//! extra reference or is being migrated is skipped.
//!
//! **A KSM page is never exclusive.** Its frame has the kind of KSM frames. The index holds one reference to the frame,
//! in addition to those of the entries. [`writable`](crate::writable) denies write permission to
//! [`MERGED`](memwright_table::Bits::MERGED) entries, so a store copies the page. The entry of a zero-filled page may
//! map the zero page instead; `MERGED` distinguishes this entry from one of untouched memory.
//!
//! Frames that no entry maps any more are found by a walk of the index: at intervals, when memory is short, and when an
//! address space with mergeable memory exits.

mod advise;
mod apart;
mod page;
mod relocate;
mod scan;

pub(crate) use apart::mergeable;

use core::sync::atomic::Ordering;
use memwright_table::{Frame, FrameRef, Machine, OutOfMemory, Shared, TryPush};

use crate::mm::core::Core;
use crate::mm::memory::Memory;
use crate::mm::merging::{Known, Lone, Merging, Scanned, Stable, UNKNOWN, UNSCANNED};
use crate::types::chains::Chains;
use crate::types::merge::{MergeCounts, MergedPages};

impl<M: Machine> Merging<M> {
    /// Registers `space` for scanning.
    pub(crate) fn enter(&self, space: &Shared<Core<M>>) -> Result<(), OutOfMemory> {
        let mut known = self.known.lock();
        if !matches!(space.merge_number.get(), UNSCANNED | UNKNOWN) {
            return Ok(());
        }
        let number = known.last_number + 1;
        known.spaces.try_push(Scanned {
            number,
            space: space.clone(),
        })?;
        known.last_number = number;
        space.merge_number.set(number);
        Ok(())
    }

    /// Registers the child of a fork for scanning. If that fails, records that an address space that is not registered
    /// may map KSM pages.
    pub(crate) fn enter_child(&self, child: &Shared<Core<M>>) {
        if self.enter(child).is_err() {
            child.merge_number.set(UNKNOWN);
        }
    }

    /// Unregisters an address space that has no mappings any more.
    pub(crate) fn leave(&self, memory: &Memory<M>, space: &Core<M>) {
        let number = space.merge_number.get();
        space.merge_number.set(UNSCANNED);
        let left = {
            let mut known = self.known.lock();
            let at = known.spaces.binary_search_by_key(&number, |one| one.number);
            let left = at.ok().map(|at| known.spaces.remove(at));
            known.lone.retain(|one| one.space != number);
            if known.spaces.is_empty() {
                known.lone.clear();
            }
            left
        };
        drop(left);
        self.shed(memory);
    }

    /// Frees the KSM frames that no entry maps any more; returns their number.
    pub fn shed(&self, memory: &Memory<M>) -> u64 {
        let frames = memory.frames();
        let nothing = u64::MAX;
        let mut last = nothing;
        {
            let mut known = self.known.lock();
            let Known { merged, places, .. } = &mut *known;
            merged.retain(|stable| {
                // If no entry maps the frame, a new entry can get the frame only by a lookup in the index, and a lookup
                // takes the lock held here.
                let frame = stable.frame;
                let shown = frames.references(frame) > 1;
                if !shown {
                    let mut gone = stable.places;
                    places.clear(&mut gone);
                    frames.set_owner(frame, last, 0);
                    last = frame.number().into();
                }
                shown
            });
            if merged.len() == 0 {
                merged.clear();
                *places = Chains::new();
            }
        }
        // Freeing a frame takes locks that rank before the lock of the index, so the frames are freed after its
        // release.
        let mut shed = 0;
        while last != nothing {
            let frame = Frame::new(last as u32);
            last = frames.owner(frame).0;
            drop(frames.adopt(frame));
            shed += 1;
        }
        shed
    }

    /// Returns the present counts.
    pub fn counts(&self, memory: &Memory<M>) -> MergeCounts {
        let frames = memory.frames();
        let known = self.known.lock();
        let mut counts = MergeCounts {
            unshared: known.lone.len() as u64,
            volatile: self.volatile.load(Ordering::Relaxed),
            rounds: self.rounds.load(Ordering::Relaxed),
            index_bytes: (known.merged.bytes() + known.places.bytes() + known.lone.bytes()) as u64,
            ..MergeCounts::default()
        };
        for (digest, Stable { frame, .. }) in known.merged.iter() {
            let shown = u64::from(frames.sharers(frame));
            if shown > 0 {
                counts.shared += 1;
                counts.sharing += shown - 1;
            }
            let first = known.merged.find(digest, |_| true);
            let first = first.is_some_and(|first| first.frame == frame);
            let others = known.merged.find(digest, |other| other.frame != frame);
            if others.is_some() {
                counts.duplicates += 1;
                counts.chains += u64::from(first);
            }
        }
        counts
    }

    /// Adds to `found` the number of pages of address space `number` for which no equal page was found so far, and the
    /// memory that these pages take in the index.
    fn add_lone(&self, number: u64, found: &mut MergedPages) {
        let known = self.known.lock();
        let lone = known.lone.iter().filter(|(_, one)| one.space == number);
        found.lone = lone.count() as u64;
        found.lone_bytes = found.lone * size_of::<Option<(u64, Lone)>>() as u64;
    }

    /// Returns a reference to a KSM frame with the key `digest` that is mapped by fewer entries than the limit allows.
    fn merged_frame<'a>(&self, memory: &'a Memory<M>, digest: u64) -> Option<FrameRef<'a, M>> {
        let frames = memory.frames();
        let most = self.settings.most_sharing.load(Ordering::Relaxed);
        let known = self.known.lock();
        let found = known
            .merged
            .find(digest, |one| frames.sharers(one.frame) < most)?;
        Some(frames.share(found.frame))
    }

    /// Removes a KSM frame from the index and drops the index's reference.
    fn forget(&self, memory: &Memory<M>, key: u64, frame: Frame) {
        let places = {
            let mut known = self.known.lock();
            let mut places = known.take(key, frame);
            if let Some(places) = &mut places {
                known.places.clear(places);
            }
            places
        };
        if places.is_some() {
            drop(memory.frames().adopt(frame));
        }
    }

    /// Returns the registered address space `number`, or the one with the next higher number; `None` at the end.
    fn space_from(&self, number: u64) -> Option<(u64, Shared<Core<M>>)> {
        let known = self.known.lock();
        let at = known.spaces.partition_point(|one| one.number < number);
        let found = known.spaces.get(at)?;
        Some((found.number, found.space.clone()))
    }
}

impl<M: Machine> Memory<M> {
    /// Frees all KSM frames when the memory manager is dropped: no entry maps them any more.
    pub(crate) fn drop_merged(&self) {
        self.merging().shed(self);
    }
}
