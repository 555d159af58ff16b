//! One area.

use bitflags::bitflags;
use memwright_table::{Page, PageRange};

use super::lineage::{Lineage, LineageCell};
use crate::numa::PolicyId;
use crate::swap::WindowCell;

bitflags! {
    /// What a program may do with the pages of an area, and their protection key, by which each CPU may refuse
    /// accesses to data all the same. Without a key's name in it, the key is 0.
    ///
    /// x86-64 cannot forbid reading alone: any right makes a page readable, as on Linux.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Rights: u8 {
        /// Loads.
        const READ = 1;
        /// Stores.
        const WRITE = 2;
        /// Instruction fetches.
        const EXECUTE = 4;
    }
}

impl Rights {
    const KEY_SHIFT: u32 = 3;
    const KEY: Self = Self::from_bits_retain(0xf << Self::KEY_SHIFT);

    /// Whether nothing is permitted.
    #[inline]
    pub const fn is_none(self) -> bool {
        self.without_key().is_empty()
    }

    /// The protection key, 0 to 15.
    #[inline]
    pub const fn key(self) -> u8 {
        self.intersection(Self::KEY).bits() >> Self::KEY_SHIFT
    }

    /// The same with key 0.
    #[inline]
    pub const fn without_key(self) -> Self {
        self.intersection(Self::all())
    }

    /// The same with the protection key `key`, of which the lowest 4 bits count.
    #[inline]
    pub const fn with_key(self, key: u8) -> Self {
        let key = Self::from_bits_retain((key & 0xf) << Self::KEY_SHIFT);
        self.without_key().union(key)
    }

    /// The same with the key of `other`.
    #[inline]
    pub(crate) const fn with_key_of(self, other: Self) -> Self {
        self.union(other.intersection(Self::KEY))
    }
}

bitflags! {
    /// Properties of an area other than its rights.
    ///
    /// Two neighbours merge only if all of these agree.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AreaFlags: u32 {
        /// Stores reach the object and everybody who maps it (`MAP_SHARED`).
        const SHARED = 1;
        /// Grows towards lower addresses by faults below it (`MAP_GROWSDOWN`).
        const GROWSDOWN = 1 << 1;
        /// The initial stack of a program: shown as `[stack]`.
        const STACK = 1 << 2;
        /// The program break: shown as `[heap]`.
        const HEAP = 1 << 3;
        /// Pages stay resident (`mlock`).
        const LOCKED = 1 << 4;
        /// Pages become resident by faults, not at once (`MLOCK_ONFAULT`).
        const LOCK_ON_FAULT = 1 << 5;
        /// Not counted as committed memory (`MAP_NORESERVE`).
        const NORESERVE = 1 << 6;
        /// A forked child does not have this area (`MADV_DONTFORK`).
        const DONTFORK = 1 << 7;
        /// A forked child finds this area empty (`MADV_WIPEONFORK`).
        const WIPEONFORK = 1 << 8;
        /// Left out of core dumps (`MADV_DONTDUMP`).
        const DONTDUMP = 1 << 9;
        /// Counted as committed memory: given back when the area goes. Set by the memory manager.
        const ACCOUNTED = 1 << 10;
        /// Guard markers may be present (`MADV_GUARD_INSTALL`): fork copies them and `MADV_DONTNEED`
        /// spares them. Never taken away again.
        const GUARDED = 1 << 11;
        /// Pages may be dropped whenever memory is wanted, written or not; such an area is never locked
        /// (`MAP_DROPPABLE`).
        const DROPPABLE = 1 << 12;
        /// Neither the range, nor the rights, nor read-only contents may change any more (`mseal`). Never taken away
        /// again.
        const SEALED = 1 << 13;
        /// Only the program's own accesses reach the pages (`memfd_secret`): they are neither populated nor lent, and
        /// stay locked.
        const SECRET = 1 << 14;
        /// Pages are wanted in no order (`MADV_RANDOM`). Kept, and told.
        const RANDOM = 1 << 15;
        /// Everything here counts as written since soft-dirty was last cleared (`VM_SOFTDIRTY`): new memory does.
        const SOFT_DIRTY = 1 << 16;
        /// A store to a page that is not soft-dirty must fault. Set when soft-dirty is cleared where the
        /// hardware's dirty bit cannot tell of stores, and without effect beside [`SOFT_DIRTY`](Self::SOFT_DIRTY).
        const WATCH_STORES = 1 << 17;
        /// Faults at pages that are missing are a userfaultfd's (`UFFDIO_REGISTER_MODE_MISSING`).
        const UFFD_MISSING = 1 << 18;
        /// Stores to protected pages are a userfaultfd's (`UFFDIO_REGISTER_MODE_WP`).
        const UFFD_WP = 1 << 19;
        /// Faults at pages that the object has are a userfaultfd's (`UFFDIO_REGISTER_MODE_MINOR`).
        const UFFD_MINOR = 1 << 20;
        /// Nobody waits for stores to protected pages: they are only told of (`UFFD_FEATURE_WP_ASYNC`).
        const UFFD_ASYNC = 1 << 21;
        /// Of the same, and the processor's dirty bit tells: a protected page stays as writable as it was, clean.
        const UFFD_BY_DIRTY = 1 << 22;
        /// Protection holds for memory that is not there yet as well (`UFFD_FEATURE_WP_UNPOPULATED`).
        const UFFD_UNPOPULATED = 1 << 23;
        /// The area says where its pages come from: it has a policy (`mbind`). Set by the memory manager.
        const PLACED = 1 << 24;
        /// Pages are wanted one after the other (`MADV_SEQUENTIAL`). Kept, and told.
        const SEQUENTIAL = 1 << 25;
        /// Pages are huge ones of the pool, never cut (`MAP_HUGETLB`). Set by the memory manager.
        const HUGETLB = 1 << 26;
        /// Of such an area: a page was taken back for whom it was reserved, so that what is missing is a bus error.
        const HUGETLB_LOST = 1 << 27;
        /// Huge pages are asked for (`MADV_HUGEPAGE`).
        const HUGE = 1 << 28;
        /// Huge pages are refused (`MADV_NOHUGEPAGE`).
        const NOT_HUGE = 1 << 29;
        /// Pages with equal contents may be merged (`MADV_MERGEABLE`).
        const MERGEABLE = 1 << 30;
        /// Markers may be left of a protection that no userfaultfd cares for any more. Never taken away again.
        const UFFD_LEFT = 1 << 31;
    }
}

impl AreaFlags {
    /// Markers may be present, which speak for more than a page: an edge may cut through one.
    pub const MARKED: Self = Self::GUARDED.union(Self::UFFD_WP).union(Self::UFFD_LEFT);

    /// What is left of these flags where a watcher no longer is told of stores, and protection stays.
    pub(crate) fn unwatched(self) -> Self {
        let left = if self.contains(Self::UFFD_WP) {
            Self::UFFD_LEFT
        } else {
            Self::empty()
        };
        (self - Self::UFFD) | left
    }

    /// What a userfaultfd set.
    pub const UFFD: Self = Self::UFFD_MISSING
        .union(Self::UFFD_WP)
        .union(Self::UFFD_MINOR)
        .union(Self::UFFD_ASYNC)
        .union(Self::UFFD_BY_DIRTY)
        .union(Self::UFFD_UNPOPULATED);

    /// What is looked at before a page is filled.
    pub(crate) const ON_FILL: Self = Self::UFFD.union(Self::PLACED);

    /// Flags that a merged area has if one of the two had them, and that keep no two apart
    /// (Linux 7.2 `VM_STICKY`).
    pub const STICKY: Self = Self::GUARDED
        .union(Self::SOFT_DIRTY)
        .union(Self::WATCH_STORES)
        .union(Self::UFFD_LEFT);
}

/// What an area shows: the seam between the pure map and real backings.
///
/// Cloning happens when an area is split, dropping when two merge or one goes.
pub trait Backed: Clone {
    /// Whether two areas show the same thing, so that they may merge if their offsets meet.
    fn same(&self, other: &Self) -> bool;
}

/// A run of pages with one set of rights, one set of flags and one backing.
#[derive(Debug)]
pub struct Area<B> {
    pub(crate) range: PageRange,
    pub(crate) offset: u64,
    pub(crate) flags: AreaFlags,
    pub(crate) rights: Rights,
    pub(crate) max_rights: Rights,
    pub(crate) placement: PolicyId,
    pub(crate) lineage: LineageCell,
    pub(crate) window: WindowCell,
    pub(crate) backing: B,
}

impl<B: Backed> Area<B> {
    /// The pages of the area.
    pub fn range(&self) -> PageRange {
        self.range
    }

    /// The first page.
    pub fn start(&self) -> Page {
        self.range.start
    }

    /// The page after the last.
    pub fn end(&self) -> Page {
        self.range.end
    }

    /// How many pages.
    pub fn pages(&self) -> u64 {
        self.range.len()
    }

    /// What a program may do here now.
    pub fn rights(&self) -> Rights {
        self.rights
    }

    /// The most that a protection change may grant.
    pub fn max_rights(&self) -> Rights {
        self.max_rights
    }

    /// Where its pages come from, if the area says so.
    pub fn placement(&self) -> PolicyId {
        self.placement
    }

    /// The other properties.
    pub fn flags(&self) -> AreaFlags {
        self.flags
    }

    /// What the area shows.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// In pages: of an object, where in it the area begins; of anonymous memory, the page number where
    /// the area was created, which travels with it through `mremap` once it has pages.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The offset of a page of this area.
    pub fn offset_of(&self, page: Page) -> u64 {
        self.offset + (page.number() - self.range.start.number())
    }

    /// Whether stores reach the object.
    pub fn is_shared(&self) -> bool {
        self.flags.contains(AreaFlags::SHARED)
    }

    /// Whether an anonymous page was ever made here.
    #[inline]
    pub fn has_faulted(&self) -> bool {
        self.lineage.get().exists()
    }

    pub(crate) fn lineage(&self) -> Lineage {
        self.lineage.get()
    }

    /// Whether `right`, which begins where `self` ends, may become one area with it
    /// (Linux 7.2 `mm/vma.c`, `is_mergeable_vma` and its callers).
    pub fn may_merge(&self, right: &Self) -> bool {
        self.rights == right.rights
            && self.is_kin(right)
            && self.lineage().may_join(right.lineage())
    }

    /// Whether `right`, which begins where `self` ends, differs in rights at most, and not in their key, so that a protection change could
    /// make one area of them: their private pages are of one lineage then (Linux 7.2 `mm/vma.c`,
    /// `anon_vma_compatible`).
    pub(crate) fn is_kin(&self, right: &Self) -> bool {
        self.range.end == right.range.start
            && (self.flags ^ right.flags)
                .difference(AreaFlags::STICKY)
                .is_empty()
            && self.max_rights == right.max_rights
            && self.rights.key() == right.rights.key()
            && self.placement == right.placement
            && self.offset + self.pages() == right.offset
            && self.backing.same(&right.backing)
    }

    /// A copy of the part `range` of this area, which must lie inside it.
    pub(crate) fn part(&self, range: PageRange) -> Self {
        debug_assert!(self.range.start <= range.start && range.end <= self.range.end);
        Self {
            range,
            offset: self.offset_of(range.start),
            flags: self.flags,
            rights: self.rights,
            max_rights: self.max_rights,
            placement: self.placement,
            lineage: LineageCell::new(self.lineage()),
            window: WindowCell::new(self.window.get()),
            backing: self.backing.clone(),
        }
    }
}
