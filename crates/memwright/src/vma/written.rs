//! Store tracking: it determines which pages of an area count as written since they were last observed, and which areas
//! fault at a store.

use memwright_table::{Bits, Edit, PageSize};

use crate::vma::area::{Area, AreaFlags, Backed};

impl<B: Backed> Area<B> {
    /// Returns whether a store to a page that is not soft-dirty must fault.
    #[inline]
    pub(crate) fn watches_stores(&self) -> bool {
        let both = AreaFlags::SOFT_DIRTY.union(AreaFlags::WATCH_STORES);
        self.flags() & both == AreaFlags::WATCH_STORES
    }

    /// Returns whether a page of the area counts as written since soft-dirty was last cleared. `bits` are the bits of
    /// the page's entry, or empty if there is no entry (Linux 7.2 `fs/proc/task_mmu.c`, `pte_to_pagemap_entry`).
    pub fn is_soft_dirty(&self, bits: Bits) -> bool {
        soft_dirty(self.flags, bits)
    }
}

/// Like [`Area::is_soft_dirty`], for an area with these flags.
fn soft_dirty(flags: AreaFlags, bits: Bits) -> bool {
    let dirty_tells = !flags.intersects(AreaFlags::WATCH_STORES | AreaFlags::SHARED);
    flags.contains(AreaFlags::SOFT_DIRTY)
        || bits.contains(Bits::SOFT_DIRTY)
        || (dirty_tells && bits.contains(Bits::DIRTY))
}

/// Returns the edit that clears the dirty bit of a private page with these bits. Instead, the edit sets the software
/// bit of each reader of the dirty bit. The caller then clears the software bit of the reader for which it acts.
pub(crate) fn fold_dirty(bits: Bits) -> Edit {
    if !bits.contains(Bits::DIRTY) {
        return Edit::NONE;
    }
    Edit {
        set: Bits::FOLDED_DIRTY | Bits::SOFT_DIRTY,
        clear: Bits::DIRTY | Bits::WATCHED,
    }
}

/// Returns the edit that write-protects an entry with these bits (uffd-wp). Because of it, the next store faults or, if
/// `by_dirty` is set, sets the dirty bit. Stores before the edit no longer count.
pub(crate) fn arm_written(by_dirty: bool, bits: Bits) -> Edit {
    if !by_dirty {
        return Edit {
            set: Bits::UFFD_WP,
            clear: Bits::WRITE | Bits::WATCHED,
        };
    }
    let folded = fold_dirty(bits);
    Edit {
        set: folded.set | Bits::WATCHED,
        clear: (folded.clear | Bits::UFFD_WP) - Bits::WATCHED,
    }
}

/// Returns whether the dirty bit can detect stores to a page of this size in an area with these flags. It cannot for a
/// huge page: the first store to a huge page must fault, so that the page is split and only 4 KiB of it count as
/// written.
pub(crate) fn is_by_dirty(flags: AreaFlags, size: PageSize) -> bool {
    flags.contains(AreaFlags::UFFD_BY_DIRTY) && matches!(size, PageSize::Size4K)
}

/// Returns whether a page with these bits was written since it was write-protected, or was never protected.
pub(crate) fn written(bits: Bits) -> bool {
    let watched = bits.contains(Bits::WATCHED);
    !bits.contains(Bits::UFFD_WP) && (!watched || bits.contains(Bits::DIRTY))
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
        let (wp, watched) = (Bits::UFFD_WP, Bits::WATCHED);
        let (dirty, write) = (Bits::DIRTY, Bits::WRITE);
        for by_dirty in [false, true] {
            for bits in [
                write,
                write | dirty,
                dirty,
                dirty | wp,
                write | dirty | watched,
            ] {
                let edit = arm_written(by_dirty, bits);
                let armed = (bits - edit.clear) | edit.set;
                assert!(!written(armed), "{bits:?}");
                assert!(written(armed - wp - watched));
                // If stores to a page fault, the page can have been dirty before it was protected, so its dirty bit
                // proves no store.
                assert_eq!(written(armed | dirty), by_dirty);
                assert_eq!(armed.contains(write), bits.contains(write) && by_dirty);
                assert!(!armed.contains(wp | watched));
            }
        }
    }

    #[test]
    fn who_clears_the_dirty_bit_tells_the_others() {
        assert_eq!(fold_dirty(Bits::WRITE), Edit::NONE);
        let edit = fold_dirty(Bits::DIRTY | Bits::WATCHED);
        assert_eq!(edit.set, Bits::FOLDED_DIRTY | Bits::SOFT_DIRTY);
        assert_eq!(edit.clear, Bits::DIRTY | Bits::WATCHED);
        // If stores fault, a page can have been dirty before it was protected.
        assert!(
            !fold_dirty(Bits::DIRTY | Bits::UFFD_WP)
                .clear
                .contains(Bits::UFFD_WP)
        );
    }
}
