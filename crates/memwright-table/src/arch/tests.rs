//! Tests of the encodings: the bits of the processors' manuals, and the round trip of each kind of entry.

use proptest::prelude::*;

use super::paired::HardwareFormat;
use super::word::ADDRESS;
use super::{
    Aarch64, Aarch64Registers, Architecture, ByFault, Riscv64, Slot, Uses, WrongRegister, X86_64,
    X86_64Registers, word,
};
use crate::addr::{Frame, PageSize};
use crate::entry::samples::{A, D, MARKER, R, SWAPPED, UC, W, WC, X, huge, migrating, page};
use crate::entry::{Bits, CacheMode, Entry, Marker, Marks, Migrating, Present, Swapped, change};

#[test]
fn tables_are_told_from_pages() {
    let frame = Frame::new(0x1234);
    for level in 2..=4 {
        assert_eq!(word::slot(word::table(frame), level), Slot::Table(frame));
        for entry in [MARKER, SWAPPED, huge(512, R), huge(512, W), Entry::Empty] {
            assert_eq!(word::slot(word::encode(entry), level), Slot::Entry);
        }
    }
    assert_eq!(
        word::slot(word::encode(page(1, Bits::all())), 1),
        Slot::Entry
    );
}

#[test]
fn hardware_sees_the_bits_of_the_manual() {
    // Intel SDM volume 3A, format of a page-table entry that maps a 4-KByte page.
    let word = word::encode(page(0x12345, R | W | A | D));
    assert_eq!(word, 0x8000_0000_1234_5067);
    assert_eq!(word::encode(page(1, R | X)), 0x1005);
    let word = word::encode(huge(512, R | X));
    assert_eq!(word, 0x20_0085);
    // An entry that is not present has an address field beyond all memory.
    for entry in [page(1, W | X), SWAPPED, migrating(1), MARKER] {
        let word = word::encode(entry);
        assert_eq!(word & 1, 0);
        assert!(word & ADDRESS > 0x000f_f000_0000_0000, "{word:#x}");
    }
}

/// The bits by their positions in the RISC-V Privileged Architecture: V 0, R 1, W 2, X 3, U 4, A 6, D 7, the frame
/// number from bit 10 on, and the memory type in bits 61 and 62.
#[test]
fn risc_v_processors_read_the_bits_of_the_manual() {
    let rows = [
        (page(0x12345, R | W | A | D), 0x12345 << 10 | 0b1101_0111),
        (page(1, R | X), 1 << 10 | 0b1_1011),
        (page(1, R), 1 << 10 | 0b1_0011),
        (huge(512, R | W | A), 512 << 10 | 0b0101_0111),
        (page(1, R | W | WC), 1 << 61 | 1 << 10 | 0b1_0111),
        (page(1, R | W | UC), 2 << 61 | 1 << 10 | 0b1_0111),
        // The processors do not read software's bits.
        (
            page(1, R | Bits::EXCLUSIVE | Bits::WATCHED),
            1 << 10 | 0b1_0011,
        ),
        // An entry that the processors do not use is invalid.
        (page(1, W | X | A | D), 0),
        (SWAPPED, 0),
        (migrating(1), 0),
        (MARKER, 0),
        (Entry::Empty, 0),
    ];
    for (entry, expected) in rows {
        let hardware = Riscv64::encode(word::encode(entry));
        assert_eq!(hardware, expected, "{entry:?}");
        let recorded = match entry {
            Entry::Present(page) if hardware != 0 => page.bits & (A | D),
            Entry::Present(_)
            | Entry::Empty
            | Entry::Marker(_)
            | Entry::Swapped(_)
            | Entry::Migrating(_) => Bits::empty(),
        };
        assert_eq!(Riscv64::recorded(hardware), recorded.bits(), "{entry:?}");
    }
    // In an entry that points to a table, all bits but V and the frame number are 0.
    let table = word::table(Frame::new(0x1234));
    assert_eq!(Riscv64::encode(table), 0x1234 << 10 | 1);
    assert_eq!(Riscv64::recorded(Riscv64::encode(table)), 0);
}

/// The bits by their positions in the Arm Architecture Reference Manual: valid 0, page or table 1, the memory type from
/// bit 2 on, AP[1] 6, AP[2] 7, shareability from bit 8 on, AF 10, nG 11, the address from bit 12 on, DBM 51, PXN 53,
/// UXN 54.
#[test]
fn aarch64_processors_read_the_bits_of_the_manual() {
    const PAGE: u64 = 0b11 | 1 << 6 | 0b11 << 8 | 1 << 11 | 1 << 53;
    const BLOCK: u64 = PAGE & !0b10;
    let (read_only, accessed, modifier, no_execute) = (1 << 7, 1 << 10, 1 << 51, 1 << 54);
    let rows = [
        (
            page(0x12345, R | W | A | D),
            0x12345 << 12 | PAGE | accessed | modifier | no_execute,
        ),
        (
            page(1, R | W | A),
            1 << 12 | PAGE | accessed | modifier | read_only | no_execute,
        ),
        (page(1, R | X), 1 << 12 | PAGE | read_only),
        (page(1, R | D), 1 << 12 | PAGE | read_only | no_execute),
        (
            huge(512, R | W | X),
            512 << 12 | BLOCK | modifier | read_only,
        ),
        (page(1, R | X | WC), 1 << 12 | PAGE | read_only | 1 << 2),
        (page(1, R | X | UC), 1 << 12 | PAGE | read_only | 2 << 2),
        (page(1, W | X | A | D), 0),
        (SWAPPED, 0),
        (migrating(1), 0),
        (MARKER, 0),
        (Entry::Empty, 0),
    ];
    for (entry, expected) in rows {
        let hardware = Aarch64::encode(word::encode(entry));
        assert_eq!(hardware, expected, "{entry:?}");
        // A page that is dirty and not writable is dirty in the word of software only.
        let bits = entry.present().map_or(Bits::empty(), |page| page.bits);
        let recorded = match (bits.contains(R), bits.contains(R | W | D)) {
            (true, true) => bits & (A | D),
            (true, false) => bits & A,
            (false, _) => Bits::empty(),
        };
        assert_eq!(Aarch64::recorded(hardware), recorded.bits(), "{entry:?}");
    }
    let table = word::table(Frame::new(0x1234));
    assert_eq!(Aarch64::encode(table), 0x1234 << 12 | 0b11);
    assert_eq!(Aarch64::recorded(Aarch64::encode(table)), 0);
}

/// Returns the index in the page attribute table that hardware reads from a leaf, by the manual's formats of entries:
/// bit 3 is PWT, bit 4 is PCD, and PAT is bit 7 of a 4 KiB page's entry and bit 12 of a larger page's.
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
        let word = word::encode_present(Present { frame, size, bits });
        assert_eq!(word, expected, "{mode:?} {size:?}");
        assert_eq!(pat_index(word, size), index, "{mode:?} {size:?}");
        assert_eq!(bits.cache(), Some(mode));
        // Bit 7 of a large page's entry marks it as a leaf, and bit 12 is not part of its address.
        assert_eq!(word >> 7 & 1 != 0, size != Size4K);
        // Removing the rights and restoring them keeps the mode.
        let without = word::edit(word, Bits::empty(), Bits::RIGHTS);
        let level = size.level_above_leaf() + 1;
        let kept = word::decode(without, level).present().unwrap();
        assert_eq!((kept.frame, kept.bits.cache()), (frame, Some(mode)));
        assert_eq!(word::edit(without, R | W | X, Bits::empty()), word);
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
        let word = word::encode(entry);
        prop_assert_eq!(word::decode(word, level), entry);
        prop_assert_eq!(word == 0, entry == Entry::Empty);
        prop_assert_eq!(word::is_present(word), entry.present().is_some());
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
        let word = word::encode_present(old);
        let edited = word::edit(word, set, clear);
        prop_assert_eq!(edited, word::encode_present(new));
        let expected = change(Entry::Present(old), Entry::Present(new));
        prop_assert_eq!(word::change(word, edited), expected);
    }
}

const USES: Uses = Uses {
    tags: false,
    write_combining: false,
    sets_accessed_and_dirty: true,
};

/// Returns the name of the field that is wrong, if one is.
fn field(checked: Result<(), WrongRegister>) -> Option<&'static str> {
    checked.err().map(|wrong| wrong.field)
}

#[test]
fn registers_of_x86_64_are_checked() {
    type Change = fn(&mut X86_64Registers);
    let tags = Uses { tags: true, ..USES };
    let combining = Uses {
        write_combining: true,
        ..USES
    };
    let table: [(Change, Uses, Option<&str>); 10] = [
        (|_| {}, USES, None),
        (|r| r.efer = 0, USES, Some("IA32_EFER.NXE")),
        (|r| r.cr0 &= !(1 << 16), USES, Some("CR0.WP")),
        (|r| r.cr4 |= 1 << 12, USES, Some("CR4.LA57")),
        (|r| r.cr4 |= 1 << 17, USES, Some("CR4.PCIDE")),
        (|r| r.cr4 |= 1 << 17, tags, None),
        (|r| r.pat = 0, USES, Some("IA32_PAT.PA0")),
        (|r| r.pat |= 6 << 24, USES, Some("IA32_PAT.PA3")),
        (|_| {}, combining, Some("IA32_PAT.PA1")),
        (|r| r.pat = 0x0007_0406_0007_0106, combining, None),
    ];
    for (row, (change, uses, expected)) in table.into_iter().enumerate() {
        let mut registers = X86_64Registers {
            efer: 0xd01,
            cr0: 0x8001_0033,
            cr4: 0x02a0,
            pat: 0x0007_0406_0007_0406,
        };
        change(&mut registers);
        let checked = X86_64::check(&registers, uses);
        assert_eq!(field(checked), expected, "row {row}");
    }
}

#[test]
fn registers_of_aarch64_are_checked() {
    type Change = fn(&mut Aarch64Registers);
    let table: [(Change, Option<&str>); 13] = [
        (|_| {}, None),
        (|r| r.tcr ^= 16 ^ 25, Some("TCR_EL1.T0SZ")),
        (|r| r.tcr &= !(3 << 8), Some("TCR_EL1.IRGN0")),
        (|r| r.tcr &= !(3 << 10), Some("TCR_EL1.ORGN0")),
        (|r| r.tcr &= !(1 << 12), Some("TCR_EL1.SH0")),
        (|r| r.tcr |= 1 << 14, Some("TCR_EL1.TG0")),
        (|r| r.tcr |= 1 << 59, Some("TCR_EL1.DS")),
        (|r| r.tcr &= !(1 << 39), Some("TCR_EL1.HA")),
        (|r| r.tcr &= !(1 << 40), Some("TCR_EL1.HD")),
        (|r| r.mair = 0x44_00ff, Some("MAIR_EL1.Attr1")),
        (|r| r.mair |= 0xff << 16, Some("MAIR_EL1.Attr2")),
        (|r| r.sctlr = 1 << 12, Some("SCTLR_EL1.C")),
        (|r| r.sctlr |= 1 << 19, Some("SCTLR_EL1.WXN")),
    ];
    let with = |change: Change| {
        let mut registers = Aarch64Registers {
            tcr: 1 << 40 | 1 << 39 | 0x3510,
            mair: 0x0004_44ff,
            sctlr: 1 << 12 | 1 << 2,
        };
        change(&mut registers);
        registers
    };
    for (row, (change, expected)) in table.into_iter().enumerate() {
        let checked = Aarch64::check(&with(change), USES);
        assert_eq!(field(checked), expected, "row {row}");
    }
    // Processors that fault in place of setting accessed and dirty bits need not be able to set them.
    let by_fault = Uses {
        sets_accessed_and_dirty: false,
        ..USES
    };
    let checked = ByFault::<Aarch64>::check(&with(|r| r.tcr &= !(3 << 39)), by_fault);
    assert_eq!(field(checked), None);
}
