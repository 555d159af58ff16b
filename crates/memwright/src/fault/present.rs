//! A fault at an entry that maps a page: spurious, a permission to grant, or a copy to make
//! (Linux 7.2 `mm/memory.c`, `do_wp_page`).

use memwright_table::{Bits, Cursor, Entry, Invalidation, Machine, PageSize, Present};

use super::{Fault, FaultKind};
use crate::error::FaultError;
use crate::space::access_bits;
use crate::uffd::WatchedFault;
use crate::vma::AreaFlags;
use crate::writable::{Verdict, writable};

/// State that a store leaves behind.
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
            return Ok(self.spurious(cursor));
        }
        if page.bits.contains(Bits::HINT) {
            return self.resolve_hint(cursor, page);
        }
        if page.size != PageSize::Size4K {
            cursor.widen();
        }
        let access = access_bits(self.area.rights());
        if !self.access.write {
            // Readable or executable by the area, but not yet by the entry.
            self.grant(&mut cursor, access | Bits::ACCESSED);
            return Ok(FaultKind::ReadExec);
        }
        let mut page = page;
        if page.bits.contains(Bits::UFFD_WP) {
            let flags = self.area.flags();
            if flags.contains(AreaFlags::UFFD_WP) && !flags.contains(AreaFlags::UFFD_ASYNC) {
                return Err(FaultError::Watched(WatchedFault::WriteProtected));
            }
            // It is written now; of a huge page, 4 KiB are.
            let splits = !self.area.flags().contains(AreaFlags::HUGETLB);
            if page.size != PageSize::Size4K && splits {
                self.split_for_store(cursor)?;
                return self.resolve();
            }
            self.edit_clearing(&mut cursor, Bits::empty(), Bits::UFFD_WP);
            page.bits -= Bits::UFFD_WP;
        }
        let view = self.area.view();
        // What the store leaves behind: it is no longer unwritten.
        let bits = page.bits | access | Bits::SOFT_DIRTY;
        match writable(view, bits) {
            Verdict::Writable => {
                self.grant(&mut cursor, access | WRITTEN);
                Ok(FaultKind::WriteOnly)
            }
            Verdict::NotExclusive => self.write_shared_frame(cursor, page),
            Verdict::MustNotify => {
                // The object's locks come before the table's.
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

    /// A write of a private page that is not exclusive: it becomes so if this is the only reference of
    /// any kind, else it is copied (design rule 5).
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
            // A child shows its parent's merged frames without the mark of the entry.
            if !page.bits.contains(Bits::BORROWED) && self.core.is_merged(page) {
                self.core.note_unmerged(self.cpu);
            }
            return self.copy_present(&mut cursor, page);
        }
        let access = access_bits(self.area.rights());
        self.grant(&mut cursor, access | Bits::EXCLUSIVE | WRITTEN);
        Ok(FaultKind::WriteOnly)
    }

    /// Whether the entry of this 4 KiB page, under whose lock nobody can win a reference through it, has the only
    /// reference of any kind of an anonymous frame.
    #[inline(always)]
    pub(super) fn is_reusable(&self, page: Present) -> bool {
        !page.bits.intersects(Bits::BORROWED | Bits::MERGED)
            && self.core.is_anonymous(page.frame)
            && self.core.memory.frames().references(page.frame) == 1
    }

    /// The first store to a clean page of an object that must hear of it.
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
            // It went, was cleaned or protected meanwhile: the access faults again and finds it as it is now.
            Entry::Present(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Migrating(_) => Ok(FaultKind::Spurious),
        }
    }

    /// The table permits the access: this CPU held a stale translation (design rule 1).
    fn spurious(self, cursor: Cursor<'_, M>) -> FaultKind {
        drop(cursor);
        self.core
            .memory
            .frames()
            .machine()
            .invalidate_local(&Invalidation::Pages {
                first: self.page,
                count: 1,
                stride: PageSize::Size4K,
            });
        FaultKind::Spurious
    }

    /// Lets the access through without taking anything: no CPU need hear of it.
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
