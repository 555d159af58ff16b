//! Translates a page like a processor, for emulators that implement a TLB.

use core::sync::atomic::Ordering;

use crate::addr::{Frame, Page, PageSize};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::{Bits, CacheMode, Entry};
use crate::machine::Machine;
use crate::root::Table;
use crate::sync::Threads;
use crate::table::level::slot_index;

/// The kind of access to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageAccess {
    /// A load.
    Load,
    /// A store.
    Store,
    /// An instruction fetch.
    Fetch,
}

impl PageAccess {
    /// Returns the rights that an entry must have for the access.
    const fn wanted(self) -> Bits {
        match self {
            Self::Load => Bits::READ,
            Self::Store => Bits::READ.union(Bits::WRITE),
            Self::Fetch => Bits::READ.union(Bits::EXECUTE),
        }
    }

    /// Returns the bits that a processor sets in the entry on the access.
    const fn recorded(self) -> Bits {
        match self {
            Self::Load | Self::Fetch => Bits::ACCESSED,
            Self::Store => Bits::ACCESSED.union(Bits::DIRTY),
        }
    }
}

/// The bits of an entry that let a CPU store to its page without another walk.
const WRITTEN: Bits = Bits::WRITE.union(Bits::DIRTY);

/// A translation that a TLB may keep until the machine receives an invalidation of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The frame of the page that was accessed; for a huge page, the frame of that part of the huge page.
    pub frame: Frame,
    /// The size of the page that the entry maps.
    pub size: PageSize,
    /// Whether stores may use the translation. If the dirty bit is clear, a store must translate again, to set the bit.
    pub stores: bool,
    /// Whether instruction fetches may use the translation.
    pub fetches: bool,
    /// The protection key of the page.
    pub key: u8,
    /// How a processor caches the page. An emulator that models no caches may ignore it.
    pub cache: CacheMode,
}

impl<M: Machine> Table<M> {
    /// Translates a page like a processor: sets the accessed bit in every entry of the walk and, for a store, the dirty
    /// bit in the last one. Returns `None` if the processor would fault.
    ///
    /// An emulator may cache the result for the CPU until [`Machine::invalidate_local`] or
    /// [`Machine::invalidate_remote`] invalidates it on that CPU. Protection keys are not checked.
    ///
    /// # Locks
    /// Takes no lock. The calling CPU has the table [loaded](crate::Loaded) and completes no invalidation during the
    /// call, so no table on the path of the walk is freed.
    ///
    /// # Panics
    /// In debug builds, if the calling CPU has not loaded the table.
    pub fn translate(&self, page: Page, access: PageAccess) -> Option<Translation> {
        if cfg!(debug_assertions) {
            self.check_loaded(M::Threads::cpu());
        }
        if page >= M::Arch::USER.end {
            return None;
        }
        let frames = self.frames();
        let (mut node, mut level) = (self.root(), M::Arch::LEVELS);
        // Whether the upper entries of the walk permit stores.
        let mut upper = true;
        loop {
            let slot = &frames.table_words(node)[slot_index(page, level)];
            let word = slot.load(Ordering::Acquire);
            let Slot::Table(lower) = word::slot(word, level) else {
                break;
            };
            if word::is_uncached(word) {
                let used = word | word::mask(Bits::ACCESSED);
                if slot.exchange(word, used).is_err() {
                    // The entry has changed: read it again.
                    continue;
                }
            }
            upper &= word::permits_stores(word);
            (node, level) = (lower, level - 1);
        }
        if access == PageAccess::Store && !upper {
            return None;
        }
        let slot = &frames.table_words(node)[slot_index(page, level)];
        let mut word = slot.load(Ordering::Acquire);
        loop {
            let Entry::Present(present) = word::decode(word, level) else {
                return None;
            };
            if !present.bits.contains(access.wanted()) {
                return None;
            }
            let used = word | word::mask(access.recorded());
            match slot.exchange(word, used) {
                Ok(_) => {
                    return Some(Translation {
                        frame: present.frame_of(page),
                        size: present.size,
                        stores: upper && word::held(used, WRITTEN) == WRITTEN,
                        fetches: present.bits.contains(Bits::EXECUTE),
                        key: present.bits.key(),
                        cache: present.bits.cache()?,
                    });
                }
                Err(now) => word = now,
            }
        }
    }
}
