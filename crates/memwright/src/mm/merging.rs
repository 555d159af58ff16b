//! The state of KSM: the merged pages, the candidates, and the address spaces that are scanned.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frame, Machine, Page, Shared};

use crate::mm::core::Core;
use crate::types::chains::{Chain, Chains};
use crate::types::digest_index::Index;
use crate::types::merge::MergeSettings;

/// The number of an address space that ksmd does not scan.
pub(crate) const UNSCANNED: u64 = 0;
/// The number of an address space that may map KSM pages but could not be registered, because there was no heap memory.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// The number of an address space in the scan.
pub(crate) struct MergeNumber(AtomicU64);

impl MergeNumber {
    pub(crate) const fn new() -> Self {
        Self(AtomicU64::new(UNSCANNED))
    }

    /// Returns the number.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Returns whether the address space may map KSM pages.
    pub(crate) fn may_have_merged(&self) -> bool {
        self.get() != UNSCANNED
    }

    pub(crate) fn set(&self, number: u64) {
        self.0.store(number, Ordering::Release);
    }
}

/// A page for which this pass of the scan has not found an equal page yet.
#[derive(Clone, Copy)]
pub(crate) struct Lone {
    pub(crate) space: u64,
    pub(crate) page: Page,
    pub(crate) frame: Frame,
}

/// An address space that is registered for scanning.
pub(crate) struct Scanned<M: Machine> {
    pub(crate) number: u64,
    pub(crate) space: Shared<Core<M>>,
}

/// A page that mapped a KSM frame when it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MergedPlace {
    /// The number of the address space in the list of scanned address spaces.
    pub(crate) space: u64,
    pub(crate) page: Page,
}

/// A KSM frame in the index.
#[derive(Clone, Copy)]
pub(crate) struct Stable {
    pub(crate) frame: Frame,
    /// The pages that were merged into the frame. Some of them may map another frame by now. The list lacks pages of
    /// forked children that neither the scan nor a search has found yet.
    pub(crate) places: Chain,
}

/// The registered address spaces and the indexes.
pub(crate) struct Known<M: Machine> {
    /// The registered address spaces, sorted by number.
    pub(crate) spaces: Vec<Scanned<M>>,
    pub(crate) last_number: u64,
    /// KSM frames. The index holds a reference to each.
    pub(crate) merged: Index<Stable>,
    pub(crate) places: Chains<MergedPlace>,
    pub(crate) lone: Index<Lone>,
}

impl<M: Machine> Known<M> {
    /// Removes the KSM frame `frame`, whose key is `key`, from the index. Returns the frame's list of places, and the
    /// caller takes over the index's reference. Returns `None` if the frame is not in the index.
    pub(crate) fn take(&mut self, key: u64, frame: Frame) -> Option<Chain> {
        let taken = self.merged.remove(key, |one| one.frame == frame)?;
        Some(taken.places)
    }

    /// Returns the registered address space with this number.
    pub(crate) fn space(&self, number: u64) -> Option<&Shared<Core<M>>> {
        let at = self.spaces.binary_search_by_key(&number, |one| one.number);
        Some(&self.spaces[at.ok()?].space)
    }

    /// Records a page that maps the KSM frame `frame` with this key. First drops the frame's other records if there are
    /// more than `most`. If there is no memory for the record, a search for the entries of the frame examines all
    /// mergeable memory.
    pub(crate) fn note_place(&mut self, key: u64, frame: Frame, place: MergedPlace, most: u32) {
        if let Some(stable) = self.merged.find_mut(key, |one| one.frame == frame) {
            if stable.places.len() > most {
                self.places.clear(&mut stable.places);
            }
            let _ = self.places.try_push(&mut stable.places, place);
        }
    }

    /// Removes the records of the pages that map a KSM frame.
    pub(crate) fn forget_places(&mut self, key: u64, frame: Frame) {
        if let Some(stable) = self.merged.find_mut(key, |one| one.frame == frame) {
            self.places.clear(&mut stable.places);
        }
    }
}

/// The position of the scan.
pub(crate) struct Round {
    pub(crate) space: u64,
    pub(crate) page: Page,
    /// The number of pages that this pass of the scan has found changed so far.
    pub(crate) volatile: u64,
}

/// The state of KSM: one per machine.
pub struct Merging<M: Machine> {
    pub(crate) settings: MergeSettings,
    /// Held by the scan, by migration of KSM pages, and while all KSM pages are unmerged.
    pub(crate) round: Lock<Round, M::Threads>,
    pub(crate) known: Lock<Known<M>, M::Threads>,
    pub(crate) volatile: AtomicU64,
    pub(crate) rounds: AtomicU64,
}

impl<M: Machine> Merging<M> {
    pub(crate) const fn new() -> Self {
        Self {
            settings: MergeSettings::new(),
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
                    places: Chains::new(),
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

    /// Returns whether any address space is registered for scanning.
    pub fn is_wanted(&self) -> bool {
        !self.known.lock().spaces.is_empty()
    }
}
