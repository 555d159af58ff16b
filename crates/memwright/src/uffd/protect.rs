//! Write-protecting and unprotecting pages (Linux 7.2 `mm/userfaultfd.c`, `mwriteprotect_range`, and `mm/mprotect.c`,
//! `change_protection` with `MM_CP_UFFD_WP`).

use memwright_table::{
    Bits, Edit, Gather, Machine, Marks, OutOfFrames, PageRange, PageSize, Present, VirtAddr,
};

use crate::mm::areas::cuts_hugetlb;
use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::mm::theme::Uffd;
use crate::types::error::WatchError;
use crate::types::stats::Row;
use crate::uffd::pages;
use crate::vma::area::AreaFlags;
use crate::vma::writable::Grant;
use crate::vma::written::{arm_written, is_by_dirty};

impl<M: Machine> Uffd<'_, M> {
    /// If `protect` is set, write-protects the pages of the `length` bytes from `address` on. Otherwise removes their
    /// write protection. Flushes at most once. The areas can be registered with any userfaultfd of this address space.
    ///
    /// # Errors
    /// See [`WatchError`]. Changes made before an error stay, as on Linux.
    pub fn write_protect(
        &self,
        address: VirtAddr,
        length: u64,
        protect: bool,
    ) -> Result<(), WatchError> {
        let core = &*self.space.core;
        let range = pages(core, address, length)?;
        let cpu = core.cpu();
        let areas = core.areas.read(cpu);
        let mut gather = core.gather();
        // This error is returned if no area overlaps `range`.
        let mut result = Err(WatchError::NotWatched);
        for area in areas.map.overlapping(range) {
            if !area.flags().contains(AreaFlags::UFFD_WP) {
                result = Err(WatchError::NotWatched);
                break;
            }
            let part = area.range().intersect(range);
            if cuts_hugetlb(area.flags(), part) {
                result = Err(WatchError::NotApplicable(area.start().address()));
                break;
            }
            result = if protect {
                core.protect_part(area, part, &mut gather)
            } else {
                core.unprotect_part(area, part, &mut gather)
            };
            if result.is_err() {
                break;
            }
        }
        let counts = gather.close();
        drop(areas);
        core.note_gather(cpu, counts);
        result
    }
}

impl<M: Machine> Core<M> {
    /// Write-protects `range`, a part of `area`.
    pub(crate) fn protect_part(
        &self,
        area: &Area<M>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), WatchError> {
        let flags = area.flags();
        // A page of an object can be in memory without being mapped, so protecting it always needs a marker.
        let unpopulated = flags.contains(AreaFlags::UFFD_ASYNC)
            || area.object().is_some()
            || protects_unpopulated(area);
        let mut range = range;
        if unpopulated {
            // Install the markers first, because a page that a fault maps afterwards inherits the protection of the
            // marker. The second pass protects the pages that were mapped before.
            range = self.table.cursor(range).mark(Marks::UFFD_WP)?;
            if range.is_empty() {
                return Ok(());
            }
        }
        let mut cursor = self.table.cursor(range).pausing();
        cursor.split_edges(gather)?;
        let arm = |bits, size| arm_written(is_by_dirty(flags, size), bits);
        if self.memory.swaps() {
            let by_dirty = is_by_dirty(flags, PageSize::Size4K);
            while cursor.position() < range.end {
                cursor.edit_swapped(|bits| edited(bits, arm_written(by_dirty, bits)));
                cursor.edit_sized(cursor.locked_end(), arm, gather);
            }
        } else {
            cursor.edit_sized(range.end, arm, gather);
        }
        drop(cursor);
        if flags.contains(AreaFlags::UFFD_ASYNC) && self.may_have_pinned() {
            self.disarm_pinned(range, gather);
        }
        Ok(())
    }

    /// Removes the protection of pinned pages. The owner of a pin can write to the page without using the entry, so a
    /// pinned page must count as written until it is unpinned (rule: exclusive-before-pin).
    #[cold]
    fn disarm_pinned(&self, range: PageRange, gather: &mut Gather<'_, M>) {
        let rule = |_, page: Present| {
            let mut edit = Edit::NONE;
            if self.is_pinned(page) {
                edit.clear = PROTECTION;
            }
            edit
        };
        self.table
            .cursor(range)
            .pausing()
            .edit_run(range.end, rule, gather);
    }

    /// Unprotects `range`, a part of `area`. Grants write permission at once where [`writable`](crate::writable)
    /// permits it.
    pub(crate) fn unprotect_part(
        &self,
        area: &Area<M>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), WatchError> {
        self.unmark_protected(range, gather)?;
        self.unprotect_pages(area, range, gather);
        Ok(())
    }

    /// Removes the write-protection markers in `range`. The caller unprotects the mapped pages afterwards: if a fault
    /// has mapped a page in place of a marker, the page has inherited the marker's protection.
    pub(super) fn unmark_protected(
        &self,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) -> Result<(), OutOfFrames> {
        if !range.is_empty() {
            self.table.cursor(range).split_edges(gather)?;
            self.table.cursor(range).unmark(Marks::UFFD_WP);
        }
        Ok(())
    }

    /// Unprotects the pages of `range`, a part of `area`.
    pub(super) fn unprotect_pages(
        &self,
        area: &Area<M>,
        range: PageRange,
        gather: &mut Gather<'_, M>,
    ) {
        let grant = Grant::new(area.view(), self.memory.policy().write_upgrade());
        let mut cursor = self.table.cursor(range).pausing();
        let rule = |bits| unprotect(grant, bits);
        let mut made_writable = 0;
        if self.memory.swaps() {
            while cursor.position() < range.end {
                cursor.edit_swapped(|bits| edited(bits, rule(bits)));
                let done = cursor.edit_alike(cursor.locked_end(), rule, gather);
                made_writable += done.made_writable;
            }
        } else {
            made_writable = cursor.edit_alike(range.end, rule, gather).made_writable;
        }
        if made_writable > 0 {
            self.memory
                .count_on(self.cpu(), Row::WriteFaultsAvoided, made_writable);
        }
    }
}

/// Returns whether synchronous write protection also applies to unpopulated memory of the area.
fn protects_unpopulated<M: Machine>(area: &Area<M>) -> bool {
    let watcher = area.backing().watcher();
    watcher.is_some_and(|watch| watch.unpopulated)
}

/// Returns `bits` after `edit`.
pub(super) fn edited(bits: Bits, edit: Edit) -> Bits {
    (bits - edit.clear) | edit.set
}

/// The bits that mark a page as write-protected.
const PROTECTION: Bits = Bits::UFFD_WP.union(Bits::WATCHED);

fn unprotect(grant: Grant, bits: Bits) -> Edit {
    if !bits.intersects(PROTECTION) {
        return Edit::NONE;
    }
    let granted = bits.contains(Bits::READ) && grant.allows(bits - PROTECTION);
    Edit {
        set: if granted { Bits::WRITE } else { Bits::empty() },
        clear: PROTECTION,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::policy::WriteUpgrade;
    use crate::types::rights::Rights;
    use crate::vma::writable::View;

    #[test]
    fn what_is_unprotected_is_writable_at_once_where_the_rule_allows_it() {
        let view = View {
            rights: Rights::READ | Rights::WRITE,
            shared: false,
            notify: false,
            soft_dirty: false,
        };
        let grant = Grant::new(view, WriteUpgrade::On);
        let (r, own, wp) = (Bits::READ, Bits::EXCLUSIVE, Bits::UFFD_WP);
        assert_eq!(unprotect(grant, r | own | wp).set, Bits::WRITE);
        assert_eq!(
            unprotect(grant, r | wp).set,
            Bits::empty(),
            "shared with a child"
        );
        assert_eq!(
            unprotect(grant, own | wp).set,
            Bits::empty(),
            "no right at all"
        );
        assert_eq!(unprotect(grant, r | own), Edit::NONE, "never protected");
        let off = Grant::new(view, WriteUpgrade::Off);
        assert_eq!(unprotect(off, r | own | wp).set, Bits::empty());
    }
}
