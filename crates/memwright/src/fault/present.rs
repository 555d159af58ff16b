//! Faults on an entry that maps a page: spurious faults, and faults that are resolved by adding a permission or by
//! copying the page (Linux 7.2 `mm/memory.c`, `do_wp_page`).

use memwright_table::{Architecture, Bits, Cursor, Entry, Machine, PageSize, Present};

use crate::fault::attempt::Fault;
use crate::types::access::FaultKind;
use crate::types::error::FaultError;
use crate::types::uffd::WatchedFault;
use crate::vma::area::AreaFlags;
use crate::vma::writable::{Verdict, access_bits, writable};

/// The bits that a store sets.
pub(super) const WRITTEN: Bits = Bits::WRITE
    .union(Bits::ACCESSED)
    .union(Bits::DIRTY)
    .union(Bits::SOFT_DIRTY);

impl<M: Machine> Fault<'_, M> {
    /// Resolves the fault at the entry under the cursor, which maps `page`.
    pub(super) fn resolve_present(
        self,
        mut cursor: Cursor<'_, M>,
        page: Present,
    ) -> Result<FaultKind, FaultError> {
        if page.bits.contains(self.access.needs()) {
            return Ok(self.spurious(cursor, page.size));
        }
        if page.bits.contains(Bits::HINT) {
            return self.resolve_hint(cursor, page);
        }
        if page.size != PageSize::Size4K {
            cursor.widen();
        }
        let access = access_bits(self.area.rights());
        if !self.access.write {
            if page.bits.contains(Bits::UFFD_WP) && self.area.watches_accesses() {
                return self.resolve_armed(cursor, page);
            }
            // The area permits the read or fetch, but the entry does not yet.
            self.grant(&mut cursor, access | Bits::ACCESSED);
            return Ok(FaultKind::ReadExec);
        }
        let mut page = page;
        if page.bits.contains(Bits::UFFD_WP) {
            let flags = self.area.flags();
            if flags.contains(AreaFlags::UFFD_RWP) {
                return self.resolve_armed(cursor, page);
            }
            if flags.contains(AreaFlags::UFFD_WP) && !flags.contains(AreaFlags::UFFD_ASYNC) {
                return Err(FaultError::Watched(WatchedFault::WriteProtected));
            }
            // A store is permitted, so remove the write protection: from the 4 KiB page that is written, or from the
            // complete hugetlb page.
            let splits = !self.area.flags().contains(AreaFlags::HUGETLB);
            if page.size != PageSize::Size4K && splits {
                self.split_for_store(cursor)?;
                return self.resolve();
            }
            self.edit_clearing(&mut cursor, Bits::empty(), Bits::UFFD_WP);
            page.bits -= Bits::UFFD_WP;
        }
        let view = self.area.view();
        // `writable` checks the bits that the entry has after the store, which include soft-dirty.
        let bits = page.bits | access | Bits::SOFT_DIRTY;
        match writable(view, bits) {
            Verdict::Writable => {
                self.grant(&mut cursor, access | WRITTEN);
                Ok(FaultKind::WriteOnly)
            }
            Verdict::NotExclusive => self.write_shared_frame(cursor, page),
            Verdict::MustNotify => {
                // Drop the page-table lock: the object's locks rank before it.
                drop(cursor);
                self.notify_then_write()
            }
            Verdict::NoRight
            | Verdict::NotAccessible
            | Verdict::Tracked
            | Verdict::UserfaultProtected
            | Verdict::PolicyWantsDirty
            | Verdict::PolicyOff => Err(FaultError::Denied),
        }
    }

    /// Handles a store to a private page that is not exclusive: marks it exclusive if the entry holds the only
    /// reference of any kind, otherwise copies it (rule: exclusive-in-the-entry).
    #[inline(always)]
    fn write_shared_frame(
        self,
        mut cursor: Cursor<'_, M>,
        page: Present,
    ) -> Result<FaultKind, FaultError> {
        if self.area.flags().contains(AreaFlags::HUGETLB) {
            return self.write_shared_hugetlb(cursor, page);
        }
        if page.size != PageSize::Size4K {
            return self.write_shared_folio(cursor, page);
        }
        if !self.is_reusable(page) {
            // Check the frame too: an entry that a fork copied may map a KSM frame without the bit `MERGED`.
            if !page.bits.contains(Bits::BORROWED) && self.core.is_merged(page) {
                self.core.note_unmerged(self.cpu);
            }
            return self.copy_present(&mut cursor, page);
        }
        let access = access_bits(self.area.rights());
        self.grant(&mut cursor, access | Bits::EXCLUSIVE | WRITTEN);
        Ok(FaultKind::WriteOnly)
    }

    /// Returns whether the entry of this 4 KiB page holds the only reference of any kind to an anonymous frame. The
    /// caller holds the lock of the entry, so no new reference can be taken through it.
    #[inline(always)]
    pub(super) fn is_reusable(&self, page: Present) -> bool {
        !page.bits.intersects(Bits::BORROWED | Bits::MERGED)
            && self.core.is_anonymous(page.frame)
            && self.core.memory.frames().references(page.frame) == 1
    }

    /// Handles the first store to a clean page of an object that must be notified of it.
    fn notify_then_write(self) -> Result<FaultKind, FaultError> {
        let object = self.area.object().ok_or(FaultError::Denied)?;
        let generation = object.mappings().generation();
        object.first_write(self.area.offset_of(self.page))?;
        let range = memwright_table::PageRange::single(self.page);
        let mut cursor = self.core.table.cursor(range);
        match cursor.peek() {
            Entry::Present(page)
                if object.mappings().generation() == generation
                    && !page.bits.contains(Bits::UFFD_WP) =>
            {
                self.grant(&mut cursor, access_bits(self.area.rights()) | WRITTEN);
                Ok(FaultKind::WriteOnly)
            }
            // The page was unmapped, cleaned or write-protected meanwhile: the access faults again and finds the
            // current entry.
            Entry::Present(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Migrating(_) => Ok(FaultKind::Spurious),
        }
    }

    /// Handles a fault on an access that the entry permits: flushes the stale translation that this CPU held (rule:
    /// flush-what-shrank). If the processor faults in place of setting accessed and dirty bits, sets them.
    fn spurious(self, mut cursor: Cursor<'_, M>, size: PageSize) -> FaultKind {
        if !M::Arch::SETS_ACCESSED_AND_DIRTY {
            let stored = if self.access.write {
                Bits::DIRTY
            } else {
                Bits::empty()
            };
            if size != PageSize::Size4K {
                cursor.widen();
            }
            cursor.grant(Bits::ACCESSED | stored);
        }
        drop(cursor);
        self.core.drop_stale(self.page);
        FaultKind::Spurious
    }

    /// Adds permissions to the entry and removes none, so no flush is needed.
    pub(super) fn grant(self, cursor: &mut Cursor<'_, M>, set: Bits) {
        cursor.grant(set);
        self.core.note_granted(self.cpu);
    }

    fn edit_clearing(self, cursor: &mut Cursor<'_, M>, set: Bits, clear: Bits) {
        let mut gather = self.core.gather();
        cursor.edit(set, clear, &mut gather);
        let counts = gather.close();
        self.core.note_gather(self.cpu, counts);
    }
}
