//! Read-write protection: pages whose next access is reported (Linux 7.3 `mm/userfaultfd.c`, `mrwprotect_range`,
//! `userfaultfd_set_mode`, and `mm/mprotect.c`, `change_protection` with `MM_CP_UFFD_RWP`).
//!
//! | Context | An access to an armed page |
//! |---|---|
//! | asynchronous, `track=dirty-bit` | sets the hardware accessed bit of the entry, which stays accessible |
//! | asynchronous, otherwise | faults once, which makes the page accessible |
//! | synchronous | blocks until the handler makes the page accessible |
//!
//! Only pages in memory or in swap are armed. Unpopulated memory cannot be armed, because there is no marker for this
//! protection.

use core::sync::atomic::Ordering;
use memwright_table::sync::PausePoints;
use memwright_table::{Bits, Edit, Gather, Machine, PageRange, PageSize, Tracked, VirtAddr};

use crate::mm::areas::cuts_hugetlb;
use crate::mm::core::Core;
use crate::mm::space::{AREAS, Area};
use crate::mm::theme::Uffd;
use crate::types::error::WatchError;
use crate::types::policy::Track;
use crate::types::stats::Row;
use crate::types::uffd::Watch;
use crate::uffd::pages;
use crate::uffd::protect::edited;
use crate::vma::idle::{Arming, forget_past_idle, mark_accessed, open_copy};
use crate::vma::writable::{Grant, access_bits};

/// The number of page tables that are armed between two scheduling points.
const TABLES: u32 = 4;

impl<M: Machine> Uffd<'_, M> {
    /// If `protect` is set, arms the present and swapped pages of the `length` bytes from `address` on. Otherwise makes
    /// these pages accessible again. Flushes at most once. The areas can be registered with any userfaultfd of this
    /// address space.
    ///
    /// # Errors
    /// See [`WatchError`]. On error nothing has changed.
    pub fn read_write_protect(
        &self,
        address: VirtAddr,
        length: u64,
        protect: bool,
    ) -> Result<(), WatchError> {
        let core = &*self.space.core;
        let range = pages(core, address, length)?;
        let cpu = core.cpu();
        let areas = core.areas.read(cpu);
        // This error is returned if no area overlaps `range`.
        let mut result = Err(WatchError::NotWatched);
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.overlapping(range) {
            points.round();
            if !area.watches_accesses() {
                return Err(WatchError::NotWatched);
            }
            if cuts_hugetlb(area.flags(), area.range().intersect(range)) {
                return Err(WatchError::NotApplicable(area.start().address()));
            }
            result = Ok(());
        }
        let mut gather = core.gather();
        for area in areas.map.overlapping(range) {
            points.round();
            let part = area.range().intersect(range);
            if protect {
                core.arm_part(area, part, &mut gather);
            } else {
                core.disarm_part(area, part, &mut gather);
            }
        }
        let counts = gather.close();
        drop(areas);
        core.note_gather(cpu, counts);
        result
    }

    /// If `counts` is set, puts the areas that are registered with `watch` into asynchronous mode. Otherwise puts them
    /// into synchronous mode: accesses to armed pages wait for the handler, and pages that were not accessed after they
    /// were armed become inaccessible.
    ///
    /// # Locks
    /// Takes the lock of the areas for writing, so that all areas are in the same mode for a fault.
    pub fn count_accesses(&self, watch: &Watch, counts: bool) {
        let core = &*self.space.core;
        let cpu = core.cpu();
        let areas = core.areas.write();
        let counted = watch.counts_accesses.swap(counts, Ordering::Relaxed);
        if counts || !counted {
            return;
        }
        let mut gather = core.gather();
        let mut points = PausePoints::<M::Threads>::every(AREAS);
        for area in areas.map.iter() {
            points.round();
            if area.watches_accesses() && area.backing().has_watcher(Some(watch)) {
                let arming = core.arming(area);
                let rule = |bits| arming.make_fault(bits);
                core.edit_armed(area, area.range(), rule, &mut gather);
            }
        }
        let counts = gather.close();
        drop(areas);
        core.note_gather(cpu, counts);
    }
}

impl<M: Machine> Core<M> {
    fn arming(&self, area: &Area<M>) -> Arming {
        let policy = self.memory.policy().write_upgrade();
        Arming::of(area, Grant::new(area.view(), policy))
    }

    /// Arms the pages of `range`, a part of `area`. Skips a page table if none of its pages was accessed after the
    /// pages were armed.
    pub(super) fn arm_part(&self, area: &Area<M>, range: PageRange, gather: &mut Gather<'_, M>) {
        let arming = self.arming(area);
        let by_accessed = self.arms_by_accessed(area);
        let arm = |bits| arming.arm(by_accessed, bits);
        if !by_accessed {
            self.edit_armed(area, range, arm, gather);
            return;
        }
        // Another operation can have armed these pages without having flushed yet (rule: see-pending-flushes).
        gather.rely_on_pending();
        let mut next = self.table.settle(range, Tracked::Unarmed, gather);
        let mut points = PausePoints::<M::Threads>::every(TABLES);
        while next < range.end {
            points.round();
            let rest = PageRange::new(next, range.end);
            let mut cursor = self.table.scanning_cursor(rest);
            let end = if matches!(cursor.size(), PageSize::Size4K) {
                let end = cursor.locked_end();
                let may_be_quiet = cursor.may_become_quiet(gather);
                let armed = cursor.edit_touched(end, Tracked::Unarmed, arm, gather);
                cursor.end_look(Tracked::Unarmed, armed && may_be_quiet);
                end
            } else {
                let slot = cursor.entry().range;
                drop(cursor);
                self.edit_armed(area, slot, arm, gather);
                slot.end
            };
            let rest = PageRange::new(end, range.end);
            next = self.table.pass_quiet(rest, Tracked::Unarmed);
        }
    }

    /// Makes the pages of `range`, a part of `area`, accessible.
    pub(super) fn disarm_part(&self, area: &Area<M>, range: PageRange, gather: &mut Gather<'_, M>) {
        let arming = self.arming(area);
        self.edit_armed(area, range, |bits| arming.disarm(bits), gather);
    }

    /// Clears the idle bit in the entries of `area` whose pages were accessed after they were armed. Fork calls this
    /// before it copies the entries, because a copy does not inherit the accessed bit, which records the access.
    pub(crate) fn forget_past_idle(&self, area: &Area<M>, gather: &mut Gather<'_, M>) {
        self.edit_armed(area, area.range(), forget_past_idle, gather);
    }

    /// Gives the rights of `area`, without write permission, to those entries of `range` that have no rights. The area
    /// lost its registration by a fork or a move. Its entries therefore have no uffd bits any more, but entries that
    /// were armed without rights still have no rights (Linux 7.3 `mm/memory.c`, `__copy_present_ptes`, and
    /// `mm/mremap.c`, `move_ptes`).
    pub(crate) fn open_copies(&self, area: &Area<M>, range: PageRange) {
        let access = access_bits(area.rights());
        let mut gather = self.gather();
        let rule = |bits| open_copy(access, bits);
        self.edit_armed(area, range, rule, &mut gather);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
    }

    /// Records an access by the kernel to the pages of `range`, a part of `area`. Pages that were armed by clearing the
    /// accessed bit are disarmed.
    pub(crate) fn mark_accessed(&self, area: &Area<M>, range: PageRange) {
        let mut gather = self.gather();
        self.edit_armed(area, range, mark_accessed, &mut gather);
        let counts = gather.close();
        self.note_gather(self.cpu(), counts);
    }

    /// Returns whether pages of the area are armed by clearing the accessed bit, which then records the next access.
    fn arms_by_accessed(&self, area: &Area<M>) -> bool {
        let watcher = area.backing().watcher();
        watcher.is_some_and(|watch| watch.counts_accesses())
            && self.memory.policy().track() == Track::DirtyBit
    }

    /// Edits the entries of `range`, a part of `area`, whose pages are in memory or in swap, as `rule` decides. First
    /// splits huge pages that extend beyond `range`.
    pub(crate) fn edit_armed(
        &self,
        area: &Area<M>,
        range: PageRange,
        rule: impl Fn(Bits) -> Edit,
        gather: &mut Gather<'_, M>,
    ) {
        if range.is_empty() {
            return;
        }
        debug_assert!(area.range().covers(range));
        let mut cursor = self.table.cursor(range).pausing();
        self.split_cut(&mut cursor, gather, Row::HugeSplitsProtect);
        if !self.memory.swaps() {
            cursor.edit_alike(range.end, rule, gather);
            return;
        }
        while cursor.position() < range.end {
            cursor.edit_swapped(|bits| edited(bits, rule(bits)));
            cursor.edit_alike(cursor.locked_end(), &rule, gather);
        }
    }
}
