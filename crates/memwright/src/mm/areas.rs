//! The data that the lock of an address space guards: the map, the limits, the totals.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use memwright_table::handle::Shared;
use memwright_table::{Machine, OutOfMemory, PAGE_SIZE, Page, PageRange, TryPush};

use crate::mm::attachment::Attachment;
use crate::mm::memory::Memory;
use crate::mm::object::Object;
use crate::mm::tag::Tag;
use crate::types::area_name::AreaName;
use crate::types::error::{CutError, Limit};
use crate::types::huge::HUGE_PAGES;
use crate::types::mdwe::ExecGain;
use crate::types::protection_keys::Keys;
use crate::types::rights::Rights;
use crate::types::uffd::Watch;
use crate::vma::area::{self, AreaFlags, Backed};
use crate::vma::map::{AreaMap, Position};
use crate::vma::moved::MovedAreas;

/// What an area maps, an object or private anonymous memory, with the userfaultfd context and the name of the area.
pub struct Backing<M: Machine> {
    attachment: Option<Attachment<M>>,
    tag: Option<Shared<Tag>>,
}

impl<M: Machine> fmt::Debug for Backing<M> {
    /// Shows whether the area maps an object, and the userfaultfd and the name of the area.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backing")
            .field("object", &self.object().is_some())
            .field("watched", &self.watcher().is_some())
            .field("name", &self.name())
            .finish()
    }
}

/// An area of an address space. [`AreaOf`](crate::AreaOf) has the methods that return its range, rights, flags, offset and
/// backing.
pub type Area<M> = area::Area<Backing<M>>;

impl<M: Machine> Backing<M> {
    pub(crate) const ANONYMOUS: Self = Self::new(None, None);

    const fn new(attachment: Option<Attachment<M>>, tag: Option<Shared<Tag>>) -> Self {
        Self { attachment, tag }
    }

    pub(crate) fn object_of(attachment: Attachment<M>) -> Self {
        Self::new(Some(attachment), None)
    }

    /// Returns a tag with the userfaultfd context `watcher` and the name `name`: the tag of one of the backings
    /// `models` if one has such a tag, otherwise a new one.
    pub(crate) fn tag_with<'a>(
        models: impl IntoIterator<Item = &'a Self>,
        watcher: Option<&Watch>,
        name: Option<&Arc<AreaName>>,
    ) -> Result<Option<Shared<Tag>>, OutOfMemory> {
        let mut tags = models.into_iter().filter_map(|model| model.tag.as_ref());
        match tags.find(|tag| tag.has_watcher(watcher) && tag.has_name(name)) {
            Some(tag) => Ok(Some(tag.clone())),
            None => Tag::new(watcher.cloned(), name.cloned()),
        }
    }

    /// Sets the userfaultfd context and the name to those of `tag`; `None` removes both.
    pub(crate) fn set_tag(&mut self, tag: Option<Shared<Tag>>) {
        self.tag = tag;
    }

    /// Removes the userfaultfd context. If there is no memory for a tag with the name alone, removes the name too.
    pub(crate) fn remove_watcher(&mut self) {
        self.tag = Tag::new(None, self.name().cloned()).unwrap_or(None);
    }

    /// Returns a backing with the same object, context and name, but without the reservation of huge pages.
    pub(crate) fn unreserved(&self) -> Self {
        let attachment = self.attachment.as_ref();
        let unreserved = attachment.map(|own| own.unreserved().unwrap_or_else(|| own.clone()));
        Self::new(unreserved, self.tag.clone())
    }

    /// Returns whether the userfaultfd context of the backing is `watcher`; for `None`, whether the backing has no
    /// context.
    pub(crate) fn has_watcher(&self, watcher: Option<&Watch>) -> bool {
        match &self.tag {
            None => watcher.is_none(),
            Some(tag) => tag.has_watcher(watcher),
        }
    }

    /// Returns whether the name is `name`; for `None`, whether the backing has no name.
    pub(crate) fn has_name(&self, name: Option<&Arc<AreaName>>) -> bool {
        match &self.tag {
            None => name.is_none(),
            Some(tag) => tag.has_name(name),
        }
    }

    /// Returns the userfaultfd context that handles faults in the area, if any.
    #[inline]
    pub fn watcher(&self) -> Option<&Watch> {
        self.tag.as_ref()?.watcher()
    }

    /// Returns the name that the program gave to anonymous memory, if any.
    #[inline]
    pub fn name(&self) -> Option<&Arc<AreaName>> {
        self.tag.as_ref()?.name()
    }

    /// Returns the reference to the object, or `None` for private anonymous memory.
    pub(crate) fn attachment(&self) -> Option<&Attachment<M>> {
        self.attachment.as_ref()
    }

    /// Returns a backing with the same object, context and name, for an area that maps the pages `span` of the object
    /// from `page` on.
    pub(crate) fn elsewhere(&self, span: Range<u64>, page: Page) -> Result<Self, OutOfMemory> {
        let attachment = self.attachment.as_ref();
        let elsewhere = attachment.map(|own| own.elsewhere(span, page));
        Ok(Self::new(elsewhere.transpose()?, self.tag.clone()))
    }

    /// Returns the object, or `None` for private anonymous memory.
    #[inline]
    pub fn object(&self) -> Option<&Arc<dyn Object<M>>> {
        self.attachment.as_ref().map(Attachment::object)
    }
}

impl<M: Machine> Clone for Backing<M> {
    fn clone(&self) -> Self {
        Self::new(self.attachment.clone(), self.tag.clone())
    }
}

impl<M: Machine> Backed for Backing<M> {
    type Threads = M::Threads;

    fn same(&self, other: &Self) -> bool {
        let shown = match (&self.attachment, &other.attachment) {
            (None, None) => true,
            (Some(one), Some(another)) => one.same(another),
            (None, Some(_)) | (Some(_), None) => false,
        };
        shown
            && match (&self.tag, &other.tag) {
                (None, None) => true,
                (Some(one), Some(another)) => {
                    Shared::ptr_eq(one, another)
                        || (one.has_watcher(another.watcher()) && one.has_name(another.name()))
                }
                (None, Some(_)) | (Some(_), None) => false,
            }
    }

    #[inline]
    fn note_end(&self, end: u64) {
        if let Some(attachment) = &self.attachment {
            attachment.reach(end);
        }
    }

    #[inline]
    fn notifies_first_write(&self) -> bool {
        self.object()
            .is_some_and(|object| object.notify_first_write())
    }
}

/// The limits of a process, in bytes except for the number of areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `RLIMIT_AS`.
    pub address_space: u64,
    /// `RLIMIT_DATA`.
    pub data: u64,
    /// `RLIMIT_STACK`.
    pub stack: u64,
    /// `RLIMIT_MEMLOCK`.
    pub locked: u64,
    /// `CAP_IPC_LOCK`: the limit of locked memory does not apply.
    pub may_lock_any: bool,
    /// `CAP_SYS_RAWIO`: fixed mappings below the lowest address are allowed.
    pub may_map_low: bool,
    /// `vm.max_map_count`.
    pub areas: usize,
}

impl Limits {
    /// Linux's defaults: no limits except an 8 MiB stack, 8 MiB of locked memory and 65,530 areas.
    pub const DEFAULT: Self = Self {
        address_space: u64::MAX,
        data: u64::MAX,
        stack: 8 << 20,
        locked: 8 << 20,
        may_lock_any: false,
        may_map_low: false,
        areas: 65_530,
    };
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The effect of `mlockall(MCL_FUTURE)` on new areas.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LockFuture {
    /// New areas are not locked.
    #[default]
    No,
    /// New areas are locked and populated.
    Populated,
    /// New areas are locked, and their pages stay in memory once they are faulted in.
    OnFault,
}

/// Sizes of an address space, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All areas (`VmSize`).
    pub mapped: u64,
    /// Private writable areas other than stacks (`VmData`).
    pub data: u64,
    /// Areas that grow downwards (`VmStk`).
    pub stack: u64,
    /// Executable areas that are not writable (`VmExe` and `VmLib`).
    pub executable: u64,
    /// Locked areas (`VmLck`).
    pub locked: u64,
    /// Pages that are accounted as long-term pinned (`VmPin`).
    pub pinned: u64,
    /// Pages with a frame (`VmRSS`).
    pub resident: u64,
    /// The number of resident pages that are anonymous (`RssAnon`).
    pub resident_anonymous: u64,
    /// The number of resident pages of files (`RssFile`).
    pub resident_file: u64,
    /// The number of resident pages of shared memory (`RssShmem`).
    pub resident_shared: u64,
    /// Pages in swap (`VmSwap`).
    pub swapped: u64,
    /// Pages of hugetlb pages, which `resident` does not count (`HugetlbPages`).
    pub hugetlb: u64,
    /// The peak of `resident` (`VmHWM`), as last sampled.
    pub resident_peak: u64,
    /// The peak of `mapped` (`VmPeak`).
    pub mapped_peak: u64,
    /// Page-table frames (`VmPTE`).
    pub table_frames: u64,
}

/// The data that the lock of an address space guards.
pub(crate) struct Areas<M: Machine> {
    pub(crate) map: AreaMap<Backing<M>>,
    /// Where `mremap` has moved private pages.
    pub(crate) moved: MovedAreas,
    pub(crate) limits: Limits,
    pub(crate) lock_future: LockFuture,
    /// Whether pages of new areas may be merged (KSM).
    pub(crate) merge_all: bool,
    pub(crate) exec_gain: ExecGain,
    /// The protection keys in use.
    pub(crate) keys: Keys,
    pub(crate) mapped: u64,
    pub(crate) mapped_peak: u64,
    pub(crate) data: u64,
    pub(crate) stack: u64,
    pub(crate) executable: u64,
    pub(crate) locked: u64,
    /// Whether the address space ever had a secret area.
    was_secret: bool,
    /// Parts of locked areas that protection changes in progress have made writable. Each change then copies the pages.
    gained: Vec<PageRange>,
}

/// The maximum number of areas that are examined to find out whether a recorded move is still needed. If more areas
/// overlap the pages that were moved, the record is kept.
const NEIGHBOURS: usize = 8;

/// Returns whether pages with `rights` and `flags` count as data, as stack, and as executable, in this order (Linux 7.2
/// `mm/mmap.c`, `vm_stat_account`).
fn classes(rights: Rights, flags: AreaFlags) -> (bool, bool, bool) {
    let stack = flags.contains(AreaFlags::GROWSDOWN);
    let write = rights.contains(Rights::WRITE);
    let executable = rights.contains(Rights::EXECUTE) && !write && !stack;
    let data = write && !stack && !flags.contains(AreaFlags::SHARED);
    (data, stack, executable)
}

/// Returns the total of a class after `pages` pages were added to it, or, if `enter` is false, removed from it.
#[inline]
fn moved(total: u64, enter: bool, pages: u64) -> u64 {
    if enter { total + pages } else { total - pages }
}

/// Returns whether pages with `rights` and `flags` are accounted as committed memory (Linux 7.2 `mm/vma.c`,
/// `accountable_mapping`).
pub(crate) fn is_accountable(rights: Rights, flags: AreaFlags) -> bool {
    const NO_PROMISE: AreaFlags = AreaFlags::NORESERVE
        .union(AreaFlags::SHARED)
        .union(AreaFlags::HUGETLB);
    rights.contains(Rights::WRITE) && !flags.intersects(NO_PROMISE)
}

/// Returns whether an edge of `part` cuts a hugetlb page, in an area with `flags`.
#[inline]
pub(crate) fn cuts_hugetlb(flags: AreaFlags, part: PageRange) -> bool {
    flags.contains(AreaFlags::HUGETLB)
        && (part.start.number() | part.end.number()) % HUGE_PAGES != 0
}

/// Returns the owner of an area's offsets: a number that identifies the pages of `object`, or 0 for anonymous memory.
/// Owners are only compared with one another.
pub(crate) fn owner_of<M: Machine>(object: Option<&Arc<dyn Object<M>>>) -> u64 {
    object.map_or(0, |object| {
        core::ptr::from_ref(object.mappings()).addr() as u64
    })
}

impl<M: Machine> Areas<M> {
    /// No areas, with the default limits.
    pub(crate) const EMPTY: Self = Self {
        map: AreaMap::EMPTY,
        moved: MovedAreas::new(),
        limits: Limits::DEFAULT,
        lock_future: LockFuture::No,
        merge_all: false,
        exec_gain: ExecGain::Granted,
        keys: Keys::NEW,
        mapped: 0,
        mapped_peak: 0,
        data: 0,
        stack: 0,
        executable: 0,
        locked: 0,
        was_secret: false,
        gained: Vec::new(),
    };

    /// Records that the private pages in `old`, if there are any, move to `target`, so that the reverse mapping also
    /// looks for them there.
    pub(crate) fn note_move(&mut self, old: PageRange, target: Page) -> Result<(), OutOfMemory> {
        let Some(area) = self.map.find(old.start) else {
            return Ok(());
        };
        if area.is_shared() || !area.has_faulted() {
            return Ok(());
        }
        let offset = area.offset_of(old.start);
        let owner = owner_of(area.object());
        let exists = |owner, span: Range<u64>, displacement: u64| {
            let page = |offset: u64| Page::new(offset.wrapping_add(displacement));
            let pages = PageRange::new(page(span.start), page(span.end));
            let mut near = self.map.overlapping(pages).take(NEIGHBOURS + 1);
            let is_it = |area: &Area<M>| {
                let at = area.start().number().wrapping_sub(area.offset());
                at == displacement && !area.is_shared() && owner_of(area.object()) == owner
            };
            near.by_ref().take(NEIGHBOURS).any(is_it) || near.next().is_some()
        };
        let span = offset..offset + old.len();
        let displacements = (
            old.start.number().wrapping_sub(offset),
            target.number().wrapping_sub(offset),
        );
        self.moved
            .record(owner, span, displacements, self.map.len(), exists)
    }

    /// Records that a protection change makes `range`, a part of a locked area, writable, so that its pages are copied
    /// at once. If there is no heap memory for the record, later faults copy the pages instead.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_gained(&mut self, range: PageRange) {
        let _ = self.gained.try_push(range);
    }

    /// Removes and returns the parts that `note_gained` recorded.
    pub(crate) fn take_gained(&mut self) -> Vec<PageRange> {
        core::mem::take(&mut self.gained)
    }

    /// Adds `pages` pages of an area with `rights` and `flags` to the totals.
    pub(crate) fn count_in(&mut self, rights: Rights, flags: AreaFlags, pages: u64) {
        let (data, stack, executable) = classes(rights, flags);
        self.mapped += pages;
        self.mapped_peak = self.mapped_peak.max(self.mapped);
        self.data += if data { pages } else { 0 };
        self.stack += if stack { pages } else { 0 };
        self.executable += if executable { pages } else { 0 };
        if flags.intersects(AreaFlags::LOCKED | AreaFlags::SECRET) {
            self.count_kept_in(flags, pages);
        }
    }

    /// Adds the pages of a locked area to the total of locked pages. For a secret area, records that the address space
    /// has had one.
    #[cold]
    fn count_kept_in(&mut self, flags: AreaFlags, pages: u64) {
        self.was_secret |= flags.contains(AreaFlags::SECRET);
        if flags.contains(AreaFlags::LOCKED) {
            self.locked += pages;
        }
    }

    /// Returns whether there can be areas whose pages stay in memory: locked or secret ones.
    pub(crate) fn may_keep_pages(&self) -> bool {
        self.locked > 0 || self.was_secret
    }

    /// Subtracts `pages` pages of an area with `rights` and `flags` from the totals.
    pub(crate) fn count_out(&mut self, rights: Rights, flags: AreaFlags, pages: u64) {
        let (data, stack, executable) = classes(rights, flags);
        self.mapped -= pages;
        self.data -= if data { pages } else { 0 };
        self.stack -= if stack { pages } else { 0 };
        self.executable -= if executable { pages } else { 0 };
        self.locked -= if flags.contains(AreaFlags::LOCKED) {
            pages
        } else {
            0
        };
    }

    /// Moves pages from one kind of area to another in the totals. `mapped` does not change.
    pub(crate) fn count_change(
        &mut self,
        (old_rights, old_flags): (Rights, AreaFlags),
        (new_rights, new_flags): (Rights, AreaFlags),
        pages: u64,
    ) {
        let mapped_peak = self.mapped_peak;
        self.count_out(old_rights, old_flags, pages);
        self.count_in(new_rights, new_flags, pages);
        self.mapped_peak = mapped_peak;
    }

    /// Like [`count_change`](Self::count_change), for pages that change only their rights and whether they are
    /// accounted.
    #[inline(always)]
    pub(crate) fn reclassify(
        &mut self,
        (old_rights, old_flags): (Rights, AreaFlags),
        (new_rights, new_flags): (Rights, AreaFlags),
        pages: u64,
    ) {
        debug_assert!(
            (old_flags ^ new_flags)
                .difference(AreaFlags::ACCOUNTED)
                .is_empty()
        );
        let (old, new) = (old_rights, new_rights);
        if old_flags.contains(AreaFlags::GROWSDOWN) {
            return;
        }
        if (old ^ new).contains(Rights::WRITE) && !old_flags.contains(AreaFlags::SHARED) {
            self.data = moved(self.data, new.contains(Rights::WRITE), pages);
        }
        if !(old | new).contains(Rights::EXECUTE) {
            return;
        }
        let either = Rights::EXECUTE | Rights::WRITE;
        let is_executable = |rights: Rights| rights & either == Rights::EXECUTE;
        if is_executable(old) != is_executable(new) {
            self.executable = moved(self.executable, is_executable(new), pages);
        }
    }

    /// Splits the area at `position`, which spans `whole`, so that `part` becomes a separate area. Returns the position
    /// of that area. The edges of `part` must not cut a hugetlb page.
    pub(crate) fn cut(
        &mut self,
        position: Position,
        whole: PageRange,
        part: PageRange,
    ) -> Result<Position, CutError> {
        let cuts = usize::from(part.start > whole.start) + usize::from(part.end < whole.end);
        self.check_count(cuts).map_err(CutError::OverLimit)?;
        let cut = self.map.cut(position, whole, part);
        cut.map_err(|_| CutError::OutOfMemory)
    }

    /// Checks whether the limits allow `pages` more pages with `rights` and `flags` once `gone` pages are unmapped
    /// (Linux 7.2 `mm/mmap.c`, `may_expand_vm`).
    pub(crate) fn check_growth(
        &self,
        rights: Rights,
        flags: AreaFlags,
        pages: u64,
        gone: u64,
    ) -> Result<(), Limit> {
        if self.mapped - gone + pages > self.limits.address_space / PAGE_SIZE as u64 {
            return Err(Limit::AddressSpace);
        }
        self.check_data(rights, flags, pages)
    }

    /// Checks whether the data limit allows `pages` more pages with `rights` and `flags`.
    #[inline]
    fn check_data(&self, rights: Rights, flags: AreaFlags, pages: u64) -> Result<(), Limit> {
        let (data, ..) = classes(rights, flags);
        if data && self.data + pages > self.limits.data / PAGE_SIZE as u64 {
            return Err(Limit::Data);
        }
        Ok(())
    }

    /// Checks whether the data limit allows `pages` pages of an area with `flags` to become writable. Returns whether
    /// these pages must be accounted then.
    #[inline(always)]
    pub(crate) fn check_gain(
        &self,
        rights: Rights,
        flags: AreaFlags,
        pages: u64,
    ) -> Result<bool, Limit> {
        self.check_data(rights, flags, pages)?;
        Ok(is_accountable(rights, flags) && !flags.contains(AreaFlags::ACCOUNTED))
    }

    /// Unaccounts the areas, empties the map, and sets the totals to 0, except the peak of mapped pages. Returns the
    /// previous map.
    pub(crate) fn take_all(&mut self, memory: &Memory<M>) -> AreaMap<Backing<M>> {
        for area in self
            .map
            .iter()
            .filter(|area| area.flags().contains(AreaFlags::ACCOUNTED))
        {
            memory.take_back(area.pages());
        }
        self.mapped = 0;
        self.data = 0;
        self.stack = 0;
        self.executable = 0;
        self.locked = 0;
        core::mem::replace(&mut self.map, AreaMap::EMPTY)
    }

    /// Checks whether the limit of locked memory allows `pages` more locked pages.
    pub(crate) fn check_locked(&self, pages: u64) -> Result<(), Limit> {
        let limit = self.limits.locked / PAGE_SIZE as u64;
        if self.limits.may_lock_any || self.locked + pages <= limit {
            Ok(())
        } else {
            Err(Limit::Locked)
        }
    }

    /// Checks whether the limit on the number of areas allows `more` more areas.
    pub(crate) fn check_count(&self, more: usize) -> Result<(), Limit> {
        if self.map.len() + more <= self.limits.areas {
            Ok(())
        } else {
            Err(Limit::Areas)
        }
    }
}

impl<M: Machine> crate::vma::area::Area<Backing<M>> {
    /// Returns the object, or `None` for private anonymous memory.
    #[inline]
    pub fn object(&self) -> Option<&Arc<dyn Object<M>>> {
        self.backing.object()
    }
}
