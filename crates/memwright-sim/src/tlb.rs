//! The translation caches of one CPU: its TLB and its paging-structure caches.
//!
//! An entry stays cached until it is dropped by an invalidation that covers it, a load of the root, a page fault at its
//! address, or an eviction by the adversary.

use std::collections::{BTreeMap, BTreeSet};

use memwright_table::{Frame, Invalidation, PageSize};

/// The rights of a translation, which the hardware combines over the levels of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    /// Whether every level permits writing.
    pub write: bool,
    /// Whether every level permits user mode.
    pub user: bool,
    /// Whether no level forbids instruction fetches.
    pub execute: bool,
}

impl Rights {
    /// The rights before any level restricts them.
    pub const ALL: Self = Self {
        write: true,
        user: true,
        execute: true,
    };

    /// Returns the rights that `self` and `other` both permit.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            write: self.write && other.write,
            user: self.user && other.user,
            execute: self.execute && other.execute,
        }
    }

    /// Returns whether `self` permits anything that `other` forbids.
    #[must_use]
    pub fn exceeds(self, other: Self) -> bool {
        self.and(other) != self
    }
}

/// One cached translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Translation {
    /// The first page of the leaf, aligned to `size`.
    pub page: u64,
    /// The size of the leaf.
    pub size: PageSize,
    /// The first frame of the leaf.
    pub frame: Frame,
    /// The combined rights of all levels.
    pub rights: Rights,
    /// The dirty bit at the time of caching. A write through a translation that was cached dirty does not access the
    /// tables.
    pub dirty: bool,
    /// The index in the page attribute table, which selects the memory type.
    pub pat: u8,
}

impl Translation {
    /// Returns whether `self` and `other` translate the same page differently: to different frames, as parts of pages
    /// of different sizes, or with different memory types.
    #[must_use]
    pub fn contradicts(&self, other: &Self) -> bool {
        let (first, last) = (self.page, self.page + self.size.pages());
        let overlap = first < other.page + other.size.pages() && other.page < last;
        let place = |one: &Self| (one.page, one.size, one.frame, one.pat);
        overlap && place(self) != place(other)
    }

    /// Returns the frame to which this translation maps `page`, which it must cover.
    #[must_use]
    pub fn frame_of(&self, page: u64) -> Frame {
        // The offset in a leaf is at most 2^18 - 1 pages, so it fits into 32 bits.
        Frame::new(self.frame.number() + (page - self.page) as u32)
    }
}

/// The key of an entry in the paging-structure caches: the level, and the part of the page number that selects the
/// entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Directory {
    /// The level whose entry is cached: 2, 3 or 4.
    pub level: u8,
    /// The page number without the bits that lower levels translate.
    pub prefix: u64,
}

impl Directory {
    /// Returns the key of the entry of `level` that translates `page`.
    #[must_use]
    pub fn of(level: u8, page: u64) -> Self {
        Self {
            level,
            prefix: page >> (9 * (u32::from(level) - 1)),
        }
    }
}

/// A cached entry that points to a table of the next level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CachedDirectory {
    /// The table of the next level.
    pub table: Frame,
    /// The combined rights of the levels down to this one.
    pub rights: Rights,
}

/// The translations, and the entries that point to tables, which one CPU has cached for one root.
///
/// A CPU with tags (PCIDs) has one `Tlb` for each tag, and does not clear it when the root changes
/// ([`MachineOptions::tags`](crate::MachineOptions::tags)).
#[derive(Debug, Default)]
pub struct Tlb {
    leaves: BTreeMap<(u64, u64), Translation>,
    directories: BTreeMap<Directory, CachedDirectory>,
    /// The pages for which the CPU has cached that no page is mapped.
    absent: BTreeSet<u64>,
}

const SIZES: [PageSize; 3] = [PageSize::Size4K, PageSize::Size2M, PageSize::Size1G];

fn first_page(page: u64, size: PageSize) -> u64 {
    page & !(size.pages() - 1)
}

impl Tlb {
    /// Returns the translation that covers `page`. If several do, returns the one with the smallest leaf.
    #[must_use]
    pub fn find(&self, page: u64) -> Option<Translation> {
        SIZES
            .iter()
            .find_map(|&size| self.leaves.get(&(size.pages(), first_page(page, size))))
            .copied()
    }

    /// Returns whether the CPU has cached that `page` is not mapped.
    #[must_use]
    pub fn is_absent(&self, page: u64) -> bool {
        self.absent.contains(&page)
    }

    /// Caches that `page` is not mapped.
    pub fn insert_absent(&mut self, page: u64) {
        self.absent.insert(page);
    }

    /// Caches a translation, and replaces a translation of the same size and page.
    pub fn insert(&mut self, translation: Translation) {
        self.leaves
            .insert((translation.size.pages(), translation.page), translation);
    }

    /// Returns the cached entry for `page` that points to a table and is nearest to the leaf, and its level. A walk to
    /// `page` starts from this entry.
    #[must_use]
    pub fn find_directory(&self, page: u64) -> Option<(u8, CachedDirectory)> {
        (2..=4).find_map(|level| {
            self.directories
                .get(&Directory::of(level, page))
                .map(|cached| (level, *cached))
        })
    }

    /// Caches an entry that points to a table.
    pub fn insert_directory(&mut self, directory: Directory, cached: CachedDirectory) {
        self.directories.insert(directory, cached);
    }

    /// Drops all entries that translate `page`: the leaves of every size, and the entries that point to tables. INVLPG
    /// and a page fault do the same. Returns the number of leaves dropped.
    pub fn drop_address(&mut self, page: u64) -> u64 {
        for level in 2..=4 {
            self.directories.remove(&Directory::of(level, page));
        }
        self.drop_leaves(page, 1)
    }

    /// Drops exactly the entries that `what` names. Returns the number of leaves dropped.
    ///
    /// The x86-64 instructions drop more (INVLPG empties the paging-structure caches). A caller must not rely on that,
    /// because other processors drop only the entries that `what` names.
    pub fn invalidate(&mut self, what: &Invalidation) -> u64 {
        match *what {
            Invalidation::Pages {
                first,
                count,
                stride,
            } => (0..u64::from(count))
                .map(|index| {
                    self.drop_leaves(first.number() + index * stride.pages(), stride.pages())
                })
                .sum(),
            Invalidation::All => self.drop_all_leaves(),
            Invalidation::AllAndTables => {
                self.directories.clear();
                self.drop_all_leaves()
            }
        }
    }

    /// Drops all entries, as a load of the root does. Returns the number of leaves dropped.
    pub fn clear(&mut self) -> u64 {
        self.invalidate(&Invalidation::AllAndTables)
    }

    fn drop_all_leaves(&mut self) -> u64 {
        let dropped = self.leaves.len() as u64;
        self.leaves.clear();
        self.absent.clear();
        dropped
    }

    fn drop_leaves(&mut self, first: u64, pages: u64) -> u64 {
        let before = self.leaves.len();
        self.absent
            .retain(|page| !(first..first + pages).contains(page));
        self.leaves
            .retain(|_, leaf| leaf.page + leaf.size.pages() <= first || first + pages <= leaf.page);
        (before - self.leaves.len()) as u64
    }

    /// Drops the entry that the number `choice` selects. Returns whether an entry was cached.
    pub fn evict(&mut self, choice: u64) -> bool {
        let all = self.leaves.len() + self.directories.len();
        let chosen = if all == 0 {
            0
        } else {
            (choice % all as u64) as usize
        };
        let leaf = self.leaves.keys().nth(chosen).copied();
        let directory = self
            .directories
            .keys()
            .nth(chosen.saturating_sub(self.leaves.len()))
            .copied();
        match (leaf, directory) {
            (Some(key), _) => self.leaves.remove(&key).is_some(),
            (None, Some(key)) => self.directories.remove(&key).is_some(),
            (None, None) => false,
        }
    }

    /// Returns the cached leaves, ordered by size and page.
    pub fn leaves(&self) -> impl Iterator<Item = &Translation> {
        self.leaves.values()
    }

    /// Returns the cached entries that point to tables, with their keys.
    pub fn directories(&self) -> impl Iterator<Item = (&Directory, &CachedDirectory)> {
        self.directories.iter()
    }
}

#[cfg(test)]
mod tests {
    use memwright_table::Page;

    use super::*;

    fn leaf(page: u64, size: PageSize) -> Translation {
        Translation {
            page,
            size,
            frame: Frame::new(512),
            rights: Rights::ALL,
            dirty: false,
            pat: 0,
        }
    }

    #[test]
    fn an_entry_serves_until_it_is_dropped() {
        let mut tlb = Tlb::default();
        tlb.insert(leaf(7, PageSize::Size4K));
        assert!(tlb.find(7).is_some());
        assert!(tlb.find(8).is_none());
        assert_eq!(tlb.drop_address(8), 0);
        assert_eq!(tlb.drop_address(7), 1);
        assert!(tlb.find(7).is_none());
    }

    #[test]
    fn an_invalidation_inside_a_huge_leaf_drops_it() {
        let mut tlb = Tlb::default();
        tlb.insert(leaf(512, PageSize::Size2M));
        assert_eq!(
            tlb.find(1023).map(|found| found.frame_of(1023)),
            Some(Frame::new(1023))
        );
        let one = Invalidation::Pages {
            first: Page::new(700),
            count: 1,
            stride: PageSize::Size4K,
        };
        assert_eq!(tlb.invalidate(&one), 1);
        assert!(tlb.find(512).is_none());
    }

    #[test]
    fn a_huge_stride_drops_small_leaves_inside_it() {
        let mut tlb = Tlb::default();
        tlb.insert(leaf(700, PageSize::Size4K));
        let one = Invalidation::Pages {
            first: Page::new(512),
            count: 1,
            stride: PageSize::Size2M,
        };
        assert_eq!(tlb.invalidate(&one), 1);
    }

    #[test]
    fn upper_levels_survive_all_but_the_invalidation_that_names_them() {
        let mut tlb = Tlb::default();
        let cached = CachedDirectory {
            table: Frame::new(3),
            rights: Rights::ALL,
        };
        tlb.insert_directory(Directory::of(2, 700), cached);
        tlb.insert_directory(Directory::of(3, 700), cached);
        tlb.invalidate(&Invalidation::All);
        assert_eq!(tlb.find_directory(701).map(|(level, _)| level), Some(2));
        assert_eq!(tlb.find_directory(1024).map(|(level, _)| level), Some(3));
        tlb.invalidate(&Invalidation::AllAndTables);
        assert!(tlb.find_directory(700).is_none());
    }
}
