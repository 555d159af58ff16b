//! Last-level tables that several address spaces share after a fork (on-demand-fork, EuroSys 2021).
//!
//! A fork can share the last-level tables of private anonymous memory instead of copying their entries. The entry above
//! a shared table permits no stores, in each address space. As long as a table is shared, its entries do not change,
//! except that processors set accessed bits (rule: shared-table-is-constant).
//!
//! - **Sharing** (`share_tables.rs`): a fork links a table of the parent at the same address in the child, and removes
//!   the right to write from the parent's entry above it. The fork also earmarks a frame for the copy that the parent
//!   or the child will need.
//! - **Owning** (`own_tables.rs`): a cursor that can change entries needs a table that only its address space uses.
//!   Before such a cursor locks a shared table, it replaces the table by a copy, in the earmarked frame. If no other
//!   address space shares the table any more, the cursor keeps the table, which its address space then owns. No code
//!   path can omit this, because cursors are the only way to change entries. A [`Look`](super::Look) reads a shared
//!   table, and shows its pages as neither exclusive nor writable.
//! - **Leaving** (`leave_tables.rs`): an address space that unmaps all pages of a shared table unlinks the table,
//!   without reading its entries. If no other address space shares the table, the leaving address space drops the
//!   entries after its flush.
//!
//! The lock of a shared table protects its entries. The lock of the upper table protects the entry above the shared
//! table. A thread that needs both locks acquires that of the upper table first, with rank `Table`, and then that of
//! the shared table, with rank `TableChild`.
//!
//! The number of address spaces that share a table is the number of references to its frame. A fork raises this number
//! while it holds the lock of the parent's upper table. An address space lowers the number while it holds the table's
//! lock, or without a lock if no CPU walks the table for this address space any more.
//!
//! A frame that a shared table maps has one reference for the table, not one for each address space. The frame's
//! references are therefore exact for an address space that owns its table: one reference means that no other entry
//! maps the frame.

use core::sync::atomic::Ordering;

use super::level::{ABOVE, ENTRIES, SHARED_OWNER, slot_index, slot_pages};
use super::numbers;
use super::runs::{TOGETHER, every_bit, some_bits};
use crate::addr::{Frame, Page};
use crate::arch::{Architecture, Slot, TableSlot, word};
use crate::entry::{Bits, Entry, Marker, Marks};
use crate::frame::Meta;
use crate::machine::{Machine, SlotOf};
use crate::root::Table;
use crate::sync::{Step, step};

/// Returns whether several address spaces may share the table whose metadata is `meta`. The result is final only while
/// the table's lock is held.
#[inline]
pub(super) fn is_shared(meta: &Meta) -> bool {
    meta.is_table() && is_shared_table(meta)
}

/// Like [`is_shared`], for a frame that is certainly a table: it is locked, or the upper table that points to it is
/// locked.
#[inline(always)]
pub(super) fn is_shared_table(meta: &Meta) -> bool {
    meta.owner.load(Ordering::Acquire) == SHARED_OWNER
}

/// In [`Meta::quiet`] of a shared table: when this was last checked, no page that the table maps had other references,
/// and the table had no swap entry. A page can only get another reference when an address space replaces the table by a
/// copy, which clears the flag: all other code that takes a reference locks a table that its address space owns.
pub(super) const ALONE: u32 = 1 << 4;

/// Returns the number of address spaces that use the table whose metadata is `meta`, which is locked. Other address
/// spaces can leave the table at the same time.
pub(super) fn count_sharers(meta: &Meta) -> u32 {
    if is_shared_table(meta) {
        meta.references.load(Ordering::Acquire)
    } else {
        1
    }
}

/// Removes one address space from those that share the table whose metadata is `meta`, unless it is the last. Returns
/// whether other address spaces remain.
///
/// # Locks
/// None if no CPU walks the table for this address space any more. Otherwise the caller holds the lock of the table
/// until no CPU does. While the lock is held, no other address space takes the table or frees it.
#[inline]
pub(super) fn stop_sharing(meta: &Meta) -> bool {
    let mut before = meta.references.load(Ordering::Relaxed);
    while before > 1 {
        let exchanged = meta.references.compare_exchange_weak(
            before,
            before - 1,
            Ordering::AcqRel,
            Ordering::Relaxed,
        );
        match exchanged {
            Ok(_) => return true,
            Err(now) => before = now,
        }
    }
    false
}

/// Like [`stop_sharing`], for an address space that has unlinked the table and flushed. If it is the last, nothing else
/// refers to the table, so the number of references may be 0 for a moment.
#[inline(always)]
pub(super) fn stop_sharing_unlinked(meta: &Meta) -> bool {
    let remains = meta.references.fetch_sub(1, Ordering::AcqRel) != 1;
    if !remains {
        meta.references.store(1, Ordering::Relaxed);
    }
    remains
}

/// Returns whether a table can be shared: no entry has state that belongs to one address space. No other thread changes
/// the table.
#[inline(never)]
pub(super) fn is_shareable<M: Machine>(words: &[SlotOf<M>; ENTRIES]) -> bool {
    step::<M::Threads>(Step::Entry);
    let of_one = word::mask(OF_ONE);
    let mut rest = &words[..];
    while let Some((group, more)) = rest.split_first_chunk::<TOGETHER>() {
        rest = more;
        let (every, some) = combined::<M>(group);
        let are_pages = word::are_pages(every, 1);
        let plain = some & of_one == 0 && (are_pages || some == 0);
        if !plain
            && !group
                .iter()
                .all(|slot| is_of_all(slot.load(Ordering::Relaxed)))
        {
            return false;
        }
    }
    true
}

/// Whether the entry `word` has no state that belongs to one address space.
#[inline]
fn is_of_all(word: u64) -> bool {
    match word::decode(word, 1) {
        Entry::Empty => true,
        Entry::Present(page) => !page.bits.intersects(OF_ONE),
        Entry::Swapped(swapped) => !swapped.bits.intersects(OF_ONE),
        Entry::Marker(Marker { marks }) => !marks.contains(Marks::UFFD_WP),
        Entry::Migrating(_) => false,
    }
}

/// Counts the entries of a table by reading them, for comparison with the numbers in its metadata.
pub(super) fn count_entries<M: Machine>(words: &[SlotOf<M>; ENTRIES]) -> u32 {
    let each = words.iter().map(|slot| slot.load(Ordering::Relaxed));
    each.map(numbers::of_entry).sum()
}

/// Returns the intersection and the union of the words of a group of slots. The lock of the table is held, so the
/// interleaver need not stop at each slot.
#[inline(always)]
fn combined<M: Machine>(group: &[SlotOf<M>; TOGETHER]) -> (u64, u64) {
    if !cfg!(feature = "interleave") {
        return (every_bit::<M>(group), some_bits::<M>(group));
    }
    group.iter().fold((u64::MAX, 0), |(every, some), slot| {
        let word = slot.load(Ordering::Relaxed);
        (every & word, some | word)
    })
}

/// Returns the number of empty slots at the start of `slots`.
pub(super) fn count_empty<M: Machine>(slots: &[SlotOf<M>]) -> usize {
    let mut rest = slots;
    while let Some((group, more)) = rest.split_first_chunk::<TOGETHER>() {
        if combined::<M>(group).1 != 0 {
            break;
        }
        rest = more;
    }
    let single = rest
        .iter()
        .take_while(|slot| slot.load(Ordering::Relaxed) == 0);
    slots.len() - rest.len() + single.count()
}

/// Returns the number of slots at the end of `slots` for whose words `holds` returns true. `all` takes the intersection
/// and the union of the words of a group, and returns true only if `holds` is true for every word of that group.
#[inline(always)]
pub(super) fn count_last<M: Machine>(
    slots: &[SlotOf<M>],
    all: impl Fn(u64, u64) -> bool,
    holds: impl Fn(u64) -> bool,
) -> usize {
    let mut rest = slots;
    while let Some((more, group)) = rest.split_last_chunk::<TOGETHER>() {
        let (every, some) = combined::<M>(group);
        if !all(every, some) {
            break;
        }
        rest = more;
    }
    let words = rest.iter().rev().map(|slot| slot.load(Ordering::Relaxed));
    slots.len() - rest.len() + words.take_while(|word| holds(*word)).count()
}

/// The bits of an entry that belong to one address space: those of userfaultfd, and the bit that records a KSM page.
const OF_ONE: Bits = Bits::UFFD_WP
    .union(Bits::WATCHED)
    .union(Bits::IDLE)
    .union(Bits::MERGED);

impl<M: Machine> Table<M> {
    /// Returns the last-level table for `page` if it is shared, for audits. No thread may change the table during the
    /// call.
    pub fn shared_table(&self, page: Page) -> Option<Frame> {
        let frames = self.frames();
        let above = self.upper_table(page).ok()?;
        let slot = &frames.table_words(above)[slot_index(page, ABOVE)];
        match word::slot(slot.load(Ordering::Acquire), ABOVE) {
            Slot::Table(lower) => is_shared(frames.meta(lower)).then_some(lower),
            Slot::Entry => None,
        }
    }

    /// Returns the upper table that contains the entry above `page`. If there is none, returns the next page for which
    /// there may be one.
    #[inline]
    pub(super) fn upper_table(&self, page: Page) -> Result<Frame, Page> {
        let frames = self.frames();
        let mut node = self.root();
        for level in (ABOVE + 1..=M::Arch::LEVELS).rev() {
            step::<M::Threads>(Step::Entry);
            let slot = &frames.table_words(node)[slot_index(page, level)];
            let Slot::Table(lower) = word::slot(slot.load(Ordering::Acquire), level) else {
                return Err(self.next_upper(node, page, level));
            };
            node = lower;
        }
        Ok(node)
    }

    /// Returns the first page, after the pages of the entry for `page`, whose entry in the table `node` at `level` is
    /// not empty, or the end of the table.
    #[cold]
    fn next_upper(&self, node: Frame, page: Page, level: u8) -> Page {
        let after = slot_index(page, level) + 1;
        let empty = count_empty::<M>(&self.frames().table_words(node)[after..]);
        let span = slot_pages(level);
        Page::new((page.number() / span + 1 + empty as u64) * span)
    }
}
