//! The locked ranges of one holder, sorted and stored in pieces of bounded size.
//!
//! A program can lock every second byte of a file, so that a holder has a large number of ranges. Pieces limit the size
//! of a memory block, and a change moves only the ranges in a few pieces.

use crate::fs::locks::record::Strength;
use alloc::vec::Vec;
use memwright_table::{OutOfMemory, TryPush};

/// A locked range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fs) struct Range {
    pub(in crate::fs) first: u64,
    pub(in crate::fs) last: u64,
    pub(in crate::fs) strength: Strength,
}

/// Maximum number of ranges in a piece.
const PIECE: usize = 256;

/// Maximum number of ranges that one change inserts: the locked range, and the two remainders of a range that is split.
const ADDED: usize = 3;

/// Sorted, non-overlapping ranges.
#[derive(Debug, Default)]
pub(in crate::fs) struct Ranges {
    /// The pieces in order, none of which is empty.
    pieces: Vec<Vec<Range>>,
    count: usize,
    /// Number of exclusive ranges.
    exclusive: usize,
}

/// The position of a range, as a piece and an index in it, or the position after the last range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    piece: usize,
    index: usize,
}

impl Ranges {
    pub(in crate::fs) const fn new() -> Self {
        Self {
            pieces: Vec::new(),
            count: 0,
            exclusive: 0,
        }
    }

    /// Returns the number of ranges.
    pub(in crate::fs) fn len(&self) -> usize {
        self.count
    }

    /// Returns whether one of the ranges is exclusive.
    pub(in crate::fs) fn has_exclusive(&self) -> bool {
        self.exclusive > 0
    }

    /// Returns the first and the last locked byte, or `None` if there is no range.
    pub(in crate::fs) fn span(&self) -> Option<(u64, u64)> {
        let first = self.pieces.first()?.first()?.first;
        Some((first, self.pieces.last()?.last()?.last))
    }

    /// Iterates over the ranges that overlap `first..=last`, in order.
    pub(in crate::fs) fn overlapping(&self, first: u64, last: u64) -> impl Iterator<Item = &Range> {
        self.from(self.position(|range| range.last < first))
            .take_while(move |range| range.first <= last)
    }

    /// Locks `first..=last` with `strength`, or unlocks it if `strength` is `None`. Bytes outside of `first..=last`
    /// keep their state.
    ///
    /// # Errors
    /// [`OutOfMemory`] if memory for new ranges is exhausted. The ranges are unchanged then.
    pub(in crate::fs) fn set(
        &mut self,
        first: u64,
        last: u64,
        strength: Option<Strength>,
    ) -> Result<(), OutOfMemory> {
        self.make_room(first)?;
        let mut from = self.position(|range| range.last < first);
        let mut to = self.position(|range| range.first <= last);
        let mut middle = strength.map(|strength| Range {
            first,
            last,
            strength,
        });
        let (mut left, mut right) = (None, None);
        if let Some(head) = self.get(from).filter(|head| head.first < first) {
            left = Some(Range {
                last: first - 1,
                ..head
            });
        }
        let joins = |left: &Range| middle.is_some_and(|middle| continues(left, &middle));
        if let Some((before, range)) = self.before(from).filter(|(_, range)| joins(range)) {
            from = before;
            left = Some(range);
        }
        if let Some((_, tail)) = self.before(to).filter(|(_, tail)| tail.last > last) {
            right = Some(Range {
                first: last + 1,
                ..tail
            });
        }
        let joins = |right: &Range| middle.is_some_and(|middle| continues(&middle, right));
        if let Some(range) = self.get(to).filter(joins) {
            to = self.next(to);
            right = Some(range);
        }
        if let Some(middle) = &mut middle {
            left = left.filter(|left| !join(middle, left));
            right = right.filter(|right| !join(middle, right));
        }
        self.remove(from, to);
        self.insert(from, [left, middle, right].into_iter().flatten());
        Ok(())
    }

    /// Returns the position of the first range for which `precedes` returns false. `precedes` returns true for all
    /// ranges before it.
    fn position(&self, precedes: impl Fn(&Range) -> bool) -> Position {
        let piece = self
            .pieces
            .partition_point(|piece| piece.last().is_some_and(&precedes));
        let index = self
            .pieces
            .get(piece)
            .map_or(0, |piece| piece.partition_point(&precedes));
        Position { piece, index }
    }

    fn get(&self, at: Position) -> Option<Range> {
        self.pieces.get(at.piece)?.get(at.index).copied()
    }

    /// Returns the range before the position `at`, and the position of that range, or `None` if there is none.
    fn before(&self, at: Position) -> Option<(Position, Range)> {
        let before = match at {
            Position { piece, index: 0 } => {
                let piece = piece.checked_sub(1)?;
                let index = self.pieces.get(piece)?.len().checked_sub(1)?;
                Position { piece, index }
            }
            Position { piece, index } => Position {
                piece,
                index: index - 1,
            },
        };
        Some((before, self.get(before)?))
    }

    /// Returns the position after `at`, which is the position of a range.
    fn next(&self, at: Position) -> Position {
        let index = at.index + 1;
        if self
            .pieces
            .get(at.piece)
            .is_some_and(|piece| index < piece.len())
        {
            return Position { index, ..at };
        }
        Position {
            piece: at.piece + 1,
            index: 0,
        }
    }

    fn from(&self, at: Position) -> impl Iterator<Item = &Range> {
        let (now, later) = match self.pieces.get(at.piece..) {
            Some([now, later @ ..]) => (&now[at.index..], later),
            Some([]) | None => (&[][..], &[][..]),
        };
        now.iter().chain(later.iter().flatten())
    }

    /// Reserves room for the ranges that a change inserts. `first` is the first byte that the change affects. The
    /// ranges are inserted into the piece with the first range that ends at or after `first`, or into the piece before
    /// it.
    fn make_room(&mut self, first: u64) -> Result<(), OutOfMemory> {
        if self.pieces.is_empty() {
            let mut piece = Vec::new();
            piece.try_make_room(ADDED)?;
            return self.pieces.try_push(piece);
        }
        let at = self.position(|range| range.last < first).piece;
        let last = self.pieces.len() - 1;
        for piece in [at.min(last), at.saturating_sub(1)] {
            self.make_room_in(piece)?;
        }
        Ok(())
    }

    /// Reserves room for [`ADDED`] ranges in a piece. If the piece would become too large, moves its upper half to a
    /// new piece.
    fn make_room_in(&mut self, index: usize) -> Result<(), OutOfMemory> {
        let piece = &mut self.pieces[index];
        if piece.len() + ADDED <= PIECE {
            return piece.try_make_room(ADDED);
        }
        let kept = piece.len() / 2;
        let mut upper = Vec::new();
        let room = piece.len() - kept + ADDED;
        upper.try_make_room(room)?;
        self.pieces.try_make_room(1)?;
        #[expect(clippy::disallowed_methods, reason = "there is room")]
        upper.extend(self.pieces[index].drain(kept..));
        self.pieces.try_insert(index + 1, upper)
    }

    /// Removes the ranges from `from` up to `to`. Removes the pieces that become empty, except the piece of `from`.
    fn remove(&mut self, from: Position, to: Position) {
        if from.piece == to.piece {
            if let Some(piece) = self.pieces.get_mut(from.piece) {
                let removed = piece.drain(from.index..to.index);
                self.exclusive -= exclusive_among(removed.as_slice());
                self.count -= removed.len();
            }
            return;
        }
        if let Some(piece) = self.pieces.get_mut(to.piece) {
            let removed = piece.drain(..to.index);
            self.exclusive -= exclusive_among(removed.as_slice());
            self.count -= removed.len();
        }
        if let Some(piece) = self.pieces.get_mut(from.piece) {
            let removed = piece.drain(from.index..);
            self.exclusive -= exclusive_among(removed.as_slice());
            self.count -= removed.len();
        }
        for piece in self.pieces.drain(from.piece + 1..to.piece) {
            self.exclusive -= exclusive_among(&piece);
            self.count -= piece.len();
        }
    }

    /// Inserts ranges at `at`. The piece has room for them. If the piece is empty and there are no ranges, removes the
    /// piece.
    fn insert(&mut self, at: Position, ranges: impl Iterator<Item = Range>) {
        // If `at` is the position after the last range, insert at the end of the last piece.
        let at = match self.pieces.get(at.piece) {
            Some(_) => at,
            None => {
                let piece = self.pieces.len() - 1;
                let index = self.pieces[piece].len();
                Position { piece, index }
            }
        };
        let piece = &mut self.pieces[at.piece];
        for (offset, range) in ranges.enumerate() {
            #[expect(clippy::disallowed_methods, reason = "`make_room` was called")]
            piece.insert(at.index + offset, range);
            self.count += 1;
            self.exclusive += usize::from(range.strength == Strength::Exclusive);
        }
        if piece.is_empty() {
            self.pieces.remove(at.piece);
        }
    }
}

/// Returns how many of the ranges are exclusive.
fn exclusive_among(ranges: &[Range]) -> usize {
    let is_exclusive = |range: &&Range| range.strength == Strength::Exclusive;
    ranges.iter().filter(is_exclusive).count()
}

/// Returns whether `behind` starts right after `before` and has the same strength.
fn continues(before: &Range, behind: &Range) -> bool {
    before.strength == behind.strength && before.last.checked_add(1) == Some(behind.first)
}

/// Merges `neighbour` into `middle` if it has the same strength. Returns whether it was merged.
fn join(middle: &mut Range, neighbour: &Range) -> bool {
    let same = middle.strength == neighbour.strength;
    if same {
        middle.first = middle.first.min(neighbour.first);
        middle.last = middle.last.max(neighbour.last);
    }
    same
}

#[cfg(test)]
mod tests {
    use super::{PIECE, Range, Ranges};
    use crate::fs::locks::record::Strength::{self, Exclusive, Shared};
    use alloc::{vec, vec::Vec};

    /// A model for comparison: the strength of the lock on each byte of a short file.
    type Bytes = Vec<Option<Strength>>;

    fn listed(ranges: &Ranges) -> Vec<Range> {
        let listed: Vec<Range> = ranges.overlapping(0, u64::MAX).copied().collect();
        assert_eq!(ranges.len(), listed.len());
        assert_eq!(ranges.exclusive, super::exclusive_among(&listed));
        let span = listed.first().zip(listed.last());
        assert_eq!(
            ranges.span(),
            span.map(|(first, last)| (first.first, last.last))
        );
        listed
    }

    /// Returns the ranges that lock these bytes.
    fn expected(bytes: &Bytes) -> Vec<Range> {
        let mut ranges: Vec<Range> = Vec::new();
        for (at, strength) in bytes.iter().enumerate() {
            let Some(strength) = *strength else { continue };
            let at = at as u64;
            match ranges.last_mut() {
                Some(range) if range.strength == strength && range.last + 1 == at => {
                    range.last = at;
                }
                Some(_) | None => ranges.push(Range {
                    first: at,
                    last: at,
                    strength,
                }),
            }
        }
        ranges
    }

    #[test]
    fn many_changes_leave_what_bytes_alone_would_say() {
        let bytes = 4 * PIECE as u64;
        let mut model: Bytes = vec![None; bytes as usize];
        let mut ranges = Ranges::new();
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..20_000 {
            let longest = if step % 500 == 499 { bytes } else { 3 };
            let first = random(bytes);
            let last = (first + random(longest)).min(bytes - 1);
            let strength = [Some(Exclusive), Some(Shared), None][random(3) as usize];
            ranges.set(first, last, strength).unwrap();
            model[first as usize..=last as usize].fill(strength);
            if step % 50 == 0 {
                assert_eq!(listed(&ranges), expected(&model), "after step {step}");
            }
            assert!(
                ranges
                    .pieces
                    .iter()
                    .all(|piece| !piece.is_empty() && piece.len() <= PIECE)
            );
        }
    }

    #[test]
    fn every_second_byte_is_held_in_small_pieces() {
        let mut ranges = Ranges::new();
        let count = 100_000;
        for index in 0..count {
            // Lock bytes alternately from both ends, so that pieces are split on either side.
            let byte = if index % 2 == 0 {
                index
            } else {
                2 * count - index
            };
            ranges.set(2 * byte, 2 * byte, Some(Exclusive)).unwrap();
        }
        assert_eq!(listed(&ranges).len() as u64, count);
        assert!(
            ranges
                .pieces
                .iter()
                .all(|piece| piece.capacity() <= 2 * PIECE)
        );
        ranges.set(0, u64::MAX, None).unwrap();
        assert_eq!(ranges.span(), None);
    }

    #[test]
    fn the_last_byte_of_all_has_no_neighbour() {
        let mut ranges = Ranges::new();
        ranges.set(u64::MAX, u64::MAX, Some(Shared)).unwrap();
        ranges.set(0, 0, Some(Shared)).unwrap();
        assert_eq!(listed(&ranges).len(), 2);
        ranges.set(1, u64::MAX - 1, Some(Shared)).unwrap();
        assert_eq!(listed(&ranges).len(), 1);
    }
}
