//! The state of KSM: the merged pages, the candidates, and the address spaces that are scanned.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use memwright_table::sync::{Lock, Rank};
use memwright_table::{Frame, Machine, Page, Shared};

use crate::mm::core::Core;
use crate::types::digest_index::Index;
use crate::types::merge::MergeSettings;

/// The number of an address space that may map KSM pages, but could not be registered because there was no heap.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// A page without an equal page so far in this pass.
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

/// The registered address spaces and the indexes.
pub(crate) struct Known<M: Machine> {
    /// Sorted by number.
    pub(crate) spaces: Vec<Scanned<M>>,
    pub(crate) last_number: u64,
    /// KSM frames. The index holds a reference to each.
    pub(crate) merged: Index<Frame>,
    pub(crate) lone: Index<Lone>,
}

impl<M: Machine> Known<M> {
    /// Removes a KSM frame from the index. Returns whether it was there; the caller then takes over the index's
    /// reference.
    pub(crate) fn take(&mut self, frame: Frame) -> bool {
        let before = self.merged.len();
        self.merged.retain(|one| *one != frame);
        self.merged.len() < before
    }
}

/// The position of the scan.
pub(crate) struct Round {
    pub(crate) space: u64,
    pub(crate) page: Page,
    /// Pages that have changed, so far in this pass.
    pub(crate) volatile: u64,
}

/// The state of KSM: one per machine.
pub struct Merging<M: Machine> {
    pub(crate) settings: MergeSettings,
    /// Held by the scan, by migration of KSM pages, and while all KSM pages are unmerged.
    pub(crate) round: Lock<Round>,
    pub(crate) known: Lock<Known<M>>,
    pub(crate) volatile: AtomicU64,
    pub(crate) rounds: AtomicU64,
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
}
