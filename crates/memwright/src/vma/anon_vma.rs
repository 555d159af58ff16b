//! The anon_vma of an area. Like rights, flags and backing, it decides whether two areas may merge (Linux 7.3
//! `mm/rmap.c`, `struct anon_vma`, and `mm/vma.c`, `is_mergeable_anon_vma`).
//!
//! On Linux, the reverse mapping finds the private pages of an area through a `struct anon_vma`, which the parts of a
//! split area share. An area of a forked child is also linked to the structures of all ancestors of the child. Areas
//! with different structures do not merge. An area of a forked child does not merge with an untouched neighbour either,
//! which limits how many areas are linked to the structure of an ancestor. Memwright finds private pages through the
//! relations between address spaces (`mm/spaces.rs`) and has no such structures. It has only their numbers, because
//! programs can read from /proc/PID/maps which areas have merged.

use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::Page;
use memwright_table::sync::Threads;
use memwright_table::sync::stat;
use memwright_table::sync::stat::Line;

/// The number of an anon_vma: 0 before the first private page of the area is created, otherwise unique in the address
/// space. The value also contains the distance by which `mremap` has moved the area since it got the anon_vma. Two
/// areas, including areas of files, merge only if their distances are equal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct AnonVma(u64);

impl AnonVma {
    /// The value before the first private page is created.
    pub(crate) const NONE: Self = Self(0);

    /// The flag of an anon_vma of an area that fork created: an area without an anon_vma cannot share it.
    const FORKED: u64 = 1;
    /// The bits that contain the number, above [`FORKED`](Self::FORKED).
    const NUMBER: u64 = (1 << 40) - 1;
    /// The modulus of the distance, a prime. The distance is stored in the bits above the number. Areas that were moved
    /// by different distances merge by mistake only if the distances differ by a multiple of the prime.
    const DISTANCES: u64 = 8_388_593;
    const DISTANCE_SHIFT: u32 = 41;

    /// Returns a new anon_vma. `number` must not be 0, and must be unique in the address space.
    pub(crate) fn founded(number: u64) -> Self {
        debug_assert!(number > 0);
        Self((number & Self::NUMBER) << 1)
    }

    /// Returns a new anon_vma for an area of a forked child. The caller has checked that the parent's area has an
    /// anon_vma. `number` must not be 0, and must be unique in the address space.
    pub(crate) fn forked(number: u64) -> Self {
        Self(Self::founded(number).0 | Self::FORKED)
    }

    /// Returns the anon_vma of an area that moves from `old` to `new`.
    pub(crate) fn moved(self, old: Page, new: Page) -> Self {
        if !self.exists() {
            return self;
        }
        let most = Self::DISTANCES;
        let distance = self.distance() + old.number() % most + most - new.number() % most;
        self.at_distance(distance % most)
    }

    /// Returns this anon_vma with the `mremap` distance of `other`.
    pub(crate) fn moved_like(self, other: Self) -> Self {
        self.at_distance(other.distance())
    }

    /// Returns the distance by which `mremap` has moved the area since it got its anon_vma, modulo `DISTANCES`.
    pub(crate) fn distance(self) -> u64 {
        self.0 >> Self::DISTANCE_SHIFT
    }

    fn at_distance(self, distance: u64) -> Self {
        let here = self.0 & ((1 << Self::DISTANCE_SHIFT) - 1);
        Self(here | distance << Self::DISTANCE_SHIFT)
    }

    pub(crate) fn exists(self) -> bool {
        self != Self::NONE
    }

    /// Returns whether an area without an anon_vma can share `self`.
    pub(crate) fn takes_in(self) -> bool {
        self.0 & Self::FORKED == 0
    }

    /// Returns whether areas with the anon_vmas `self` and `other` can merge.
    pub(crate) fn may_join(self, other: Self) -> bool {
        match (self.exists(), other.exists()) {
            (false, false) => true,
            (true, false) => self.takes_in(),
            (false, true) => other.takes_in(),
            (true, true) => self == other,
        }
    }
}

/// The anon_vma of an area, which faults on several CPUs can set at the same time.
#[derive(Debug)]
pub(crate) struct AnonVmaCell(AtomicU64);

impl AnonVmaCell {
    pub(crate) const fn new(anon_vma: AnonVma) -> Self {
        Self(AtomicU64::new(anon_vma.0))
    }

    #[inline]
    pub(crate) fn get(&self) -> AnonVma {
        AnonVma(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&mut self, anon_vma: AnonVma) {
        *self.0.get_mut() = anon_vma.0;
    }

    /// Sets the anon_vma of the area, unless another CPU has already set one.
    pub(crate) fn found<H: Threads>(&self, anon_vma: AnonVma) {
        let none = AnonVma::NONE.0;
        let (now, later) = (Ordering::Relaxed, Ordering::Relaxed);
        // If another CPU has set a value first, this CPU uses the other CPU's value.
        let _ = self.0.compare_exchange(none, anon_vma.0, now, later);
        stat::line::<H>(Line::Space, &self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memwright_table::OneCpu;

    #[test]
    fn an_area_that_returns_is_where_it_was() {
        let (here, there) = (Page::new(0x7_fff0_0000), Page::new(0x10));
        let own = AnonVma::founded(5);
        let away = own.moved(here, there);
        assert!(away != own && !away.may_join(own));
        assert_eq!(away.moved(there, here), own);
        assert_eq!(own.moved(here, here), own);
        assert_eq!(AnonVma::NONE.moved(here, there), AnonVma::NONE);
        let child = AnonVma::forked(6).moved_like(away);
        assert_eq!(child.distance(), away.distance());
        assert_eq!(child.moved(there, here), AnonVma::forked(6));
        // This distance is no multiple of the prime, so the anon_vmas differ.
        assert_ne!(own.moved(Page::new(0), Page::new(1 << 28)), own);
    }

    #[test]
    fn lineages_join_as_on_linux() {
        let (none, own) = (AnonVma::NONE, AnonVma::founded);
        let child = AnonVma::forked;
        #[rustfmt::skip]
        let rows = [
            ("both untouched",               none,     none,     true),
            ("a touched one and a new one",  own(1),   none,     true),
            ("parts of one",                 own(1),   own(1),   true),
            ("two of their own",             own(1),   own(2),   false),
            ("a child's and a new one",      child(1), none,     false),
            ("parts of a child's",           child(1), child(1), true),
            ("two of a child",               child(1), child(2), false),
            ("a child's and its own",        child(1), own(2),   false),
        ];
        for (name, left, right, joins) in rows {
            assert_eq!(left.may_join(right), joins, "{name}");
            assert_eq!(right.may_join(left), joins, "{name}, turned around");
        }
    }

    #[test]
    fn the_first_to_found_a_lineage_wins() {
        let cell = AnonVmaCell::new(AnonVma::NONE);
        cell.found::<OneCpu>(AnonVma::founded(3));
        cell.found::<OneCpu>(AnonVma::founded(4));
        assert_eq!(cell.get(), AnonVma::founded(3));
    }
}
