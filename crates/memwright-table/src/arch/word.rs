//! The encoding of entries in words, the same for every architecture.
//!
//! A word with bit 0 (present) has the format of the x86-64 processors. A word without bit 0 has a software format:
//! with `PRESERVED`, it is a page without rights that keeps its frame; otherwise bits 1 to 3 give its kind. The address
//! field of every non-present entry is stored inverted, so that an x86-64 processor that speculatively uses it (L1
//! terminal fault) accesses no memory.
//!
//! The processors of x86-64 read these words themselves. For those of other architectures, a slot contains a second
//! word in the processor's format, which the slot derives from the first one ([`paired`](super::paired)).

use super::Slot;
use super::slot::TableSlot;
use crate::addr::{Frame, PageSize};
use crate::entry::{
    Bits, CacheMode, Change, Entry, Marker, Marks, Migrating, Present, Swapped, change_bits,
};

// The bits of the x86-64 processors' format (Intel SDM volume 3A, "4-Level Paging and 5-Level Paging").
pub(super) const READ: u64 = 1 << 0;
pub(super) const WRITE: u64 = 1 << 1;
/// User mode may use the entry.
const USER: u64 = 1 << 2;
pub(super) const ACCESSED: u64 = 1 << 5;
pub(super) const DIRTY: u64 = 1 << 6;
/// A leaf above the lowest level: a page of 2 MiB or 1 GiB.
pub(super) const LARGE: u64 = 1 << 7;
/// Set in every entry that points to a lower table, and in no page with rights. The processors of x86-64 ignore it in
/// such an entry.
pub(super) const TABLE: u64 = 1 << 8;
/// The address field.
pub(super) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
pub(super) const NO_EXECUTE: u64 = 1 << 63;

// The software bits of a page.
const EXCLUSIVE: u64 = Bits::EXCLUSIVE.bits();
const UFFD_WP: u64 = Bits::UFFD_WP.bits();
const FOLDED_ACCESSED: u64 = Bits::FOLDED_ACCESSED.bits();
const WATCHED: u64 = Bits::WATCHED.bits();
const IDLE: u64 = Bits::IDLE.bits();
/// In an entry without `READ`, this is a software bit, which states that the page keeps its frame. In a page with
/// `READ`, this is the global bit of x86-64, which is never set.
const PRESERVED: u64 = 1 << 8;
/// The bits that are inverted in the entry of a page without rights.
const RIGHTLESS: u64 = ADDRESS | PRESERVED;

const KIND: u64 = 0b1110;
const KIND_MARKER: u64 = 0b0010;
const KIND_SWAPPED: u64 = 0b0100;
const KIND_MIGRATING: u64 = 0b0110;
/// The right to write in a migrating entry. In such an entry, the bit of `WRITE` is one of the bits that give its kind.
const MIGRATING_WRITE: u64 = 1 << 4;

const BITS: u64 = Bits::all().bits();

// The values of `Bits` are the bits of this encoding, except that `EXECUTE` is inverted, so that encoding and decoding
// are masks.
const _: () = {
    // The index of an entry of the page attribute table (PAT), in a page with or without rights: PWT is the low bit,
    // PCD the high bit. The third bit of the index is not used: it is bit 7 of a 4 KiB page, which is `LARGE` above the
    // lowest level, and bit 12 of a larger page, which would belong to the address field here.
    let (pwt, pcd) = (1 << 3, 1 << 4);
    // The processors of x86-64 ignore these bits in an entry of a page.
    let ignored = 0b111 << 9 | 0x7f << 52;
    let key = 0xf << 59;
    let hardware = READ | WRITE | pwt | pcd | ACCESSED | DIRTY | key | NO_EXECUTE;
    assert!(BITS & !ignored == hardware);
    assert!(Bits::READ.bits() == READ && Bits::WRITE.bits() == WRITE);
    assert!(Bits::ACCESSED.bits() == ACCESSED && Bits::DIRTY.bits() == DIRTY);
    assert!(Bits::EXECUTE.bits() == NO_EXECUTE && Bits::KEY.bits() == key);
    // Entry 0, 1 or 3 of the PAT. After a reset of the processor, entry 0 is write-back and entry 3 is uncached. Entry
    // 1 is write-through; a kernel makes it write-combining, as Linux does (`arch/x86/mm/pat/memtype.c`).
    assert!(Bits::of_cache(CacheMode::WriteBack).bits() == 0);
    assert!(Bits::of_cache(CacheMode::WriteCombining).bits() == pwt);
    assert!(Bits::of_cache(CacheMode::Uncached).bits() == pwt | pcd);
};

/// Encodes an entry that points to a lower table.
#[inline]
pub(crate) fn table(frame: Frame) -> u64 {
    frame.address().as_u64() | READ | WRITE | USER | ACCESSED | TABLE
}

/// Returns a new entry that points to the same lower table as `word`, and through which no page of the table can be
/// written.
#[inline]
pub(crate) fn shared_table(word: u64) -> u64 {
    word & !WRITE | ACCESSED
}

/// Whether the entry `word`, which points to a lower table, permits stores to the pages of the table.
#[inline(always)]
pub(crate) fn permits_stores(word: u64) -> bool {
    word & WRITE != 0
}

/// Makes the entry in `slot`, which points to a lower table, permit stores to the pages of the table, as far as
/// their entries permit them.
#[inline(always)]
pub(crate) fn permit_stores(slot: &impl TableSlot) {
    slot.set(WRITE);
}

/// Makes the entry in `slot`, which points to a lower table, permit no store to a page of the table. Keeps the
/// accessed bit.
#[inline(always)]
pub(crate) fn forbid_stores(slot: &impl TableSlot) {
    slot.clear(WRITE);
}

/// Returns the leaf entry `word` of a shared table as each address space that shares the table must see it: neither
/// exclusive nor writable.
#[inline]
pub(crate) fn as_shared(word: u64) -> u64 {
    if is_present(word) {
        word & !(EXCLUSIVE | WRITE)
    } else if swapped(word).is_some() {
        word & !EXCLUSIVE
    } else {
        word
    }
}

/// Returns how a page walk interprets `word` in a table at `level` (1 is the last level).
#[inline]
pub(crate) fn slot(word: u64, level: u8) -> Slot {
    let is_table = level > 1 && word & (READ | LARGE) == READ;
    let lower = is_table.then_some(Frame::new(((word & ADDRESS) >> 12) as u32));
    lower.map_or(Slot::Entry, Slot::Table)
}

/// Returns the size of the page that an entry of a table at `level` can map.
pub(crate) fn size(level: u8) -> PageSize {
    match level {
        1 => PageSize::Size4K,
        2 => PageSize::Size2M,
        _ => PageSize::Size1G,
    }
}

/// Encodes a page.
#[inline]
pub(crate) fn encode_present(page: Present) -> u64 {
    let attributes = (page.bits.bits() ^ NO_EXECUTE) | USER | large(page.size);
    let format = if attributes & READ != 0 { 0 } else { RIGHTLESS };
    attributes | (page.frame.address().as_u64() ^ format)
}

/// Returns `LARGE` for a page of more than 4 KiB, otherwise 0.
#[inline]
fn large(size: PageSize) -> u64 {
    let is_large = size != PageSize::Size4K;
    u64::from(is_large) * LARGE
}

/// Encodes `entry`.
pub(crate) fn encode(entry: Entry) -> u64 {
    match entry {
        Entry::Empty => 0,
        Entry::Marker(Marker { marks }) => KIND_MARKER | ((marks.bits() as u64) << 4) | ADDRESS,
        Entry::Swapped(Swapped { slot, bits }) => {
            KIND_SWAPPED
                | (bits.bits() & Bits::CARRIED.bits())
                | (((slot << 12) & ADDRESS) ^ ADDRESS)
        }
        Entry::Migrating(Migrating { frame, size, bits }) => {
            let write = if bits.contains(Bits::WRITE) {
                MIGRATING_WRITE
            } else {
                0
            };
            KIND_MIGRATING
                | large(size)
                | write
                | (bits.bits() & Bits::CARRIED.bits())
                | (frame.address().as_u64() ^ ADDRESS)
        }
        Entry::Present(page) => encode_present(page),
    }
}

/// Returns the swap slot in `word` if `word` is a swap entry, otherwise `None`. `word` must not point to a table.
#[inline]
pub(crate) fn swapped(word: u64) -> Option<u64> {
    if word & (READ | PRESERVED | KIND) != KIND_SWAPPED {
        return None;
    }
    Some(((word ^ ADDRESS) & ADDRESS) >> 12)
}

/// Whether `word` is a migrating entry. `word` must not point to a table.
#[inline]
pub(crate) fn is_migrating(word: u64) -> bool {
    word & (READ | PRESERVED | KIND) == KIND_MIGRATING
}

/// Returns the bits that the swap entry `word` carries.
#[inline]
pub(crate) fn carried(word: u64) -> Bits {
    Bits::from_bits_truncate(word & Bits::CARRIED.bits())
}

/// Returns the swap entry `word` with its carried bits replaced by those of `bits`.
#[inline]
pub(crate) fn with_carried(word: u64, bits: Bits) -> u64 {
    let carried = Bits::CARRIED.bits();
    (word & !carried) | (bits.bits() & carried)
}

/// Returns the swap entry `word` without the bits `lost`.
#[inline]
pub(crate) fn lose(word: u64, lost: Bits) -> u64 {
    word & !(lost.bits() & Bits::CARRIED.bits())
}

/// Whether `word` maps a page, with or without rights. `word` must not point to a table.
#[inline]
pub(crate) fn is_present(word: u64) -> bool {
    word & (READ | PRESERVED) != 0
}

/// Returns those bits of a page's word that encode `bits`, which must contain no rights, no key and no cache mode.
#[inline(always)]
pub(crate) fn mask(bits: Bits) -> u64 {
    bits.bits()
}

/// Returns those of `bits` that the page in `word` has. `bits` must not contain `EXECUTE`. `is_present` must be
/// true for `word`.
#[inline(always)]
pub(crate) fn held(word: u64, bits: Bits) -> Bits {
    Bits::from_bits_truncate(word).intersection(bits)
}

/// Returns the page in `word` without `bits`, which must contain neither `READ` nor `EXECUTE`. `is_present` must be
/// true for `word`.
#[inline(always)]
pub(crate) fn without(word: u64, bits: Bits) -> u64 {
    word & !bits.bits()
}

/// Atomically removes `bits` from the page in `slot`, like [`without`]. Bits that hardware sets at the same time are
/// kept, unless they are among `bits`.
#[inline(always)]
pub(crate) fn take(slot: &impl TableSlot, bits: Bits) {
    slot.clear(bits.bits());
}

/// Whether `word` maps a page with rights: the processor uses it. `word` must not point to a table.
#[inline(always)]
pub(crate) fn has_rights(word: u64) -> bool {
    word & READ != 0
}

/// Whether `word` maps a page with rights but holds no reference to the page's frame. Holds for each of several words
/// if it holds for their bitwise AND. `word` must not point to a table.
#[inline(always)]
pub(crate) fn is_borrowed(word: u64) -> bool {
    const BORROWED: u64 = READ | Bits::BORROWED.bits();
    word & BORROWED == BORROWED
}

/// Whether the page became writable when its word `old` was replaced by `new`.
#[inline(always)]
pub(crate) fn gained_write(old: u64, new: u64) -> bool {
    new & !old & WRITE != 0
}

/// Whether no CPU can have cached a translation from `word`, because its accessed bit is clear (rule:
/// elide-only-uncached). If `word` is the bitwise OR of several words, the result holds for each of them.
#[inline(always)]
pub(crate) fn is_uncached(word: u64) -> bool {
    word & ACCESSED == 0
}

/// Returns the page in `word`. If its accessed bit is set, moves that bit to the software accessed bit, and clears
/// `IDLE` (rule: fold-before-clearing).
#[inline]
pub(crate) fn fold_accessed(word: u64) -> u64 {
    if word & ACCESSED == 0 {
        return word;
    }
    (word & !(ACCESSED | IDLE)) | FOLDED_ACCESSED
}

/// Whether `every`, the bitwise AND of words at `level`, proves that each of these words maps a page with rights.
/// `false` proves nothing.
#[inline]
pub(crate) fn are_pages(every: u64, level: u8) -> bool {
    every & READ != 0 && (level == 1 || every & LARGE != 0)
}

/// Whether `word` proves that its page, mapped or swapped out, was not written since userfaultfd write-protected it:
/// either a store faults, or the dirty bit would be set. Markers without uffd-wp prove nothing. `word` must not point
/// to a table.
#[inline]
pub(crate) fn is_unwritten(word: u64) -> bool {
    const MARKER: u64 = READ | PRESERVED | KIND;
    if word & MARKER == KIND_MARKER {
        let uffd_wp = (Marks::UFFD_WP.bits() as u64) << 4;
        return word & uffd_wp != 0;
    }
    word & UFFD_WP != 0 || word & (WATCHED | DIRTY) == WATCHED
}

/// Whether `word` proves that its page was not accessed since userfaultfd read-write-protected it. An empty entry
/// qualifies, because nothing was accessed; a marker does not.
#[inline]
pub(crate) fn is_unaccessed(word: u64) -> bool {
    word & UFFD_WP != 0 || is_idle(word)
}

/// Whether the page in `word` is armed for access tracking and was not accessed since it was armed, or `word` is
/// empty.
#[inline]
pub(crate) fn is_idle(word: u64) -> bool {
    word & (IDLE | ACCESSED) == IDLE || word == 0
}

/// Returns the bits of `word` outside the address field.
#[inline]
pub(crate) fn attributes(word: u64) -> u64 {
    word & !ADDRESS
}

/// Returns the mask that inverts the address field in the entry of a page with these attributes.
#[inline]
pub(crate) fn inverted(attributes: u64) -> u64 {
    if attributes & READ != 0 { 0 } else { ADDRESS }
}

/// Returns the frame of the page that `word` maps. `inverted` is the mask for the attributes of `word`.
#[inline]
pub(crate) fn frame(word: u64, inverted: u64) -> Frame {
    Frame::new((((word ^ inverted) & ADDRESS) >> 12) as u32)
}

/// Returns the frame number of the page that `word` maps, minus `lowest`. If `word` does not map a page with rights, or
/// if its entry holds no reference, or if the frame number is below `lowest`, the result is above every frame number.
#[inline(always)]
pub(crate) fn index_of_counted(word: u64, lowest: u32) -> u64 {
    // One subtraction checks that `READ` is set and clears it: the bits below the address are 0 afterwards only if
    // `READ` was set. The rotation moves these bits to the top. `BORROWED` is above the address field.
    let bias = READ | (lowest as u64) << 12;
    (word & (ADDRESS | READ | Bits::BORROWED.bits()))
        .wrapping_sub(bias)
        .rotate_right(12)
}

const _: () = assert!(Bits::BORROWED.bits() > ADDRESS);

/// Returns the bits of the page that `word` maps. `is_present` must be true for `word`.
#[inline(always)]
pub(crate) fn bits(word: u64) -> Bits {
    Bits::from_bits_truncate((word ^ NO_EXECUTE) & BITS)
}

/// Decodes the page that `word` maps in a table at `level`. `is_present` must be true for `word`.
#[inline]
pub(crate) fn decode_present(word: u64, level: u8) -> Present {
    let address = if word & READ != 0 {
        word
    } else {
        word ^ ADDRESS
    } & ADDRESS;
    Present {
        frame: Frame::new((address >> 12) as u32),
        size: size(level),
        bits: bits(word),
    }
}

/// Returns `word` with the bits `clear` cleared and then the bits `set` set. `is_present` must be true for `word`.
#[inline]
pub(crate) fn edit(word: u64, set: Bits, clear: Bits) -> u64 {
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
pub(crate) fn edit_classified(word: u64, set: Bits, clear: Bits) -> (u64, Change) {
    let new = edit(word, set, clear);
    (new, change(word, new))
}

/// Classifies the replacement of `old` by `new` in one slot. Both words map the same frame with the same size. The
/// class decides what must be flushed.
#[cfg_attr(feature = "inline", inline(always))]
pub(crate) fn change(old: u64, new: u64) -> Change {
    if old & READ == 0 {
        return if new & READ == 0 {
            Change::Same
        } else {
            Change::Grew
        };
    }
    change_bits(bits(old), bits(new))
}

/// Decodes `word` as an entry of a table at `level`. `word` must not point to a table.
///
/// # Panics
/// If `word` is the encoding of no entry, which means that the table is corrupt.
pub(crate) fn decode(word: u64, level: u8) -> Entry {
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
            size: size(level),
            bits: if word & MIGRATING_WRITE != 0 {
                bits.union(Bits::WRITE)
            } else {
                bits
            },
        }),
        _ => panic!("corrupt page-table entry"),
    }
}
/// Converts a word whose `READ` bit was just set or cleared to the other format. Not inlined, because this is rare.
#[cold]
#[inline(never)]
const fn invert(word: u64) -> u64 {
    word ^ RIGHTLESS
}
