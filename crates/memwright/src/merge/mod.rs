//! Pages with equal contents share one frame (Linux 7.2 `mm/ksm.c`).
//!
//! A scan goes round the memory that programs have called mergeable. It keeps two indexes by a digest of contents:
//! merged pages, which nobody writes, so that theirs stays what it is; and pages that were found once in this round
//! and had not changed since the round before, of which the digest is only where to look. A page that has the digest
//! of a merged one shows its frame from then on; one that has the digest of another page gets a frame with it.
//!
//! **What counts is the comparison**, made once nobody can write the page: its entry loses the right to write and every
//! CPU forgets it, then the bytes are compared, and only then the entry names the other frame; else it gets the right
//! back by the rule. A page that is pinned, lent or on its way elsewhere is passed over.
//!
//! **A merged page is never exclusive.** Its frame is of a kind of its own, and has one reference more than entries:
//! that of the index. The rule refuses [`MERGED`](memwright_table::Bits::MERGED) entries, and a store copies. Pages
//! full of zeroes may show the zero frame instead; the bit tells them from memory that was only read.
//!
//! Frames that no entry shows any more are found by looking through the index: at intervals, when memory is short, and
//! when a space that knew of merging ends.

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

/// What a space has as its number while nobody scans it.
pub(crate) const UNSCANNED: u64 = 0;
/// A space that may show merged pages, and is not scanned for want of memory.
const UNKNOWN: u64 = u64::MAX;

/// What can be set of merging.
#[derive(Debug)]
pub struct MergeSettings {
    /// Pages that one look at memory looks at (`pages_to_scan`).
    pub pages: AtomicU32,
    /// Milliseconds between two (`sleep_millisecs`).
    pub sleep: AtomicU32,
    /// The most entries that show one merged frame (`max_page_sharing`).
    pub most_sharing: AtomicU32,
    /// Milliseconds between two looks for merged frames that nobody shows (`stable_node_chains_prune_millisecs`).
    pub prune: AtomicU32,
    /// Whether pages full of zeroes show the zero frame (`use_zero_pages`).
    pub zero_pages: AtomicBool,
    /// Whether pages of several nodes are merged; else a page stays on its node (`merge_across_nodes`). To be changed while
    /// nothing is merged.
    pub across_nodes: AtomicBool,
}

/// What was found and merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeCounts {
    /// Frames that entries share (`pages_shared`).
    pub shared: u64,
    /// Entries that show them, beside one of each (`pages_sharing`).
    pub sharing: u64,
    /// Pages that the scan keeps an eye on since nothing is equal to them (`pages_unshared`).
    pub unshared: u64,
    /// Pages that changed between two rounds, in the last whole one (`pages_volatile`).
    pub volatile: u64,
    /// Contents that more than one frame has, since as many entries show each as may (`stable_node_chains`).
    pub chains: u64,
    /// Frames of these (`stable_node_dups`).
    pub duplicates: u64,
    /// Rounds over all memory (`full_scans`).
    pub rounds: u64,
    /// Bytes that the indexes take.
    pub index_bytes: u64,
}

/// A page that was found in this round.
#[derive(Clone, Copy)]
struct Lone {
    space: u64,
    page: Page,
    frame: Frame,
}

/// A space that is scanned.
struct Scanned<M: Machine> {
    number: u64,
    space: Shared<Core<M>>,
}

/// What the scan and the spaces know of.
struct Known<M: Machine> {
    /// In the order of their numbers.
    spaces: Vec<Scanned<M>>,
    last_number: u64,
    /// Merged frames, each with a reference.
    merged: Index<Frame>,
    lone: Index<Lone>,
}

impl<M: Machine> Known<M> {
    /// Takes a merged frame out. Whether it was there: its reference is the caller's then.
    fn take(&mut self, frame: Frame) -> bool {
        let before = self.merged.len();
        self.merged.retain(|one| *one != frame);
        self.merged.len() < before
    }
}

/// Where the scan is.
struct Round {
    space: u64,
    page: Page,
    /// Pages that changed, so far.
    volatile: u64,
}

/// Merging of equal pages: one per machine.
pub struct Merging<M: Machine> {
    settings: MergeSettings,
    /// Held by whoever scans, or takes all merged pages apart.
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
                Rank::Leaf,
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

    /// What can be set.
    pub fn settings(&self) -> &MergeSettings {
        &self.settings
    }

    /// Whether there is memory to scan.
    pub fn is_wanted(&self) -> bool {
        !self.known.lock().spaces.is_empty()
    }

    /// Lets `space` be scanned.
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

    /// The same for a fork's child, which shows merged pages whether there is memory to know of it or not.
    pub(crate) fn enter_child(&self, child: &Shared<Core<M>>) {
        if self.enter(child).is_err() {
            child.set_merge_number(UNKNOWN);
        }
    }

    /// Forgets a space, of which nothing is mapped any more.
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

    /// Gives up the frames that nobody shows any more; returns how many.
    pub fn shed(&self, memory: &Memory<M>) -> u64 {
        let frames = memory.frames();
        let nothing = u64::MAX;
        let mut last = nothing;
        {
            let mut known = self.known.lock();
            known.merged.retain(|frame| {
                // Who finds the frame here does so under this lock, and there is no entry to copy it from.
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
        // Frames are freed under locks that come before the index's.
        let mut shed = 0;
        while last != nothing {
            let frame = Frame::new(last as u32);
            last = frames.owner(frame).0;
            drop(frames.adopt(frame));
            shed += 1;
        }
        shed
    }

    /// What there is now.
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

    /// Adds the pages of a space of which the scan knows no equal ones.
    fn add_lone(&self, number: u64, found: &mut MergedPages) {
        let known = self.known.lock();
        let lone = known.lone.iter().filter(|(_, one)| one.space == number);
        found.lone = lone.count() as u64;
        found.lone_bytes = found.lone * size_of::<Option<(u64, Lone)>>() as u64;
    }

    /// A merged frame with this key that one more entry may show.
    fn merged_frame<'a>(&self, memory: &'a Memory<M>, digest: u64) -> Option<FrameRef<'a, M>> {
        let frames = memory.frames();
        let most = self.settings.most_sharing.load(Ordering::Relaxed);
        let known = self.known.lock();
        let found = known
            .merged
            .find(digest, |frame| frames.sharers(*frame) < most)?;
        Some(frames.share(found))
    }

    /// Knows a merged frame no more.
    fn forget(&self, memory: &Memory<M>, frame: Frame) {
        let known = self.known.lock().take(frame);
        if known {
            drop(memory.frames().adopt(frame));
        }
    }

    /// The space with this number, or the next one.
    fn space_from(&self, number: u64) -> Option<(u64, Shared<Core<M>>)> {
        let known = self.known.lock();
        let at = known.spaces.partition_point(|one| one.number < number);
        let found = known.spaces.get(at)?;
        Some((found.number, found.space.clone()))
    }
}

impl<M: Machine> Memory<M> {
    /// Gives the merged frames up, with everything else: no entry shows them any more.
    pub(crate) fn drop_merged(&self) {
        self.merging().shed(self);
    }
}
