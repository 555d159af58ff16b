//! Tests of operations that change the levels of entries: markers at every level, splits, and the counts of entries.

use std::sync::Arc;
use std::vec::Vec;

use super::machine::{TestMachine, frames};
use crate::{
    Architecture, Bits, Change, Entry, FrameKind, Frames, Marks, OutOfFrames, Page, PageRange,
    PageSize, Present, Table, X86_64,
};

type Setup = (Arc<Frames<TestMachine>>, Table<TestMachine>);

fn setup() -> Setup {
    let frames = frames(4096);
    let table = Table::new(Arc::clone(&frames)).unwrap();
    (frames, table)
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(Page::new(start), Page::new(end))
}

const GIB: u64 = 1 << 18;
const WP: Entry = Entry::marker(Marks::UFFD_WP);

fn entry_at(table: &Table<TestMachine>, page: u64) -> (Entry, PageSize) {
    let extent = table.cursor(range(page, page + 1)).entry();
    (extent.entry, extent.size)
}

#[test]
fn ten_gibibytes_are_marked_with_a_handful_of_entries() {
    let (_frames, table) = setup();
    let all = range(4 * GIB, 14 * GIB);
    table.cursor(all).mark(Marks::UFFD_WP).unwrap();
    assert_eq!(table.table_frames(), 2);
    assert_eq!(entry_at(&table, 4 * GIB), (WP, PageSize::Size1G));
    assert_eq!(entry_at(&table, 14 * GIB - 1), (WP, PageSize::Size1G));
    assert_eq!(entry_at(&table, 14 * GIB), (Entry::Empty, PageSize::Size1G));
    let mut cursor = table.cursor(all);
    let mut slots = 0;
    while cursor.next_filled().is_some() {
        slots += 1;
        cursor.advance();
    }
    assert_eq!(slots, 10);
}

#[test]
fn a_range_without_entries_was_empty() {
    let (frames, table) = setup();
    assert!(table.was_empty(X86_64::USER));
    let frame = frames.allocate(0, FrameKind::Anonymous).unwrap().into_raw();
    let new = Entry::page(frame, Bits::READ);
    table.cursor(range(600, 601)).fill(new).unwrap();
    #[rustfmt::skip]
    let rows = [
        ("the page",                              range(600, 601),             false),
        ("pages before it in its table",          range(512, 600),             true),
        ("pages after it in its table",           range(601, 1024),            true),
        ("pages on both sides",                   range(590, 610),             false),
        ("pages without a table",                 range(1024, 1030),           true),
        ("several tables, one of which has it",   range(512, 2048),            false),
        ("several tables, none of which has it",  range(1024, 2048),           true),
        ("another upper table",                   range(GIB, 2 * GIB),         true),
        ("both upper tables",                     range(601, GIB + 1),         false),
    ];
    for (name, pages, expected) in rows {
        assert_eq!(table.was_empty(pages), expected, "{name}");
    }
    table
        .cursor(range(GIB, 2 * GIB))
        .mark(Marks::UFFD_WP)
        .unwrap();
    assert!(!table.was_empty(range(GIB + 5, GIB + 6)), "below a marker");
}

#[test]
fn filling_pushes_a_marker_down_one_level_at_a_time() {
    let (frames, table) = setup();
    table.cursor(range(0, GIB)).mark(Marks::UFFD_WP).unwrap();
    let page = GIB / 2 + 3;
    let frame = frames.allocate(0, FrameKind::Anonymous).unwrap().into_raw();
    let new = Entry::page(frame, Bits::READ);
    table.cursor(range(page, page + 1)).fill(new).unwrap();
    assert_eq!(table.table_frames(), 4);
    assert_eq!(entry_at(&table, page), (new, PageSize::Size4K));
    assert_eq!(entry_at(&table, page - 1), (WP, PageSize::Size4K));
    assert_eq!(entry_at(&table, page + 1), (WP, PageSize::Size4K));
    assert_eq!(entry_at(&table, page + 512), (WP, PageSize::Size2M));
    assert_eq!(entry_at(&table, 0), (WP, PageSize::Size2M));
}

#[test]
fn an_edge_splits_a_marker_before_a_part_is_removed() {
    let (_frames, table) = setup();
    table.cursor(range(0, GIB)).mark(Marks::UFFD_WP).unwrap();
    let part = range(700, 5000);
    let mut gather = table.gather();
    let mut cursor = table.cursor(part);
    cursor.split_edges(&mut gather).unwrap();
    cursor.remove_all(&mut gather);
    drop(cursor);
    assert_eq!(gather.finish().local, 0);
    for (page, entry) in [
        (699, WP),
        (700, Entry::Empty),
        (4999, Entry::Empty),
        (5000, WP),
    ] {
        assert_eq!(entry_at(&table, page).0, entry, "page {page}");
    }
    assert_eq!(entry_at(&table, 1024), (Entry::Empty, PageSize::Size2M));
    table.cursor(range(0, GIB)).unmark(Marks::UFFD_WP);
    assert!(table.cursor(range(0, GIB)).next_filled().is_none());
    let mut gather = table.gather();
    table.cursor(range(0, GIB)).free_tables(&mut gather);
    gather.finish();
    assert_eq!(table.table_frames(), 1);
}

#[test]
fn marks_add_up_and_leave_pages_alone() {
    let (frames, table) = setup();
    let frame = frames.allocate(0, FrameKind::Object).unwrap().into_raw();
    let page = Entry::page(frame, Bits::READ);
    table.cursor(range(5, 6)).fill(page).unwrap();
    table.cursor(range(0, 8)).mark(Marks::GUARD).unwrap();
    table.cursor(range(4, 12)).mark(Marks::UFFD_WP).unwrap();
    table.cursor(range(11, 13)).mark(Marks::GUARD).unwrap();
    let guard = Entry::marker(Marks::GUARD);
    let both = Entry::marker(Marks::GUARD | Marks::UFFD_WP);
    for (at, entry) in [
        (0, guard),
        // `mark` does not add write protection to a guard marker, but adds a guard to a write-protected marker.
        (4, guard),
        (5, page),
        (7, guard),
        (8, WP),
        (11, both),
        (12, guard),
        (13, Entry::Empty),
    ] {
        assert_eq!(entry_at(&table, at).0, entry, "page {at}");
    }
}

fn huge(frames: &Frames<TestMachine>, bits: Bits) -> Entry {
    let frame = frames.allocate(9, FrameKind::Anonymous).unwrap().into_raw();
    Entry::Present(Present {
        frame,
        size: PageSize::Size2M,
        bits,
    })
}

#[test]
fn a_huge_page_splits_into_pages_with_the_same_state() {
    let (frames, table) = setup();
    let bits = Bits::READ | Bits::WRITE | Bits::ACCESSED | Bits::DIRTY | Bits::EXCLUSIVE;
    let Entry::Present(whole) = huge(&frames, bits) else {
        unreachable!()
    };
    table
        .cursor(range(512, 1024))
        .fill(Entry::Present(whole))
        .unwrap();
    let mut gather = table.gather();
    table.cursor(range(600, 601)).split(&mut gather).unwrap();
    assert_eq!(gather.finish().of(Change::Resized), 1);
    assert_eq!(frames.references(whole.frame), 1);
    for page in [512u64, 600, 1023] {
        let Entry::Present(part) = entry_at(&table, page).0 else {
            panic!("no page")
        };
        assert_eq!(
            part.frame.number() - whole.frame.number(),
            page as u32 - 512
        );
        assert_eq!((part.bits, part.size), (bits, PageSize::Size4K));
    }
    let mut gather = table.gather();
    table.cursor(range(512, 1000)).remove_all(&mut gather);
    gather.finish();
    assert_eq!(
        (
            frames.kind(whole.frame),
            frames.used_by(FrameKind::Anonymous)
        ),
        (FrameKind::Free, 24)
    );
    let mut gather = table.gather();
    table.cursor(range(1000, 1024)).remove_all(&mut gather);
    gather.finish();
    assert_eq!(frames.used_by(FrameKind::Anonymous), 0);
}

#[test]
fn edges_split_huge_pages_for_an_edit_of_a_part() {
    let (frames, table) = setup();
    let page = huge(&frames, Bits::READ | Bits::WRITE | Bits::ACCESSED);
    table.cursor(range(0, 512)).fill(page).unwrap();
    let part = range(100, 512);
    let mut gather = table.gather();
    let mut cursor = table.cursor(part);
    cursor.split_edges(&mut gather).unwrap();
    let edit = crate::Edit {
        set: Bits::empty(),
        clear: Bits::WRITE,
    };
    assert_eq!(cursor.edit_run(part.end, |_, _| edit, &mut gather), 412);
    drop(cursor);
    gather.finish();
    let writable = |page| {
        entry_at(&table, page)
            .0
            .present()
            .unwrap()
            .bits
            .contains(Bits::WRITE)
    };
    assert!(writable(99) && !writable(100) && !writable(511));
}

#[test]
fn a_failed_fill_leaves_the_reference_with_the_caller() {
    let (frames, table) = setup();
    let block = frames.allocate(0, FrameKind::Anonymous).unwrap();
    for failing in 0..3 {
        frames.fail_after(Some(failing));
        let filled = table
            .cursor(range(GIB * 700, GIB * 701))
            .fill(Entry::page(block.frame(), Bits::READ));
        if failing < 3 {
            assert!(filled.is_err() || failing > 0);
        }
        if filled.is_ok() {
            let _in_the_table = block.into_raw();
            return;
        }
        assert_eq!(filled, Err(OutOfFrames));
        assert_eq!(frames.references(block.frame()), 1);
    }
}

#[test]
fn a_page_without_rights_keeps_its_frame_and_state() {
    let (frames, table) = setup();
    let frame = frames.allocate(0, FrameKind::Anonymous).unwrap().into_raw();
    let bits = Bits::READ | Bits::WRITE | Bits::ACCESSED | Bits::DIRTY | Bits::EXCLUSIVE;
    table
        .cursor(range(1, 2))
        .fill(Entry::page(frame, bits))
        .unwrap();
    let mut gather = table.gather();
    let mut cursor = table.cursor(range(1, 2));
    let none = cursor.edit(Bits::empty(), Bits::RIGHTS, &mut gather);
    assert_eq!(none.frame, frame);
    assert_eq!(none.bits, Bits::ACCESSED | Bits::DIRTY | Bits::EXCLUSIVE);
    let back = cursor.edit(Bits::READ, Bits::empty(), &mut gather);
    assert_eq!((back.frame, back.bits), (frame, none.bits | Bits::READ));
    drop(cursor);
    let counts = gather.finish();
    assert_eq!((counts.of(Change::Shrank), counts.of(Change::Grew)), (1, 1));
}

#[test]
fn a_dropped_table_gives_everything_back() {
    let (frames, table) = setup();
    let pages: Vec<u64> = std::vec![0, 511, 512, GIB, 600 * GIB];
    for &page in &pages {
        let frame = frames.allocate(0, FrameKind::Anonymous).unwrap().into_raw();
        table
            .cursor(range(page, page + 1))
            .fill(Entry::page(frame, Bits::READ))
            .unwrap();
    }
    assert_eq!(table.table_frames(), frames.used_by(FrameKind::Table));
    drop(table);
    assert_eq!(frames.used(), 0);
    assert_eq!(frames.audit().references, 0);
}
