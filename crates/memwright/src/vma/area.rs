//! An area: its range, rights, flags and backing, and the conditions for its merges.

use bitflags::bitflags;
use memwright_table::sync::Threads;
use memwright_table::{Page, PageRange};

use crate::types::numa_policy::PolicyId;
use crate::types::rights::Rights;
use crate::types::swap_window::WindowCell;
use crate::vma::anon_vma::{AnonVma, AnonVmaCell};

bitflags! {
    /// The properties of an area, except its rights.
    ///
    /// Two neighbours merge only if they agree in all of these flags, except for the flags in `STICKY`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AreaFlags: u32 {
        /// Stores reach the object and are visible to all processes that map it (`MAP_SHARED`).
        const SHARED = 1;
        /// The area grows towards lower addresses when an access below it faults (`MAP_GROWSDOWN`).
        const GROWSDOWN = 1 << 1;
        /// The initial stack of a program: `[stack]` in /proc/PID/maps.
        const STACK = 1 << 2;
        /// The heap, which ends at the program break: `[heap]` in /proc/PID/maps.
        const HEAP = 1 << 3;
        /// Pages stay resident (`mlock`).
        const LOCKED = 1 << 4;
        /// Pages are locked when they are faulted in. They are not populated at once (`MLOCK_ONFAULT`).
        const LOCK_ON_FAULT = 1 << 5;
        /// Not accounted as committed memory (`MAP_NORESERVE`).
        const NORESERVE = 1 << 6;
        /// A forked child does not map this area (`MADV_DONTFORK`).
        const DONTFORK = 1 << 7;
        /// A forked child gets this area empty (`MADV_WIPEONFORK`).
        const WIPEONFORK = 1 << 8;
        /// Excluded from core dumps (`MADV_DONTDUMP`).
        const DONTDUMP = 1 << 9;
        /// Accounted as committed memory, and unaccounted when the area is unmapped. Set by the memory manager.
        const ACCOUNTED = 1 << 10;
        /// Guard markers can be present (`MADV_GUARD_INSTALL`): fork copies the markers and `MADV_DONTNEED` keeps them.
        /// Never cleared.
        const GUARDED = 1 << 11;
        /// Reclaim is allowed to free the pages, written or not. Such an area is never locked (`MAP_DROPPABLE`).
        const DROPPABLE = 1 << 12;
        /// The program can no longer unmap, move or resize the area or change its rights, and it can no longer discard
        /// contents that it has no right to write (`mseal`). Only `AddressSpace::reap` clears this flag.
        const SEALED = 1 << 13;
        /// Only the program's own accesses reach the pages (`memfd_secret`). The pages are never populated or passed to
        /// get_user_pages, and stay locked.
        const SECRET = 1 << 14;
        /// Random access is expected (`MADV_RANDOM`). Recorded and reported, without any other effect.
        const RANDOM = 1 << 15;
        /// All pages count as written since soft-dirty was last cleared (`VM_SOFTDIRTY`). Set for new memory.
        const SOFT_DIRTY = 1 << 16;
        /// A store to a page that is not soft-dirty must fault. Set when soft-dirty is cleared and the hardware dirty
        /// bit cannot record stores. Has no effect in combination with [`SOFT_DIRTY`](Self::SOFT_DIRTY).
        const WATCH_STORES = 1 << 17;
        /// A userfaultfd handles faults at missing pages (`UFFDIO_REGISTER_MODE_MISSING`).
        const UFFD_MISSING = 1 << 18;
        /// A userfaultfd handles stores to write-protected pages (`UFFDIO_REGISTER_MODE_WP`).
        const UFFD_WP = 1 << 19;
        /// A userfaultfd handles faults at unmapped pages that the object has (`UFFDIO_REGISTER_MODE_MINOR`).
        const UFFD_MINOR = 1 << 20;
        /// Stores to write-protected pages are only recorded, without waiting for the handler
        /// (`UFFD_FEATURE_WP_ASYNC`).
        const UFFD_ASYNC = 1 << 21;
        /// With `UFFD_ASYNC`: the hardware dirty bit records the stores. Write-protecting a page clears the dirty bit
        /// and does not change whether the entry is writable.
        const UFFD_BY_DIRTY = 1 << 22;
        /// A userfaultfd handles accesses to read-write-protected pages (`UFFDIO_REGISTER_MODE_RWP`). Cannot be
        /// combined with `UFFD_WP`.
        const UFFD_RWP = 1 << 23;
        /// The area has a NUMA policy (`mbind`). Set by the memory manager.
        const PLACED = 1 << 24;
        /// Sequential access is expected (`MADV_SEQUENTIAL`). Recorded and reported, without any other effect.
        const SEQUENTIAL = 1 << 25;
        /// The area has hugetlb pages, which are never split (`MAP_HUGETLB`). Set by the memory manager.
        const HUGETLB = 1 << 26;
        /// With `HUGETLB`: a page of the area was unmapped so that the owner of the page's reservation could use it. A
        /// fault at a missing page therefore raises SIGBUS.
        const HUGETLB_LOST = 1 << 27;
        /// Huge pages are requested (`MADV_HUGEPAGE`).
        const HUGE = 1 << 28;
        /// Huge pages are denied (`MADV_NOHUGEPAGE`).
        const NOT_HUGE = 1 << 29;
        /// KSM is allowed to merge pages with equal contents (`MADV_MERGEABLE`).
        const MERGEABLE = 1 << 30;
        /// The area maps device memory, whose frames have no metadata (`VM_PFNMAP` and `VM_IO`; rule:
        /// device-memory-is-borrowed). Set by the memory manager.
        const PHYSICAL = 1 << 31;
    }
}

impl AreaFlags {
    /// The flags of areas in which markers can be present. A marker can cover more than one page, so the edge of a
    /// range can lie inside a marker.
    pub const MARKED: Self = Self::GUARDED.union(Self::UFFD_WP);

    /// The flags that only the memory manager sets, according to the kind of a mapping or by other operations. A
    /// [`MapRequest`](crate::MapRequest) with one of them is refused.
    pub const MANAGED: Self = Self::SHARED
        .union(Self::ACCOUNTED)
        .union(Self::GUARDED)
        .union(Self::SOFT_DIRTY)
        .union(Self::WATCH_STORES)
        .union(Self::UFFD)
        .union(Self::PLACED)
        .union(Self::HUGETLB)
        .union(Self::HUGETLB_LOST)
        .union(Self::PHYSICAL);

    /// The flags that a userfaultfd sets.
    pub const UFFD: Self = Self::UFFD_MISSING
        .union(Self::UFFD_WP)
        .union(Self::UFFD_MINOR)
        .union(Self::UFFD_ASYNC)
        .union(Self::UFFD_BY_DIRTY)
        .union(Self::UFFD_RWP);

    /// The flags of areas in which a fault must check for a userfaultfd or a NUMA policy before it fills a page.
    pub(crate) const ON_FILL: Self = Self::UFFD.union(Self::PLACED);

    /// The flags of features that are compiled out: no area has one of them.
    const ABSENT: Self = Self::unless(cfg!(feature = "huge"), Self::HUGE.union(Self::NOT_HUGE))
        .union(Self::unless(
            cfg!(feature = "hugetlb"),
            Self::HUGETLB.union(Self::HUGETLB_LOST),
        ))
        .union(Self::unless(cfg!(feature = "numa"), Self::PLACED))
        .union(Self::unless(
            cfg!(feature = "objects"),
            Self::SHARED.union(Self::PHYSICAL),
        ))
        .union(Self::unless(cfg!(feature = "tracking"), Self::WATCH_STORES))
        .union(Self::unless(cfg!(feature = "uffd"), Self::UFFD));

    /// Flags in which two areas may differ and still merge. The merged area has such a flag if one of the two areas had
    /// it (Linux 7.3 `VMA_STICKY_FLAGS`).
    pub const STICKY: Self = Self::GUARDED
        .union(Self::SOFT_DIRTY)
        .union(Self::WATCH_STORES);

    /// Returns no flags if `on` is set, otherwise `flags`, which then belong to a feature that is off.
    const fn unless(on: bool, flags: Self) -> Self {
        if on { Self::empty() } else { flags }
    }
}

/// The backing of an area: an interface between the map of areas and the actual backings.
///
/// A backing is cloned when an area is split. It is dropped when areas merge or an area is removed.
pub trait Backed: Clone {
    /// The threads that drop areas with this backing. They are needed because the drop of many areas has scheduling
    /// points.
    type Threads: Threads;

    /// Returns whether two areas have the same backing. They may then merge if their offsets are contiguous.
    fn same(&self, other: &Self) -> bool;

    /// Records that an area with this backing now ends at the offset `end`, beyond its previous end.
    fn note_end(&self, end: u64);

    /// Returns whether the object of the backing, if it has one, must be notified of the first store to a clean page.
    fn notifies_first_write(&self) -> bool;
}

/// A run of consecutive pages that have one set of rights, one set of flags and one backing. The areas of an address
/// space are [`Area<M>`](crate::Area), whose backing is a [`Backing<M>`](crate::Backing).
#[derive(Debug)]
pub struct Area<B> {
    pub(crate) range: PageRange,
    pub(crate) offset: u64,
    pub(crate) flags: AreaFlags,
    pub(crate) rights: Rights,
    pub(crate) max_rights: Rights,
    pub(crate) placement: PolicyId,
    pub(crate) anon_vma: AnonVmaCell,
    pub(crate) window: WindowCell,
    pub(crate) backing: B,
}

impl<B: Backed> Area<B> {
    /// Returns the pages of the area.
    pub fn range(&self) -> PageRange {
        self.range
    }

    /// Returns the first page.
    pub fn start(&self) -> Page {
        self.range.start
    }

    /// Returns the page after the last page.
    pub fn end(&self) -> Page {
        self.range.end
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.range.len()
    }

    /// Returns the accesses that the program is currently allowed to make.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// Returns the maximum rights that a protection change can grant.
    pub fn max_rights(&self) -> Rights {
        self.max_rights
    }

    /// Returns the NUMA policy of the area; `PolicyId::NONE` if it has none.
    pub fn placement(&self) -> PolicyId {
        self.placement
    }

    /// Returns the properties of the area, except its rights.
    pub fn flags(&self) -> AreaFlags {
        self.flags.difference(AreaFlags::ABSENT)
    }

    /// Returns the backing of the area.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Returns the offset of the first page, in pages. For an object, it is the index in the object. For anonymous
    /// memory, it is the page number at which the area was created: once the area has pages, `mremap` does not change
    /// it.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Returns the offset of a page of this area.
    pub fn offset_of(&self, page: Page) -> u64 {
        self.offset + (page.number() - self.range.start.number())
    }

    /// Returns whether stores through the area reach the object.
    pub fn is_shared(&self) -> bool {
        self.flags().contains(AreaFlags::SHARED)
    }

    /// Returns whether the area has an anon_vma, that is, whether a private page was ever created in it.
    #[inline]
    pub fn has_faulted(&self) -> bool {
        self.anon_vma.get().exists()
    }

    pub(crate) fn anon_vma(&self) -> AnonVma {
        self.anon_vma.get()
    }

    /// Returns whether the area `right`, which begins where `self` ends, may be merged with `self` (Linux 7.3
    /// `mm/vma.c`, `is_mergeable_vma` and its callers).
    pub fn may_merge(&self, right: &Self) -> bool {
        self.rights == right.rights
            && self.is_kin(right)
            && self.anon_vma().may_join(right.anon_vma())
    }

    /// Returns whether `right`, which begins where `self` ends, differs from `self` at most in rights (except the
    /// protection key). A protection change could make two such areas mergeable, so they share an anon_vma (Linux 7.3
    /// `mm/vma.c`, `anon_vma_compatible`). The addresses at which their private pages were created must also be
    /// adjacent (`needs_adjacent_anon_pgoff`).
    pub(crate) fn is_kin(&self, right: &Self) -> bool {
        self.range.end == right.range.start
            && (self.flags ^ right.flags)
                .difference(AreaFlags::STICKY)
                .is_empty()
            && self.max_rights == right.max_rights
            && self.rights.key() == right.rights.key()
            && self.placement == right.placement
            && self.offset + self.pages() == right.offset
            && self.anon_vma().distance() == right.anon_vma().distance()
            && self.backing.same(&right.backing)
    }

    /// Returns a copy of the part `range` of this area. `range` must be inside the area.
    pub(crate) fn part(&self, range: PageRange) -> Self {
        debug_assert!(self.range.start <= range.start && range.end <= self.range.end);
        Self {
            range,
            offset: self.offset_of(range.start),
            flags: self.flags,
            rights: self.rights,
            max_rights: self.max_rights,
            placement: self.placement,
            anon_vma: AnonVmaCell::new(self.anon_vma()),
            window: WindowCell::new(self.window.get()),
            backing: self.backing.clone(),
        }
    }
}
