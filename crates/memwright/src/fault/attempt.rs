//! One attempt to resolve a fault: the access, the area and the page, with the checks that every kind of memory needs.

use memwright_table::{Bits, CpuId, Entry, Machine, Marker, Marks, PageSize};

use crate::mm::areas::Areas;
use crate::mm::core::Core;
use crate::mm::space::Area;
use crate::types::access::Access;
use crate::types::error::FaultError;
use crate::types::uffd::WatchedFault;
use crate::vma::anon_vma::AnonVma;
use crate::vma::area::AreaFlags;
use crate::vma::writable::NEW;

/// A fault: the address space and CPU, the area and page, and the access.
pub(crate) struct Fault<'a, M: Machine> {
    pub(crate) core: &'a Core<M>,
    pub(crate) cpu: CpuId,
    /// The areas of the address space, which are locked for reading.
    pub(crate) areas: &'a Areas<M>,
    pub(crate) area: &'a Area<M>,
    pub(crate) page: memwright_table::Page,
    pub(crate) access: Access,
}

impl<M: Machine> Clone for Fault<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M: Machine> Copy for Fault<'_, M> {}

impl<M: Machine> Fault<'_, M> {
    /// Attaches an anon_vma to the area, if it has none. Called before a private page is mapped in the area. If the area
    /// has one, nothing is stored: a store in each fault would invalidate the cache line on the other CPUs.
    #[inline]
    pub(crate) fn note_private(self) {
        if !self.area.has_faulted() {
            self.prepare_anon_vma();
        }
    }

    #[cold]
    fn prepare_anon_vma(self) {
        let shared = self.areas.map.anon_vma_around(self.area);
        let anon_vma =
            shared.unwrap_or_else(|| AnonVma::founded(self.core.next_anon_vma(self.cpu)));
        self.area.anon_vma.found::<M::Threads>(anon_vma);
    }

    /// Checks an entry that maps no page. Returns the bits that a new page inherits from the entry, or an error if no
    /// page can be mapped in the entry now.
    pub(crate) fn check_absent(self, entry: Entry) -> Result<Bits, FaultError> {
        match entry {
            Entry::Empty => Ok(Bits::empty()),
            Entry::Marker(Marker { marks }) => {
                if marks.contains(Marks::GUARD) {
                    Err(FaultError::Guard)
                } else if marks.contains(Marks::POISON) {
                    let pooled = self.area.flags().contains(AreaFlags::HUGETLB);
                    Err(FaultError::Poison(if pooled {
                        PageSize::Size2M
                    } else {
                        PageSize::Size4K
                    }))
                } else {
                    // The marker records a write protection by userfaultfd. A page mapped here inherits it as long as a
                    // userfaultfd write-protects the area.
                    let watched = self.area.flags().contains(AreaFlags::UFFD_WP);
                    Ok(if watched {
                        Bits::UFFD_WP
                    } else {
                        Bits::empty()
                    })
                }
            }
            // The page is being migrated, or another thread has just changed the entry: the caller retries the access.
            Entry::Migrating(_) | Entry::Present(_) | Entry::Swapped(_) => {
                Err(FaultError::WouldBlock)
            }
        }
    }

    /// Like `check_absent`, but also applies the NUMA policy of the area, and reports a missing page of anonymous
    /// memory to the userfaultfd of the area.
    #[inline]
    pub(crate) fn check_fill(self, entry: Entry) -> Result<Bits, FaultError> {
        if self.area.flags().intersects(AreaFlags::ON_FILL) {
            self.check_watched_fill(entry)
        } else {
            self.check_absent(entry)
        }
    }

    /// The slow path of `check_fill`, for areas with a userfaultfd or a NUMA policy. Reports a missing page of
    /// anonymous memory to the userfaultfd that is registered for missing pages of the area. A page under a
    /// write-protection marker is mapped write-protected, even for a store: the store faults again on the present page,
    /// and that fault is reported to the userfaultfd (Linux 7.2 `mm/memory.c`, `pte_marker_handle_uffd_wp`). In
    /// asynchronous mode no store is reported, so the page is mapped without this protection.
    #[cold]
    fn check_watched_fill(self, entry: Entry) -> Result<Bits, FaultError> {
        let inherited = self.check_absent(entry)?;
        let flags = self.area.flags();
        if flags.contains(AreaFlags::UFFD_MISSING) && self.area.object().is_none() {
            if self.access.write {
                // Linux creates the anon_vma before it reports the fault (`do_anonymous_page`).
                self.note_private();
            }
            return Err(FaultError::Watched(WatchedFault::Missing));
        }
        if inherited.is_empty() || !self.access.write {
            self.place();
            return Ok(inherited);
        }
        self.place();
        // The store faults again on the present, write-protected page, and that fault is reported to the userfaultfd.
        let told = flags.contains(AreaFlags::UFFD_WP) && !flags.contains(AreaFlags::UFFD_ASYNC);
        Ok(if told { inherited } else { Bits::empty() })
    }

    /// Returns the bits of an entry that maps a new, exclusive folio. `inherited` has the bits to take over from the
    /// previous entry.
    pub(super) fn own_huge_bits(&self, inherited: Bits) -> Bits {
        self.area.entry_bits(NEW | inherited)
    }
}
