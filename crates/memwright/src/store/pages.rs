//! A sparse store of pages by index. It is a radix tree whose nodes are frames, so it uses no heap. Every insertion
//! that adds a node can fail.

use alloc::sync::Arc;
use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};
use memwright_table::{Frame, FrameKind, FrameRef, Frames, Machine, NodeWords, OutOfFrames};

use crate::store::room::Room;
use crate::types::error::ObjectError;

/// The number of slots of a node. A node is a frame of 64-bit words, one for each slot.
pub(super) const SLOTS: u64 = 512;

const SLOT_BITS: u32 = 9;

/// A flag in the metadata of a lowest node: the slots of the node hold the frames of one folio in order. The metadata
/// also has the number of filled slots.
const WHOLE: u64 = 1;

/// A flag in the word of a slot: the page is in swap, and the other bits are the number of the swap slot.
const IN_SWAP: u64 = 1 << 63;

/// A flag in the word of a slot with a page in memory: the page is being swapped out, and has not been looked up since
/// the swap-out began. A lookup clears the flag.
const LEAVING: u64 = 1 << 62;

/// A flag in the word of a slot with a page in memory: the page has been looked up since it was stored, swapped in, or
/// last aged.
pub(super) const ASKED: u64 = 1 << 61;

/// The maximum number of levels: enough for the index of every page below the byte offset 2^64.
const MAX_HEIGHT: u32 = 6;

/// The location of a stored page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The page is in this frame, to which the store has a reference.
    InMemory(Frame),
    /// The page is in this slot of a swap device. The store has a use of the slot.
    InSwap(u64),
}

/// Pages by index. The store owns a reference to each stored frame, and a use of each swap slot.
///
/// A store of height 0 has no nodes. A store of height `h` covers 512^`h` indices. A lowest node can hold the frames of
/// one folio in order, with a single reference to the folio. The node's metadata then has the flag `WHOLE`. When one of
/// the folio's pages is removed, the reference to the folio is replaced by a reference to each remaining frame.
pub struct Pages<M: Machine> {
    pub(super) frames: Arc<Frames<M>>,
    root: Option<Frame>,
    height: u32,
    /// The number of pages, in memory and in swap.
    count: u64,
    /// The index after the last page that was ever stored, or `u32::MAX` if the index is larger. A lookup of an index
    /// at or after `end` reads no node, because no page is stored there, unless `end` is `u32::MAX`. Such lookups are
    /// frequent, because pages are often created in ascending order.
    end: u32,
    /// The number of pages in swap. 32 bits suffice for 16 TiB.
    swapped: u32,
    /// The page limit that this store shares with other stores, or `None` if there is no limit.
    room: Option<Arc<Room>>,
    /// The part of the store to which the last walk led. A part is 512 pages that share a lowest node. This is the
    /// number of the part, which is the index of a page divided by 512; the next field is the part's lowest node.
    /// Further accesses to the part need no walk.
    recent_part: Cell<u64>,
    recent_node: Cell<Frame>,
}

/// The value of `recent_part` before the first walk. No part has this number.
const NO_PART: u64 = u64::MAX;

impl<M: Machine> Pages<M> {
    /// Creates an empty store.
    pub fn new(frames: Arc<Frames<M>>) -> Self {
        Self {
            frames,
            root: None,
            height: 0,
            count: 0,
            end: 0,
            swapped: 0,
            room: None,
            recent_part: Cell::new(NO_PART),
            recent_node: Cell::new(Frame::new(0)),
        }
    }

    /// Counts the pages of the store towards the limit of `room`, which other stores can share. The store must be
    /// empty.
    pub(crate) fn sharing(mut self, room: Option<Arc<Room>>) -> Self {
        debug_assert!(self.is_empty());
        self.room = room;
        self
    }

    /// Checks whether the limit allows `pages` more pages.
    ///
    /// # Errors
    /// [`ObjectError::NoRoom`].
    pub fn check_room(&self, pages: u64) -> Result<(), ObjectError> {
        match &self.room {
            Some(room) if !room.has(pages) => Err(ObjectError::NoRoom),
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn take_room(&self, pages: u64) -> Result<(), ObjectError> {
        match &self.room {
            Some(room) if !room.take(pages) => Err(ObjectError::NoRoom),
            Some(_) | None => Ok(()),
        }
    }

    fn give_room_back(&self, pages: u64) {
        if let Some(room) = &self.room {
            room.give_back(pages);
        }
    }

    /// Returns the number of pages stored, in memory and in swap.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// Returns the number of pages in swap.
    pub fn swapped(&self) -> u64 {
        self.swapped.into()
    }

    /// Returns whether no page is stored.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the frame at `index` if the page is in memory. The store keeps its reference. The lookup counts as an
    /// access for reclaim, and it cancels a swap-out of the page, because the caller may write to the page.
    pub fn get(&self, index: u64) -> Option<Frame> {
        self.find(index, ASKED)
    }

    /// Like [`get`](Self::get), but the lookup does not count as an access.
    pub fn get_unasked(&self, index: u64) -> Option<Frame> {
        self.find(index, 0)
    }

    /// Returns the frame at `index` if the page is in memory. Sets the flags `mark` in the word of its slot, and
    /// cancels a swap-out of the page.
    #[inline]
    fn find(&self, index: u64, mark: u64) -> Option<Frame> {
        found(self.word(self.lowest(index)?, slot_at(index, 0)), mark)
    }

    /// Returns whether page `index` was looked up since it was stored, swapped in, or last [aged](Self::age).
    pub fn was_asked(&self, index: u64) -> bool {
        let word = self
            .lowest(index)
            .map(|node| self.word(node, slot_at(index, 0)));
        word.is_some_and(|word| is_asked(word.load(Ordering::Relaxed)))
    }

    /// Like [`was_asked`](Self::was_asked), and also clears the mark.
    pub fn age(&self, index: u64) -> bool {
        let Some(node) = self.lowest(index) else {
            return false;
        };
        let word = self.word(node, slot_at(index, 0));
        let value = word.load(Ordering::Relaxed);
        if is_asked(value) {
            word.store(value & !ASKED, Ordering::Relaxed);
        }
        is_asked(value)
    }

    /// Returns the location of page `index`, for callers that do not access the contents.
    pub fn stored(&self, index: u64) -> Option<Stored> {
        let word = self.word(self.lowest(index)?, slot_at(index, 0));
        decoded(word.load(Ordering::Relaxed))
    }

    /// Stores a frame, with its reference, at an empty index.
    ///
    /// # Errors
    /// There is no free frame for a node, or the limit is reached. The store is unchanged and the caller keeps the
    /// reference.
    pub fn insert(&mut self, index: u64, frame: Frame) -> Result<(), ObjectError> {
        self.take_room(1)?;
        self.insert_taken(index, frame).map_err(|error| {
            self.give_room_back(1);
            error.into()
        })
    }

    /// Stores `count` frames, with their references, at the indices from `first` on. The indices must be empty, and all
    /// in one lowest node.
    ///
    /// # Errors
    /// There is no free frame for a node, or the limit is reached. The store is unchanged, and the frames are freed.
    pub(crate) fn insert_run<'f>(
        &mut self,
        first: u64,
        count: u64,
        run: impl Iterator<Item = FrameRef<'f, M>>,
    ) -> Result<(), ObjectError>
    where
        M: 'f,
    {
        self.take_room(count)?;
        for (at, page) in (first..).zip(run) {
            if let Err(error) = self.insert_taken(at, page.frame()) {
                // All pages of the run are in one lowest node: only the first insertion allocates nodes and can fail.
                debug_assert_eq!(at, first);
                self.give_room_back(count);
                return Err(error.into());
            }
            let _ = page.into_raw();
        }
        Ok(())
    }

    /// Like [`insert`](Self::insert), for a page that already counts towards the limit.
    fn insert_taken(&mut self, index: u64, frame: Frame) -> Result<(), OutOfFrames> {
        let mut node = match self.raise(index) {
            Ok(root) => root,
            Err(error) => {
                self.prune(0);
                return Err(error);
            }
        };
        for level in (1..self.height).rev() {
            let slot = slot_at(index, level);
            node = match self.below(node, slot) {
                Some(below) => below,
                None => {
                    let below = match self.node() {
                        Ok(below) => below,
                        Err(error) => {
                            self.prune(index);
                            return Err(error);
                        }
                    };
                    self.set_slot(node, slot, Some(below));
                    below
                }
            };
        }
        debug_assert!(self.stored(index).is_none());
        self.set_slot(node, slot_at(index, 0), Some(frame));
        self.note_stored(index);
        Ok(())
    }

    /// Counts the page that was just stored at `index`.
    #[inline(always)]
    pub(super) fn note_stored(&mut self, index: u64) {
        self.count += 1;
        self.note_end(index + 1);
    }

    /// Records that the page before index `end` has been stored.
    #[inline(always)]
    fn note_end(&mut self, end: u64) {
        self.end = self.end.max(u32::try_from(end).unwrap_or(u32::MAX));
    }

    /// Returns true only if no page was ever stored at `index` or after it. False means that this is unknown.
    #[inline(always)]
    pub(super) fn ends_before(&self, index: u64) -> bool {
        index >= self.end.into() && self.end != u32::MAX
    }

    /// Returns the first frame of the folio that is stored as the 512 pages from `first` on, a multiple of 512. The
    /// store keeps its reference.
    pub fn folio(&self, first: u64) -> Option<Frame> {
        let node = self.lowest(first)?;
        if self.frames.owner(node).1 == WHOLE {
            self.slot(node, 0)
        } else {
            None
        }
    }

    /// Stores the folio that begins at `head` as the 512 pages from `first` on, a multiple of 512. The store takes over
    /// the caller's reference to the folio, and drops the pages that it had at these indices.
    ///
    /// # Errors
    /// There is no free frame for a node, or the limit is reached. The store is unchanged and the caller keeps the
    /// reference.
    pub fn insert_folio(&mut self, first: u64, head: Frame) -> Result<(), ObjectError> {
        debug_assert!(first % SLOTS == 0);
        let filled = self.lowest(first).map(|node| self.frames.owner(node).0);
        let more = SLOTS - filled.unwrap_or(0);
        self.take_room(more)?;
        self.drop_slots(first);
        let node = match self.lowest(first) {
            Some(node) => node,
            None => {
                // Insert the first page alone, which allocates the nodes on the path.
                let inserted = self.insert_taken(first, head);
                match inserted.and_then(|()| self.lowest(first).ok_or(OutOfFrames)) {
                    Ok(node) => node,
                    Err(error) => {
                        self.give_room_back(more);
                        return Err(error.into());
                    }
                }
            }
        };
        for slot in 0..SLOTS {
            let frame = Frame::new(head.number() + slot as u32);
            let before = self
                .word(node, slot)
                .swap(encoded(frame), Ordering::Relaxed);
            self.count += u64::from(before == 0);
        }
        self.frames.set_owner(node, SLOTS, WHOLE);
        self.note_end(first + SLOTS);
        Ok(())
    }

    /// Drops the pages in the lowest node on the path to `first`. The node stays.
    fn drop_slots(&mut self, first: u64) {
        let Some(node) = self.lowest(first) else {
            return;
        };
        let whole = self.folio(first);
        for slot in 0..SLOTS {
            let value = self.word(node, slot).load(Ordering::Relaxed);
            if let Some(stored) = decoded(value) {
                self.set_slot(node, slot, None);
                self.count -= 1;
                self.swapped -= u32::from(matches!(stored, Stored::InSwap(_)));
                if whole.is_none() {
                    self.give_up(stored);
                }
            }
        }
        if let Some(head) = whole {
            self.frames.set_owner(node, 0, 0);
            drop(self.frames.adopt_whole(head));
        }
    }

    /// Removes page `index`. The caller takes over the reference to its frame or the use of its swap slot.
    pub fn remove(&mut self, index: u64) -> Option<Stored> {
        let node = self.lowest(index)?;
        let stored = self.stored(index)?;
        self.part(node);
        self.set_slot(node, slot_at(index, 0), None);
        self.count -= 1;
        self.give_room_back(1);
        self.swapped -= u32::from(matches!(stored, Stored::InSwap(_)));
        self.prune(index);
        Some(stored)
    }

    /// If `node`, a lowest node, has a reference to a folio, replaces it by a reference to each frame.
    fn part(&self, node: Frame) {
        let (filled, whole) = self.frames.owner(node);
        if whole == WHOLE {
            if let Some(head) = self.slot(node, 0) {
                self.frames.part(head);
            }
            self.frames.set_owner(node, filled, 0);
        }
    }

    /// Gives the store a separate reference to the frame of page `index`, if the frame is part of a folio.
    pub fn part_at(&self, index: u64) {
        if let Some(node) = self.lowest(index) {
            self.part(node);
        }
    }

    /// Replaces the reference to each stored folio by a reference to each of its frames. Calls `visit` with the first
    /// frame of each such folio.
    pub(crate) fn part_folios(&self, visit: &mut dyn FnMut(Frame)) {
        let mut next = self.next(0);
        while let Some((index, _)) = next {
            let first = index & !(SLOTS - 1);
            if let Some(head) = self.folio(first) {
                self.part_at(first);
                visit(head);
            }
            next = self.next(first + SLOTS);
        }
    }

    /// Marks page `index`, which must not be stored as part of a folio, as being swapped out. A lookup of the page
    /// cancels the swap-out.
    pub fn begin_leaving(&self, index: u64) {
        if let Some(node) = self.lowest(index) {
            debug_assert_ne!(self.frames.owner(node).1, WHOLE);
            let word = self.word(node, slot_at(index, 0));
            word.store(word.load(Ordering::Relaxed) | LEAVING, Ordering::Relaxed);
        }
    }

    /// Abandons the swap-out of page `index` from `frame`, unless a lookup has cancelled it: the page stays in memory.
    pub fn end_leaving(&self, index: u64, frame: Frame) {
        if let Some(word) = self.leaving(index, frame) {
            word.store(encoded(frame), Ordering::Relaxed);
        }
    }

    /// Moves page `index` to the swap slot `slot`, if the page was not looked up since its swap-out from `frame` began.
    /// The store takes over the use of the slot, and the caller takes over the reference to the frame. Returns false if
    /// the page was looked up.
    pub fn leave(&mut self, index: u64, frame: Frame, slot: u64) -> bool {
        let Some(word) = self.leaving(index, frame) else {
            return false;
        };
        word.store(slot | IN_SWAP, Ordering::Relaxed);
        self.swapped += 1;
        true
    }

    /// Returns the word of page `index` if the page is still being swapped out from `frame`.
    fn leaving(&self, index: u64, frame: Frame) -> Option<&AtomicU64> {
        let word = self.word(self.lowest(index)?, slot_at(index, 0));
        let value = word.load(Ordering::Relaxed) & !ASKED;
        (value == encoded(frame) | LEAVING).then_some(word)
    }

    /// Moves page `index` from the swap slot `slot` to `frame`. The store takes over the reference to the frame, and
    /// the caller takes over the use of the slot. Returns false if the page is not in the slot.
    pub fn come_back(&mut self, index: u64, slot: u64, frame: Frame) -> bool {
        if self.stored(index) != Some(Stored::InSwap(slot)) {
            return false;
        }
        let Some(node) = self.lowest(index) else {
            return false;
        };
        let word = self.word(node, slot_at(index, 0));
        word.store(encoded(frame), Ordering::Relaxed);
        self.swapped -= 1;
        true
    }

    /// Calls `exchange` with the frame at `index`, and replaces this frame by the frame that `exchange` returns with a
    /// reference. Then drops the reference to the old frame. Nothing changes if `exchange` returns `None`, or if the
    /// page is not in memory.
    pub fn exchange(&self, index: u64, exchange: &mut dyn FnMut(Frame) -> Option<Frame>) {
        let Some(Stored::InMemory(old)) = self.stored(index) else {
            return;
        };
        let new = exchange(old);
        if let (Some(new), Some(node)) = (new, self.lowest(index)) {
            let word = self.word(node, slot_at(index, 0));
            word.store(encoded(new), Ordering::Relaxed);
            self.give_up(Stored::InMemory(old));
        }
    }

    /// Like [`exchange`](Self::exchange), for the folio stored as the 512 pages from `first` on, a multiple of 512.
    pub fn exchange_folio(&mut self, first: u64, exchange: &mut dyn FnMut(Frame) -> Option<Frame>) {
        if let Some(new) = self.folio(first).and_then(exchange) {
            let exchanged = self.insert_folio(first, new);
            debug_assert!(exchanged.is_ok(), "the nodes on the way are there");
        }
    }

    /// Drops every page in `first..end`, and returns how many pages were dropped.
    pub fn remove_range(&mut self, first: u64, end: u64) -> u64 {
        let before = self.count;
        let rest = self.remove_some(first, end, u64::MAX);
        debug_assert_eq!(rest, None);
        before - self.count
    }

    /// Drops pages in `first..end`, until `most` pages are dropped. The last step can drop a complete folio, so the
    /// number of dropped pages can exceed `most`. Returns the index of the next remaining page before `end`, or `None`
    /// if there is none.
    pub fn remove_some(&mut self, first: u64, end: u64, most: u64) -> Option<u64> {
        let before = self.count;
        let mut next = self.next(first);
        while let Some((index, _)) = next {
            if index >= end {
                return None;
            }
            if before - self.count >= most {
                return Some(index);
            }
            let mut after = index + 1;
            if index % SLOTS == 0 && end - index >= SLOTS && self.folio(index).is_some() {
                self.drop_slots(index);
                self.give_room_back(SLOTS);
                self.prune(index);
                after = index + SLOTS;
            } else if let Some(stored) = self.remove(index) {
                self.give_up(stored);
            }
            next = self.next(after);
        }
        None
    }

    /// Drops the reference to the frame of a page that was removed, or the use of its swap slot.
    fn give_up(&self, stored: Stored) {
        match stored {
            Stored::InMemory(frame) => drop(self.owned(frame)),
            Stored::InSwap(slot) => self.frames.release_slots(&[slot]),
        }
    }

    /// Returns the reference that a slot of a node owns. For a hugetlb page, this is a reference to the folio.
    /// Otherwise, it is a reference to the single frame, even if the frame is part of a folio.
    fn owned(&self, frame: Frame) -> FrameRef<'_, M> {
        if self.frames.kind(frame).is_pool() {
            self.frames.adopt(frame)
        } else {
            self.frames.adopt_part(frame)
        }
    }

    /// Returns the lowest node on the path to `index`.
    #[inline]
    pub(super) fn lowest(&self, index: u64) -> Option<Frame> {
        if self.recent_part.get() == index >> SLOT_BITS {
            return Some(self.recent_node.get());
        }
        self.walk(index)
    }

    /// Walks from the root to the lowest node on the path to `index`, and returns that node.
    #[inline(never)]
    fn walk(&self, index: u64) -> Option<Frame> {
        let mut node = self.root?;
        if !self.covers(index) {
            return None;
        }
        for level in (1..self.height).rev() {
            node = self.below(node, slot_at(index, level))?;
        }
        self.recent_part.set(index >> SLOT_BITS);
        self.recent_node.set(node);
        Some(node)
    }

    /// Returns the node in a slot of an upper node. The words of such slots have no flags.
    #[inline(always)]
    fn below(&self, node: Frame, slot: u64) -> Option<Frame> {
        match self.frames.words64(node)[slot as usize].load(Ordering::Relaxed) {
            0 => None,
            value => Some(Frame::new((value - 1) as u32)),
        }
    }

    /// Returns the first stored page at or after `index`, and its index.
    pub fn next(&self, index: u64) -> Option<(u64, Stored)> {
        let root = self.root?;
        if !self.covers(index) {
            return None;
        }
        self.next_below(root, self.height, index)
    }

    /// Returns the first stored page at or after `index` in the subtree of `node`, and its index. The node is `height`
    /// levels above the pages. The loop steps over an empty slot in a few instructions, because most slots of a small
    /// object are empty.
    fn next_below(&self, node: Frame, height: u32, index: u64) -> Option<(u64, Stored)> {
        let level = height - 1;
        let words = &self.frames.words64(node)[slot_at(index, level) as usize..];
        for (distance, word) in words.iter().enumerate() {
            let Some(stored) = decoded(word.load(Ordering::Relaxed)) else {
                continue;
            };
            // In a slot after the one that covers `index`, start at the first index that the slot covers.
            let first = (index >> (SLOT_BITS * level)) + distance as u64;
            let index = index.max(first << (SLOT_BITS * level));
            let found = match stored {
                stored if level == 0 => Some((index, stored)),
                Stored::InMemory(below) => self.next_below(below, level, index),
                Stored::InSwap(_) => None,
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn covers(&self, index: u64) -> bool {
        let bits = SLOT_BITS * self.height;
        bits >= u64::BITS || index >> bits == 0
    }

    /// Adds levels at the top until `index` is covered. Returns the root.
    fn raise(&mut self, index: u64) -> Result<Frame, OutOfFrames> {
        let Some(mut root) = self.root else {
            // Create the root at the height that `index` requires, because a level that is added later would leave an
            // empty node below it.
            let root = self.node()?;
            self.height = 1;
            while !self.covers(index) {
                self.height += 1;
            }
            self.root = Some(root);
            return Ok(root);
        };
        while !self.covers(index) {
            debug_assert!(self.height < MAX_HEIGHT);
            let above = self.node()?;
            self.set_slot(above, 0, Some(root));
            root = above;
            self.root = Some(root);
            self.height += 1;
        }
        Ok(root)
    }

    /// Frees the nodes on the path to `index` that became empty.
    fn prune(&mut self, index: u64) {
        if let Some(root) = self.root {
            if self.prune_below(root, self.height, index) {
                self.release(root);
                self.root = None;
                self.height = 0;
                self.end = 0;
            }
        }
    }

    /// Prunes the nodes below `node` on the path to `index`. Returns whether `node` is empty afterwards.
    fn prune_below(&mut self, node: Frame, height: u32, index: u64) -> bool {
        let level = height - 1;
        if level > 0 {
            let slot = slot_at(index, level);
            if let Some(below) = self.slot(node, slot) {
                if !self.prune_below(below, level, index) {
                    return false;
                }
                self.release(below);
                self.set_slot(node, slot, None);
            }
        }
        self.frames.owner(node).0 == 0
    }

    fn node(&self) -> Result<Frame, OutOfFrames> {
        let node = self.frames.allocate_zeroed(0, FrameKind::Slab)?.into_raw();
        self.frames.set_owner(node, 0, 0);
        Ok(node)
    }

    fn release(&self, node: Frame) {
        self.recent_part.set(NO_PART);
        drop(self.frames.adopt(node));
    }

    /// Returns the word of a slot of a node.
    fn word(&self, node: Frame, slot: u64) -> &AtomicU64 {
        self.frames.word64(node, slot as usize * 8)
    }

    /// Returns the frame in a slot: a node, or a page in memory.
    fn slot(&self, node: Frame, slot: u64) -> Option<Frame> {
        match decoded(self.word(node, slot).load(Ordering::Relaxed))? {
            Stored::InMemory(frame) => Some(frame),
            Stored::InSwap(_) => None,
        }
    }

    /// Fills an empty slot or empties a filled one, and updates the count of filled slots in the metadata of the node.
    fn set_slot(&self, node: Frame, slot: u64, value: Option<Frame>) {
        set_word(self.frames.node_words(node), slot, value);
    }
}

impl<M: Machine> Drop for Pages<M> {
    fn drop(&mut self) {
        self.remove_range(0, u64::MAX);
    }
}

/// Implements [`Pages::set_slot`].
#[inline(always)]
pub(super) fn set_word(node: NodeWords<'_>, slot: u64, value: Option<Frame>) {
    node.word(slot)
        .store(value.map_or(0, encoded), Ordering::Relaxed);
    node.change_owner(|filled| match value {
        Some(_) => filled + 1,
        None => filled - 1,
    });
}

/// Returns the frame in a slot of a lowest node if the page is in memory. Sets the flags `mark` in the slot's word, and
/// cancels a swap-out of the page.
#[inline]
pub(super) fn found(word: &AtomicU64, mark: u64) -> Option<Frame> {
    let value = word.load(Ordering::Relaxed);
    let Stored::InMemory(frame) = decoded(value)? else {
        return None;
    };
    let found = (value | mark) & !LEAVING;
    if found != value {
        word.store(found, Ordering::Relaxed);
    }
    Some(frame)
}

pub(super) fn slot_at(index: u64, level: u32) -> u64 {
    (index >> (SLOT_BITS * level)) & (SLOTS - 1)
}

/// Returns the value, without flags, of the word of a slot that holds `frame`.
fn encoded(frame: Frame) -> u64 {
    u64::from(frame.number()) + 1
}

/// Returns whether a slot's word with this value encodes a page in memory with the flag `ASKED`.
const fn is_asked(value: u64) -> bool {
    value & IN_SWAP == 0 && value & ASKED != 0
}

/// Returns the location of the page that a slot's word with this value encodes, or `None` if the slot is empty.
fn decoded(value: u64) -> Option<Stored> {
    if value & IN_SWAP != 0 {
        return Some(Stored::InSwap(value & !IN_SWAP));
    }
    match value & !(LEAVING | ASKED) {
        0 => None,
        stored => Some(Stored::InMemory(Frame::new((stored - 1) as u32))),
    }
}
