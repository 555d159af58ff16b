//! Copies the entries of a last-level table to another table.

use core::sync::atomic::Ordering;

use super::runs::count_alike;
use crate::addr::{Page, PageSize};
use crate::arch::{TableSlot, word};
use crate::entry::{Bits, Change, Entry, Marker, Marks, Present};
use crate::frame::{FrameKind, Frames, add_references};
use crate::gather::Gather;
use crate::machine::{Machine, SlotOf};
use crate::sync::{Step, step};

/// The rule by which the entries of an area are copied, decided once per area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyRule {
    /// Bits that are cleared in the original.
    pub(super) clear: Bits,
    /// Bits that are cleared in the copy.
    pub(super) withhold: Bits,
    /// Marks that are kept in copied markers.
    pub(super) marks: Marks,
    /// The kinds of pages that the area can have.
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
    /// For a private area. After the copy, neither the parent nor the child may write in place or treat the page as
    /// exclusive. The dirty bit is copied, because a clean entry would mean that the page has a valid copy elsewhere.
    /// `MERGED` is not copied: the KSM scan sets it in the copy.
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

    /// For a private area of an object.
    pub const PRIVATE_OF_OBJECT: CopyRule = CopyRule {
        pages: AreaPages::Both,
        ..Self::PRIVATE
    };

    /// For a shared area. The copy has the same rights as the original, and starts clean.
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

    /// For a shared area in which the first write to each page must fault. The copy is clean, so it must not be
    /// writable (rule: clean-writable-is-private).
    pub const SHARED_NOTIFIED: CopyRule = CopyRule {
        withhold: Self::SHARED.withhold.union(Bits::WRITE),
        ..Self::SHARED
    };

    /// For a shared table, when one of the address spaces that share it takes a copy: neither the copy nor the original
    /// is exclusive or writable. The copy has not been accessed, because no CPU has cached a translation of it.
    pub(super) const SHARED_TABLE: CopyRule = CopyRule {
        clear: Self::PRIVATE.clear,
        withhold: Self::PRIVATE.clear.union(Bits::ACCESSED),
        marks: Marks::all(),
        pages: AreaPages::Private,
    };

    /// Returns the rule, changed so that the copy keeps userfaultfd's protection. A fork uses this only for a context
    /// with the fork event (rule: uffd-wp-survives). The caller must first clear `IDLE` in every original that also has
    /// `ACCESSED`: the copy loses `ACCESSED`, and with `IDLE` alone it would mean that the page was not accessed.
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
    /// The page here is exclusive and pinned. The page stays exclusive. The caller must copy it for the child at once
    /// (rule: exclusive-before-pin), and then move past it with [`Cursor::pass_with`](super::Cursor::pass_with).
    Pinned(Present),
}

/// The result of copying within one table.
pub(super) struct Pass {
    pub(super) pages: u64,
    pub(super) counted: u64,
    pub(super) objects: u64,
    pub(super) markers: u64,
    pub(super) swapped: u64,
    /// The page where the copy stopped, or the end of the pages to copy.
    pub(super) end: Page,
    pub(super) stop: Option<CopyStop>,
}

/// How to copy entries with certain attributes, which are the bits outside of the address field. This is decided once
/// for all consecutive entries that have these attributes.
pub(super) struct Alike {
    attributes: u64,
    pub(super) present: bool,
    /// Whether the entry holds a reference.
    pub(super) counted: bool,
    /// Whether `EXCLUSIVE` must be cleared in the original.
    pub(super) exclusive: bool,
    /// Whether any bit is cleared in the original.
    pub(super) clears: bool,
    /// Whether the original loses the right to write, which a CPU may have cached.
    pub(super) shrinks: bool,
    pub(super) inverted: u64,
    pub(super) rule: CopyRule,
}

/// The result of copying consecutive entries with the same attributes.
pub(super) struct CopiedAlike {
    pub(super) count: usize,
    /// The union of the bits of the originals, after the bits of the rule's `clear` were cleared.
    pub(super) seen: u64,
    /// Whether the copy stopped at an entry with the same attributes whose page is exclusive and pinned.
    pub(super) pinned: bool,
}

impl Alike {
    /// Decides how to copy entries with the attributes of `word` under `rule`.
    #[inline]
    pub(super) fn decide(word: u64, rule: CopyRule) -> Self {
        let attributes = word::attributes(word);
        let present = word::is_present(word);
        let lost = if present {
            word::held(word, rule.clear)
        } else {
            Bits::empty()
        };
        Self {
            attributes,
            present,
            counted: present && word & word::mask(Bits::BORROWED) == 0,
            exclusive: lost.contains(Bits::EXCLUSIVE),
            clears: !lost.is_empty(),
            shrinks: lost.contains(Bits::WRITE) && word::has_rights(word),
            inverted: word::inverted(attributes),
            rule,
        }
    }

    /// Copies to `targets` the leading entries of `slots` that have the attributes for which this was decided.
    pub(super) fn apply<M: Machine>(
        &self,
        frames: &Frames<M>,
        slots: &[SlotOf<M>],
        targets: &[SlotOf<M>],
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
        slots: &[SlotOf<M>],
        targets: &[SlotOf<M>],
    ) -> CopiedAlike {
        let (attributes, inverted, exclusive) = (self.attributes, self.inverted, self.exclusive);
        let CopyRule {
            clear, withhold, ..
        } = self.rule;
        let metas = frames.metas();
        // Cut both slices to the same length, so that no index in the loop needs a bounds check.
        let length = slots.len().min(targets.len());
        let (slots, targets) = (&slots[..length], &targets[..length]);
        let (mut count, mut seen, mut pinned) = (0, 0, false);
        while count < length {
            step::<M::Threads>(Step::Entry);
            let mut word = slots[count].load(Ordering::Relaxed);
            if word::attributes(word) != attributes {
                break;
            }
            if COUNTED {
                let number = word::frame(word, inverted).number();
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
                word::take(&slots[count], clear);
                // The entry has lost the right to write, so no CPU sets its dirty bit any more, and the value that is
                // read here is final. If the accessed bit is clear here, no CPU has cached the right.
                word = slots[count].load(Ordering::Acquire);
                seen |= word;
            }
            targets[count].store(word::without(word, withhold), Ordering::Release);
            count += 1;
        }
        CopiedAlike {
            count,
            seen,
            pinned,
        }
    }

    /// Returns the number of `copies` that map pages of objects and hold a reference.
    fn objects<M: Machine>(&self, frames: &Frames<M>, copies: &[SlotOf<M>]) -> u64 {
        match self.rule.pages {
            _ if !self.counted => 0,
            AreaPages::Private => 0,
            AreaPages::Object => copies.len() as u64,
            AreaPages::Both => {
                let frame =
                    |copy: &&SlotOf<M>| word::frame(copy.load(Ordering::Relaxed), self.inverted);
                let objects = copies
                    .iter()
                    .filter(|copy| frames.kind(frame(copy)) == FrameKind::Object);
                objects.count() as u64
            }
        }
    }
}

/// The maximum number of swap entries that are copied together.
const TOGETHER: usize = 8;

/// Copies the leading swap entries of `slots` to `targets`, at most [`TOGETHER`]. Clears the bits that `rule` clears in
/// the originals. Returns the number of copied entries.
#[cold]
#[inline(never)]
pub(super) fn copy_swapped<M: Machine>(
    frames: &Frames<M>,
    slots: &[SlotOf<M>],
    targets: &[SlotOf<M>],
    rule: CopyRule,
) -> usize {
    let mut names = [0; TOGETHER];
    let most = slots.len().min(targets.len()).min(TOGETHER);
    let (slots, targets) = (&slots[..most], &targets[..most]);
    let mut count = 0;
    while count < most {
        step::<M::Threads>(Step::Entry);
        let Some(name) = word::swapped(slots[count].load(Ordering::Relaxed)) else {
            break;
        };
        names[count] = name;
        count += 1;
    }
    frames.share_slots(&names[..count]);
    for (slot, target) in slots[..count].iter().zip(targets) {
        let word = slot.load(Ordering::Relaxed);
        target.store(word::lose(word, rule.withhold), Ordering::Release);
        slot.store(word::lose(word, rule.clear), Ordering::Release);
    }
    count
}

/// Copies the marker `word` to `target`.
///
/// # Panics
/// If `word` is not a marker.
#[cold]
fn copy_marker<M: Machine>((word, target): (u64, &SlotOf<M>), rule: CopyRule, pass: &mut Pass) {
    match word::decode(word, 1) {
        Entry::Marker(Marker { marks }) => {
            let kept = word::encode(Entry::marker(marks.intersection(rule.marks)));
            target.store(kept, Ordering::Release);
            pass.markers += u64::from(kept != 0);
        }
        entry @ (Entry::Empty | Entry::Migrating(_) | Entry::Present(_) | Entry::Swapped(_)) => {
            cannot_copy(entry)
        }
    }
}

/// Panics because a fork found an entry that cannot exist during a fork. No entry is migrating during a fork, because
/// migration holds the lock of the areas. No huge page is swapped out, because huge pages are split first.
#[cold]
pub(super) fn cannot_copy(entry: Entry) -> ! {
    panic!("an entry that cannot be copied: {entry:?}")
}

impl Alike {
    /// Adds the entries that were copied from `start` on to the counts in `pass`, and records the change of the
    /// originals in the gather.
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
            let elided = word::is_uncached(copied.seen);
            if entries > 0 {
                let size = PageSize::Size4K;
                gather.record_entries(start, size, Change::Shrank, elided, entries);
            }
        } else if self.present && !self.rule.clear.is_empty() {
            // The entries had no right to write. Another operation may have removed this right without having flushed
            // yet (rule: see-pending-flushes).
            gather.rely_on_pending();
        }
    }
}

/// Copies the entries of `slots`, whose first page is `start`, to the empty slots `targets`, until all are copied or the
/// caller must handle a page. Takes a reference for each copied entry that holds one.
///
/// # Locks
/// The caller holds the locks of both tables.
pub(super) fn copy_slots<M: Machine>(
    (slots, targets): (&[SlotOf<M>], &[SlotOf<M>]),
    start: Page,
    rule: CopyRule,
    gather: &mut Gather<'_, M>,
) -> Pass {
    let frames = gather.frames();
    let mut pass = Pass {
        pages: 0,
        counted: 0,
        objects: 0,
        markers: 0,
        swapped: 0,
        end: start.add(slots.len() as u64),
        stop: None,
    };
    let mut done = 0;
    while done < slots.len() {
        let word = slots[done].load(Ordering::Relaxed);
        let at = start.add(done as u64);
        let alike = Alike::decide(word, rule);
        if word == 0 {
            done += count_alike::<M>(&slots[done..], 0);
        } else if alike.present {
            let copied = alike.apply(frames, &slots[done..], &targets[done..]);
            alike.tell(at, &copied, &mut pass, gather);
            pass.objects += alike.objects(frames, &targets[done..done + copied.count]);
            done += copied.count;
            if copied.pinned {
                let word = slots[done].load(Ordering::Relaxed);
                pass.stop = Some(CopyStop::Pinned(word::decode_present(word, 1)));
            }
        } else if word::swapped(word).is_some() {
            let copied = copy_swapped(frames, &slots[done..], &targets[done..], rule);
            pass.swapped += copied as u64;
            done += copied;
        } else {
            copy_marker::<M>((word, &targets[done]), rule, &mut pass);
            done += 1;
        }
        if pass.stop.is_some() {
            pass.end = start.add(done as u64);
            break;
        }
    }
    pass
}
