//! Operations that an object performs on the address spaces that map it.

use core::ops::Range;
use memwright_table::sync::pause_point;
use memwright_table::{
    Bits, Cursor, Edit, Entry, Gather, Machine, Marks, Page, PageRange, PageSize, Present,
};

use crate::mm::core::Core;
use crate::mm::mappings::{CleanOutcome, Mappings, Places};
use crate::mm::space::Area;
use crate::store::cluster::Cluster;
use crate::types::rights::Rights;
use crate::types::stats::Row;
use crate::vma::area::AreaFlags;
use crate::vma::idle::aging;

/// The pages that a zap selects. A zap removes the entries of pages, and the area stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    /// All pages: the object's, and private copies.
    All,
    /// The object's pages, and zero pages, for punching a hole (Linux 7.2 `mm/memory.c`, `zap_present_ptes`).
    Objects,
    /// Only the object's pages, for pages that move to other frames.
    Moving,
    /// Only the object's pages, for reclaim. A page stays if its entry is the only record of a store.
    Leaving,
}

/// Returns whether a zap removes every page that the area can have in the page table, and leaves no markers in place of
/// the pages.
fn takes_all_pages<M: Machine>(area: &Area<M>, taken: Taken) -> bool {
    let flags = area.flags();
    // A private area can have private copies, and zero pages of `UFFDIO_ZEROPAGE`.
    let pages = match taken {
        Taken::All => true,
        Taken::Objects | Taken::Moving => area.is_shared(),
        Taken::Leaving => area.is_shared() && flags.contains(AreaFlags::SOFT_DIRTY),
    };
    pages && !flags.intersects(AreaFlags::MARKED)
}

/// Returns whether the entry with these bits alone records that the page was stored to since soft-dirty was cleared in
/// its area.
const fn tells_of_store(flags: AreaFlags, bits: Bits) -> bool {
    bits.contains(Bits::SOFT_DIRTY) && !flags.contains(AreaFlags::SOFT_DIRTY)
}

impl<M: Machine> Core<M> {
    /// Unmaps the pages `span` of the object from this address space.
    pub(crate) fn zap_object(
        &self,
        mappings: &Mappings<M>,
        (places, span): (&mut Places, Range<u64>),
        taken: Taken,
    ) {
        let cpu = self.cpu();
        let areas = self.areas.read(cpu);
        let mut gather = self.gather();
        mappings.for_each_area(&areas, places, &span, |area, range| {
            pause_point::<M::Threads>();
            let mut cursor = self.table.cursor(range).pausing();
            self.split_cut(&mut cursor, &mut gather, Row::HugeSplitsUnmap);
            if !takes_all_pages(area, taken) {
                self.remove_pages(area, &mut cursor, &mut gather, taken);
            } else if taken == Taken::All {
                cursor.remove_all(&mut gather);
            } else {
                cursor.remove_all_but_markers(&mut gather);
            }
        });
        let counts = gather.close();
        drop(areas);
        self.note_gather(cpu, counts);
    }

    /// Removes the pages of `area` that `taken` selects, from the cursor's position on. Markers stay, except poison
    /// markers, which are removed with private copies. A page or a swap entry with userfaultfd write protection is
    /// replaced by a marker (Linux 7.2 `mm/memory.c`, `zap_install_uffd_wp_if_needed`).
    pub(crate) fn remove_pages(
        &self,
        area: &Area<M>,
        cursor: &mut Cursor<'_, M>,
        gather: &mut Gather<'_, M>,
        taken: Taken,
    ) {
        let copies = taken == Taken::All;
        let left = |bits: Bits| {
            let protected = bits.intersects(Bits::UFFD_WP | Bits::WATCHED);
            if protected && keeps_protection(area) {
                Marks::UFFD_WP
            } else {
                Marks::empty()
            }
        };
        // Other operations may have removed entries without flushing yet. Make the flush of this gather cover those
        // entries too (rule: see-pending-flushes).
        gather.rely_on_pending();
        while let Some(extent) = cursor.next_filled() {
            match extent.entry {
                // A poison marker is removed together with private copies.
                Entry::Marker(marker) if copies && marker.marks.contains(Marks::POISON) => {
                    cursor.remove(gather);
                }
                Entry::Empty | Entry::Marker(_) => {}
                Entry::Present(page) => {
                    // Whether the entry maps the shared zero page, as `UFFDIO_ZEROPAGE` does in a private area.
                    let is_zero = page.bits.contains(Bits::BORROWED);
                    let stays = match taken {
                        Taken::All | Taken::Objects => false,
                        Taken::Moving => is_zero,
                        Taken::Leaving => is_zero || tells_of_store(area.flags(), page.bits),
                    };
                    if copies || !stays && !self.is_private(page.frame) {
                        cursor.replace(Entry::marker(left(page.bits)), gather);
                    }
                }
                // A page in swap is a private copy.
                Entry::Swapped(_) if !copies => {}
                Entry::Swapped(page) => {
                    cursor.replace(Entry::marker(left(page.bits)), gather);
                }
                Entry::Migrating(page) => {
                    cursor.replace(Entry::marker(left(page.bits)), gather);
                }
            }
            gather.relieve();
            if !cursor.advance() {
                break;
            }
        }
    }

    /// Removes from `pages` the pages of the object that a locked or secret area of this address space maps. `pages` is
    /// the part of `all` that is still to be reclaimed. If `unused` is set, also removes the pages whose entry in this
    /// address space has the accessed bit. In addition clears the accessed bit for all pages of `all`, even if they
    /// were removed before, so that the next call finds only later accesses.
    pub(crate) fn keep_of_object(
        &self,
        mappings: &Mappings<M>,
        places: &mut Places,
        (all, pages): (&Cluster, &mut Cluster),
        unused: bool,
    ) {
        let cpu = self.cpu();
        let areas = self.areas.read(cpu);
        let kept = AreaFlags::LOCKED | AreaFlags::SECRET;
        let span = all.span();
        while let Some(mapped) = mappings.next_place(places, &span) {
            // Skip an address space that has no entries for the pages, which is the usual case for shared memory. Do
            // not skip one that has a locked or secret area, because such an area keeps a page even without an entry.
            if !areas.may_keep_pages() && self.table.was_empty(mapped.pages) {
                continue;
            }
            let mut gather = self.gather();
            mappings.for_each_area_at(&areas, &mapped, |area, range| {
                if area.flags().intersects(kept) {
                    for page in range.iter() {
                        pages.remove(area.offset_of(page));
                    }
                } else if unused {
                    self.age_of_object(area, range, (all, pages), &mut gather);
                }
            });
            let counts = gather.close();
            self.note_gather(cpu, counts);
        }
    }

    /// Removes from `pages` the pages of the object in `range` whose entries have the accessed bit. Clears the bit in
    /// the entries of all pages of `all`.
    fn age_of_object(
        &self,
        area: &Area<M>,
        range: PageRange,
        (all, pages): (&Cluster, &mut Cluster),
        gather: &mut Gather<'_, M>,
    ) {
        let mut cursor = self.table.cursor(range);
        while let Some(extent) = cursor.next_filled() {
            if extent.size == PageSize::Size4K {
                let last = extent.range.start.number() | (PageSize::Size2M.pages() - 1);
                let end = Page::new(last + 1);
                self.age_in_table(area, (&mut cursor, end), (all, pages), gather);
                continue;
            }
            let used = extent
                .entry
                .present()
                .filter(|page| !page.bits.contains(Bits::BORROWED) && !self.is_private(page.frame));
            let used = used.and_then(|page| Some((page, aging(page.bits)?)));
            if let Some((page, edit)) = used {
                let mut is_sought = false;
                for page in extent.range.intersect(range).iter() {
                    let index = area.offset_of(page);
                    is_sought |= all.contains(index);
                    pages.remove(index);
                }
                if is_sought {
                    if page.size != PageSize::Size4K {
                        cursor.widen();
                    }
                    cursor.edit(edit.set, edit.clear, gather);
                }
            }
            if !cursor.advance() {
                break;
            }
        }
    }

    /// Like `age_of_object`, for the entries from the cursor's position to `end`, which are in one table of 4 KiB
    /// pages.
    fn age_in_table(
        &self,
        area: &Area<M>,
        (cursor, end): (&mut Cursor<'_, M>, Page),
        (all, pages): (&Cluster, &mut Cluster),
        gather: &mut Gather<'_, M>,
    ) {
        // Only a private area has copies of the object's pages.
        let has_copies = !area.is_shared();
        let rule = |page, entry: Present| {
            let index = area.offset_of(page);
            let Some(edit) = aging(entry.bits) else {
                return Edit::NONE;
            };
            let is_borrowed = entry.bits.contains(Bits::BORROWED);
            if is_borrowed || has_copies && self.is_private(entry.frame) {
                return Edit::NONE;
            }
            pages.remove(index);
            if all.contains(index) {
                edit
            } else {
                Edit::NONE
            }
        };
        cursor.edit_run(end, rule, gather);
    }

    /// Clears the dirty bit and write permission of the pages `span` of the object in shared areas.
    pub(crate) fn clean_object(
        &self,
        mappings: &Mappings<M>,
        (places, span): (&mut Places, Range<u64>),
    ) -> CleanOutcome {
        let cpu = self.cpu();
        let areas = self.areas.read(cpu);
        let mut gather = self.gather();
        let mut outcome = CleanOutcome::default();
        mappings.for_each_area(&areas, places, &span, |area, range| {
            if !area.is_shared() {
                return;
            }
            let clear = Bits::WRITE | Bits::DIRTY;
            self.table.cursor(range).pausing().edit_run(
                range.end,
                |_, page| {
                    outcome.dirty += u64::from(page.bits.contains(Bits::DIRTY));
                    outcome.protected += u64::from(page.bits.contains(Bits::WRITE));
                    Edit {
                        set: Bits::empty(),
                        clear,
                    }
                },
                &mut gather,
            );
        });
        let counts = gather.close();
        drop(areas);
        self.note_gather(cpu, counts);
        outcome
    }
}

/// Returns whether unmapping pages of the area must leave uffd-wp markers. It must if the pages belong to an object,
/// because a page that is faulted in again must still be write-protected.
fn keeps_protection<M: Machine>(area: &Area<M>) -> bool {
    area.object().is_some() && area.flags().contains(AreaFlags::UFFD_WP)
}

impl<M: Machine> Core<M> {
    /// Returns whether an area that maps the object shared may be written, now or after a protection change.
    pub(crate) fn may_write_object(&self, mappings: &Mappings<M>, places: &mut Places) -> bool {
        let areas = self.areas.read(self.cpu());
        let mut found = false;
        mappings.for_each_area(&areas, places, &(0..u64::MAX), |area, _| {
            found |= area.is_shared() && area.max_rights().contains(Rights::WRITE);
        });
        found
    }
}
