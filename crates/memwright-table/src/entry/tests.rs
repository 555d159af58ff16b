//! Tests of the encoding round trip and of the decision table of changes.

use proptest::prelude::*;

use super::x86_64::{self, Slot};
use super::{Bits, CacheMode, Change, Entry, Marker, Marks, Migrating, Present, Swapped, change};
use crate::addr::{Frame, PageSize};

const R: Bits = Bits::READ;
const W: Bits = Bits::WRITE;
const X: Bits = Bits::EXECUTE;
const A: Bits = Bits::ACCESSED;
const D: Bits = Bits::DIRTY;
const WC: Bits = Bits::of_cache(CacheMode::WriteCombining);
const UC: Bits = Bits::of_cache(CacheMode::Uncached);

fn page(frame: u32, bits: Bits) -> Entry {
    Entry::page(Frame::new(frame), bits)
}

fn huge(frame: u32, bits: Bits) -> Entry {
    Entry::Present(Present {
        frame: Frame::new(frame),
        size: PageSize::Size2M,
        bits,
    })
}

fn migrating(frame: u32) -> Entry {
    Entry::Migrating(Migrating {
        frame: Frame::new(frame),
        size: PageSize::Size4K,
        bits: W,
    })
}

const SWAPPED: Entry = Entry::Swapped(Swapped {
    slot: 7,
    bits: Bits::EXCLUSIVE,
});
const MARKER: Entry = Entry::marker(Marks::GUARD);

#[test]
fn what_each_change_is() {
    let none = Bits::empty();
    let table = [
        // Not present, before and after.
        (Entry::Empty, Entry::Empty, Change::Same),
        (Entry::Empty, MARKER, Change::Same),
        (MARKER, SWAPPED, Change::Same),
        (page(1, none), page(1, W), Change::Same),
        (page(1, none), Entry::Empty, Change::Same),
        (page(1, none), page(2, none), Change::Same),
        // Not present before, present after.
        (Entry::Empty, page(1, R), Change::Filled),
        (MARKER, page(1, R), Change::Filled),
        (SWAPPED, page(1, R | W), Change::Filled),
        (migrating(1), page(2, R), Change::Filled),
        (migrating(1), page(1, R), Change::Filled),
        (page(1, none), page(2, R), Change::Filled),
        // The same page, with each right kept or gained.
        (page(1, none), page(1, R), Change::Grew),
        (page(1, R), page(1, R | W), Change::Grew),
        (page(1, R | W), page(1, R | W | X), Change::Grew),
        (page(1, R | A), page(1, R | A | W | D), Change::Grew),
        (page(1, R | W), page(1, R | W | A | D), Change::Same),
        (page(1, R), page(1, R | Bits::UFFD_WP), Change::Same),
        (page(1, R | Bits::EXCLUSIVE), page(1, R), Change::Same),
        (huge(512, R), huge(512, R | W), Change::Grew),
        // A right is lost, even if another is gained.
        (page(1, R | W), page(1, R), Change::Shrank),
        (page(1, R | X), page(1, R | W), Change::Shrank),
        (page(1, R | W), page(1, R | X), Change::Shrank),
        (page(1, R), page(1, none), Change::Shrank),
        (page(1, R | W | D), page(1, W | D), Change::Shrank),
        (page(1, R | W | D), page(1, R), Change::Shrank),
        // The protection key changes, even if a right is gained.
        (page(1, R | Bits::of_key(3)), page(1, R), Change::Shrank),
        (page(1, R), page(1, R | W | Bits::of_key(3)), Change::Shrank),
        (
            page(1, R | Bits::of_key(1)),
            page(1, R | Bits::of_key(3)),
            Change::Shrank,
        ),
        (
            page(1, R | Bits::of_key(3)),
            page(1, R | W | Bits::of_key(3)),
            Change::Grew,
        ),
        (page(1, Bits::of_key(3)), page(1, R), Change::Grew),
        // The cache mode changes, even if a right is gained.
        (page(1, R | UC), page(1, R), Change::Shrank),
        (page(1, R), page(1, R | W | UC), Change::Shrank),
        (page(1, R | UC), page(1, R | W | WC), Change::Shrank),
        (page(1, R | WC), page(1, R | UC), Change::Shrank),
        (page(1, R | UC), page(1, R | W | UC), Change::Grew),
        // A bit that hardware caches is cleared.
        (page(1, R | W | D), page(1, R | W), Change::LostCachedBit),
        (page(1, R | A), page(1, R), Change::LostCachedBit),
        (page(1, R | A), page(1, R | W), Change::LostCachedBit),
        // Another frame, or another size.
        (page(1, R), page(2, R | W), Change::Moved),
        (page(1, R | W), huge(1, R | W), Change::Resized),
        (huge(512, R), page(512, R), Change::Resized),
        (huge(512, R), page(9, R | W), Change::Resized),
        // The page is unmapped.
        (page(1, R), Entry::Empty, Change::Freed),
        (page(1, R), MARKER, Change::Freed),
        (page(1, R), SWAPPED, Change::Freed),
        (page(1, R), migrating(1), Change::Freed),
        (page(1, R), page(2, none), Change::Freed),
        (huge(512, R), Entry::Empty, Change::Freed),
    ];
    for (old, new, expected) in table {
        assert_eq!(change(old, new), expected, "{old:?} to {new:?}");
    }
}

#[test]
fn what_each_change_needs() {
    // The three columns: local invalidation, remote invalidation, the frame is freed only after both.
    let needs = Change::ALL.map(|c| (c.needs_local(), c.needs_remote(), c.holds_frame()));
    let expected = [
        (Change::Same, (false, false, false)),
        (Change::Filled, (false, false, false)),
        (Change::Grew, (true, false, false)),
        (Change::Shrank, (true, true, false)),
        (Change::Moved, (true, true, true)),
        (Change::Resized, (true, true, true)),
        (Change::Freed, (true, true, true)),
        (Change::LostCachedBit, (true, true, false)),
        (Change::TableFreed, (true, true, true)),
    ];
    for (index, (change, expected)) in expected.into_iter().enumerate() {
        assert_eq!(change.index(), index);
        assert_eq!(needs[index], expected, "{change:?}");
    }
}

#[test]
fn tables_are_told_from_pages() {
    let frame = Frame::new(0x1234);
    for level in 2..=4 {
        assert_eq!(
            x86_64::slot(x86_64::table(frame), level),
            Slot::Table(frame)
        );
        for entry in [MARKER, SWAPPED, huge(512, R), huge(512, W), Entry::Empty] {
            assert_eq!(x86_64::slot(x86_64::encode(entry), level), Slot::Entry);
        }
    }
    assert_eq!(
        x86_64::slot(x86_64::encode(page(1, Bits::all())), 1),
        Slot::Entry
    );
}

#[test]
fn hardware_sees_the_bits_of_the_manual() {
    // Intel SDM volume 3A, format of a page-table entry that maps a 4-KByte page.
    let word = x86_64::encode(page(0x12345, R | W | A | D));
    assert_eq!(word, 0x8000_0000_1234_5067);
    assert_eq!(x86_64::encode(page(1, R | X)), 0x1005);
    let word = x86_64::encode(huge(512, R | X));
    assert_eq!(word, 0x20_0085);
    // An entry that is not present has an address field beyond all memory.
    for entry in [page(1, W | X), SWAPPED, migrating(1), MARKER] {
        let word = x86_64::encode(entry);
        assert_eq!(word & 1, 0);
        assert!(word & x86_64::ADDRESS > 0x000f_f000_0000_0000, "{word:#x}");
    }
}

/// Returns the index in the page attribute table that hardware reads from a leaf, from the manual's formats of entries: bit
/// 3 is PWT, bit 4 is PCD, and PAT is bit 7 of an entry of 4 KiB and bit 12 of a larger one.
fn pat_index(word: u64, size: PageSize) -> u64 {
    let pat = match size {
        PageSize::Size4K => word >> 7,
        PageSize::Size2M | PageSize::Size1G => word >> 12,
    };
    (word >> 3 & 1) | (word >> 4 & 1) << 1 | (pat & 1) << 2
}

#[test]
fn a_cache_mode_is_an_entry_of_the_page_attribute_table() {
    use {CacheMode::*, PageSize::*};
    // After a reset, the first four entries are WB, WT, UC- and UC. The kernel makes the second one WC.
    let rows = [
        (WriteBack, Size4K, 0x20_0067, 0),
        (WriteBack, Size2M, 0x20_00e7, 0),
        (WriteBack, Size1G, 0x4000_00e7, 0),
        (WriteCombining, Size4K, 0x20_006f, 1),
        (WriteCombining, Size2M, 0x20_00ef, 1),
        (WriteCombining, Size1G, 0x4000_00ef, 1),
        (Uncached, Size4K, 0x20_007f, 3),
        (Uncached, Size2M, 0x20_00ff, 3),
        (Uncached, Size1G, 0x4000_00ff, 3),
    ];
    for (mode, size, expected, index) in rows {
        let frame = Frame::new(512.max(size.pages() as u32));
        let bits = Bits::of_cache(mode) | R | W | X | A | D;
        let word = x86_64::encode_present(Present { frame, size, bits });
        assert_eq!(word, expected, "{mode:?} {size:?}");
        assert_eq!(pat_index(word, size), index, "{mode:?} {size:?}");
        assert_eq!(bits.cache(), Some(mode));
        // Bit 7 of a large page says that it is a page, and bit 12 belongs to no frame number of one.
        assert_eq!(word >> 7 & 1 != 0, size != Size4K);
        // Taking the rights away and giving them back keeps the mode.
        let without = x86_64::edit(word, Bits::empty(), Bits::RIGHTS);
        let level = size.level_above_leaf() + 1;
        let kept = x86_64::decode(without, level).present().unwrap();
        assert_eq!((kept.frame, kept.bits.cache()), (frame, Some(mode)));
        assert_eq!(x86_64::edit(without, R | W | X, Bits::empty()), word);
    }
    // Entry 2 of the page attribute table is not used.
    assert_eq!((UC - WC).cache(), None);
}

fn bits() -> impl Strategy<Value = Bits> {
    any::<u64>().prop_map(Bits::from_bits_truncate)
}

fn size() -> impl Strategy<Value = PageSize> {
    prop_oneof![
        Just(PageSize::Size4K),
        Just(PageSize::Size2M),
        Just(PageSize::Size1G)
    ]
}

fn aligned(frame: u32, size: PageSize) -> Frame {
    Frame::new(frame & !(size.pages() as u32 - 1))
}

fn entry() -> impl Strategy<Value = (Entry, u8)> {
    prop_oneof![
        (1u8..=3).prop_map(|level| (Entry::Empty, level)),
        (1u8..8, 1u8..=3).prop_map(|(marks, level)| {
            let marks = Marks::from_bits_truncate(marks);
            (Entry::Marker(Marker { marks }), level)
        }),
        (0..Swapped::SLOTS, bits()).prop_map(|(slot, bits)| {
            let bits = bits & Bits::CARRIED;
            (Entry::Swapped(Swapped { slot, bits }), 1)
        }),
        (any::<u32>(), size(), bits()).prop_map(|(frame, size, bits)| {
            let (frame, bits) = (aligned(frame, size), bits & (Bits::CARRIED | W));
            let level = size.level_above_leaf() + 1;
            (Entry::Migrating(Migrating { frame, size, bits }), level)
        }),
        (any::<u32>(), size(), bits()).prop_map(|(frame, size, bits)| {
            let frame = aligned(frame, size);
            let level = size.level_above_leaf() + 1;
            (Entry::Present(Present { frame, size, bits }), level)
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_encoded_is_decoded((entry, level) in entry()) {
        let word = x86_64::encode(entry);
        prop_assert_eq!(x86_64::decode(word, level), entry);
        prop_assert_eq!(word == 0, entry == Entry::Empty);
        prop_assert_eq!(x86_64::is_present(word), entry.present().is_some());
    }

    #[test]
    fn an_edited_word_is_the_edited_page(
        frame in any::<u32>(),
        size in size(),
        old in bits(),
        set in bits(),
        clear in bits(),
    ) {
        let old = Present { frame: aligned(frame, size), size, bits: old };
        let new = Present { bits: old.bits.difference(clear) | set, ..old };
        let word = x86_64::encode_present(old);
        let edited = x86_64::edit(word, set, clear);
        prop_assert_eq!(edited, x86_64::encode_present(new));
        let expected = change(Entry::Present(old), Entry::Present(new));
        prop_assert_eq!(x86_64::change(word, edited), expected);
    }

    #[test]
    fn what_grew_has_every_right_it_had(old in bits(), new in bits()) {
        let what = change(page(1, old), page(1, new));
        let (lost, hardware) = ((old & Bits::PROTECTION).difference(new), old.contains(R));
        if what == Change::Grew && hardware {
            prop_assert!(lost.is_empty() && old.key() == new.key() && old.cache() == new.cache());
            prop_assert!((old & (A | D)).difference(new).is_empty());
        }
        let other = hardware && (old.key() != new.key() || old.cache() != new.cache());
        prop_assert!(what.needs_remote() || !other);
        prop_assert_eq!(what == Change::Shrank, hardware && !lost.is_empty() || what == Change::Shrank && other);
    }
}
