//! The cursor: its position, and its operations on one slot.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use super::aside::{HUGE_LEVEL, is_page};
use super::extent::Extent;
use super::level::{ENTRIES, slot_index, slot_pages, table_owner};
use super::numbers;
use super::record::record;
use super::runs::{all_empty, pass_while};
use super::shared::is_shared;
use crate::addr::{Frame, Page, PageRange, PageSize};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::{Bits, Entry, Present, change};
use crate::frame::{FrameKind, Meta, OutOfFrames};
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{Rank, Step, pause, pause_due, pause_point, step};

/// What a cursor does with the entries of the tables that it locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// The cursor may change the entries, so the tables are no longer skippable (`quiet.rs`).
    Change,
    /// The cursor may change the entries, and then records whether the table is skippable.
    Scan,
    /// The cursor only reads the entries. The tables stay skippable, and shared tables stay shared.
    Look,
}

/// A position in a range of an address space, with the lock of the table that contains the slot at this position. In
/// the comments of its methods, *here* means this slot.
#[must_use = "a cursor holds a lock"]
pub struct Cursor<'t, M: Machine> {
    pub(super) table: &'t Table<M>,
    pub(super) range: PageRange,
    /// A page of the range, or the end of the range if the cursor has moved past all pages.
    pub(super) position: Page,
    /// The table that the cursor is in, and its entries, metadata and level.
    pub(super) node: Frame,
    pub(super) words: &'t [SlotOf<M>; ENTRIES],
    pub(super) meta: &'t Meta,
    pub(super) level: u8,
    /// Whether the cursor holds the lock of `node`. False at the end of the range, while the cursor is suspended, and
    /// while a copy moves the other cursor.
    held: bool,
    purpose: Purpose,
    /// Whether the thread may yield when the cursor moves to another table.
    pub(super) pauses: bool,
    pub(super) rank: Rank,
    /// Makes the cursor not `Send`, because the thread that acquired a lock must release it.
    not_send: PhantomData<*const ()>,
}

impl<M: Machine> Table<M> {
    /// Returns a cursor at the start of `range`. The cursor holds the lock of the table that contains its slot.
    ///
    /// # Panics
    /// If the range is empty or extends beyond user memory.
    #[inline]
    #[track_caller]
    pub fn cursor(&self, range: PageRange) -> Cursor<'_, M> {
        Cursor::new(self, range, range.start, Rank::Table, Purpose::Change)
    }

    /// Returns the entry of `page`, and a cursor at `page` that holds the lock of the table that contains the entry.
    ///
    /// # Panics
    /// If the page is not in user memory.
    #[track_caller]
    #[cfg_attr(feature = "inline", inline(always))]
    pub fn entry_of(&self, page: Page) -> (Cursor<'_, M>, Entry) {
        let cursor = self.cursor(PageRange::single(page));
        let entry = cursor.peek();
        (cursor, entry)
    }

    /// Returns a cursor at `page` of `range`. The cursor holds the lock of the table that contains its slot.
    ///
    /// # Panics
    /// If `page` is not in the range, or if the range extends beyond user memory.
    #[inline]
    #[track_caller]
    pub fn cursor_at(&self, range: PageRange, page: Page) -> Cursor<'_, M> {
        Cursor::new(self, range, page, Rank::Table, Purpose::Change)
    }

    /// Returns a cursor that may change entries, but leaves a table skippable when it locks the table. After its
    /// operations on a table, the caller must call [`Cursor::end_look`] to record whether the table is skippable.
    ///
    /// # Panics
    /// If the range is empty or extends beyond user memory.
    #[track_caller]
    pub fn scanning_cursor(&self, range: PageRange) -> Cursor<'_, M> {
        Cursor::new(self, range, range.start, Rank::Table, Purpose::Scan)
    }

    /// Returns a cursor for a thread that already holds a cursor on another table: a fork uses it for the child's
    /// table.
    ///
    /// # Panics
    /// If the range is empty or extends beyond user memory.
    #[inline]
    #[track_caller]
    pub fn second_cursor(&self, range: PageRange) -> Cursor<'_, M> {
        Cursor::new(self, range, range.start, Rank::TableChild, Purpose::Change)
    }

    /// Returns two cursors on `range` for a copy: one on this table, which [pauses](Cursor::pausing), and one on `to`.
    ///
    /// # Panics
    /// If the range is empty or extends beyond user memory.
    #[track_caller]
    #[cfg_attr(feature = "inline", inline(always))]
    pub fn cursors_to_copy<'t>(
        &'t self,
        to: &'t Self,
        range: PageRange,
    ) -> (Cursor<'t, M>, Cursor<'t, M>) {
        (self.cursor(range).pausing(), to.second_cursor(range))
    }
}

impl<'t, M: Machine> Cursor<'t, M> {
    #[track_caller]
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn new(
        table: &'t Table<M>,
        range: PageRange,
        position: Page,
        rank: Rank,
        purpose: Purpose,
    ) -> Self {
        assert!(
            range.contains(position) && range.end <= M::Arch::USER.end,
            "a cursor needs a position in a range in user memory, not {position:?} of {range:?}"
        );
        let place = lock_way_down(table, position, rank, purpose);
        Self {
            table,
            range,
            position,
            node: place.node,
            words: place.words,
            meta: place.meta,
            level: place.level,
            held: true,
            purpose,
            pauses: false,
            rank,
            not_send: PhantomData,
        }
    }

    /// Permits the thread to yield when the cursor moves from one table to another, so that an operation on many pages
    /// does not delay other threads. The cursor holds no lock while the thread yields. The thread must hold only locks
    /// that [sleep](Rank::sleeps), and therefore no other cursor.
    #[inline]
    pub fn pausing(mut self) -> Self {
        self.pauses = true;
        self
    }

    /// Yields to other threads if a reschedule is due and the cursor [pauses](Self::pausing). Operations that work on
    /// one table for a long time call this. When it returns, other threads may have changed the entry here.
    pub fn pause_point(&mut self) {
        if self.pauses && self.held {
            self.park();
            pause_point::<M::Threads>();
            self.walk();
        }
    }

    /// The pages that the cursor can reach.
    #[inline]
    pub fn range(&self) -> PageRange {
        self.range
    }

    /// The position. At the end of the range, the cursor is in no table.
    #[inline]
    pub fn position(&self) -> Page {
        self.position
    }

    /// Moves to `page`.
    ///
    /// # Panics
    /// If `page` is not in the range.
    #[inline]
    pub fn seek(&mut self, page: Page) {
        assert!(
            self.range.contains(page),
            "{page:?} is not in the cursor's {:?}",
            self.range
        );
        self.go(page);
    }

    /// Moves to `page`, which is in the range or is the end of the range. Not inlined, because inlining would leave
    /// fewer registers for the loops of operations.
    #[inline(never)]
    pub(super) fn go(&mut self, page: Page) {
        let span = slot_pages(self.level + 1);
        let here = (page.number() ^ self.position.number()) & !(span - 1) == 0;
        self.position = page;
        if page == self.range.end {
            // At the end the cursor is in no table.
            self.park();
            return;
        }
        let stays = here && self.held && matches!(word::slot(self.word(), self.level), Slot::Entry);
        if !stays {
            self.walk();
        }
    }

    /// Restricts the range to the page at the position.
    ///
    /// # Panics
    /// If the cursor is at the end of its range.
    #[inline]
    pub fn narrow(&mut self) {
        self.assert_at_page();
        self.range = PageRange::single(self.position);
    }

    /// Extends the range so that it covers the slot at the position.
    #[inline]
    pub fn widen(&mut self) {
        let start = self.slot_start();
        let end = start.add(slot_pages(self.level));
        self.range = PageRange::new(start.min(self.range.start), end.max(self.range.end));
    }

    /// Releases the lock until the cursor moves again.
    #[inline]
    pub(super) fn park(&mut self) {
        if self.held {
            self.unlock();
        }
    }

    #[inline]
    fn unlock(&mut self) {
        self.held = false;
        self.meta.lock.unlock::<M::Threads>(self.rank);
    }

    /// Releases the lock until [`resume`](Self::resume), so that the caller can take a lock that ranks before it. In
    /// between, only `resume` may be called.
    #[inline]
    pub fn suspend(&mut self) {
        self.park();
    }

    /// Acquires the lock of the table at the position again. Walks from the root only if the table has changed since.
    /// Other threads may have changed the entries.
    ///
    /// # Panics
    /// If the cursor is at the end of its range.
    #[inline]
    pub fn resume(&mut self) {
        assert!(
            !self.held && self.position < self.range.end,
            "resumed a cursor that is not suspended"
        );
        self.meta.lock.lock::<M::Threads>(self.rank);
        self.held = true;
        // In a last-level table, every slot is an entry.
        let is_same = if self.level == 1 {
            is_the_table(self.table, self.meta, self.position, 1)
        } else {
            is_the_table(self.table, self.meta, self.position, self.level)
                && matches!(word::slot(self.word(), self.level), Slot::Entry)
        };
        if !is_same {
            self.walk();
        } else if self.purpose == Purpose::Change {
            self.meta.disturb();
        }
    }

    /// Leaves the table and walks from the root to the position.
    pub(super) fn walk(&mut self) {
        self.park();
        if self.pauses && pause_due::<M::Threads>() {
            pause::<M::Threads>();
        }
        let place = lock_way_down(self.table, self.position, self.rank, self.purpose);
        self.held = true;
        self.node = place.node;
        self.words = place.words;
        self.meta = place.meta;
        self.level = place.level;
    }

    #[inline]
    pub(super) fn slot_word(&self) -> &'t SlotOf<M> {
        debug_assert!(self.held, "the cursor is parked");
        step::<M::Threads>(Step::Entry);
        &self.words[slot_index(self.position, self.level)]
    }

    #[inline]
    pub(super) fn word(&self) -> u64 {
        if cfg!(debug_assertions) {
            self.assert_at_page();
        }
        self.slot_word().load(Ordering::Acquire)
    }

    #[inline]
    #[track_caller]
    fn assert_at_page(&self) {
        let at_page = self.position < self.range.end;
        assert!(at_page, "the cursor is at the end of its range");
    }

    /// The first page of the slot.
    #[inline]
    pub(super) fn slot_start(&self) -> Page {
        Page::new(self.position.number() & !(slot_pages(self.level) - 1))
    }

    /// The pages of the slot, clipped to the range.
    #[inline]
    fn extent_range(&self) -> PageRange {
        let start = self.slot_start();
        PageRange::new(start, start.add(slot_pages(self.level))).intersect(self.range)
    }

    /// Whether the cursor is in a last-level table, whose slots map pages of 4 KiB only.
    #[inline]
    pub fn is_in_last_table(&self) -> bool {
        self.level == 1
    }

    /// The size of the page that the slot maps or can map.
    #[inline]
    pub fn size(&self) -> PageSize {
        match self.level {
            1 => PageSize::Size4K,
            2 => PageSize::Size2M,
            _ => PageSize::Size1G,
        }
    }

    /// Returns the entry here, and the pages that it applies to.
    ///
    /// # Panics
    /// If the cursor is at the end of its range.
    #[inline]
    pub fn entry(&self) -> Extent {
        self.assert_at_page();
        Extent {
            entry: word::decode(self.word(), self.level),
            range: self.extent_range(),
            size: self.size(),
        }
    }

    /// Returns the entry here, without the pages that it applies to.
    ///
    /// # Panics
    /// If the cursor is at the end of its range.
    #[inline]
    pub fn peek(&self) -> Entry {
        self.assert_at_page();
        word::decode(self.word(), self.level)
    }

    /// Moves past the slot here. Returns `false` if the cursor is then at the end of the range.
    #[inline]
    pub fn advance(&mut self) -> bool {
        if self.position >= self.range.end {
            return false;
        }
        let after = self.position.add(1);
        if self.level == 1 && after < self.table_end(self.range.end) {
            self.position = after;
            return true;
        }
        let next = self.extent_range().end;
        self.go(next);
        next < self.range.end
    }

    /// Moves to the next slot that is not empty, starting with the one here. If there is none, moves to the end of the
    /// range and returns `None`.
    pub fn next_filled(&mut self) -> Option<Extent> {
        while self.position < self.range.end {
            if self.meta.live.load(Ordering::Relaxed) == 0 {
                let past = self.slot_start().number() | (slot_pages(self.level + 1) - 1);
                self.go(Page::new(past + 1).min(self.range.end));
                continue;
            }
            if self.word() != 0 {
                return Some(self.entry());
            }
            let (start, span) = (self.slot_start(), slot_pages(self.level));
            let wanted = (self.range.end.number() - 1 - start.number()) / span + 1;
            let slots = &self.words[slot_index(start, self.level)..];
            let slots = &slots[..slots.len().min(wanted as usize)];
            let filled = pass_while::<M>(slots, all_empty::<M>, |word| word == 0);
            let empty = (slots.len() - filled.len()) as u64;
            self.go(start.add(empty * span).min(self.range.end));
        }
        None
    }

    /// Like [`next_filled`](Self::next_filled), and moves `to`, the second cursor of a copy, to the same page. `to`
    /// releases its lock before this cursor moves, because that lock has the later rank. Returns `false` at the end of
    /// the range.
    pub(super) fn next_filled_with(&mut self, to: &mut Cursor<'_, M>) -> bool {
        to.park();
        let found = self.next_filled().is_some();
        to.go(self.position);
        found
    }

    /// Stores `entry` here, where nothing is mapped. Allocates tables as needed, and pushes a conflicting marker down
    /// to the size of the entry. The table takes over the reference to the frame of `entry`, unless the entry is
    /// `BORROWED`.
    ///
    /// # Errors
    /// [`OutOfFrames`] if a table cannot be allocated. The entry is not stored then, and the caller keeps its
    /// reference.
    ///
    /// # Panics
    /// If a page is mapped, swapped out or migrating here, or if a huge page conflicts with a table. In debug builds,
    /// if the slot extends beyond the range, or if the frame of `entry` is a page table.
    #[inline]
    pub fn fill(&mut self, entry: Entry) -> Result<(), OutOfFrames> {
        if cfg!(debug_assertions) {
            self.check_no_table(entry);
        }
        if let Entry::Present(page) = entry {
            if self.level == 1 && matches!(page.size, PageSize::Size4K) {
                let slot = self.slot_word();
                if slot.load(Ordering::Relaxed) == 0 {
                    self.break_before_make(1);
                    slot.store(word::encode_present(page), Ordering::Release);
                    let live = &self.meta.live;
                    let more = numbers::of_bits(page.bits);
                    live.store(live.load(Ordering::Relaxed) + more, Ordering::Relaxed);
                    return Ok(());
                }
            }
        }
        self.fill_any(entry)
    }

    /// Prepares the next `slots` slots, which are empty, for entries that map pages: if an invalidation of the table is
    /// pending, invalidates the pages of these slots on every CPU. Does nothing on an architecture without break before
    /// make.
    #[inline(always)]
    pub(super) fn break_before_make(&self, slots: usize) {
        if M::Arch::BREAK_BEFORE_MAKE && self.table.pending() != 0 {
            let (start, size) = (self.slot_start(), self.size());
            self.table.break_pending(start, size, slots as u64);
        }
    }

    /// Allocates the tables that a 4 KiB entry here needs, and pushes a conflicting marker down. A later `fill` cannot
    /// fail unless the tables are freed before it.
    ///
    /// # Errors
    /// [`OutOfFrames`] if a table cannot be allocated; no change is visible to user programs.
    ///
    /// # Panics
    /// If a huge page is mapped here.
    #[cold]
    pub fn reach(&mut self) -> Result<(), OutOfFrames> {
        while self.level > 1 {
            self.push_down()?;
        }
        Ok(())
    }

    /// The slow path of [`fill`](Self::fill): a table is missing, the slot holds a marker, or the entry is not a 4 KiB
    /// page.
    #[cold]
    fn fill_any(&mut self, entry: Entry) -> Result<(), OutOfFrames> {
        let level = match entry {
            Entry::Present(Present { size, .. }) => size.level_above_leaf() + 1,
            Entry::Migrating(migrating) => migrating.size.level_above_leaf() + 1,
            Entry::Empty | Entry::Marker(_) | Entry::Swapped(_) => 1,
        };
        while self.level > level {
            self.push_down()?;
        }
        assert!(self.level == level, "a table is in the way of a huge page");
        self.debug_check_whole();
        let slot = self.slot_word();
        let old = slot.load(Ordering::Relaxed);
        assert!(
            matches!(
                word::decode(old, self.level),
                Entry::Empty | Entry::Marker(_)
            ),
            "filled a slot that maps something"
        );
        if self.level == HUGE_LEVEL && is_page(entry) {
            self.set_aside(self.table.allocate_aside()?);
        }
        self.break_before_make(1);
        let new = word::encode(entry);
        slot.store(new, Ordering::Release);
        self.count(old, new);
        Ok(())
    }

    /// Replaces the entry here by `entry` and returns the old one. Records the change in the gather, which defers
    /// dropping the reference that the old entry held. The table takes over the reference to the frame of `entry`.
    ///
    /// # Panics
    /// If the size of the new entry is not that of the slot. In debug builds, if the slot extends beyond the range.
    #[inline]
    pub fn replace(&mut self, entry: Entry, gather: &mut Gather<'_, M>) -> Entry {
        let fits = match entry {
            Entry::Present(Present { size, .. }) => size == self.size(),
            Entry::Migrating(migrating) => migrating.size == self.size(),
            Entry::Swapped(_) => self.level == 1,
            Entry::Marker(_) => self.level < M::Arch::LEVELS,
            Entry::Empty => true,
        };
        assert!(fits, "the entry does not fit the slot");
        self.debug_check_whole();
        let new = word::encode(entry);
        let old = self.slot_word().swap(new, Ordering::AcqRel);
        self.count(old, new);
        let old_entry = word::decode(old, self.level);
        let what = change(old_entry, entry);
        record(gather, self.slot_start(), self.size(), what, old);
        if self.level > 1 {
            self.settle_aside(old_entry, entry);
        }
        if let Some(frame) = old_entry.counted_frame() {
            let kept = entry.counted_frame() == Some(frame);
            if !kept && self.level == 1 {
                gather.hold(frame);
            } else if !kept {
                gather.hold_whole(frame);
            }
        } else if let Entry::Swapped(swapped) = old_entry {
            let kept = matches!(entry, Entry::Swapped(new) if new.slot == swapped.slot);
            if !kept {
                gather.release_slots(&[swapped.slot]);
            }
        }
        old_entry
    }

    /// Sets and clears bits of the page here by one atomic exchange, which keeps bits that hardware sets at the same
    /// time. Returns the new entry.
    ///
    /// # Panics
    /// If no page is mapped here. In debug builds, if the slot extends beyond the range.
    #[inline]
    pub fn edit(&mut self, set: Bits, clear: Bits, gather: &mut Gather<'_, M>) -> Present {
        self.debug_check_whole();
        let slot = self.slot_word();
        let mut old = slot.load(Ordering::Relaxed);
        loop {
            assert!(
                word::is_present(old),
                "no page to edit at {:?}",
                self.position
            );
            let new = word::edit(old, set, clear);
            if new == old {
                gather.rely_on_pending();
                return word::decode_present(new, self.level);
            }
            match slot.exchange(old, new) {
                Ok(_) => {
                    let what = word::change(old, new);
                    record(gather, self.slot_start(), self.size(), what, old);
                    return word::decode_present(new, self.level);
                }
                Err(seen) => old = seen,
            }
        }
    }

    /// Sets bits of the page here to resolve a fault, and clears none, so that rights only grow. No CPU needs a flush.
    /// The faulting CPU has dropped its translation ("the processor invalidates any TLB entries for the linear
    /// address", Intel SDM volume 3A, on page faults, in substance); another CPU with the old rights faults and
    /// retries. Returns the new entry.
    ///
    /// # Panics
    /// If no page is mapped here. In debug builds, if the slot extends beyond the range.
    #[inline]
    pub fn grant(&mut self, set: Bits) -> Present {
        self.debug_check_whole();
        let slot = self.slot_word();
        let mut old = slot.load(Ordering::Relaxed);
        loop {
            assert!(
                word::is_present(old),
                "no page to edit at {:?}",
                self.position
            );
            let new = word::edit(old, set, Bits::empty());
            debug_assert!(
                !word::change(old, new).needs_remote(),
                "a grant took something"
            );
            match slot.exchange(old, new) {
                Ok(_) => return word::decode_present(new, self.level),
                Err(seen) => old = seen,
            }
        }
    }

    /// Removes the entry here, like `replace` with `Empty`.
    ///
    /// # Panics
    /// In debug builds, if the slot extends beyond the range.
    #[inline]
    pub fn remove(&mut self, gather: &mut Gather<'_, M>) -> Entry {
        self.replace(Entry::Empty, gather)
    }

    /// Panics if `entry` maps the frame of a page table.
    fn check_no_table(&self, entry: Entry) {
        if let Entry::Present(Present { frame, .. }) = entry {
            let kind = self.table.frames().kind_at(frame.number());
            assert!(kind != Some(FrameKind::Table), "{frame:?} is a page table");
        }
    }

    #[inline]
    pub(super) fn debug_check_whole(&self) {
        debug_assert!(
            self.range.covers(PageRange::new(
                self.slot_start(),
                self.slot_start().add(slot_pages(self.level))
            )),
            "the slot reaches beyond the cursor's range: split_edges first"
        );
    }
}

/// A table whose lock is held.
struct Place<'t, M: Machine> {
    node: Frame,
    words: &'t [SlotOf<M>; ENTRIES],
    meta: &'t Meta,
    level: u8,
}

/// Locks the table that contains the slot for `page`. If `purpose` is [`Purpose::Change`], the table is then no longer
/// skippable.
#[cfg_attr(feature = "inline", inline(always))]
fn lock_way_down<M: Machine>(
    table: &Table<M>,
    page: Page,
    rank: Rank,
    purpose: Purpose,
) -> Place<'_, M> {
    let place = match lock_lowest(table, page, rank) {
        Some(place) => place,
        None => lock_any(table, page, rank, purpose),
    };
    if purpose == Purpose::Change {
        place.meta.disturb();
    }
    place
}

/// Locks the last-level table for `page`. Returns `None`, without a lock, if there is no last-level table, or if it
/// changed before the lock was acquired.
#[cfg_attr(feature = "inline", inline(always))]
fn lock_lowest<M: Machine>(table: &Table<M>, page: Page, rank: Rank) -> Option<Place<'_, M>> {
    let tables = table.frames().all_tables();
    let mut node = table.root();
    for level in (2..=M::Arch::LEVELS).rev() {
        step::<M::Threads>(Step::Entry);
        let word = tables.words(node)[slot_index(page, level)].load(Ordering::Acquire);
        let Slot::Table(lower) = word::slot(word, level) else {
            return None;
        };
        node = lower;
    }
    let meta = tables.meta(node);
    meta.lock.lock::<M::Threads>(rank);
    if is_the_table(table, meta, page, 1) {
        return Some(Place {
            node,
            words: tables.words(node),
            meta,
            level: 1,
        });
    }
    meta.lock.unlock::<M::Threads>(rank);
    None
}

/// Locks the table at any level that contains the slot for `page`. Walks again if the tables changed before the lock
/// was acquired. If the table is shared, the address space first gets a table of its own, unless the cursor only reads.
#[cold]
fn lock_any<M: Machine>(
    table: &Table<M>,
    page: Page,
    rank: Rank,
    purpose: Purpose,
) -> Place<'_, M> {
    let tables = table.frames().all_tables();
    let slot_in = |node, level| {
        let slot = &tables.words(node)[slot_index(page, level)];
        word::slot(slot.load(Ordering::Acquire), level)
    };
    let mut turns = 0;
    loop {
        let (mut node, mut level) = (table.root(), M::Arch::LEVELS);
        let mut above = node;
        while level > 1 {
            step::<M::Threads>(Step::Entry);
            let Slot::Table(lower) = slot_in(node, level) else {
                break;
            };
            (above, node) = (node, lower);
            level -= 1;
        }
        let meta = tables.meta(node);
        if level == 1 && is_shared(meta) && purpose != Purpose::Look {
            table.own_table(above, page, rank);
            continue;
        }
        meta.lock.lock::<M::Threads>(rank);
        let is_here = is_the_table(table, meta, page, level)
            || purpose == Purpose::Look
                && level == 1
                && is_shared(meta)
                && points_to(table, above, page, node);
        if is_here && (level == 1 || slot_in(node, level) == Slot::Entry) {
            return Place {
                node,
                words: tables.words(node),
                meta,
                level,
            };
        }
        meta.lock.unlock::<M::Threads>(rank);
        turns += 1;
        if cfg!(debug_assertions) && turns == MOST_TURNS {
            panic!(
                "{node:?} is a table of the root {:#x}, but {:?} points to it",
                meta.owner.load(Ordering::Relaxed) as u32,
                table.root()
            );
        }
    }
}

/// A debug build panics after this number of walks if in each of them the table changed before it was locked. Changes
/// by other CPUs never make so many walks fail. A table that belongs to another root does, because every walk to it
/// fails.
const MOST_TURNS: u32 = 100_000;

/// Whether the entry for `page` in the upper table `above` now points to the last-level table `node`. While the lock of
/// a shared table is held, the entries that point to it do not change.
fn points_to<M: Machine>(table: &Table<M>, above: Frame, page: Page, node: Frame) -> bool {
    let slot = &table.frames().table_words(above)[slot_index(page, 2)];
    word::slot(slot.load(Ordering::Acquire), 2) == Slot::Table(node)
}

/// Whether `meta` is the metadata of the table at `level` that contains the slot for `page`.
#[inline]
fn is_the_table<M: Machine>(table: &Table<M>, meta: &Meta, page: Page, level: u8) -> bool {
    let start = page.number() & !(slot_pages(level + 1) - 1);
    meta.is_table()
        && meta.owner.load(Ordering::Relaxed) == table_owner(table.root(), level)
        && meta.index.load(Ordering::Relaxed) == start
}

impl<M: Machine> Drop for Cursor<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.park();
    }
}

impl<M: Machine> fmt::Debug for Cursor<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor")
            .field("range", &self.range)
            .field("position", &self.position)
            .field("level", &self.level)
            .finish_non_exhaustive()
    }
}
