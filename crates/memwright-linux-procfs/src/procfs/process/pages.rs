//! Sums over the page-table entries of an area, for `smaps`.

use core::fmt;

use memwright::{Area, AreaFlags, Rights};
use memwright_linux_abi::{M, Memory};
use memwright_table::{Bits, Entry, Extent, FrameKind, OutOfMemory, PAGE_SIZE, PageSize};

/// Unshares those shared page tables through which a walk over one address space could not count how many page-table
/// entries map a page.
///
/// # Errors
/// If there is no heap memory.
pub fn count_each_entry(memory: &Memory) -> fmt::Result {
    memory
        .own_ambiguous_tables()
        .map_err(|OutOfMemory| fmt::Error)
}

/// Adds a page-table entry that maps no page. Only swap entries count.
#[cold]
fn add_absent(sums: &mut Sums, memory: &Memory, extent: Extent) {
    match extent.entry {
        Entry::Swapped(swapped) => {
            let (pages, unit) = (extent.range.len(), PAGE_SIZE as u64 * SHARE);
            sums.swap += pages * PAGE_SIZE as u64;
            sums.swap_proportional += memory.swap().shares(swapped.slot, pages, unit);
        }
        Entry::Empty | Entry::Present(_) | Entry::Marker(_) | Entry::Migrating(_) => {}
    }
}

/// The fixed-point unit of shares. A proportional size is stored as a number of bytes multiplied by this unit
/// (`PSS_SHIFT`).
const SHARE: u64 = 1 << 12;

/// The sums for one or more areas. They are in bytes or, where stated, in shares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Resident pages.
    pub resident: u64,
    /// Resident pages, each divided by the number of page-table entries that map it; in shares.
    pub proportional: u64,
    /// The part of `proportional` that is dirty; in shares.
    pub proportional_dirty: u64,
    /// The part of `proportional` that is anonymous; in shares.
    pub proportional_anonymous: u64,
    /// The part of `proportional` that is shared memory; in shares.
    pub proportional_memory: u64,
    /// Clean pages that several page-table entries map.
    pub shared_clean: u64,
    /// Dirty pages that several page-table entries map.
    pub shared_dirty: u64,
    /// Clean pages that one page-table entry maps.
    pub private_clean: u64,
    /// Dirty pages that one page-table entry maps.
    pub private_dirty: u64,
    /// Accessed pages.
    pub referenced: u64,
    /// Anonymous pages.
    pub anonymous: u64,
    /// Anonymous memory that huge pages of 2 MiB map.
    pub huge: u64,
    /// Memory of objects that huge pages of 2 MiB map.
    pub huge_memory: u64,
    /// Anonymous pages whose contents reclaim is allowed to discard (`MADV_FREE`).
    pub lazy: u64,
    /// Anonymous pages that KSM has merged.
    pub merged: u64,
    /// Huge pages of the hugetlb pool that several page-table entries map.
    pub shared_hugetlb: u64,
    /// Huge pages of the hugetlb pool that one page-table entry maps.
    pub private_hugetlb: u64,
    /// Pages to which the swap entries of the area refer.
    pub swap: u64,
    /// Swapped-out pages, each divided by the number of page-table entries that refer to its swap slot; in shares.
    /// Swapped-out pages of objects are not included (`smap_gather_stats` in `fs/proc/task_mmu.c` of Linux 7.2).
    pub swap_proportional: u64,
    /// Pages of objects that are swapped out.
    pub swap_of_objects: u64,
    /// The proportional size of the areas that are locked in memory; in shares.
    pub locked: u64,
}

/// Converts shares to bytes.
#[must_use]
pub const fn bytes_of_shares(shares: u64) -> u64 {
    shares / SHARE
}

impl Sums {
    /// Returns the sums of an area before its page-table entries are added. They contain the swapped-out pages of the
    /// area's object, because the object counts these pages and the page table does not (`smap_gather_stats`). For a
    /// private writable area, which can have private copies of pages, these pages are not counted.
    pub fn of_area(area: &Area<M>) -> Self {
        let shows_all = area.is_shared() || !area.rights().contains(Rights::WRITE);
        let object = area.object().filter(|_| shows_all);
        let swapped = object.map_or(0, |object| {
            object.swapped(area.offset_of(area.start()), area.pages())
        });
        Self {
            swap_of_objects: swapped * PAGE_SIZE as u64,
            ..Self::default()
        }
    }

    /// Adds `pages` pages that all have the properties `alike` (`smaps_pte_entry` in `fs/proc/task_mmu.c` of Linux
    /// 7.2).
    fn add_pages(&mut self, area: AreaClass, alike: Alike, pages: u64) {
        let each = alike.size.pages() * PAGE_SIZE as u64;
        let bytes = each * pages;
        let sharers = u64::from(alike.sharers);
        if area.hugetlb {
            // Hugetlb pages are not counted as resident memory (`smaps_hugetlb_range`).
            let class = if sharers > 1 {
                &mut self.shared_hugetlb
            } else {
                &mut self.private_hugetlb
            };
            *class += bytes;
            return;
        }
        let shares = each * SHARE / sharers * pages;
        self.resident += bytes;
        self.proportional += shares;
        if alike.dirty {
            self.proportional_dirty += shares;
        }
        if alike.kind == FrameKind::Merged {
            self.merged += bytes;
        }
        if alike.lazy {
            self.lazy += bytes;
        }
        let huge = if alike.size == PageSize::Size4K {
            0
        } else {
            bytes
        };
        if alike.kind.is_private() {
            self.anonymous += bytes;
            self.huge += huge;
            self.proportional_anonymous += shares;
        } else if area.memory {
            self.proportional_memory += shares;
            self.huge_memory += huge;
        }
        if alike.accessed {
            self.referenced += bytes;
        }
        let class = match (sharers > 1, alike.dirty) {
            (true, false) => &mut self.shared_clean,
            (true, true) => &mut self.shared_dirty,
            (false, false) => &mut self.private_clean,
            (false, true) => &mut self.private_dirty,
        };
        *class += bytes;
    }

    /// Adds the sums of another area.
    pub fn add(&mut self, other: &Self) {
        self.resident += other.resident;
        self.proportional += other.proportional;
        self.proportional_dirty += other.proportional_dirty;
        self.proportional_anonymous += other.proportional_anonymous;
        self.proportional_memory += other.proportional_memory;
        self.shared_clean += other.shared_clean;
        self.shared_dirty += other.shared_dirty;
        self.private_clean += other.private_clean;
        self.private_dirty += other.private_dirty;
        self.referenced += other.referenced;
        self.anonymous += other.anonymous;
        self.huge += other.huge;
        self.huge_memory += other.huge_memory;
        self.lazy += other.lazy;
        self.merged += other.merged;
        self.shared_hugetlb += other.shared_hugetlb;
        self.private_hugetlb += other.private_hugetlb;
        self.swap += other.swap;
        self.swap_proportional += other.swap_proportional;
        self.swap_of_objects += other.swap_of_objects;
        self.locked += other.locked;
    }
}

/// The properties of a page on which the sums depend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Alike {
    sharers: u32,
    kind: FrameKind,
    size: PageSize,
    dirty: bool,
    accessed: bool,
    lazy: bool,
}

/// The properties of an area on which the sums depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct AreaClass {
    hugetlb: bool,
    /// Whether the area's object has its pages only in memory and swap (shmem).
    memory: bool,
}

/// Consecutive pages of one area with equal properties. They are added to the sums together, because neighbouring pages
/// mostly have equal properties.
#[derive(Default)]
pub struct Run {
    area: AreaClass,
    alike: Option<Alike>,
    pages: u64,
}

impl Run {
    /// Begins an empty run for pages of `area`. The caller has called [`end`](Self::end) for the previous area.
    pub fn begin(&mut self, area: &Area<M>) {
        self.area = AreaClass {
            hugetlb: area.flags().contains(AreaFlags::HUGETLB),
            memory: area.object().is_some_and(|object| object.is_memory()),
        };
    }

    /// Adds a page-table entry of the area. A swap entry is added to the sums, and a present page to the run. If the
    /// properties of the page differ from those of the run, first adds the run to the sums and begins another run.
    /// `others` is the number of other address spaces that share the page table of the entry.
    pub fn add_entry(&mut self, sums: &mut Sums, memory: &Memory, extent: Extent, others: u32) {
        let Entry::Present(page) = extent.entry else {
            add_absent(sums, memory, extent);
            return;
        };
        if page.bits.contains(Bits::BORROWED) {
            return;
        }
        let frames = memory.frames();
        let (kind, sharers) = frames.shown(page.frame);
        let dirty = page.bits.intersects(Bits::DIRTY | Bits::FOLDED_DIRTY);
        let alike = Alike {
            // The sum cannot overflow, because memory has too few frames for that many page tables.
            sharers: sharers.max(1).wrapping_add(others),
            kind,
            size: page.size,
            dirty,
            accessed: page.bits.intersects(Bits::ACCESSED | Bits::FOLDED_ACCESSED),
            lazy: !dirty && kind.is_private() && frames.is_lazy(page.frame),
        };
        if self.alike != Some(alike) {
            self.end(sums);
            self.alike = Some(alike);
        }
        self.pages = self.pages.wrapping_add(1);
    }

    /// Ends the run: adds its pages to the sums.
    pub fn end(&mut self, sums: &mut Sums) {
        if let Some(alike) = self.alike.take() {
            sums.add_pages(self.area, alike, self.pages);
        }
        self.pages = 0;
    }
}
