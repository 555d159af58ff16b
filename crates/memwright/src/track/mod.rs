//! Which pages were written: soft-dirty bits, and userfaultfd's asynchronous write protection.
//!
//! # Two ways of knowing
//!
//! A page whose stores are tracked is *armed*. How its next store becomes known depends on the page and on
//! [`Policy::track`](crate::Policy::track):
//!
//! | Page | Armed as | A store |
//! |---|---|---|
//! | private, `track=dirty-bit` | clean, and as writable as it was | the processor sets the dirty bit |
//! | private, `track=fault` | not writable | faults once |
//! | shared | not writable | faults once |
//!
//! The processor caches dirty with a translation and would not set it again, so that clearing it is a loss
//! ([`Change::LostCachedBit`](memwright_table::Change), design rule 1): flushed wherever it may be cached before
//! the arming operation returns.
//!
//! # One dirty bit, several readers
//!
//! Whoever clears it first tells the others (design rule 9): that the frame differs from any copy of it goes into
//! [`Bits::FOLDED_DIRTY`], that it was written since soft-dirty was cleared into [`Bits::SOFT_DIRTY`], that it was
//! written since it was write-protected by taking [`Bits::UFFD_WP`] away, as a store that faults would.

mod scan;
mod soft_dirty;

use memwright_table::{Bits, Edit};

pub use scan::{Categories, Scan};

use crate::vma::{Area, AreaFlags, Backed};

impl<B: Backed> Area<B> {
    /// Whether a store to a page that is not soft-dirty must fault.
    #[inline]
    pub(crate) fn watches_stores(&self) -> bool {
        let both = AreaFlags::SOFT_DIRTY.union(AreaFlags::WATCH_STORES);
        self.flags & both == AreaFlags::WATCH_STORES
    }

    /// Whether a page of the area counts as written since soft-dirty was last cleared. `bits` are those of its
    /// entry, none if nothing stands there (Linux 7.2 `fs/proc/task_mmu.c`, `pte_to_pagemap_entry`).
    pub fn is_soft_dirty(&self, bits: Bits) -> bool {
        soft_dirty(self.flags, bits)
    }
}

/// The same for an area with these flags.
fn soft_dirty(flags: AreaFlags, bits: Bits) -> bool {
    let dirty_tells = !flags.intersects(AreaFlags::WATCH_STORES | AreaFlags::SHARED);
    flags.contains(AreaFlags::SOFT_DIRTY)
        || bits.contains(Bits::SOFT_DIRTY)
        || (dirty_tells && bits.contains(Bits::DIRTY))
}

/// Clears the dirty bit of an entry with these bits, in a private area with these flags, for one of its readers;
/// the others are told. The reader takes back what this says to himself.
fn fold_dirty(flags: AreaFlags, bits: Bits) -> Edit {
    if !bits.contains(Bits::DIRTY) {
        return Edit::NONE;
    }
    let written = if flags.contains(AreaFlags::UFFD_BY_DIRTY) {
        Bits::UFFD_WP
    } else {
        Bits::empty()
    };
    Edit {
        set: Bits::FOLDED_DIRTY | Bits::SOFT_DIRTY,
        clear: Bits::DIRTY | written,
    }
}

/// How an entry with these bits is write-protected in an area with these flags: from now on a store to it is known.
///
/// Where the dirty bit tells, an entry that is protected already is made clean again, so that what was written
/// counts as unwritten from here on.
pub(crate) fn arm_written(flags: AreaFlags, bits: Bits) -> Edit {
    let mut edit = if flags.contains(AreaFlags::UFFD_BY_DIRTY) {
        fold_dirty(flags, bits)
    } else {
        Edit {
            set: Bits::empty(),
            clear: Bits::WRITE,
        }
    };
    edit.clear -= Bits::UFFD_WP;
    edit.set |= Bits::UFFD_WP;
    edit
}

/// Whether a page with these bits, in an area with these flags, was written since it was write-protected.
pub(crate) fn written(flags: AreaFlags, bits: Bits) -> bool {
    let dirty_tells = flags.contains(AreaFlags::UFFD_BY_DIRTY);
    !bits.contains(Bits::UFFD_WP) || (dirty_tells && bits.contains(Bits::DIRTY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_soft_dirty() {
        let (area, watch, shared) = (
            AreaFlags::SOFT_DIRTY,
            AreaFlags::WATCH_STORES,
            AreaFlags::SHARED,
        );
        let none = AreaFlags::empty();
        #[rustfmt::skip]
        let rows = [
            ("new memory, nothing mapped",         area,           Bits::empty(),    true),
            ("cleared, nothing mapped",            none,           Bits::empty(),    false),
            ("cleared, the bit",                   none,           Bits::SOFT_DIRTY, true),
            ("cleared, the processor's bit",       none,           Bits::DIRTY,      true),
            ("watched: the dirty bit is older",    watch,          Bits::DIRTY,      false),
            ("watched, the bit",                   watch,          Bits::SOFT_DIRTY, true),
            ("shared: the dirty bit is the file's", shared | watch, Bits::DIRTY,     false),
        ];
        for (name, flags, bits, expected) in rows {
            assert_eq!(soft_dirty(flags, bits), expected, "{name}");
        }
    }

    #[test]
    fn a_protected_page_is_unwritten_until_a_store() {
        let (wp, dirty, write) = (Bits::UFFD_WP, Bits::DIRTY, Bits::WRITE);
        let (faults, by_dirty) = (AreaFlags::UFFD_WP, AreaFlags::UFFD_BY_DIRTY);
        for flags in [faults, by_dirty] {
            for bits in [write, write | dirty, dirty, write | dirty | wp] {
                let edit = arm_written(flags, bits);
                let armed = (bits - edit.clear) | edit.set;
                assert!(!written(flags, armed), "{bits:?}");
                assert!(written(flags, armed - wp));
                assert_eq!(written(flags, armed | dirty), flags == by_dirty);
                assert_eq!(
                    armed.contains(write),
                    bits.contains(write) && flags == by_dirty
                );
            }
        }
    }

    #[test]
    fn who_clears_the_dirty_bit_tells_the_others() {
        let (none, by_dirty) = (AreaFlags::empty(), AreaFlags::UFFD_BY_DIRTY);
        assert_eq!(fold_dirty(by_dirty, Bits::WRITE), Edit::NONE);
        let edit = fold_dirty(by_dirty, Bits::DIRTY | Bits::UFFD_WP);
        assert_eq!(edit.set, Bits::FOLDED_DIRTY | Bits::SOFT_DIRTY);
        assert_eq!(edit.clear, Bits::DIRTY | Bits::UFFD_WP);
        // Where a store faults, a protected page may well have been dirty before.
        let edit = fold_dirty(none, Bits::DIRTY | Bits::UFFD_WP);
        assert_eq!(edit.clear, Bits::DIRTY);
    }
}
