//! Records of where `mremap` has moved private pages.
//!
//! After a fork, parent and child map a private page at the same address, until one of them moves it. The reverse
//! mapping checks that address first. The records of this module give the other addresses to check: for each range of
//! offsets that was moved, the displacement of its pages at their first address and at the present one. A child
//! inherits the records.

use alloc::vec::Vec;
use core::ops::Range;
use memwright_table::{OutOfMemory, TryPush};

use crate::types::interval_tree::{IntervalKey, IntervalTree};

/// The maximum number of overlapping entries that are compared with a new entry. The new entry is not added if it
/// equals one of them.
const COMPARED: usize = 8;

/// The length up to which the list may grow regardless of the number of areas.
const FEW: usize = 64;

/// The number of a page minus its offset, modulo 2^64.
pub(crate) type Displacement = u64;

/// The displacements of a range of offsets that was moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Move {
    /// The present displacement of the pages.
    pub(crate) to: Displacement,
    /// The displacement of the pages when they were first mapped.
    pub(crate) home: Displacement,
}

/// The moves of an address space, by the offsets that were moved.
///
/// An entry may be stale, because the areas for which it was added have been unmapped. For a stale entry, the reverse
/// mapping checks an address in vain. Stale entries are removed when the list has become twice as long as the number of
/// areas.
#[derive(Debug)]
pub(crate) struct MovedAreas(
    /// The moves: no element before the first move, afterwards one. Most address spaces move nothing.
    Vec<Moves>,
);

#[derive(Debug)]
struct Moves {
    /// The moves, by offset. The owner of an interval is 0 for offsets of anonymous memory, otherwise the number of the
    /// object.
    moves: IntervalTree<Move>,
    /// The length of the list at which stale entries are removed.
    most: usize,
}

impl MovedAreas {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// Returns whether nothing was moved.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Records that the pages with the offsets `span` move from one displacement to another. `areas` is the number of
    /// areas. `exists` returns whether an area of an owner has one of the given offsets at the given displacement.
    pub(crate) fn record(
        &mut self,
        owner: u64,
        span: Range<u64>,
        (from, to): (Displacement, Displacement),
        areas: usize,
        exists: impl Fn(u64, Range<u64>, Displacement) -> bool,
    ) -> Result<(), OutOfMemory> {
        let home = self.home(owner, span.start, from);
        if self.0.is_empty() {
            self.0.try_push(Moves {
                moves: IntervalTree::new(),
                most: FEW,
            })?;
        }
        let Some(Moves { moves, most }) = self.0.first_mut() else {
            return Err(OutOfMemory);
        };
        let mut key = IntervalKey::before(owner);
        for _ in 0..COMPARED {
            let Some(next) = moves.next_of_owner(key, &span) else {
                break;
            };
            key = moves.key(next);
            let is_same = moves.value(next) == Some(&Move { to, home });
            if is_same && moves.span(next).start <= span.start {
                moves.extend(next, span.end);
                return Ok(());
            }
        }
        if moves.len() >= *most {
            moves.retain(|owner, span, moved| exists(owner, span, moved.to));
            *most = FEW + 2 * areas.max(moves.len());
        }
        moves.try_insert(owner, span, Move { to, home })?;
        Ok(())
    }

    /// Returns the displacement at which the page with this offset was first mapped. `now` is its present displacement.
    pub(crate) fn home(&self, owner: u64, offset: u64, now: Displacement) -> Displacement {
        let mut moves = self.of(owner, offset);
        let found = moves.find(|moved| moved.to == now);
        found.map_or(now, |moved| moved.home)
    }

    /// Returns the moves of the page with this offset.
    pub(crate) fn of(&self, owner: u64, offset: u64) -> impl Iterator<Item = Move> {
        let span = offset..offset.saturating_add(1);
        let mut key = IntervalKey::before(owner);
        core::iter::from_fn(move || {
            let Moves { moves, .. } = self.0.first()?;
            let next = moves.next_of_owner(key, &span)?;
            key = moves.key(next);
            moves.value(next).copied()
        })
        .fuse()
    }

    /// Returns a copy of the records, for a forked child.
    pub(crate) fn try_clone(&self) -> Result<Self, OutOfMemory> {
        let mut copy = Vec::new();
        for Moves { moves, most } in &self.0 {
            let moves = moves.try_clone()?;
            copy.try_push(Moves { moves, most: *most })?;
        }
        Ok(Self(copy))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destinations(moved: &MovedAreas, owner: u64, offset: u64) -> std::vec::Vec<u64> {
        moved.of(owner, offset).map(|one| one.to).collect()
    }

    #[test]
    fn a_page_that_moved_several_times_has_one_home() {
        let mut moved = MovedAreas::new();
        let kept = |_, _, _| true;
        moved.record(0, 10..20, (0, 100), 1, kept).unwrap();
        moved.record(0, 10..15, (100, 300), 1, kept).unwrap();
        moved.record(7, 10..20, (5, 6), 1, kept).unwrap();
        assert_eq!(moved.home(0, 12, 300), 0);
        assert_eq!(moved.home(0, 17, 100), 0);
        assert_eq!(moved.home(0, 17, 300), 300, "nothing moved there");
        assert_eq!(moved.home(7, 17, 6), 5);
        assert_eq!(destinations(&moved, 0, 12), [100, 300]);
        assert_eq!(destinations(&moved, 0, 19), [100]);
        assert_eq!(destinations(&moved, 0, 20), []);
    }

    #[test]
    fn a_page_that_moves_to_and_fro_leaves_few_entries() {
        let mut moved = MovedAreas::new();
        let rounds = if cfg!(miri) { 200 } else { 1000 };
        for _ in 0..rounds {
            moved
                .record(0, 10..20, (0, 100), 2, |_, _, _| true)
                .unwrap();
            moved
                .record(0, 10..20, (100, 0), 2, |_, _, _| true)
                .unwrap();
        }
        assert_eq!(destinations(&moved, 0, 10), [100, 0]);
    }

    #[test]
    fn entries_without_an_area_go() {
        let mut moved = MovedAreas::new();
        let rounds = if cfg!(miri) { 150 } else { 10_000 };
        for round in 0..rounds {
            let (from, to) = (round * 100, (round + 1) * 100);
            let is_last = |_, _, at| at == from;
            moved.record(0, 10..20, (from, to), 1, is_last).unwrap();
            assert_eq!(moved.home(0, 10, to), 0);
        }
        assert!(moved.0[0].moves.len() <= 2 * FEW);
    }
}
