//! The sorted map of areas. Short sorted vectors, called chunks, hold the areas, and a tree holds the order of the
//! chunks.
//!
//! A lookup does a binary search in the tree of chunks and one in a chunk. A change moves at most `CHUNK` areas.
//! Memory for a change is reserved before anything is changed, so that no operation fails half-way
//! ([`AreaMap::reserve`]).

use alloc::vec::Vec;
use memwright_table::sync::pause_point;
use memwright_table::{OutOfMemory, Page, PageRange, TryPush};

use crate::vma::anon_vma::AnonVma;
use crate::vma::area::{Area, AreaFlags, Backed};
use crate::vma::order::{ChunkId, Order, SPARE};
use crate::vma::room::Full;

/// The maximum number of areas in a chunk.
pub(super) const CHUNK: usize = 32;

/// A run of neighbouring areas.
#[derive(Debug, Default)]
struct Chunk<B> {
    /// The areas, sorted and disjoint. The vector is not empty while the chunk is in the map, and has the capacity
    /// [`CHUNK`].
    areas: Vec<Area<B>>,
    /// An upper bound of the gaps below the areas, in pages. A larger gap raises the bound immediately. A search that
    /// finds the bound too high lowers it.
    room: u64,
}

impl<B> Chunk<B> {
    const fn of(areas: Vec<Area<B>>) -> Self {
        Self { areas, room: 0 }
    }

    /// Returns whether `page` is between the start of the first area and the end of the last one.
    #[inline]
    fn contains(&self, page: Page) -> bool {
        let (first, last) = (self.areas.first(), self.areas.last());
        first.is_some_and(|first| first.range.start <= page)
            && last.is_some_and(|last| page < last.range.end)
    }
}

/// The position of an area in the map, valid until the map changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(super) chunk: ChunkId,
    pub(super) slot: usize,
}

/// The areas of an address space, sorted and disjoint.
#[derive(Debug)]
pub(crate) struct AreaMap<B: Backed> {
    /// The chunks by number.
    chunks: Vec<Chunk<B>>,
    /// The order of the chunks that are in the map.
    pub(super) order: Order,
    /// The numbers of empty chunks that keep their memory, for [`CHUNK`] areas, for later changes.
    spare: Vec<ChunkId>,
    /// The numbers of chunks without memory.
    vacant: Vec<ChunkId>,
    /// The number of chunks that can be inserted without an allocation.
    reserved: usize,
    /// The position of the area that [`locate`](AreaMap::locate) found last or that was inserted last. It is a hint,
    /// which is checked before use.
    recent: Position,
    /// The result of the last search for a free range from the top.
    pub(super) full: Full,
    count: usize,
    splits: u64,
    merges: u64,
}

impl<B: Backed> Drop for AreaMap<B> {
    /// Drops the areas. There is a scheduling point after each chunk.
    fn drop(&mut self) {
        for chunk in self.chunks.drain(..).skip(1) {
            drop(chunk);
            pause_point::<B::Threads>();
        }
    }
}

impl<B: Backed> AreaMap<B> {
    /// The map without areas.
    pub(crate) const EMPTY: Self = Self {
        chunks: Vec::new(),
        order: Order::EMPTY,
        spare: Vec::new(),
        vacant: Vec::new(),
        reserved: 0,
        recent: Position { chunk: 0, slot: 0 },
        full: Full::UNKNOWN,
        count: 0,
        splits: 0,
        merges: 0,
    };

    /// Returns the number of areas.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// Returns whether an area was split or merged since the last call of [`take_counts`](Self::take_counts).
    #[inline]
    pub(crate) fn has_counts(&self) -> bool {
        self.splits | self.merges != 0
    }

    /// Returns the number of splits and the number of merges since the last call of this method.
    pub(crate) fn take_counts(&mut self) -> (u64, u64) {
        let counts = (self.splits, self.merges);
        (self.splits, self.merges) = (0, 0);
        counts
    }

    /// Ensures that `more` insertions cannot fail. A split counts as one insertion.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        // A few insertions can each split a different full chunk. A caller that reserves more insertions makes them in
        // ascending order, and a chunk that was split has room for at least `CHUNK / 2` more areas.
        self.reserve_chunks(more.min(SPARE) + more / (CHUNK / 2))
    }

    fn reserve_chunks(&mut self, chunks: usize) -> Result<(), OutOfMemory> {
        if self.reserved >= chunks {
            return Ok(());
        }
        while self.spare.len() < chunks {
            let mut areas = Vec::new();
            areas.try_make_room(CHUNK)?;
            let number = match self.vacant.pop() {
                Some(number) => number,
                None => {
                    // Reserve space for every chunk in the lists of spare and vacant chunks.
                    let all = self.chunks.len() + 1;
                    self.spare.try_make_room(all - self.spare.len())?;
                    self.vacant.try_make_room(all - self.vacant.len())?;
                    self.chunks.try_push(Chunk::of(Vec::new()))?;
                    all as ChunkId - 1
                }
            };
            self.chunks[number as usize] = Chunk::of(areas);
            self.spare.try_push(number)?;
        }
        // The first chunk needs no node of the tree.
        let is_first = self.count == 0 && chunks == 1;
        if !is_first {
            self.order.reserve(chunks, self.chunks.len())?;
        }
        self.reserved = chunks;
        Ok(())
    }

    /// Ensures that `areas` insertions in ascending order cannot fail.
    pub(crate) fn reserve_in_order(&mut self, areas: usize) -> Result<(), OutOfMemory> {
        self.reserve_chunks(areas.div_ceil(CHUNK))
    }

    /// Returns the first area that ends after `page`: the area that contains `page`, or the next area above.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn at_or_after(&self, page: Page) -> Option<Position> {
        if self.order.height > 0 {
            return self.search(page);
        }
        let chunk = self.order.root;
        let areas = &self.chunks.get(chunk as usize)?.areas;
        let slot = areas.partition_point(|area| area.range.end <= page);
        (slot < areas.len()).then_some(Position { chunk, slot })
    }

    /// Implements [`at_or_after`](Self::at_or_after) for a map of several chunks.
    #[inline(never)]
    fn search(&self, page: Page) -> Option<Position> {
        let recent = self.chunks.get(self.recent.chunk as usize);
        let chunk = if recent.is_some_and(|recent| recent.contains(page)) {
            self.recent.chunk
        } else {
            self.order.find(page)
        };
        let areas = &self.chunks.get(chunk as usize)?.areas;
        let slot = areas.partition_point(|area| area.range.end <= page);
        if slot < areas.len() {
            return Some(Position { chunk, slot });
        }
        self.start_of(self.chunk_after(chunk))
    }

    /// Returns the chunk after `chunk`.
    #[inline]
    pub(super) fn chunk_after(&self, chunk: ChunkId) -> Option<ChunkId> {
        let many = self.order.height > 0;
        if many { self.order.next(chunk) } else { None }
    }

    /// Returns the last chunk.
    #[inline]
    fn last_chunk(&self) -> Option<ChunkId> {
        match (self.count, self.order.height) {
            (0, _) => None,
            (_, 0) => Some(self.order.root),
            (_, _) => self.order.last(),
        }
    }

    /// Returns the chunk before `chunk`.
    #[inline]
    pub(super) fn chunk_before(&self, chunk: ChunkId) -> Option<ChunkId> {
        let many = self.order.height > 0;
        many.then(|| self.order.previous(chunk)).flatten()
    }

    /// Returns the position of the first area of a chunk.
    #[inline]
    fn start_of(&self, chunk: Option<ChunkId>) -> Option<Position> {
        let chunk = chunk?;
        Some(Position { chunk, slot: 0 })
    }

    /// Returns the position of the last area of a chunk.
    #[inline]
    pub(super) fn end_of(&self, chunk: Option<ChunkId>) -> Option<Position> {
        let chunk = chunk?;
        let slot = self.areas(chunk).len().checked_sub(1)?;
        Some(Position { chunk, slot })
    }

    /// Returns the areas of a chunk.
    #[inline]
    pub(super) fn areas(&self, chunk: ChunkId) -> &[Area<B>] {
        &self.chunks[chunk as usize].areas
    }

    /// Returns the upper bound of the gaps below the areas of a chunk, in pages.
    #[inline]
    pub(super) fn room(&self, chunk: ChunkId) -> u64 {
        self.chunks[chunk as usize].room
    }

    /// Lowers the upper bound of the gaps of a chunk to the chunk's largest actual gap.
    pub(super) fn tighten(&mut self, chunk: ChunkId) {
        let first = self.gap_before(Position { chunk, slot: 0 });
        let here = &mut self.chunks[chunk as usize];
        let gaps = here.areas.windows(2).map(|pair| match pair {
            [below, above] => above.range.start.number() - below.range.end.number(),
            _ => 0,
        });
        here.room = gaps.fold(first, u64::max);
        let room = here.room;
        self.order.lower(chunk, room);
    }

    /// Lowers the upper bound of the gaps of a chunk, after a gap shrank from `before` pages to at most `after` pages.
    /// Recomputes the bound from all gaps if it could otherwise be more than twice the largest gap, because a later
    /// search might then have to recompute the bounds of many chunks.
    #[inline]
    fn note_smaller_gap(&mut self, chunk: ChunkId, before: u64, after: u64) {
        if before >= self.room(chunk) && after < before / 2 {
            self.tighten(chunk);
        }
    }

    /// Returns the area that contains `page`, and its position. Checks first the area that was last found or inserted,
    /// because consecutive changes often concern the same area.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn locate(&mut self, page: Page) -> Option<(Position, &Area<B>)> {
        let Position { chunk, slot } = self.recent;
        if let Some(area) = self
            .chunks
            .get(chunk as usize)
            .and_then(|here| here.areas.get(slot))
        {
            if area.range.contains(page) {
                return Some((self.recent, area));
            }
        }
        self.recent = self.at_or_after(page)?;
        let area = self.get(self.recent);
        (area.range.start <= page).then_some((self.recent, area))
    }

    /// Returns the area that contains `page`.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn find(&self, page: Page) -> Option<&Area<B>> {
        let area = self.get(self.at_or_after(page)?);
        (area.range.start <= page).then_some(area)
    }

    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn get(&self, position: Position) -> &Area<B> {
        &self.chunks[position.chunk as usize].areas[position.slot]
    }

    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn get_mut(&mut self, position: Position) -> &mut Area<B> {
        &mut self.chunks[position.chunk as usize].areas[position.slot]
    }

    /// Returns the position of the area after the one at `position`, or `None` if `position` is that of the last area.
    #[inline]
    pub(crate) fn next(&self, position: Position) -> Option<Position> {
        let Position { chunk, slot } = position;
        if slot + 1 < self.areas(chunk).len() {
            return Some(Position {
                chunk,
                slot: slot + 1,
            });
        }
        self.start_of(self.chunk_after(chunk))
    }

    /// Returns the position of the area before the one at `position`, or `None` if `position` is that of the first
    /// area.
    #[inline]
    pub(crate) fn previous(&self, position: Position) -> Option<Position> {
        let Position { chunk, slot } = position;
        match slot.checked_sub(1) {
            Some(slot) => Some(Position { chunk, slot }),
            None => self.end_of(self.chunk_before(chunk)),
        }
    }

    /// Returns all areas in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Area<B>> {
        let next = |chunk: &ChunkId| self.chunk_after(*chunk);
        let chunks = core::iter::successors(self.order.first(), next);
        chunks.flat_map(|chunk| self.areas(chunk))
    }

    /// Calls `visitor` with every area. Does not merge areas: if `visitor` changes properties on which merging depends,
    /// compatible neighbours can stay separate.
    pub(crate) fn for_each_mut(&mut self, mut visitor: impl FnMut(&mut Area<B>)) {
        let mut next = self.order.first();
        while let Some(chunk) = next {
            let areas = &mut self.chunks[chunk as usize].areas;
            areas.iter_mut().for_each(&mut visitor);
            next = self.chunk_after(chunk);
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
            None => match self.last_chunk() {
                None => {
                    let chunk = self.take_spare();
                    self.order.root = chunk;
                    Position { chunk, slot: 0 }
                }
                Some(chunk) => Position {
                    chunk,
                    slot: self.areas(chunk).len(),
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

    /// Splits the area at `position`, which spans `whole`, so that `part` becomes a separate area. Returns the position
    /// of the separate area. On error the map has not changed.
    pub(crate) fn cut(
        &mut self,
        mut position: Position,
        whole: PageRange,
        part: PageRange,
    ) -> Result<Position, OutOfMemory> {
        let (below, above) = (part.start > whole.start, part.end < whole.end);
        self.reserve(usize::from(below) + usize::from(above))?;
        if below {
            position = self.split(position, part.start);
        }
        if above {
            let rest = self.split(position, part.end);
            let found = self.previous(rest);
            position = found.expect("the part lies below its rest");
        }
        Ok(position)
    }

    /// Splits the area at `position` at a page inside it. Returns the position of the upper part.
    ///
    /// One insertion must have been reserved.
    fn split(&mut self, position: Position, page: Page) -> Position {
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

    /// Removes an area from the map. Returns the area, and the position of the next area.
    pub(crate) fn remove(&mut self, position: Position) -> (Area<B>, Option<Position>) {
        let Position { chunk, slot } = position;
        let after = self.chunk_after(chunk);
        let area = self.take(position);
        let next = if slot < self.areas(chunk).len() {
            Some(position)
        } else {
            self.start_of(after)
        };
        match next {
            Some(next) => {
                self.note_gap(next);
            }
            None => self.full = Full::UNKNOWN,
        }
        (area, next)
    }

    /// Removes an area from its chunk. Positions below the area stay valid.
    fn take(&mut self, position: Position) -> Area<B> {
        let Position { chunk, slot } = position;
        let area = self.chunks[chunk as usize].areas.remove(slot);
        self.count -= 1;
        if self.areas(chunk).is_empty() {
            self.drop_chunk(chunk);
        } else {
            self.join_chunks(chunk);
        }
        area
    }

    /// Merges the area at `position` with its neighbours where possible. Returns its new position.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(crate) fn merge_around(&mut self, position: Position) -> Position {
        let areas = self.areas(position.chunk);
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

    /// Merges the area at `position` with the area after it, if possible.
    pub(crate) fn merge_with_next(&mut self, position: Position) {
        if let Some(next) = self.next(position) {
            if self.get(position).may_merge(self.get(next)) {
                self.absorb_next(position, next);
            }
        }
    }

    /// Returns the anon_vma of a neighbour that `area` can share when its first private page is created, or `None` if
    /// there is no such neighbour. `area` must be in the map. Only a neighbour that a protection change could make
    /// mergeable with `area` can share its anon_vma. The upper neighbour is checked first (Linux 7.2 `mm/vma.c`,
    /// `find_mergeable_anon_vma`).
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
        let gap = self.gap_before(position);
        let area = self.get_mut(position);
        debug_assert!(start < area.range.start);
        area.offset = area
            .offset
            .wrapping_sub(area.range.start.number() - start.number());
        area.range.start = start;
        if position.slot == 0 && self.order.height > 0 {
            self.order.lower_start(position.chunk, start);
        }
        self.note_smaller_gap(position.chunk, gap, self.gap_before(position));
    }

    /// Moves the end of the area at `position` up to `end`, over unmapped pages.
    pub(crate) fn grow_up(&mut self, position: Position, end: Page) {
        debug_assert!(end > self.get(position).range.end);
        let gap = self
            .next(position)
            .map(|next| (next, self.gap_before(next)));
        let area = self.get_mut(position);
        area.range.end = end;
        area.backing.note_end(area.offset_of(end));
        self.note_end(position, end);
        if let Some((next, gap)) = gap {
            self.note_smaller_gap(next.chunk, gap, self.gap_before(next));
        }
    }

    /// Updates the tree of chunks after the area at `position` grew up to `end`.
    #[inline]
    fn note_end(&mut self, position: Position, end: Page) {
        if position.slot + 1 == self.areas(position.chunk).len() && self.order.height > 0 {
            self.order.raise_start_after(position.chunk, end);
        }
    }

    /// Returns the size of the gap below the area at `position`, in pages.
    pub(super) fn gap_before(&self, position: Position) -> u64 {
        let floor = match self.previous(position) {
            Some(previous) => self.get(previous).range.end.number(),
            None => 0,
        };
        self.get(position).range.start.number() - floor
    }

    /// Merges the area at `position` with the area after it, which is at `next`.
    fn absorb_next(&mut self, position: Position, next: Position) {
        // `right` can be dropped here, with locks held, because the merged area keeps a reference to the same backing,
        // so that no file system code runs.
        let right = self.take(next);
        let area = self.get_mut(position);
        area.range.end = right.range.end;
        area.backing.note_end(area.offset_of(area.range.end));
        area.flags |= right.flags & AreaFlags::STICKY;
        if !area.has_faulted() {
            area.anon_vma = right.anon_vma;
        }
        let end = area.range.end;
        self.merges += 1;
        self.note_end(position, end);
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
            // The new area follows the last area of a full chunk. Start a new chunk, so that insertions in ascending
            // order fill every chunk completely.
            let after = self.take_spare();
            let rooms = [self.room(chunk), 0];
            self.order
                .insert_after(chunk, after, area.range.start, rooms);
            (chunk, slot) = (after, 0);
        } else if self.areas(chunk).len() == CHUNK {
            let upper = self.take_spare();
            let mut moved = core::mem::take(&mut self.chunks[upper as usize].areas);
            let lower = &mut self.chunks[chunk as usize];
            moved.extend(lower.areas.drain(CHUNK / 2..));
            let (start, room) = (moved[0].range.start, lower.room);
            self.chunks[upper as usize] = Chunk { areas: moved, room };
            self.order.insert_after(chunk, upper, start, [room; 2]);
            self.tighten(chunk);
            self.tighten(upper);
            if slot > CHUNK / 2 {
                (chunk, slot) = (upper, slot - CHUNK / 2);
            }
        }
        if slot == 0 && self.order.height > 0 {
            self.order.lower_start(chunk, area.range.start);
        }
        let position = Position { chunk, slot };
        let above = self.areas(chunk).get(slot).map(|above| above.range.start);
        let gap = above.map_or(0, |_| self.gap_before(position));
        let left = above.map_or(0, |above| above.number() - area.range.end.number());
        self.chunks[chunk as usize].areas.insert(slot, area);
        self.count += 1;
        self.recent = position;
        let below = self.note_gap(position);
        self.note_smaller_gap(chunk, gap, left.max(below));
        position
    }

    fn take_spare(&mut self) -> ChunkId {
        self.reserved = self.reserved.saturating_sub(1);
        let chunk = self.spare.pop().expect("an insertion was reserved");
        self.chunks[chunk as usize].room = 0;
        chunk
    }

    /// Removes a chunk without areas from the map.
    #[expect(clippy::disallowed_methods, reason = "every chunk has room there")]
    fn drop_chunk(&mut self, chunk: ChunkId) {
        self.order.remove(chunk);
        debug_assert!(self.areas(chunk).is_empty());
        if self.spare.len() < SPARE {
            self.spare.push(chunk);
        } else {
            self.chunks[chunk as usize] = Chunk::of(Vec::new());
            self.vacant.push(chunk);
        }
    }

    /// Merges a chunk that became short with the next chunk, so that chunks stay about half full.
    #[expect(clippy::disallowed_methods, reason = "both fit into one chunk")]
    fn join_chunks(&mut self, chunk: ChunkId) {
        let Some(next) = self.chunk_after(chunk) else {
            return;
        };
        let areas = self.areas(chunk).len() + self.areas(next).len();
        if areas > CHUNK / 2 || !self.order.are_siblings(chunk, next) {
            return;
        }
        let room = self.room(next);
        let mut moved = core::mem::take(&mut self.chunks[next as usize].areas);
        self.chunks[chunk as usize].areas.append(&mut moved);
        self.chunks[next as usize].areas = moved;
        self.raise(chunk, room);
        self.drop_chunk(next);
    }

    /// Raises the upper bound of the chunk's gaps to the gap below the area at `position`, which is new or has lost its
    /// lower neighbour. Returns the size of the gap in pages.
    fn note_gap(&mut self, position: Position) -> u64 {
        let gap = self.gap_before(position);
        let above = self.get(position).range.start;
        self.full.note_gap(gap, above);
        self.raise(position.chunk, gap);
        gap
    }

    /// Raises the upper bound of the gaps of a chunk to `gap`.
    #[inline]
    fn raise(&mut self, chunk: ChunkId, gap: u64) {
        let room = &mut self.chunks[chunk as usize].room;
        if *room < gap {
            *room = gap;
            if self.order.height > 0 {
                self.order.raise(chunk, gap);
            }
        }
    }
}
