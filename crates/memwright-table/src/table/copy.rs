//! The batch operation of fork: entries copied to another table.

use core::sync::atomic::{AtomicU64, Ordering};

use super::aside::HUGE_LEVEL;
use super::cursor::Cursor;
use super::runs::count_alike;
use crate::addr::{Page, PageSize};
use crate::entry::x86_64;
use crate::entry::{Bits, Change, Entry, Marker, Marks, Present};
use crate::frame::{FrameKind, Frames, OutOfFrames, add_references};
use crate::gather::Gather;
use crate::machine::Machine;
use crate::sync::{Step, step};

/// How the entries of one area are copied: decided once per area, not per entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRule {
    /// Bits that the original loses.
    clear: Bits,
    /// Bits that the copy does not get.
    withhold: Bits,
    /// Marks that the copy gets.
    marks: Marks,
    /// Which pages the area can have.
    pages: AreaPages,
}

/// The kinds of pages that an area can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AreaPages {
    /// Private pages only.
    Private,
    /// Pages of an object, and private copies of them.
    Both,
    /// Pages of an object only.
    Object,
}

impl CopyRule {
    /// A private area: from now on neither side is allowed to write in place, or to treat the page as exclusive. The
    /// copy is as dirty as the original, because a clean page has a valid copy elsewhere. `MERGED` is not copied: the
    /// KSM scan determines it for the copy.
    pub const PRIVATE: CopyRule = CopyRule {
        clear: Bits::EXCLUSIVE.union(Bits::WRITE),
        withhold: Bits::EXCLUSIVE
            .union(Bits::WRITE)
            .union(Bits::ACCESSED)
            .union(Bits::UFFD_WP)
            .union(Bits::FOLDED_ACCESSED)
            .union(Bits::WATCHED)
            .union(Bits::IDLE)
            .union(Bits::MERGED),
        marks: Marks::GUARD.union(Marks::POISON),
        pages: AreaPages::Private,
    };

    /// A private area of an object.
    pub const PRIVATE_OF_OBJECT: CopyRule = CopyRule {
        pages: AreaPages::Both,
        ..Self::PRIVATE
    };

    /// A shared area: both sides keep their rights, and the copy starts clean.
    pub const SHARED: CopyRule = CopyRule {
        clear: Bits::empty(),
        withhold: Bits::ACCESSED
            .union(Bits::DIRTY)
            .union(Bits::UFFD_WP)
            .union(Bits::FOLDED_DIRTY)
            .union(Bits::FOLDED_ACCESSED)
            .union(Bits::WATCHED)
            .union(Bits::IDLE),
        marks: Marks::GUARD.union(Marks::POISON),
        pages: AreaPages::Object,
    };

    /// A shared area of an object that must be notified of the first write: the copy is clean, so it must not be
    /// writable (rule: clean-writable-is-private).
    pub const SHARED_NOTIFIED: CopyRule = CopyRule {
        withhold: Self::SHARED.withhold.union(Bits::WRITE),
        ..Self::SHARED
    };

    /// Returns the rule with userfaultfd's protection kept, which a fork does only for a context with the fork event
    /// (rule: uffd-wp-survives). The copy does not get `ACCESSED`, so no original that was accessed may still be `IDLE`.
    #[must_use]
    pub const fn keep_uffd_wp(self) -> Self {
        Self {
            withhold: self
                .withhold
                .difference(Bits::UFFD_WP.union(Bits::WATCHED).union(Bits::IDLE)),
            marks: self.marks.union(Marks::UFFD_WP),
            ..self
        }
    }
}

/// Why a copy stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyStop {
    /// The end of the range was reached.
    Done,
    /// The page here is exclusive and pinned. It stays exclusive: the caller copies the page for the other side at once
    /// (rule: exclusive-before-pin), and then moves past it with [`Cursor::pass_with`].
    Pinned(Present),
}

/// The result of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Copied entries that map pages.
    pub entries: u64,
    /// Copied pages, in units of 4 KiB.
    pub pages: u64,
    /// The number of these pages whose copy holds a reference, without pages of the huge page pool. A special
    /// (`BORROWED`) page has no reference.
    pub counted: u64,
    /// The pages among `counted` that are pages of objects.
    pub objects: u64,
    /// Copied entries that name pages in swap.
    pub swapped: u64,
    /// Why the copy stopped. Both cursors are at the place where it stopped.
    pub stop: CopyStop,
}

/// The result of copying within one table.
struct Pass {
    pages: u64,
    counted: u64,
    objects: u64,
    markers: u64,
    swapped: u64,
    /// The page where the copy stopped, or the end of the pages to copy.
    end: Page,
    stop: Option<CopyStop>,
}

/// The way to copy entries that have certain attributes, decided once for all consecutive ones.
struct Alike {
    attributes: u64,
    present: bool,
    /// Whether the entry holds a reference.
    counted: bool,
    /// Whether exclusivity must be cleared.
    exclusive: bool,
    /// Whether the original loses any bit.
    clears: bool,
    /// Whether the original loses a right that hardware may have cached.
    shrinks: bool,
    inverted: u64,
    rule: CopyRule,
}

/// The result of copying consecutive entries that are alike.
struct CopiedAlike {
    count: usize,
    /// The union of the originals' bits, after the bits to be lost were cleared.
    seen: u64,
    /// Whether the next entry has the same attributes but is not copied, because its page is exclusive and pinned.
    pinned: bool,
}

impl Alike {
    /// Decides for entries like `word`.
    fn decide(word: u64, rule: CopyRule) -> Self {
        let attributes = x86_64::attributes(word);
        let present = x86_64::is_present(word);
        let lost = if present { word & rule.clear.bits() } else { 0 };
        Self {
            attributes,
            present,
            counted: present && word & x86_64::BORROWED == 0,
            exclusive: lost & x86_64::EXCLUSIVE != 0,
            clears: lost != 0,
            shrinks: lost & x86_64::WRITE != 0 && word & x86_64::READ != 0,
            inverted: x86_64::inverted(attributes),
            rule,
        }
    }

    /// Copies the leading entries of `slots` that have these attributes to `targets`.
    fn apply<M: Machine>(
        &self,
        frames: &Frames<M>,
        slots: &[AtomicU64],
        targets: &[AtomicU64],
    ) -> CopiedAlike {
        match (self.counted, self.clears) {
            (true, true) => self.copy::<true, true, M>(frames, slots, targets),
            (true, false) => self.copy::<true, false, M>(frames, slots, targets),
            (false, true) => self.copy::<false, true, M>(frames, slots, targets),
            (false, false) => self.copy::<false, false, M>(frames, slots, targets),
        }
    }

    #[inline(never)]
    fn copy<const COUNTED: bool, const CLEARS: bool, M: Machine>(
        &self,
        frames: &Frames<M>,
        slots: &[AtomicU64],
        targets: &[AtomicU64],
    ) -> CopiedAlike {
        let (attributes, inverted, exclusive) = (self.attributes, self.inverted, self.exclusive);
        let kept_by_original = !self.rule.clear.bits();
        let given = !self.rule.withhold.bits();
        let metas = frames.metas();
        // Both slices have the same length, so that no index in the loop needs a bounds check.
        let length = slots.len().min(targets.len());
        let (slots, targets) = (&slots[..length], &targets[..length]);
        let (mut count, mut seen, mut pinned) = (0, 0, false);
        while count < length {
            step(Step::Entry);
            let mut word = slots[count].load(Ordering::Relaxed);
            if x86_64::attributes(word) != attributes {
                break;
            }
            if COUNTED {
                let number = x86_64::frame(word, inverted).number();
                let (mut meta, mut pins) = (metas.get(number), 0);
                if meta.is_in_block() {
                    (meta, pins) = metas.counted_in_block(number);
                }
                let pins = meta.pins.load(Ordering::Acquire) | pins;
                if pins != 0 && exclusive {
                    pinned = true;
                    break;
                }
                add_references(meta, 1);
            }
            if CLEARS {
                slots[count].fetch_and(kept_by_original, Ordering::AcqRel);
                // The entry has lost the right to write, so no CPU sets the dirty bit any more, and the copy takes the
                // bit as it is read now. The accessed bit now shows whether any CPU may have cached the right.
                word = slots[count].load(Ordering::Acquire);
                seen |= word;
            }
            targets[count].store(word & given, Ordering::Release);
            count += 1;
        }
        CopiedAlike {
            count,
            seen,
            pinned,
        }
    }

    /// Returns how many of the entries `copies` map pages of objects and hold a reference.
    fn objects<M: Machine>(&self, frames: &Frames<M>, copies: &[AtomicU64]) -> u64 {
        match self.rule.pages {
            _ if !self.counted => 0,
            AreaPages::Private => 0,
            AreaPages::Object => copies.len() as u64,
            AreaPages::Both => {
                let frame =
                    |copy: &&AtomicU64| x86_64::frame(copy.load(Ordering::Relaxed), self.inverted);
                let objects = copies
                    .iter()
                    .filter(|copy| frames.kind(frame(copy)) == FrameKind::Object);
                objects.count() as u64
            }
        }
    }

    /// Counts the entries that were copied from `start` on, and records the change of the originals in the gather.
    fn tell<M: Machine>(
        &self,
        start: Page,
        copied: &CopiedAlike,
        pass: &mut Pass,
        gather: &mut Gather<'_, M>,
    ) {
        let entries = copied.count as u64;
        pass.pages += entries;
        if self.counted {
            pass.counted += entries;
        }
        if self.shrinks {
            let elided = copied.seen & x86_64::ACCESSED == 0;
            if entries > 0 {
                let size = PageSize::Size4K;
                gather.record_entries(start, size, Change::Shrank, elided, entries);
            }
        } else if self.present && !self.rule.clear.is_empty() {
            // The entries did not have the right to write. Another operation may have taken it, and not have flushed
            // yet (rule: see-pending-flushes).
            gather.rely_on_pending();
        }
    }
}

/// The number of swap entries that are copied together.
const TOGETHER: usize = 8;

/// Copies the leading swap entries of `slots`, which are no longer exclusive then, to `targets`. Returns how many there
/// are, at most [`TOGETHER`].
#[cold]
#[inline(never)]
fn copy_swapped<M: Machine>(
    frames: &Frames<M>,
    slots: &[AtomicU64],
    targets: &[AtomicU64],
    rule: CopyRule,
) -> usize {
    let mut names = [0; TOGETHER];
    let most = slots.len().min(targets.len()).min(TOGETHER);
    let (slots, targets) = (&slots[..most], &targets[..most]);
    let mut count = 0;
    while count < most {
        step(Step::Entry);
        let Some(name) = x86_64::swapped(slots[count].load(Ordering::Relaxed)) else {
            break;
        };
        names[count] = name;
        count += 1;
    }
    frames.share_slots(&names[..count]);
    for (slot, target) in slots[..count].iter().zip(targets) {
        let word = slot.load(Ordering::Relaxed);
        target.store(x86_64::lose(word, rule.withhold), Ordering::Release);
        slot.store(x86_64::lose(word, rule.clear), Ordering::Release);
    }
    count
}

/// Copies the marker `word` to `target`.
///
/// # Panics
/// If it is an entry of another kind.
#[cold]
fn copy_marker((word, target): (u64, &AtomicU64), rule: CopyRule, pass: &mut Pass) {
    match x86_64::decode(word, 1) {
        Entry::Marker(Marker { marks }) => {
            let kept = x86_64::encode(Entry::marker(marks.intersection(rule.marks)));
            target.store(kept, Ordering::Release);
            pass.markers += u64::from(kept != 0);
        }
        entry @ (Entry::Empty | Entry::Migrating(_) | Entry::Present(_) | Entry::Swapped(_)) => {
            cannot_copy(entry)
        }
    }
}

/// Ends a copy that found an entry which cannot be in an address space while it is copied: migration keeps the areas
/// locked for as long as an entry is migrating, and huge pages are split before they are swapped out.
#[cold]
fn cannot_copy(entry: Entry) -> ! {
    panic!("an entry that cannot be copied: {entry:?}")
}

impl<M: Machine> Cursor<'_, M> {
    /// Copies the entries from the position on to the same addresses of `to`, until an entry needs the caller or the
    /// range ends. `to` is a cursor on the same range of another table, where nothing is mapped yet. A reference is
    /// added for each copied entry that holds one.
    ///
    /// # Errors
    /// [`OutOfFrames`] if there is no frame for a table of `to`. Entries that were copied before stay.
    ///
    /// # Panics
    /// If the cursors are not at the same page, or an entry is migrating.
    pub fn copy_to(
        &mut self,
        to: &mut Cursor<'_, M>,
        rule: CopyRule,
        gather: &mut Gather<'_, M>,
    ) -> Result<Copied, OutOfFrames> {
        assert!(
            self.position == to.position,
            "the cursors of a copy stand apart"
        );
        let mut copied = Copied {
            entries: 0,
            pages: 0,
            counted: 0,
            objects: 0,
            swapped: 0,
            stop: CopyStop::Done,
        };
        // Whenever the first cursor moves, the second one is parked, because its lock comes later in the order.
        to.park();
        while self.next_filled().is_some() {
            to.go(self.position);
            if self.level > 1 {
                let here = self.entry().entry;
                match self.copy_slot(to, rule, gather)? {
                    CopyStop::Done => {
                        if here.present().is_some() {
                            copied.entries += 1;
                            copied.pages += self.size().pages();
                        }
                        let frames = self.table.frames();
                        let kind = here.counted_frame().map(|frame| frames.kind(frame));
                        if kind.is_some_and(|kind| !kind.is_pool()) {
                            copied.counted += self.size().pages();
                        }
                        if kind == Some(FrameKind::Object) {
                            copied.objects += self.size().pages();
                        }
                        to.park();
                        self.advance();
                    }
                    stop @ CopyStop::Pinned(_) => {
                        return Ok(Copied { stop, ..copied });
                    }
                }
                continue;
            }
            while to.level > 1 {
                to.push_down()?;
            }
            let end = self.table_end(self.range.end);
            let pass = self.copy_table(to, end, rule, gather);
            copied.entries += pass.pages;
            copied.pages += pass.pages;
            copied.counted += pass.counted;
            copied.objects += pass.objects;
            copied.swapped += pass.swapped;
            if let Some(stop) = pass.stop {
                self.go(pass.end);
                to.go(pass.end);
                return Ok(Copied { stop, ..copied });
            }
            to.park();
            self.go(end);
        }
        to.go(to.range.end);
        Ok(copied)
    }

    /// Moves both cursors of a copy past the slot here. Returns `false` if that is the end of the range.
    pub fn pass_with(&mut self, to: &mut Cursor<'_, M>) -> bool {
        to.park();
        let more = self.advance();
        to.go(self.position);
        more
    }

    /// Copies the entries from the position to `end` between two locked last-level tables.
    fn copy_table(
        &self,
        to: &Cursor<'_, M>,
        end: Page,
        rule: CopyRule,
        gather: &mut Gather<'_, M>,
    ) -> Pass {
        let frames = self.table.frames();
        let slots = self.slots_to(end);
        let targets = to.slots_to(end);
        let mut pass = Pass {
            pages: 0,
            counted: 0,
            objects: 0,
            markers: 0,
            swapped: 0,
            end,
            stop: None,
        };
        let mut done = 0;
        while done < slots.len() {
            let word = slots[done].load(Ordering::Relaxed);
            let at = self.position.add(done as u64);
            let alike = Alike::decide(word, rule);
            if word == 0 {
                done += count_alike(&slots[done..], 0);
            } else if alike.present {
                let copied = alike.apply(frames, &slots[done..], &targets[done..]);
                alike.tell(at, &copied, &mut pass, gather);
                pass.objects += alike.objects(frames, &targets[done..done + copied.count]);
                done += copied.count;
                if copied.pinned {
                    let word = slots[done].load(Ordering::Relaxed);
                    pass.stop = Some(CopyStop::Pinned(x86_64::decode_present(word, 1)));
                }
            } else if x86_64::swapped(word).is_some() {
                let copied = copy_swapped(frames, &slots[done..], &targets[done..], rule);
                pass.swapped += copied as u64;
                done += copied;
            } else {
                copy_marker((word, &targets[done]), rule, &mut pass);
                done += 1;
            }
            if pass.stop.is_some() {
                pass.end = self.position.add(done as u64);
                break;
            }
        }
        let added = pass.pages + pass.markers + pass.swapped;
        let live = u64::from(to.meta.live.load(Ordering::Relaxed)) + added;
        to.meta.live.store(live as u32, Ordering::Relaxed);
        pass
    }

    /// Copies one slot above the last level.
    #[cold]
    fn copy_slot(
        &mut self,
        to: &mut Cursor<'_, M>,
        rule: CopyRule,
        gather: &mut Gather<'_, M>,
    ) -> Result<CopyStop, OutOfFrames> {
        self.debug_check_whole();
        while to.level > self.level {
            to.push_down()?;
        }
        let frames = self.table.frames();
        let new = match self.entry().entry {
            Entry::Empty => return Ok(CopyStop::Done),
            Entry::Marker(Marker { marks }) => Entry::marker(marks.intersection(rule.marks)),
            Entry::Present(page) => {
                let counted = !page.bits.contains(Bits::BORROWED);
                let exclusive = page.bits.intersection(rule.clear).contains(Bits::EXCLUSIVE);
                if counted && exclusive && frames.pins(page.frame) != 0 {
                    return Ok(CopyStop::Pinned(page));
                }
                if self.level == HUGE_LEVEL {
                    to.set_aside(to.table.allocate_aside()?);
                }
                if counted {
                    frames.share_whole_raw(page.frame);
                }
                let page = self.edit(Bits::empty(), rule.clear, gather);
                Entry::Present(Present {
                    bits: page.bits.difference(rule.withhold),
                    ..page
                })
            }
            entry @ (Entry::Swapped(_) | Entry::Migrating(_)) => cannot_copy(entry),
        };
        let word = x86_64::encode(new);
        to.slot_word().store(word, Ordering::Release);
        to.count(0, word);
        Ok(CopyStop::Done)
    }
}
