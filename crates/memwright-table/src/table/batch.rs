//! Operations on many entries, each in one pass over the words of a table with one atomic operation per entry.

use core::sync::atomic::Ordering;

use super::aside::HUGE_LEVEL;
use super::cursor::Cursor;
use super::level::{ENTRIES, slot_index};
use super::numbers::{self, COUNTED, LIVE};
use super::record::record;
use super::rule::with_rule;
use super::runs::{count_alike, none_present, pass_together};
use crate::addr::{Page, PageRange, PageSize};
use crate::arch::{TableSlot, word};
use crate::entry::{Bits, Change, Entry, Present};
use crate::frame::FrameKind;
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::sync::{Step, step};

/// The maximum number of swap entries that are removed together.
pub(super) const SWAPPED: usize = 8;

/// The change that a rule makes to one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Bits to set.
    pub set: Bits,
    /// Bits to clear. Bits that are also in `set` are set.
    pub clear: Bits,
}

impl Edit {
    /// An edit that sets the bits `set` and clears the bits `clear`, except those that are also in `set`.
    #[inline]
    pub const fn new(set: Bits, clear: Bits) -> Self {
        Self { set, clear }
    }

    /// No change.
    pub const NONE: Edit = Edit {
        set: Bits::empty(),
        clear: Bits::empty(),
    };
}

/// The result of editing many entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// The number of changed entries.
    pub changed: u64,
    /// The number of 4 KiB pages whose entries became writable. All pages of a huge page count, because it can be split
    /// before a program writes to it.
    pub made_writable: u64,
}

/// The state of an edit of many entries.
pub(super) struct Editor<R> {
    pub(super) rule: R,
    /// Whether an entry becomes exclusive again if it holds the only reference to its page.
    pub(super) regain: bool,
    pub(super) edited: Edited,
}

impl<R: FnMut(Bits, PageSize) -> Edit> Editor<R> {
    /// Returns the new value of the entry `old`, and the class of the change. If `sole` is true, the entry holds the
    /// only reference to its page, and the page also becomes exclusive.
    ///
    /// If a right is lost and [`Gather::takes_accessed`] returns true, moves the accessed bit into the software
    /// accessed bit.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn decide<M: Machine>(
        &mut self,
        old: u64,
        size: PageSize,
        sole: bool,
        gather: &Gather<'_, M>,
    ) -> (u64, Change) {
        let regained = if sole { Bits::EXCLUSIVE } else { Bits::empty() };
        let edit = (self.rule)(word::bits(old) | regained, size);
        let (new, what) = word::edit_classified(old, edit.set | regained, edit.clear);
        if matches!(what, Change::Shrank) && gather.takes_accessed() {
            return (word::fold_accessed(new), what);
        }
        (new, what)
    }
}

/// Consecutive entries with the same class of change, which are recorded in the gather together.
struct Run {
    what: Change,
    /// Whether the flush is elided because no CPU can have cached the old entries.
    elided: bool,
    start: u64,
    entries: u64,
}

impl Run {
    const fn new() -> Self {
        Self {
            what: Change::Same,
            elided: false,
            start: 0,
            entries: 0,
        }
    }

    /// Adds the 4 KiB page `page`, whose old entry was `old`. Records the run first if the page does not continue it.
    #[inline]
    fn add<M: Machine>(&mut self, gather: &mut Gather<'_, M>, page: u64, what: Change, old: u64) {
        let elided = what.needs_local() && word::is_uncached(old);
        let follows = what as u8 == self.what as u8
            && elided == self.elided
            && self.start + self.entries == page;
        if !follows {
            self.tell(gather);
            *self = Self {
                what,
                elided,
                start: page,
                entries: 0,
            };
        }
        self.entries += 1;
    }

    /// Records the run in the gather. Call this before releasing the table's lock.
    fn tell<M: Machine>(&mut self, gather: &mut Gather<'_, M>) {
        if self.entries == 0 {
            return;
        }
        let start = Page::new(self.start);
        let size = PageSize::Size4K;
        gather.record_entries(start, size, self.what, self.elided, self.entries);
        self.entries = 0;
    }
}

/// The change of entries with certain attributes, which are the bits outside of the address field. The change is
/// decided once for all consecutive entries that have these attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Alike {
    attributes: u64,
    /// The bits that the change inverts; 0 if the entries stay unchanged.
    flip: u64,
    made_writable: bool,
    what: Change,
    elided: bool,
}

impl Alike {
    /// Evaluates the rule for entries with the attributes of `word`.
    pub(super) fn decide<R: FnMut(Bits, PageSize) -> Edit, M: Machine>(
        word: u64,
        size: PageSize,
        editor: &mut Editor<R>,
        gather: &Gather<'_, M>,
    ) -> Self {
        let attributes = word::attributes(word);
        if !word::is_present(word) {
            return Self {
                attributes,
                flip: 0,
                made_writable: false,
                what: Change::Same,
                elided: false,
            };
        }
        let (new, what) = editor.decide(word, size, false, gather);
        Self {
            attributes,
            flip: word ^ new,
            made_writable: word::gained_write(word, new),
            what,
            elided: what.needs_local() && word::is_uncached(word),
        }
    }

    /// Returns the change of 4 KiB pages with the attributes of `word`. Reuses one of the last two decisions if it was
    /// made for these attributes. Otherwise evaluates the rule.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn decided<R: FnMut(Bits, PageSize) -> Edit, M: Machine>(
        word: u64,
        last: &mut [Option<Self>; 2],
        editor: &mut Editor<R>,
        gather: &Gather<'_, M>,
    ) -> Self {
        let attributes = word::attributes(word);
        match *last {
            [_, Some(alike)] | [Some(alike), _] if alike.attributes == attributes => alike,
            [_, newer] => {
                let alike = Self::decide(word, PageSize::Size4K, editor, gather);
                *last = [newer, Some(alike)];
                alike
            }
        }
    }

    /// Whether the change was decided for entries with the attributes of `word`.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn fits(&self, word: u64) -> bool {
        self.attributes == word::attributes(word)
    }

    /// Whether any bit of the entries changes.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) const fn changes(&self) -> bool {
        self.flip != 0
    }

    /// Changes the leading entries of `slots` that have the attributes for which this change was decided, and returns
    /// their number. The number is 0 if hardware has just changed the first entry.
    pub(super) fn apply<M: Machine>(&self, slots: &[SlotOf<M>]) -> usize {
        if self.flip == 0 {
            count_alike::<M>(slots, self.attributes)
        } else {
            flip_alike::<M>(slots, self.attributes, self.flip)
        }
    }

    /// Changes the entry in `slot`, unless its attributes differ or hardware changes it at the same time. Returns
    /// whether the entry was changed.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn apply_one<M: Machine>(&self, slot: &SlotOf<M>) -> bool {
        step::<M::Threads>(Step::Entry);
        let old = slot.load(Ordering::Relaxed);
        word::attributes(old) == self.attributes && slot.exchange(old, old ^ self.flip).is_ok()
    }

    /// Records in the gather that this change was made to `entries` 4 KiB pages from `start` on.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn record<M: Machine>(&self, start: Page, entries: u64, gather: &mut Gather<'_, M>) {
        let size = PageSize::Size4K;
        if self.flip == 0 {
            gather.rely_on_pending();
        } else {
            gather.record_entries(start, size, self.what, self.elided, entries);
        }
    }

    /// Records in the gather that this change was made to the 4 KiB pages in `runs`, `entries` pages in total. The
    /// change must alter at least one bit.
    #[cfg_attr(feature = "inline", inline(always))]
    pub(super) fn record_runs<M: Machine>(
        &self,
        runs: &[PageRange],
        entries: u64,
        gather: &mut Gather<'_, M>,
    ) {
        gather.record_runs(runs, self.what, self.elided, entries);
    }

    /// Adds this change, of `entries` entries from `start` on, to the counts in `edited`, and records the change in the
    /// gather.
    #[inline]
    pub(super) fn tell<M: Machine>(
        &self,
        start: Page,
        size: PageSize,
        entries: u64,
        edited: &mut Edited,
        gather: &mut Gather<'_, M>,
    ) {
        if self.flip == 0 {
            if word::is_present(self.attributes) {
                gather.rely_on_pending();
            }
            return;
        }
        edited.changed += entries;
        if self.made_writable {
            edited.made_writable += entries;
        }
        if entries > 0 {
            gather.record_entries(start, size, self.what, self.elided, entries);
        }
    }
}

/// Whether an entry can become exclusive again: it maps a page that is neither exclusive nor special nor a KSM page.
#[inline]
pub(super) fn could_regain(word: u64) -> bool {
    let not = word::mask(Bits::EXCLUSIVE | Bits::BORROWED | Bits::MERGED);
    word::is_present(word) && word & not == 0
}

/// Inverts the bits `flip` in the leading entries of `slots` whose attributes are `attributes`, and returns the number
/// of changed entries.
#[inline(never)]
fn flip_alike<M: Machine>(slots: &[SlotOf<M>], attributes: u64, flip: u64) -> usize {
    for (count, slot) in slots.iter().enumerate() {
        step::<M::Threads>(Step::Entry);
        let old = slot.load(Ordering::Relaxed);
        if word::attributes(old) != attributes || slot.exchange(old, old ^ flip).is_err() {
            return count;
        }
    }
    slots.len()
}

impl<M: Machine> Cursor<'_, M> {
    /// The end of the locked last-level table, or `limit` if that comes first.
    #[inline]
    pub(super) fn table_end(&self, limit: Page) -> Page {
        Page::new((self.position.number() | (ENTRIES as u64 - 1)) + 1).min(limit)
    }

    /// The slots from the position to `end` in the locked last-level table.
    #[inline]
    pub(super) fn slots_to(&self, end: Page) -> &[SlotOf<M>] {
        let first = slot_index(self.position, 1);
        let count = (end.number() - self.position.number()) as usize;
        &self.words[first..first + count]
    }

    /// Edits every page from the position to `limit` or to the end of the range, whichever comes first, as `rule`
    /// decides. Returns the number of changed entries. An entry whose bits stay the same is not written. The cursor is
    /// at `limit` afterwards. If a huge page can extend beyond the range, call `split_edges` first.
    ///
    /// # Panics
    /// In debug builds, if a huge page extends beyond the range.
    #[inline]
    pub fn edit_run(
        &mut self,
        limit: Page,
        mut rule: impl FnMut(Page, Present) -> Edit,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        let limit = limit.min(self.range.end);
        // Another operation may already have removed the rights that this operation removes, and may not have flushed
        // yet.
        gather.rely_on_pending();
        let mut changed = 0;
        while self.position < limit {
            if self.level == 1 {
                let end = self.table_end(limit);
                changed += self.edit_table(end, &mut rule, gather);
                self.go(end);
                continue;
            }
            if let Entry::Present(page) = self.entry().entry {
                let edit = rule(self.slot_start(), page);
                let new = self.edit(edit.set, edit.clear, gather);
                changed += u64::from(new.bits != page.bits);
            }
            self.advance();
        }
        changed
    }

    /// Like `edit_run`, with a rule that depends only on the bits of the page. The rule is evaluated once for
    /// consecutive pages with equal bits, so that each page costs little more than its atomic exchange.
    ///
    /// # Panics
    /// As for `edit_run`.
    #[inline]
    pub fn edit_alike(
        &mut self,
        limit: Page,
        mut rule: impl FnMut(Bits) -> Edit,
        gather: &mut Gather<'_, M>,
    ) -> Edited {
        with_rule!(
            edit = |bits, _| rule(bits),
            self.edit_with(limit, false, edit, gather)
        )
    }

    /// Like `edit_alike`, with a rule that also depends on the size of the page.
    ///
    /// # Panics
    /// As for `edit_run`.
    #[inline]
    pub fn edit_sized(
        &mut self,
        limit: Page,
        rule: impl FnMut(Bits, PageSize) -> Edit,
        gather: &mut Gather<'_, M>,
    ) -> Edited {
        with_rule!(edit = rule, self.edit_with(limit, false, edit, gather))
    }

    /// Like `edit_alike`, but an entry that holds the only reference to an anonymous page first becomes exclusive again
    /// (rule: exclusive-in-the-entry), for example after a fork whose child has exited.
    ///
    /// # Panics
    /// As for `edit_run`.
    #[inline]
    pub fn edit_regaining(
        &mut self,
        limit: Page,
        mut rule: impl FnMut(Bits) -> Edit,
        gather: &mut Gather<'_, M>,
    ) -> Edited {
        with_rule!(
            edit = |bits, _| rule(bits),
            self.edit_with(limit, true, edit, gather)
        )
    }

    #[cfg_attr(feature = "inline", inline(always))]
    fn edit_with<R: FnMut(Bits, PageSize) -> Edit>(
        &mut self,
        limit: Page,
        regain: bool,
        rule: R,
        gather: &mut Gather<'_, M>,
    ) -> Edited {
        let limit = limit.min(self.range.end);
        let mut editor = Editor {
            rule,
            regain,
            edited: Edited::default(),
        };
        let pages = limit.number().wrapping_sub(self.position.number());
        if self.level == 1 && pages == 1 {
            self.edit_one(self.position, &mut editor, gather);
            if limit == self.range.end {
                self.position = limit;
                self.park();
            } else {
                self.go(limit);
            }
            return editor.edited;
        }
        self.edit_many(limit, editor, gather)
    }

    #[inline(never)]
    fn edit_many<R: FnMut(Bits, PageSize) -> Edit>(
        &mut self,
        limit: Page,
        mut editor: Editor<R>,
        gather: &mut Gather<'_, M>,
    ) -> Edited {
        while self.position < limit {
            if self.level == 1 {
                let end = self.table_end(limit);
                self.edit_table_alike(end, &mut editor, gather);
                self.go(end);
                continue;
            }
            if self.level == HUGE_LEVEL {
                self.edit_huge(limit, &mut editor, gather);
                continue;
            }
            if let Entry::Present(page) = self.entry().entry {
                let edit = (editor.rule)(page.bits, page.size);
                let bits = self.edit(edit.set, edit.clear, gather).bits;
                editor.edited.changed += u64::from(bits != page.bits);
                let won = bits.difference(page.bits).contains(Bits::WRITE);
                editor.edited.made_writable += u64::from(won) * page.size.pages();
            }
            self.advance();
        }
        editor.edited
    }

    /// Edits one page in the locked last-level table, if it is mapped.
    #[cfg_attr(feature = "inline", inline(always))]
    fn edit_one<R: FnMut(Bits, PageSize) -> Edit>(
        &self,
        page: Page,
        editor: &mut Editor<R>,
        gather: &mut Gather<'_, M>,
    ) {
        step::<M::Threads>(Step::Entry);
        let slot = &self.words[slot_index(page, 1)];
        let mut old = slot.load(Ordering::Relaxed);
        while word::is_present(old) {
            let sole = editor.regain && could_regain(old) && self.is_sole(old);
            let (new, what) = editor.decide(old, PageSize::Size4K, sole, gather);
            if new == old {
                gather.rely_on_pending();
                return;
            }
            match slot.exchange(old, new) {
                Ok(_) => {
                    // An address space has too few pages for the sum to wrap.
                    let edited = &mut editor.edited;
                    edited.changed = edited.changed.wrapping_add(1);
                    let won = u64::from(word::gained_write(old, new));
                    edited.made_writable = edited.made_writable.wrapping_add(won);
                    record(gather, page, PageSize::Size4K, what, old);
                    return;
                }
                // Hardware set the accessed or dirty bit meanwhile: retry.
                Err(now) => old = now,
            }
        }
    }

    /// Edits one page whose entry may become exclusive again. Not inlined into the loop over many pages.
    #[inline(never)]
    fn edit_shared<R: FnMut(Bits, PageSize) -> Edit>(
        &self,
        page: Page,
        editor: &mut Editor<R>,
        gather: &mut Gather<'_, M>,
    ) {
        self.edit_one(page, editor, gather);
    }

    /// Whether the entry `word` holds the only reference of any kind to an anonymous page. No CPU can take another
    /// reference during the call, because that requires the table's lock.
    fn is_sole(&self, word: u64) -> bool {
        let frames = self.table.frames();
        let frame = word::frame(word, word::inverted(word::attributes(word)));
        matches!(frames.kind(frame), FrameKind::Anonymous) && frames.references(frame) <= 1
    }

    /// Edits the pages from the position to `end` in the locked last-level table.
    fn edit_table_alike<R: FnMut(Bits, PageSize) -> Edit>(
        &self,
        end: Page,
        editor: &mut Editor<R>,
        gather: &mut Gather<'_, M>,
    ) {
        if self.meta.live.load(Ordering::Relaxed) == 0 {
            return;
        }
        let slots = self.slots_to(end);
        let mut done = 0;
        // Keep the last two decisions, because entries with two sets of attributes often alternate.
        let mut decided: [Option<Alike>; 2] = [None; 2];
        while done < slots.len() {
            let word = slots[done].load(Ordering::Relaxed);
            if !word::is_present(word) {
                done = pass_together(slots, done + 1, none_present::<M>);
                continue;
            }
            if editor.regain && could_regain(word) {
                let page = self.position.add(done as u64);
                self.edit_shared(page, editor, gather);
                done += 1;
                continue;
            }
            let alike = Alike::decided(word, &mut decided, editor, gather);
            let attributes = alike.attributes;
            let follows =
                |next: &SlotOf<M>| word::attributes(next.load(Ordering::Relaxed)) == attributes;
            let count = if slots.get(done + 1).is_some_and(follows) {
                alike.apply::<M>(&slots[done..])
            } else {
                usize::from(alike.flip == 0 || alike.apply_one::<M>(&slots[done]))
            };
            alike.tell(
                self.position.add(done as u64),
                PageSize::Size4K,
                count as u64,
                &mut editor.edited,
                gather,
            );
            done += count;
        }
    }

    /// Performs `edit_run` for the pages from the position to `end`, which are in the locked last-level table.
    #[inline]
    fn edit_table(
        &mut self,
        end: Page,
        rule: &mut impl FnMut(Page, Present) -> Edit,
        gather: &mut Gather<'_, M>,
    ) -> u64 {
        if self.meta.live.load(Ordering::Relaxed) == 0 {
            return 0;
        }
        let mut changed = 0;
        let mut run = Run::new();
        for (page, slot) in (self.position.number()..).zip(self.slots_to(end)) {
            step::<M::Threads>(Step::Entry);
            let mut old = slot.load(Ordering::Relaxed);
            if !word::is_present(old) {
                continue;
            }
            loop {
                let edit = rule(Page::new(page), word::decode_present(old, 1));
                let new = word::edit(old, edit.set, edit.clear);
                if new == old {
                    break;
                }
                match slot.exchange(old, new) {
                    Ok(_) => {
                        run.add(gather, page, word::change(old, new), old);
                        changed += 1;
                        break;
                    }
                    // Hardware set the accessed or dirty bit meanwhile: retry.
                    Err(seen) => old = seen,
                }
            }
        }
        run.tell(gather);
        changed
    }

    /// Removes all entries from the position to the end of the range, and returns their number. The gather defers
    /// dropping their references. If a huge page or a marker can extend beyond the range, call `split_edges` first.
    ///
    /// # Panics
    /// In debug builds, if a slot that is not empty extends beyond the range.
    #[inline]
    pub fn remove_all(&mut self, gather: &mut Gather<'_, M>) -> u64 {
        self.remove_all_with(gather, |_, _| {})
    }

    /// Like `remove_all`, but leaves markers in place.
    ///
    /// # Panics
    /// As for `remove_all`.
    #[inline]
    pub fn remove_all_but_markers(&mut self, gather: &mut Gather<'_, M>) -> u64 {
        self.remove_each::<false>(gather, |_, _| {})
    }

    /// Like `remove_all`, and calls `seen` with each removed entry while the table's lock is held.
    ///
    /// # Panics
    /// As for `remove_all`.
    #[inline]
    pub fn remove_all_with(
        &mut self,
        gather: &mut Gather<'_, M>,
        seen: impl FnMut(Page, Entry),
    ) -> u64 {
        self.remove_each::<true>(gather, seen)
    }

    #[inline]
    fn remove_each<const MARKERS: bool>(
        &mut self,
        gather: &mut Gather<'_, M>,
        mut seen: impl FnMut(Page, Entry),
    ) -> u64 {
        // When this operation returns, no page of the range may be accessible, including pages that another operation
        // has removed but not flushed yet (rule: see-pending-flushes).
        gather.rely_on_pending();
        let mut removed = 0;
        while self.position < self.range.end {
            if self.level == 1 {
                let end = self.table_end(self.range.end);
                removed += self.remove_table::<MARKERS>(end, gather, &mut seen);
                self.go(end);
                gather.relieve();
                continue;
            }
            if self.next_filled().is_none() {
                break;
            }
            if self.level > 1 {
                let start = self.slot_start();
                if MARKERS || !matches!(self.peek(), Entry::Marker(_)) {
                    seen(start, self.remove(gather));
                    removed += 1;
                }
                self.advance();
                // Freeing a huge page takes as long as freeing many small ones, so check after each whether too many
                // frames are deferred.
                gather.relieve();
                self.pause_point();
            }
        }
        removed
    }

    /// Removes the pages from the position to `end` in the locked last-level table.
    #[inline]
    fn remove_table<const MARKERS: bool>(
        &mut self,
        end: Page,
        gather: &mut Gather<'_, M>,
        seen: &mut impl FnMut(Page, Entry),
    ) -> u64 {
        let numbers = self.meta.live.load(Ordering::Relaxed);
        if numbers == 0 {
            return 0;
        }
        let live = numbers::live(numbers);
        let slots = self.slots_to(end);
        let (mut done, mut removed) = (0, 0);
        // The numbers of removed swap entries, and of removed entries that hold no reference to a frame.
        let (mut swapped, mut uncounted) = (0, 0);
        while done < slots.len() && removed < live {
            let word = slots[done].load(Ordering::Relaxed);
            let start = self.position.add(done as u64);
            if word == 0 {
                done += count_alike::<M>(&slots[done..], 0);
            } else if word::has_rights(word) && word & word::mask(Bits::BORROWED) == 0 {
                let attributes = word::attributes(word);
                let count = take_alike(&slots[done..], attributes, start, gather, seen);
                let elided = word::is_uncached(word);
                let pages = count as u64;
                if count > 0 {
                    let size = PageSize::Size4K;
                    gather.record_entries(start, size, Change::Freed, elided, pages);
                }
                done += count;
                removed += count as u32;
            } else if !MARKERS && matches!(word::decode(word, 1), Entry::Marker(_)) {
                done += 1;
            } else if word::swapped(word).is_some() {
                let count = remove_swapped(&slots[done..], start, gather, seen);
                done += count;
                removed += count as u32;
                swapped += count as u32;
                uncounted += count as u32;
            } else {
                step::<M::Threads>(Step::Entry);
                let old = slots[done].swap(0, Ordering::AcqRel);
                uncounted += 1 - numbers::counted(numbers::of_entry(old));
                removed_other(start, old, gather, seen);
                done += 1;
                removed += 1;
            }
        }
        let gone = LIVE * removed + COUNTED * (removed - uncounted) + numbers::SWAPPED * swapped;
        self.meta.live.store(numbers - gone, Ordering::Relaxed);
        u64::from(removed)
    }
}

/// Removes the leading entries of `slots` that map pages and whose attributes are `attributes`, and returns the number
/// of removed entries. The attributes imply that each entry holds a reference. The first slot is that of page `start`.
#[inline]
fn take_alike<M: Machine>(
    slots: &[SlotOf<M>],
    attributes: u64,
    start: Page,
    gather: &mut Gather<'_, M>,
    seen: &mut impl FnMut(Page, Entry),
) -> usize {
    for (count, slot) in slots.iter().enumerate() {
        step::<M::Threads>(Step::Entry);
        let old = slot.load(Ordering::Relaxed);
        if word::attributes(old) != attributes || slot.exchange(old, 0).is_err() {
            return count;
        }
        gather.hold(word::frame(old, 0));
        let page = word::decode_present(old, 1);
        seen(start.add(count as u64), Entry::Present(page));
    }
    slots.len()
}

/// Removes the leading swap entries of `slots`, at most [`SWAPPED`], and returns the number of removed entries. The
/// first slot is that of page `start`.
#[cold]
#[inline(never)]
fn remove_swapped<M: Machine>(
    slots: &[SlotOf<M>],
    start: Page,
    gather: &mut Gather<'_, M>,
    seen: &mut impl FnMut(Page, Entry),
) -> usize {
    let mut names = [0; SWAPPED];
    let mut count = 0;
    while let Some(slot) = slots.get(count).filter(|_| count < SWAPPED) {
        step::<M::Threads>(Step::Entry);
        // Hardware does not change a swap entry, and the table is locked.
        let word = slot.load(Ordering::Relaxed);
        let Some(name) = word::swapped(word) else {
            break;
        };
        slot.store(0, Ordering::Release);
        seen(start.add(count as u64), word::decode(word, 1));
        names[count] = name;
        count += 1;
    }
    gather.release_slots(&names[..count]);
    count
}

/// Completes the removal of the entry `old`. Swap entries are removed by `remove_swapped` instead, and readable pages
/// that hold a reference by `take_alike`.
#[cold]
fn removed_other<M: Machine>(
    page: Page,
    old: u64,
    gather: &mut Gather<'_, M>,
    seen: &mut impl FnMut(Page, Entry),
) {
    let entry = word::decode(old, 1);
    if word::has_rights(old) {
        record(gather, page, PageSize::Size4K, Change::Freed, old);
    }
    if let Some(frame) = entry.counted_frame() {
        gather.hold(frame);
    }
    seen(page, entry);
}
