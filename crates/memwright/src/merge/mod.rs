//! KSM: pages with equal contents share one frame (Linux 7.2 `mm/ksm.c`).
//!
//! ksmd scans the memory that programs have made mergeable. It keeps two indexes by a digest of contents. The first has
//! the KSM pages, which are never written, so their digests stay valid (the stable tree). The second has pages that
//! were found in this pass and had not changed since the pass before; their digests are only hints (the unstable tree).
//! A page with the digest of a KSM page is mapped to its frame; two pages with the same digest get a new KSM frame.
//!
//! **The comparison decides**, and it is made while the page cannot be written: the entry is write-protected and
//! flushed on every CPU, then the bytes are compared, and only then the entry maps the other frame. If the bytes
//! differ, write permission is restored where the rule allows it. A page that is pinned, has an extra reference or is
//! being migrated is skipped.
//!
//! **A KSM page is never exclusive.** Its frame has a separate kind. The index holds one reference to the frame, in
//! addition to those of the entries. The rule denies write permission to [`MERGED`](memwright_table::Bits::MERGED)
//! entries, so a store copies the page. Zero-filled pages may map the zero page instead; the bit distinguishes them
//! from untouched memory.
//!
//! Frames that no entry maps any more are found by a walk of the index: at intervals, when memory is short, and when an
//! address space with mergeable memory exits.

mod apart;
mod index;
mod page;
mod relocate;
mod scan;

pub use self::apart::MergedPages;

pub(crate) use self::apart::mergeable;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frame, FrameRef, Machine, OutOfMemory, Page, Shared, TryPush};

use self::index::Index;
use crate::memory::Memory;
use crate::space::Core;

/// The number of an address space that is not registered for scanning.
pub(crate) const UNSCANNED: u64 = 0;
/// The number of an address space that may map KSM pages, but could not be registered because there was no heap.
const UNKNOWN: u64 = u64::MAX;

/// The settings of KSM.
#[derive(Debug)]
pub struct MergeSettings {
    /// Pages that one batch of the scan examines (`pages_to_scan`).
    pub pages: AtomicU32,
    /// Milliseconds between two batches (`sleep_millisecs`).
    pub sleep: AtomicU32,
    /// The maximum number of entries that map one KSM frame (`max_page_sharing`).
    pub most_sharing: AtomicU32,
    /// Milliseconds between two searches for KSM frames that no entry maps (`stable_node_chains_prune_millisecs`).
    pub prune: AtomicU32,
    /// Whether zero-filled pages are mapped to the zero page (`use_zero_pages`).
    pub zero_pages: AtomicBool,
    /// Whether pages of different nodes are merged (`merge_across_nodes`). Changed only while nothing is merged.
    pub across_nodes: AtomicBool,
}

/// The counts of KSM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// KSM frames that entries map (`pages_shared`).
    pub shared: u64,
    /// Entries that map them, minus one for each frame (`pages_sharing`).
    pub sharing: u64,
    /// Pages in the index without an equal page (`pages_unshared`).
    pub unshared: u64,
    /// Pages that changed between two scans, in the last complete pass (`pages_volatile`).
    pub volatile: u64,
    /// Contents with more than one frame, because each frame has the maximum number of entries (`stable_node_chains`).
    pub chains: u64,
    /// The number of these frames (`stable_node_dups`).
    pub duplicates: u64,
    /// Complete passes over all mergeable memory (`full_scans`).
    pub rounds: u64,
    /// Bytes of memory that the indexes take.
    pub index_bytes: u64,
}

/// A page without an equal page so far in this pass.
#[derive(Clone, Copy)]
struct Lone {
    space: u64,
    page: Page,
    frame: Frame,
}

/// An address space that is registered for scanning.
struct Scanned<M: Machine> {
    number: u64,
    space: Shared<Core<M>>,
}

/// The registered address spaces and the indexes.
struct Known<M: Machine> {
    /// Sorted by number.
    spaces: Vec<Scanned<M>>,
    last_number: u64,
    /// KSM frames. The index holds a reference to each.
    merged: Index<Frame>,
    lone: Index<Lone>,
}

impl<M: Machine> Known<M> {
    /// Removes a KSM frame from the index. Returns whether it was there; the caller then takes over the index's
    /// reference.
    fn take(&mut self, frame: Frame) -> bool {
        let before = self.merged.len();
        self.merged.retain(|one| *one != frame);
        self.merged.len() < before
    }
}

/// The position of the scan.
struct Round {
    space: u64,
    page: Page,
    /// Pages that have changed, so far in this pass.
    volatile: u64,
}

/// The state of KSM: one per machine.
pub struct Merging<M: Machine> {
    settings: MergeSettings,
    /// Held by the scan, by migration of KSM pages, and while all KSM pages are unmerged.
    round: Lock<Round>,
    known: Lock<Known<M>>,
    volatile: AtomicU64,
    rounds: AtomicU64,
}

impl<M: Machine> Merging<M> {
    pub(crate) const fn new() -> Self {
        Self {
            settings: MergeSettings {
                pages: AtomicU32::new(100),
                sleep: AtomicU32::new(20),
                most_sharing: AtomicU32::new(256),
                prune: AtomicU32::new(2000),
                zero_pages: AtomicBool::new(false),
                across_nodes: AtomicBool::new(true),
            },
            round: Lock::new(
                Rank::Scan,
                Round {
                    space: 0,
                    page: Page::new(0),
                    volatile: 0,
                },
            ),
            known: Lock::new(
                Rank::Lists,
                Known {
                    spaces: Vec::new(),
                    last_number: 0,
                    merged: Index::new(),
                    lone: Index::new(),
                },
            ),
            volatile: AtomicU64::new(0),
            rounds: AtomicU64::new(0),
        }
    }

    /// Returns the settings.
    pub fn settings(&self) -> &MergeSettings {
        &self.settings
    }

    /// Whether an address space is registered for scanning.
    pub fn is_wanted(&self) -> bool {
        !self.known.lock().spaces.is_empty()
    }

    /// Registers `space` for scanning.
    pub(crate) fn enter(&self, space: &Shared<Core<M>>) -> Result<(), OutOfMemory> {
        let mut known = self.known.lock();
        if !matches!(space.merge_number(), UNSCANNED | UNKNOWN) {
            return Ok(());
        }
        let number = known.last_number + 1;
        known.spaces.try_push(Scanned {
            number,
            space: space.clone(),
        })?;
        known.last_number = number;
        space.set_merge_number(number);
        Ok(())
    }

    /// Registers the child of a fork for scanning. If that fails, records that the child may map KSM pages all the
    /// same.
    pub(crate) fn enter_child(&self, child: &Shared<Core<M>>) {
        if self.enter(child).is_err() {
            child.set_merge_number(UNKNOWN);
        }
    }

    /// Unregisters an address space that has no mappings any more.
    pub(crate) fn leave(&self, memory: &Memory<M>, space: &Core<M>) {
        let number = space.merge_number();
        space.set_merge_number(UNSCANNED);
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
            known.merged.retain(|frame| {
                // No entry maps the frame, so a new entry could get it only from the index, which takes this lock.
                let shown = frames.references(*frame) > 1;
                if !shown {
                    frames.set_owner(*frame, last, 0);
                    last = frame.number().into();
                }
                shown
            });
            if known.merged.len() == 0 {
                known.merged.clear();
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
            index_bytes: (known.merged.bytes() + known.lone.bytes()) as u64,
            ..MergeCounts::default()
        };
        for (digest, frame) in known.merged.iter() {
            let shown = u64::from(frames.sharers(frame));
            if shown > 0 {
                counts.shared += 1;
                counts.sharing += shown - 1;
            }
            let first = known.merged.find(digest, |_| true) == Some(frame);
            if known.merged.find(digest, |other| *other != frame).is_some() {
                counts.duplicates += 1;
                counts.chains += u64::from(first);
            }
        }
        counts
    }

    /// Counts in `found` the pages of an address space that have no equal page so far, and the memory that they take in
    /// the index.
    fn add_lone(&self, number: u64, found: &mut MergedPages) {
        let known = self.known.lock();
        let lone = known.lone.iter().filter(|(_, one)| one.space == number);
        found.lone = lone.count() as u64;
        found.lone_bytes = found.lone * size_of::<Option<(u64, Lone)>>() as u64;
    }

    /// Returns a KSM frame with this key that fewer entries map than the limit allows.
    fn merged_frame<'a>(&self, memory: &'a Memory<M>, digest: u64) -> Option<FrameRef<'a, M>> {
        let frames = memory.frames();
        let most = self.settings.most_sharing.load(Ordering::Relaxed);
        let known = self.known.lock();
        let found = known
            .merged
            .find(digest, |frame| frames.sharers(*frame) < most)?;
        Some(frames.share(found))
    }

    /// Removes a KSM frame from the index and drops the index's reference.
    fn forget(&self, memory: &Memory<M>, frame: Frame) {
        let known = self.known.lock().take(frame);
        if known {
            drop(memory.frames().adopt(frame));
        }
    }

    /// Returns the registered address space with this number, or the next one.
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
