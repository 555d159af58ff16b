//! The x86-64 encoding of entries. No other file depends on bit positions.
//!
//! An entry with bit 0 (present) has the processor's format. An entry without bit 0 has a software format: with
//! `PRESERVED`, it is a page without rights that keeps its frame; otherwise bits 1 to 3 give its kind. The address
//! field of every non-present entry is stored inverted, so that a processor that speculatively uses it (L1 terminal
//! fault) accesses no memory.

use super::change::{Change, change_bits};
use super::{Bits, CacheMode, Entry, Marker, Marks, Migrating, Present, Swapped};
use crate::addr::{Frame, PageSize};

pub(crate) const READ: u64 = 1 << 0;
pub(crate) const WRITE: u64 = 1 << 1;
pub(crate) const ACCESSED: u64 = 1 << 5;
pub(crate) const DIRTY: u64 = 1 << 6;
pub(crate) const EXCLUSIVE: u64 = 1 << 9;
pub(crate) const SOFT_DIRTY: u64 = 1 << 10;
pub(crate) const UFFD_WP: u64 = 1 << 11;
pub(crate) const HINT: u64 = 1 << 52;
pub(crate) const BORROWED: u64 = 1 << 53;
pub(crate) const MERGED: u64 = 1 << 54;
pub(crate) const FOLDED_DIRTY: u64 = 1 << 55;
pub(crate) const FOLDED_ACCESSED: u64 = 1 << 56;
pub(crate) const WATCHED: u64 = 1 << 57;
pub(crate) const IDLE: u64 = 1 << 58;
/// The protection key.
pub(crate) const KEY: u64 = 0xf << KEY_SHIFT;
pub(crate) const KEY_SHIFT: u32 = 59;
pub(crate) const NO_EXECUTE: u64 = 1 << 63;

/// Selects one of the first four entries of the page attribute table (PAT), in a page with or without rights. `PWT` is
/// the low bit of the index, `PCD` the high bit. The third bit of the index is not used: it is bit 7 of a 4 KiB page,
/// which is `LARGE` in an upper-level table, and bit 12 of a larger page, which would belong to the address field here.
pub(crate) const CACHE: u64 = PWT | PCD;
const PWT: u64 = 1 << 3;
const PCD: u64 = 1 << 4;

/// The user bit: user mode may use the entry.
const USER: u64 = 1 << 2;
/// A leaf in an upper-level table: a 2 MiB or 1 GiB page.
const LARGE: u64 = 1 << 7;
/// In an entry without `READ`, a software bit: the page keeps its frame. In an entry with `READ`, this is the
/// hardware's global bit.
pub(crate) const PRESERVED: u64 = 1 << 8;
/// The address field.
pub(crate) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;

const KIND: u64 = 0b1110;
const KIND_MARKER: u64 = 0b0010;
const KIND_SWAPPED: u64 = 0b0100;
const KIND_MIGRATING: u64 = 0b0110;
/// The right to write in a migrating entry. In such an entry, the bit of `WRITE` is one of the bits that give its kind.
const MIGRATING_WRITE: u64 = 1 << 4;

const BITS: u64 = Bits::all().bits();

/// Returns the bits for a cache mode: entry 0, 1 or 3 of the PAT. After a reset of the processor, entry 0 is
/// write-back and entry 3 is uncached. Entry 1 is write-through; a kernel makes it write-combining, as Linux does
/// (`arch/x86/mm/pat/memtype.c`).
pub(crate) const fn cache_bits(mode: CacheMode) -> u64 {
    match mode {
        CacheMode::WriteBack => 0,
        CacheMode::WriteCombining => PWT,
        CacheMode::Uncached => PWT | PCD,
    }
}

/// Encodes an entry that points to a lower table.
#[inline]
pub(crate) const fn table(frame: Frame) -> u64 {
    frame.address().as_u64() | READ | WRITE | USER | ACCESSED
}

/// Returns a new entry that points to the same lower table as `word`, and through which no page of the table can be
/// written.
#[inline]
pub(crate) const fn shared_table(word: u64) -> u64 {
    word & !WRITE | ACCESSED
}

/// Returns the leaf entry `word` of a shared table as it is for each address space that shares the table: neither
/// exclusive nor writable.
#[inline]
pub(crate) const fn as_shared(word: u64) -> u64 {
    if is_present(word) {
        word & !(EXCLUSIVE | WRITE)
    } else if swapped(word).is_some() {
        word & !EXCLUSIVE
    } else {
        word
    }
}

/// How a page walk interprets a word of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    /// A lower table.
    Table(Frame),
    /// Any other entry.
    Entry,
}

/// Returns how a page walk interprets `word` in a table at `level` (1 is the last level).
#[inline]
pub(crate) const fn slot(word: u64, level: u8) -> Slot {
    if level > 1 && word & (READ | LARGE) == READ {
        Slot::Table(Frame::new(((word & ADDRESS) >> 12) as u32))
    } else {
        Slot::Entry
    }
}

pub(crate) const fn level_size(level: u8) -> PageSize {
    match level {
        1 => PageSize::Size4K,
        2 => PageSize::Size2M,
        _ => PageSize::Size1G,
    }
}

/// Encodes a page.
#[inline]
pub(crate) const fn encode_present(page: Present) -> u64 {
    let large = match page.size {
        PageSize::Size4K => 0,
        PageSize::Size2M | PageSize::Size1G => LARGE,
    };
    let word = (page.bits.bits() ^ NO_EXECUTE) | USER | large;
    let address = page.frame.address().as_u64();
    if word & READ != 0 {
        word | address
    } else {
        word | PRESERVED | (address ^ ADDRESS)
    }
}

/// Encodes `entry`.
pub(crate) const fn encode(entry: Entry) -> u64 {
    match entry {
        Entry::Empty => 0,
        Entry::Marker(Marker { marks }) => KIND_MARKER | ((marks.bits() as u64) << 4) | ADDRESS,
        Entry::Swapped(Swapped { slot, bits }) => {
            KIND_SWAPPED
                | (bits.bits() & Bits::CARRIED.bits())
                | (((slot << 12) & ADDRESS) ^ ADDRESS)
        }
        Entry::Migrating(Migrating { frame, size, bits }) => {
            let large = match size {
                PageSize::Size4K => 0,
                PageSize::Size2M | PageSize::Size1G => LARGE,
            };
            let write = if bits.contains(Bits::WRITE) {
                MIGRATING_WRITE
            } else {
                0
            };
            KIND_MIGRATING
                | large
                | write
                | (bits.bits() & Bits::CARRIED.bits())
                | (frame.address().as_u64() ^ ADDRESS)
        }
        Entry::Present(page) => encode_present(page),
    }
}

/// Returns the swap slot in `word` if `word` is a swap entry, otherwise `None`. `word` must not point to a table.
#[inline]
pub(crate) const fn swapped(word: u64) -> Option<u64> {
    if word & (READ | PRESERVED | KIND) != KIND_SWAPPED {
        return None;
    }
    Some(((word ^ ADDRESS) & ADDRESS) >> 12)
}

/// Whether `word` is a migrating entry. `word` must not point to a table.
#[inline]
pub(crate) const fn is_migrating(word: u64) -> bool {
    word & (READ | PRESERVED | KIND) == KIND_MIGRATING
}

/// Returns the bits that the swap entry `word` carries.
#[inline]
pub(crate) const fn carried(word: u64) -> Bits {
    Bits::from_bits_truncate(word & Bits::CARRIED.bits())
}

/// Returns the swap entry `word` with its carried bits replaced by those of `bits`.
#[inline]
pub(crate) const fn with_carried(word: u64, bits: Bits) -> u64 {
    let carried = Bits::CARRIED.bits();
    (word & !carried) | (bits.bits() & carried)
}

/// Returns the swap entry `word` without the bits `lost`.
#[inline]
pub(crate) const fn lose(word: u64, lost: Bits) -> u64 {
    word & !(lost.bits() & Bits::CARRIED.bits())
}

/// Whether `word` maps a page, with or without rights. `word` must not point to a table.
#[inline]
pub(crate) const fn is_present(word: u64) -> bool {
    word & (READ | PRESERVED) != 0
}

/// Whether `every`, the bitwise AND of words at `level`, proves that each of these words maps a page with rights.
/// `false` proves nothing.
#[inline]
pub(crate) const fn are_pages(every: u64, level: u8) -> bool {
    every & READ != 0 && (level == 1 || every & LARGE != 0)
}

/// Whether `word` proves that its page, mapped or swapped out, was not written since userfaultfd write-protected it:
/// either a store faults, or the dirty bit would be set. Of markers, only those with uffd-wp qualify. `word` must not
/// point to a table.
#[inline]
pub(crate) const fn is_unwritten(word: u64) -> bool {
    const MARKER: u64 = READ | PRESERVED | KIND;
    if word & MARKER == KIND_MARKER {
        let uffd_wp = (Marks::UFFD_WP.bits() as u64) << 4;
        return word & uffd_wp != 0;
    }
    word & UFFD_WP != 0 || word & (WATCHED | DIRTY) == WATCHED
}

/// Whether the entry proves that its page was not accessed since userfaultfd read-write-protected it. An empty entry
/// qualifies, because nothing was accessed; a marker does not.
#[inline]
pub(crate) const fn is_unaccessed(word: u64) -> bool {
    word & UFFD_WP != 0 || is_idle(word)
}

/// Whether the page is armed for access tracking and was not accessed since it was armed, or the entry is empty.
#[inline]
pub(crate) const fn is_idle(word: u64) -> bool {
    word & (IDLE | ACCESSED) == IDLE || word == 0
}

/// Returns the bits of `word` outside the address field.
#[inline]
pub(crate) const fn attributes(word: u64) -> u64 {
    word & !ADDRESS
}

/// Returns the mask with which the address is inverted in an entry with these attributes of a page.
#[inline]
pub(crate) const fn inverted(attributes: u64) -> u64 {
    if attributes & READ != 0 { 0 } else { ADDRESS }
}

/// Returns the frame of the page that `word` maps. `inverted` is the mask for the attributes of `word`.
#[inline]
pub(crate) const fn frame(word: u64, inverted: u64) -> Frame {
    Frame::new((((word ^ inverted) & ADDRESS) >> 12) as u32)
}

/// Decodes the page that `word` maps in a table at `level`. `is_present` must be true for `word`.
#[inline]
pub(crate) const fn decode_present(word: u64, level: u8) -> Present {
    let address = if word & READ != 0 {
        word
    } else {
        word ^ ADDRESS
    } & ADDRESS;
    Present {
        frame: Frame::new((address >> 12) as u32),
        size: level_size(level),
        bits: Bits::from_bits_truncate((word ^ NO_EXECUTE) & BITS),
    }
}

/// Returns `word` with the bits `clear` cleared and then the bits `set` set. `is_present` must be true for `word`.
#[inline]
pub(crate) const fn edit(word: u64, set: Bits, clear: Bits) -> u64 {
    let bits = ((word ^ NO_EXECUTE) & BITS & !clear.bits()) | set.bits();
    let new = (word & !BITS) | (bits ^ NO_EXECUTE);
    if (new ^ word) & READ == 0 {
        new
    } else {
        invert(new)
    }
}

/// Like [`edit`], and also classifies the change.
#[cfg_attr(feature = "inline", inline(always))]
pub(crate) const fn edit_classified(word: u64, set: Bits, clear: Bits) -> (u64, Change) {
    let new = edit(word, set, clear);
    (new, change(word, new))
}

/// Converts a word whose `READ` bit was just set or cleared to the other format. Not inlined, because this is rare.
#[cold]
#[inline(never)]
const fn invert(word: u64) -> u64 {
    word ^ (ADDRESS | PRESERVED)
}

/// Classifies the replacement of `old` by `new` in one slot. Both words map the same frame with the same size. The
/// class decides what must be flushed.
#[cfg_attr(feature = "inline", inline(always))]
pub(crate) const fn change(old: u64, new: u64) -> Change {
    if old & READ == 0 {
        return if new & READ == 0 {
            Change::Same
        } else {
            Change::Grew
        };
    }
    let bits = Bits::from_bits_truncate;
    change_bits(
        bits((old ^ NO_EXECUTE) & BITS),
        bits((new ^ NO_EXECUTE) & BITS),
    )
}

/// Decodes `word` as an entry of a table at `level`. `word` must not point to a table.
///
/// # Panics
/// If `word` is the encoding of no entry, which means that the table is corrupt.
pub(crate) const fn decode(word: u64, level: u8) -> Entry {
    if word == 0 {
        return Entry::Empty;
    }
    if is_present(word) {
        return Entry::Present(decode_present(word, level));
    }
    let address = (word ^ ADDRESS) & ADDRESS;
    let bits = Bits::from_bits_truncate(word & Bits::CARRIED.bits());
    match word & KIND {
        KIND_MARKER => Entry::Marker(Marker {
            marks: Marks::from_bits_truncate((word >> 4) as u8 & 0b111),
        }),
        KIND_SWAPPED => Entry::Swapped(Swapped {
            slot: address >> 12,
            bits,
        }),
        KIND_MIGRATING => Entry::Migrating(Migrating {
            frame: Frame::new((address >> 12) as u32),
            size: level_size(level),
            bits: if word & MIGRATING_WRITE != 0 {
                bits.union(Bits::WRITE)
            } else {
                bits
            },
        }),
        _ => panic!("corrupt page-table entry"),
    }
}
