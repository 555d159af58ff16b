//! Architectures: what the bits of a page-table entry are, and what a processor does with them.
//!
//! [`Machine::Arch`](crate::Machine::Arch) names the architecture of the page tables. It need not be that of the
//! processor on which the crate runs: a simulator or an emulator has tables of the machine that it simulates.
//!
//! Only this folder contains encodings. The loops of `table` over many entries use encoded words through
//! [`Encoding`]; all other code uses the types of [`entry`](crate::entry).

#[cfg(test)]
mod tests;
mod x86_64;

pub use x86_64::X86_64;

use core::fmt::Debug;
use core::sync::atomic::AtomicU64;

use crate::addr::{Frame, PageSize};
use crate::entry::{Bits, Change, Entry, Present};

/// An architecture of page tables. Only this crate implements the trait.
pub trait Architecture: Encoding {}

/// How a page walk interprets a word of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// A lower table.
    Table(Frame),
    /// Any other entry.
    Entry,
}

/// How an architecture encodes entries, and how its processors use them. A word is an encoded entry.
pub trait Encoding: Copy + Debug + Send + Sync + 'static {
    /// Whether an entry that points to a lower table can forbid stores to all pages of the table. Without it, a fork
    /// shares no tables.
    const UPPER_ENTRIES_PERMIT: bool;

    /// Whether a processor sets the accessed bit of each entry of its walk that points to a lower table. Without it, no
    /// table is skippable.
    const UPPER_ENTRIES_ACCESSED: bool;

    /// Encodes an entry that points to a lower table.
    fn table(frame: Frame) -> u64;

    /// Returns a new entry that points to the same lower table as `word`, and through which no page of the table can be
    /// written.
    fn shared_table(word: u64) -> u64;

    /// Whether the entry `word`, which points to a lower table, permits stores to the pages of the table.
    fn permits_stores(word: u64) -> bool;

    /// Makes the entry in `slot`, which points to a lower table, permit stores to the pages of the table, as far as
    /// their entries permit them.
    fn permit_stores(slot: &AtomicU64);

    /// Makes the entry in `slot`, which points to a lower table, permit no store to a page of the table. Keeps the
    /// accessed bit.
    fn forbid_stores(slot: &AtomicU64);

    /// Returns the leaf entry `word` of a shared table as it is for each address space that shares the table: neither
    /// exclusive nor writable.
    fn as_shared(word: u64) -> u64;

    /// Returns how a page walk interprets `word` in a table at `level` (1 is the last level).
    fn slot(word: u64, level: u8) -> Slot;

    /// Returns the size of the page that an entry of a table at `level` can map.
    fn size(level: u8) -> PageSize;

    /// Encodes a page.
    fn encode_present(page: Present) -> u64;

    /// Encodes `entry`.
    fn encode(entry: Entry) -> u64;

    /// Returns the swap slot in `word` if `word` is a swap entry, otherwise `None`. `word` must not point to a table.
    fn swapped(word: u64) -> Option<u64>;

    /// Whether `word` is a migrating entry. `word` must not point to a table.
    fn is_migrating(word: u64) -> bool;

    /// Returns the bits that the swap entry `word` carries.
    fn carried(word: u64) -> Bits;

    /// Returns the swap entry `word` with its carried bits replaced by those of `bits`.
    fn with_carried(word: u64, bits: Bits) -> u64;

    /// Returns the swap entry `word` without the bits `lost`.
    fn lose(word: u64, lost: Bits) -> u64;

    /// Whether `word` maps a page, with or without rights. `word` must not point to a table.
    fn is_present(word: u64) -> bool;

    /// Returns those bits of a page's word that encode `bits`, which must contain no rights, no key and no cache mode.
    fn mask(bits: Bits) -> u64;

    /// Returns those of `bits` that the page in `word` has. `bits` must not contain `EXECUTE`. `is_present` must be
    /// true for `word`.
    fn held(word: u64, bits: Bits) -> Bits;

    /// Returns the page in `word` without `bits`, which must contain neither `READ` nor `EXECUTE`. `is_present` must be
    /// true for `word`.
    fn without(word: u64, bits: Bits) -> u64;

    /// Atomically removes `bits` from the page in `slot`, like [`without`](Self::without). Bits that hardware sets at
    /// the same time are kept.
    fn take(slot: &AtomicU64, bits: Bits);

    /// Whether `word` maps a page with rights: the processor uses it. `word` must not point to a table.
    fn has_rights(word: u64) -> bool;

    /// Whether the page became writable when its word `old` was replaced by `new`.
    fn gained_write(old: u64, new: u64) -> bool;

    /// Whether no CPU can have cached a translation from `word`, because its accessed bit is clear (rule:
    /// elide-only-uncached). If `word` is the bitwise OR of several words, the result holds for each of them.
    fn is_uncached(word: u64) -> bool;

    /// Returns the page in `word` with the accessed bit, if it is set, moved to the software accessed bit. In this case
    /// also clears `IDLE` (rule: fold-before-clearing).
    fn fold_accessed(word: u64) -> u64;

    /// Whether `every`, the bitwise AND of words at `level`, proves that each of these words maps a page with rights.
    /// `false` proves nothing.
    fn are_pages(every: u64, level: u8) -> bool;

    /// Whether `word` proves that its page, mapped or swapped out, was not written since userfaultfd write-protected
    /// it: either a store faults, or the dirty bit would be set. Of markers, only those with uffd-wp qualify. `word`
    /// must not point to a table.
    fn is_unwritten(word: u64) -> bool;

    /// Whether `word` proves that its page was not accessed since userfaultfd read-write-protected it. An empty entry
    /// qualifies, because nothing was accessed; a marker does not.
    fn is_unaccessed(word: u64) -> bool;

    /// Whether the page in `word` is armed for access tracking and was not accessed since it was armed, or `word` is
    /// empty.
    fn is_idle(word: u64) -> bool;

    /// Returns the bits of `word` outside the address field.
    fn attributes(word: u64) -> u64;

    /// Returns the mask that inverts the address field in the entry of a page with these attributes.
    fn inverted(attributes: u64) -> u64;

    /// Returns the frame of the page that `word` maps. `inverted` is the mask for the attributes of `word`.
    fn frame(word: u64, inverted: u64) -> Frame;

    /// Decodes the page that `word` maps in a table at `level`. `is_present` must be true for `word`.
    fn decode_present(word: u64, level: u8) -> Present;

    /// Returns `word` with the bits `clear` cleared and then the bits `set` set. `is_present` must be true for `word`.
    fn edit(word: u64, set: Bits, clear: Bits) -> u64;

    /// Like [`edit`](Self::edit), and also classifies the change.
    fn edit_classified(word: u64, set: Bits, clear: Bits) -> (u64, Change);

    /// Classifies the replacement of `old` by `new` in one slot. Both words map the same frame with the same size. The
    /// class decides what must be flushed.
    fn change(old: u64, new: u64) -> Change;

    /// Decodes `word` as an entry of a table at `level`. `word` must not point to a table.
    ///
    /// # Panics
    /// If `word` is the encoding of no entry, which means that the table is corrupt.
    fn decode(word: u64, level: u8) -> Entry;
}
