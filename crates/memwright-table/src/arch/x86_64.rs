//! The x86-64 encoding of entries.
//!
//! An entry with bit 0 (present) has the processor's format. An entry without bit 0 has a software format: with
//! `PRESERVED`, it is a page without rights that keeps its frame; otherwise bits 1 to 3 give its kind. The address
//! field of every non-present entry is stored inverted, so that a processor that speculatively uses it (L1 terminal
//! fault) accesses no memory.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Architecture, Encoding, Slot};
use crate::addr::{Frame, PageSize};
use crate::entry::{
    Bits, CacheMode, Change, Entry, Marker, Marks, Migrating, Present, Swapped, change_bits,
};

/// The page tables of x86-64 with four levels.
#[derive(Clone, Copy, Debug)]
pub struct X86_64;

// The bits of the processor's format (Intel SDM volume 3A, "4-Level Paging and 5-Level Paging").
pub(super) const READ: u64 = 1 << 0;
const WRITE: u64 = 1 << 1;
/// User mode may use the entry.
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// A leaf in an upper-level table: a 2 MiB or 1 GiB page.
const LARGE: u64 = 1 << 7;
/// The address field.
pub(super) const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
const NO_EXECUTE: u64 = 1 << 63;

// The software bits of a page.
const EXCLUSIVE: u64 = Bits::EXCLUSIVE.bits();
const UFFD_WP: u64 = Bits::UFFD_WP.bits();
const FOLDED_ACCESSED: u64 = Bits::FOLDED_ACCESSED.bits();
const WATCHED: u64 = Bits::WATCHED.bits();
const IDLE: u64 = Bits::IDLE.bits();
/// In an entry without `READ`, a software bit: the page keeps its frame. In an entry with `READ`, this is the
/// hardware's global bit.
const PRESERVED: u64 = 1 << 8;

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
    // PCD the high bit. The third bit of the index is not used: it is bit 7 of a 4 KiB page, which is `LARGE` in an
    // upper-level table, and bit 12 of a larger page, which would belong to the address field here.
    let (pwt, pcd) = (1 << 3, 1 << 4);
    // The processor ignores these bits in an entry of a page.
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

impl Architecture for X86_64 {}

impl Encoding for X86_64 {
    // Intel SDM volume 3A, "Determination of Access Rights": a right applies if every entry of the walk has it.
    const UPPER_ENTRIES_PERMIT: bool = true;

    // Intel SDM volume 3A, "Accessed and Dirty Flags".
    const UPPER_ENTRIES_ACCESSED: bool = true;

    #[inline]
    fn table(frame: Frame) -> u64 {
        frame.address().as_u64() | READ | WRITE | USER | ACCESSED
    }

    #[inline]
    fn shared_table(word: u64) -> u64 {
        word & !WRITE | ACCESSED
    }

    #[inline(always)]
    fn permits_stores(word: u64) -> bool {
        word & WRITE != 0
    }

    #[inline(always)]
    fn permit_stores(slot: &AtomicU64) {
        slot.fetch_or(WRITE, Ordering::AcqRel);
    }

    #[inline(always)]
    fn forbid_stores(slot: &AtomicU64) {
        slot.fetch_and(!WRITE, Ordering::AcqRel);
    }

    #[inline]
    fn as_shared(word: u64) -> u64 {
        if Self::is_present(word) {
            word & !(EXCLUSIVE | WRITE)
        } else if Self::swapped(word).is_some() {
            word & !EXCLUSIVE
        } else {
            word
        }
    }

    #[inline]
    fn slot(word: u64, level: u8) -> Slot {
        if level > 1 && word & (READ | LARGE) == READ {
            Slot::Table(Frame::new(((word & ADDRESS) >> 12) as u32))
        } else {
            Slot::Entry
        }
    }

    fn size(level: u8) -> PageSize {
        match level {
            1 => PageSize::Size4K,
            2 => PageSize::Size2M,
            _ => PageSize::Size1G,
        }
    }

    #[inline]
    fn encode_present(page: Present) -> u64 {
        let large = match page.size {
            PageSize::Size4K => 0,
            PageSize::Size2M | PageSize::Size1G => LARGE,
        };
        let attributes = (page.bits.bits() ^ NO_EXECUTE) | USER | large;
        let address = page.frame.address().as_u64();
        let field = if attributes & READ != 0 {
            address
        } else {
            address ^ (ADDRESS | PRESERVED)
        };
        attributes | field
    }

    fn encode(entry: Entry) -> u64 {
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
            Entry::Present(page) => Self::encode_present(page),
        }
    }

    #[inline]
    fn swapped(word: u64) -> Option<u64> {
        if word & (READ | PRESERVED | KIND) != KIND_SWAPPED {
            return None;
        }
        Some(((word ^ ADDRESS) & ADDRESS) >> 12)
    }

    #[inline]
    fn is_migrating(word: u64) -> bool {
        word & (READ | PRESERVED | KIND) == KIND_MIGRATING
    }

    #[inline]
    fn carried(word: u64) -> Bits {
        Bits::from_bits_truncate(word & Bits::CARRIED.bits())
    }

    #[inline]
    fn with_carried(word: u64, bits: Bits) -> u64 {
        let carried = Bits::CARRIED.bits();
        (word & !carried) | (bits.bits() & carried)
    }

    #[inline]
    fn lose(word: u64, lost: Bits) -> u64 {
        word & !(lost.bits() & Bits::CARRIED.bits())
    }

    #[inline]
    fn is_present(word: u64) -> bool {
        word & (READ | PRESERVED) != 0
    }

    #[inline(always)]
    fn mask(bits: Bits) -> u64 {
        bits.bits()
    }

    #[inline(always)]
    fn held(word: u64, bits: Bits) -> Bits {
        Bits::from_bits_truncate(word).intersection(bits)
    }

    #[inline(always)]
    fn without(word: u64, bits: Bits) -> u64 {
        word & !bits.bits()
    }

    #[inline(always)]
    fn take(slot: &AtomicU64, bits: Bits) {
        slot.fetch_and(!bits.bits(), Ordering::AcqRel);
    }

    #[inline(always)]
    fn has_rights(word: u64) -> bool {
        word & READ != 0
    }

    #[inline(always)]
    fn gained_write(old: u64, new: u64) -> bool {
        new & !old & WRITE != 0
    }

    #[inline(always)]
    fn is_uncached(word: u64) -> bool {
        word & ACCESSED == 0
    }

    #[inline]
    fn fold_accessed(word: u64) -> u64 {
        if word & ACCESSED == 0 {
            return word;
        }
        (word & !(ACCESSED | IDLE)) | FOLDED_ACCESSED
    }

    #[inline]
    fn are_pages(every: u64, level: u8) -> bool {
        every & READ != 0 && (level == 1 || every & LARGE != 0)
    }

    #[inline]
    fn is_unwritten(word: u64) -> bool {
        const MARKER: u64 = READ | PRESERVED | KIND;
        if word & MARKER == KIND_MARKER {
            let uffd_wp = (Marks::UFFD_WP.bits() as u64) << 4;
            return word & uffd_wp != 0;
        }
        word & UFFD_WP != 0 || word & (WATCHED | DIRTY) == WATCHED
    }

    #[inline]
    fn is_unaccessed(word: u64) -> bool {
        word & UFFD_WP != 0 || Self::is_idle(word)
    }

    #[inline]
    fn is_idle(word: u64) -> bool {
        word & (IDLE | ACCESSED) == IDLE || word == 0
    }

    #[inline]
    fn attributes(word: u64) -> u64 {
        word & !ADDRESS
    }

    #[inline]
    fn inverted(attributes: u64) -> u64 {
        if attributes & READ != 0 { 0 } else { ADDRESS }
    }

    #[inline]
    fn frame(word: u64, inverted: u64) -> Frame {
        Frame::new((((word ^ inverted) & ADDRESS) >> 12) as u32)
    }

    #[inline]
    fn decode_present(word: u64, level: u8) -> Present {
        let address = if word & READ != 0 {
            word
        } else {
            word ^ ADDRESS
        } & ADDRESS;
        Present {
            frame: Frame::new((address >> 12) as u32),
            size: Self::size(level),
            bits: Bits::from_bits_truncate((word ^ NO_EXECUTE) & BITS),
        }
    }

    #[inline]
    fn edit(word: u64, set: Bits, clear: Bits) -> u64 {
        let bits = ((word ^ NO_EXECUTE) & BITS & !clear.bits()) | set.bits();
        let new = (word & !BITS) | (bits ^ NO_EXECUTE);
        if (new ^ word) & READ == 0 {
            new
        } else {
            invert(new)
        }
    }

    #[cfg_attr(feature = "inline", inline(always))]
    fn edit_classified(word: u64, set: Bits, clear: Bits) -> (u64, Change) {
        let new = Self::edit(word, set, clear);
        (new, Self::change(word, new))
    }

    #[cfg_attr(feature = "inline", inline(always))]
    fn change(old: u64, new: u64) -> Change {
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

    fn decode(word: u64, level: u8) -> Entry {
        if word == 0 {
            return Entry::Empty;
        }
        if Self::is_present(word) {
            return Entry::Present(Self::decode_present(word, level));
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
                size: Self::size(level),
                bits: if word & MIGRATING_WRITE != 0 {
                    bits.union(Bits::WRITE)
                } else {
                    bits
                },
            }),
            _ => panic!("corrupt page-table entry"),
        }
    }
}

/// Converts a word whose `READ` bit was just set or cleared to the other format. Not inlined, because this is rare.
#[cold]
#[inline(never)]
const fn invert(word: u64) -> u64 {
    word ^ (ADDRESS | PRESERVED)
}
