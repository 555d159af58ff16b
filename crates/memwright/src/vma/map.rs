//! The sorted map of areas: a vector of chunks, each a short sorted vector.
//!
//! A lookup takes two binary searches. A change moves at most `CHUNK` areas. Memory for a change is reserved before
//! anything is changed, so that no operation fails half-way ([`AreaMap::reserve`]).

use alloc::vec::Vec;
use memwright_table::sync::pause_point;
use memwright_table::{OutOfMemory, Page, PageRange, TryPush};

use crate::vma::anon_vma::AnonVma;
use crate::vma::area::{Area, AreaFlags, Backed};

/// The most areas in a chunk.
pub(super) const CHUNK: usize = 32;

/// The number of empty chunks kept for later changes.
const SPARE: usize = 4;

/// A run of neighbouring areas.
#[derive(Debug)]
pub(super) struct Chunk<B> {
    /// Sorted, disjoint, never empty while the chunk is in the map; capacity [`CHUNK`].
    pub(super) areas: Vec<Area<B>>,
    /// An upper bound of the gaps before the areas of this chunk, in pages. It is raised immediately, and lowered when
    /// a search finds it too high.
    pub(super) room: u64,
}

/// The position of an area in the map, valid until the map changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    chunk: usize,
    slot: usize,
}

/// The areas of an address space, sorted and disjoint.
#[derive(Debug)]
pub(crate) struct AreaMap<B> {
    pub(super) chunks: Vec<Chunk<B>>,
    /// The position at which [`locate`](AreaMap::locate) last found an area. It is only a hint: `locate` checks it
    /// before use.
    recent: Position,
    spare: Vec<Vec<Area<B>>>,
    count: usize,
    splits: u64,
    merges: u64,
}

impl<B> Drop for AreaMap<B> {
    /// Drops the areas. There is a scheduling point after each chunk.
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..).skip(1) {
            drop(chunk);
            pause_point();
        }
    }
}

impl<B: Backed> AreaMap<B> {
    pub(crate) const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            recent: Position { chunk: 0, slot: 0 },
            spare: Vec::new(),
            count: 0,
            splits: 0,
            merges: 0,
        }
    }

    /// Returns the number of areas.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns whether an area was split or merged since the last call of [`take_counts`](Self::take_counts).
    #[inline]
    pub(crate) fn has_counts(&self) -> bool {
        self.splits | self.merges != 0
    }

    /// Returns the number of splits and the number of merges since the last call.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        let counts = (self.splits, self.merges);
        (self.splits, self.merges) = (0, 0);
        counts
    }

    /// Ensures that `more` insertions cannot fail. A split is one insertion.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        // Each of a few insertions can split a different full chunk. A caller that reserves more inserts in ascending
        // order, and a chunk that was split has room for at least `CHUNK / 2` more areas.
        self.reserve_chunks(more.min(SPARE) + more / (CHUNK / 2))
    }

    fn reserve_chunks(&mut self, chunks: usize) -> Result<(), OutOfMemory> {
        if self.spare.len() < chunks {
            self.spare
                .try_make_room(chunks.max(SPARE) - self.spare.len())?;
            while self.spare.len() < chunks {
                let mut areas = Vec::new();
                areas.try_make_room(CHUNK)?;
                self.spare.try_push(areas)?;
            }
        }
        self.chunks.try_make_room(chunks)
    }

    /// Ensures that `areas` insertions in ascending order cannot fail.
    pub(crate) fn reserve_in_order(&mut self, areas: usize) -> Result<(), OutOfMemory> {
        self.reserve_chunks(areas.div_ceil(CHUNK))
    }

    /// Returns the first area that ends after `page`: the one that contains it, or the next one above.
    #[inline]
    pub(crate) fn at_or_after(&self, page: Page) -> Option<Position> {
        let chunk = if self.chunks.len() == 1 {
            0
        } else {
            self.chunks.partition_point(|chunk| {
                chunk
                    .areas
                    .last()
                    .is_some_and(|last| last.range.end <= page)
            })
        };
        let areas = &self.chunks.get(chunk)?.areas;
        let slot = areas.partition_point(|area| area.range.end <= page);
        (slot < areas.len()).then_some(Position { chunk, slot })
    }

    /// Returns the area that contains `page`, and its position. Checks the last result first, because writers often
    /// change the same area repeatedly.
    #[inline(always)]
    pub(crate) fn locate(&mut self, page: Page) -> Option<(Position, &Area<B>)> {
        let Position { chunk, slot } = self.recent;
        if let Some(area) = self.chunks.get(chunk).and_then(|here| here.areas.get(slot)) {
            if area.range.contains(page) {
                return Some((self.recent, area));
            }
        }
        self.recent = self.at_or_after(page)?;
        let area = self.get(self.recent);
        (area.range.start <= page).then_some((self.recent, area))
    }

    /// Returns the area that contains `page`.
    #[inline]
    pub(crate) fn find(&self, page: Page) -> Option<&Area<B>> {
        let area = self.get(self.at_or_after(page)?);
        (area.range.start <= page).then_some(area)
    }

    #[inline(always)]
    pub(crate) fn get(&self, position: Position) -> &Area<B> {
        &self.chunks[position.chunk].areas[position.slot]
    }

    #[inline(always)]
    pub(crate) fn get_mut(&mut self, position: Position) -> &mut Area<B> {
        &mut self.chunks[position.chunk].areas[position.slot]
    }

    /// Returns the position of the area that follows the one at `position`, or `None` if that is the last area.
    #[inline]
    pub(crate) fn next(&self, position: Position) -> Option<Position> {
        let Position { chunk, slot } = position;
        if slot + 1 < self.chunks[chunk].areas.len() {
            Some(Position {
                chunk,
                slot: slot + 1,
            })
        } else if chunk + 1 < self.chunks.len() {
            Some(Position {
                chunk: chunk + 1,
                slot: 0,
            })
        } else {
            None
        }
    }

    /// Returns the position of the area before the one at `position`, or `None` if that is the first area.
    #[inline]
    pub(crate) fn previous(&self, position: Position) -> Option<Position> {
        let Position { chunk, slot } = position;
        if slot > 0 {
            Some(Position {
                chunk,
                slot: slot - 1,
            })
        } else if chunk > 0 {
            let slot = self.chunks[chunk - 1].areas.len() - 1;
            Some(Position {
                chunk: chunk - 1,
                slot,
            })
        } else {
            None
        }
    }

    /// Returns all areas in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Area<B>> {
        self.chunks.iter().flat_map(|chunk| chunk.areas.iter())
    }

    /// Calls `visitor` with every area. This does not merge areas: if `visitor` changes properties that merging depends
    /// on, compatible neighbours can stay separate.
    pub(crate) fn for_each_mut(&mut self, mut visitor: impl FnMut(&mut Area<B>)) {
        for chunk in &mut self.chunks {
            chunk.areas.iter_mut().for_each(&mut visitor);
        }
    }

    /// Returns the areas that have a page in `range`, in ascending order.
    pub(crate) fn overlapping(&self, range: PageRange) -> impl Iterator<Item = &Area<B>> {
        let mut next = self.at_or_after(range.start);
        core::iter::from_fn(move || {
            let area = self.get(next?);
            next = self.next(next?);
            (area.range.start < range.end).then_some(area)
        })
        .fuse()
    }

    /// Inserts an area into a free range, without merging, and returns its position.
    ///
    /// One insertion must have been reserved.
    pub(crate) fn insert(&mut self, area: Area<B>) -> Position {
        let position = match self.at_or_after(area.range.start) {
            Some(position) => {
                debug_assert!(area.range.end <= self.get(position).range.start);
                position
            }
            None => match self.chunks.len() {
                0 => {
                    self.add_chunk(0);
                    Position { chunk: 0, slot: 0 }
                }
                chunks => Position {
                    chunk: chunks - 1,
                    slot: self.chunks[chunks - 1].areas.len(),
                },
            },
        };
        self.insert_at(position, area)
    }

    /// Splits the area that contains both `page` and the page before it, if there is one. Returns whether an area was
    /// split.
    ///
    /// One insertion must have been reserved.
    pub(crate) fn split_at(&mut self, page: Page) -> bool {
        let Some(position) = self.at_or_after(page) else {
            return false;
        };
        if self.get(position).range.start >= page {
            return false;
        }
        self.split(position, page);
        true
    }

    /// Splits the area at `position` at a page inside it. Returns the position of the upper part.
    ///
    /// One insertion must have been reserved.
    pub(crate) fn split(&mut self, position: Position, page: Page) -> Position {
        let area = self.get_mut(position);
        let right = area.part(PageRange::new(page, area.range.end));
        area.range.end = page;
        self.splits += 1;
        let Position { chunk, slot } = position;
        self.insert_at(
            Position {
                chunk,
                slot: slot + 1,
            },
            right,
        )
    }

    /// Removes an area from the map. Returns it, and the position of the next one.
    pub(crate) fn remove(&mut self, position: Position) -> (Area<B>, Option<Position>) {
        let area = self.take(position);
        let Position { chunk, slot } = position;
        let here = self.chunks.get(chunk);
        let next = match here.map(|chunk| chunk.areas.len()) {
            Some(areas) if slot < areas => Some(position),
            Some(_) if chunk + 1 < self.chunks.len() => Some(Position {
                chunk: chunk + 1,
                slot: 0,
            }),
            Some(_) | None => None,
        };
        if let Some(next) = next {
            self.note_gap(next);
        }
        (area, next)
    }

    /// Removes an area from its chunk. Positions below it stay valid.
    fn take(&mut self, position: Position) -> Area<B> {
        let Position { chunk, slot } = position;
        let area = self.chunks[chunk].areas.remove(slot);
        self.count -= 1;
        if self.chunks[chunk].areas.is_empty() {
            self.drop_chunk(chunk);
        } else {
            self.join_chunks(chunk);
        }
        area
    }

    /// Merges the area at `position` with its neighbours where possible. Returns its new position.
    #[inline(always)]
    pub(crate) fn merge_around(&mut self, position: Position) -> Position {
        let areas = &self.chunks[position.chunk].areas;
        // In the common case both neighbours are in the same chunk, and neither can merge with the area at `position`.
        let apart = |one: &Area<B>, next: &Area<B>| {
            one.range.end != next.range.start || one.rights != next.rights
        };
        let from_before = areas.get(position.slot.wrapping_sub(1)..);
        if let Some([before, area, after]) = from_before.and_then(|areas| areas.first_chunk()) {
            if apart(before, area) && apart(area, after) {
                return position;
            }
        }
        self.merge_neighbours(position)
    }

    #[inline(never)]
    fn merge_neighbours(&mut self, position: Position) -> Position {
        let mut here = position;
        if let Some(previous) = self.previous(here) {
            if self.get(previous).may_merge(self.get(here)) {
                self.absorb_next(previous, here);
                here = previous;
            }
        }
        self.merge_with_next(here);
        here
    }

    /// Merges the area at `position` with the one after it, if possible.
    pub(crate) fn merge_with_next(&mut self, position: Position) {
        if let Some(next) = self.next(position) {
            if self.get(position).may_merge(self.get(next)) {
                self.absorb_next(position, next);
            }
        }
    }

    /// Returns the anon_vma of a neighbour that `area` can share when its first private page is created, or `None` if
    /// there is no such neighbour. `area` must be in the map. The neighbour must be one that a protection change could
    /// merge with `area`. The upper neighbour is checked first (Linux 7.2 `mm/vma.c`, `find_mergeable_anon_vma`).
    pub(crate) fn anon_vma_around(&self, area: &Area<B>) -> Option<AnonVma> {
        let here = self.at_or_after(area.range.start)?;
        let shared = |kin: bool, anon_vma: AnonVma| {
            (kin && anon_vma.exists() && anon_vma.takes_in()).then_some(anon_vma)
        };
        let next = self.next(here).map(|next| self.get(next));
        let previous = self.previous(here).map(|previous| self.get(previous));
        next.and_then(|next| shared(area.is_kin(next), next.anon_vma()))
            .or_else(|| previous.and_then(|one| shared(one.is_kin(area), one.anon_vma())))
    }

    /// Moves the start of the area at `position` down to `start`, over unmapped pages.
    pub(crate) fn grow_down(&mut self, position: Position, start: Page) {
        let area = self.get_mut(position);
        debug_assert!(start < area.range.start);
        area.offset = area
            .offset
            .wrapping_sub(area.range.start.number() - start.number());
        area.range.start = start;
    }

    /// Moves the end of the area at `position` up to `end`, over unmapped pages.
    pub(crate) fn grow_up(&mut self, position: Position, end: Page) {
        debug_assert!(end > self.get(position).range.end);
        self.get_mut(position).range.end = end;
    }

    /// Returns the size of the gap below the area at `position`, in pages.
    pub(super) fn gap_before(&self, position: Position) -> u64 {
        let floor = match self.previous(position) {
            Some(previous) => self.get(previous).range.end.number(),
            None => 0,
        };
        self.get(position).range.start.number() - floor
    }

    /// Merges the area at `position` with `next`, the one after it.
    fn absorb_next(&mut self, position: Position, next: Position) {
        // `right` need not go into the bin: the merged area keeps a reference to the same backing, so dropping `right`
        // runs no file system code.
        let right = self.take(next);
        let area = self.get_mut(position);
        area.range.end = right.range.end;
        area.flags |= right.flags & AreaFlags::STICKY;
        if !area.has_faulted() {
            area.anon_vma = right.anon_vma;
        }
        self.merges += 1;
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "no chunk grows beyond its capacity"
    )]
    fn insert_at(&mut self, position: Position, area: Area<B>) -> Position {
        let Position {
            mut chunk,
            mut slot,
        } = position;
        if slot == CHUNK {
            // The new area follows the last area of a full chunk: start a new chunk, so that insertions in ascending
            // order fill every chunk completely.
            self.add_chunk(chunk + 1);
            (chunk, slot) = (chunk + 1, 0);
        } else if self.chunks[chunk].areas.len() == CHUNK {
            self.add_chunk(chunk + 1);
            let (lower, upper) = self.chunks.split_at_mut(chunk + 1);
            let (lower, upper) = (&mut lower[chunk], &mut upper[0]);
            upper.areas.extend(lower.areas.drain(CHUNK / 2..));
            upper.room = lower.room;
            if slot > CHUNK / 2 {
                (chunk, slot) = (chunk + 1, slot - CHUNK / 2);
            }
        }
        self.chunks[chunk].areas.insert(slot, area);
        self.count += 1;
        let position = Position { chunk, slot };
        self.note_gap(position);
        position
    }

    #[expect(clippy::disallowed_methods, reason = "room was reserved")]
    fn add_chunk(&mut self, index: usize) {
        let areas = self.spare.pop().expect("an insertion was reserved");
        debug_assert!(self.chunks.len() < self.chunks.capacity());
        self.chunks.insert(index, Chunk { areas, room: 0 });
    }

    #[expect(clippy::disallowed_methods, reason = "only within the capacity")]
    fn drop_chunk(&mut self, index: usize) {
        let chunk = self.chunks.remove(index);
        debug_assert!(chunk.areas.is_empty());
        if self.spare.len() < self.spare.capacity() {
            self.spare.push(chunk.areas);
        }
    }

    /// Merges a chunk that became short with the next one, so that chunks stay about half full.
    #[expect(clippy::disallowed_methods, reason = "both fit into one chunk")]
    fn join_chunks(&mut self, index: usize) {
        let Some(next) = self.chunks.get(index + 1) else {
            return;
        };
        if self.chunks[index].areas.len() + next.areas.len() > CHUNK / 2 {
            return;
        }
        let (lower, upper) = self.chunks.split_at_mut(index + 1);
        let (lower, upper) = (&mut lower[index], &mut upper[0]);
        lower.areas.append(&mut upper.areas);
        lower.room = lower.room.max(upper.room);
        self.drop_chunk(index + 1);
    }

    /// Raises the chunk's upper bound of gaps to the gap below the area at `position`, which is new or has lost its
    /// lower neighbour.
    pub(super) fn note_gap(&mut self, position: Position) {
        let gap = self.gap_before(position);
        let chunk = &mut self.chunks[position.chunk];
        chunk.room = chunk.room.max(gap);
    }
}
