//! Tests of the batch operations of fork and mremap.

use crate::MoveRule;
use std::format;
use std::sync::Arc;
use std::vec::Vec;

use super::machine::{TestMachine, frames};
use crate::{
    Bits, Change, CopyRule, CopyStop, Entry, FrameKind, Frames, Marks, Page, PageRange, PageSize,
    Present, Table,
};

/// A rule by which moved entries keep userfaultfd's write protection.
const KEEPING: MoveRule = MoveRule {
    keep_uffd_wp: true,
    ..MoveRule::PLAIN
};

type Setup = (
    Arc<Frames<TestMachine>>,
    Table<TestMachine>,
    Table<TestMachine>,
);

const MINE: Bits = Bits::READ
    .union(Bits::WRITE)
    .union(Bits::ACCESSED)
    .union(Bits::DIRTY)
    .union(Bits::EXCLUSIVE)
    .union(Bits::UFFD_WP);

fn setup() -> Setup {
    let frames = frames(4096);
    let parent = Table::new(Arc::clone(&frames)).unwrap();
    let child = Table::new(Arc::clone(&frames)).unwrap();
    (frames, parent, child)
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(Page::new(start), Page::new(end))
}

fn map(setup: &Setup, page: u64, bits: Bits) -> crate::Frame {
    let frame = setup
        .0
        .allocate(0, FrameKind::Anonymous)
        .unwrap()
        .into_raw();
    setup
        .1
        .cursor(range(page, page + 1))
        .fill(Entry::page(frame, bits))
        .unwrap();
    frame
}

fn bits_at(table: &Table<TestMachine>, page: u64) -> Bits {
    table
        .cursor(range(page, page + 1))
        .entry()
        .entry
        .present()
        .expect("a page")
        .bits
}

#[test]
fn a_private_copy_takes_exclusivity_from_both() {
    let setup = setup();
    let all = range(500, 530);
    let frame = map(&setup, 505, MINE);
    map(&setup, 520, MINE);
    let (_, parent, child) = &setup;
    let mut gather = parent.gather();
    let mut from = parent.cursor(all);
    let mut to = child.second_cursor(all);
    let copied = from
        .copy_to(&mut to, CopyRule::PRIVATE, &mut gather)
        .unwrap();
    assert_eq!(
        (copied.pages, copied.counted, copied.stop),
        (2, 2, CopyStop::Done)
    );
    drop((from, to));
    assert_eq!(gather.finish().of(Change::Shrank), 2);
    assert_eq!(setup.0.references(frame), 2);
    let left = MINE.difference(Bits::WRITE | Bits::EXCLUSIVE);
    assert_eq!(bits_at(parent, 505), left);
    assert_eq!(
        bits_at(child, 520),
        left.difference(Bits::ACCESSED | Bits::UFFD_WP)
    );
    drop(setup.2);
    assert_eq!(setup.0.references(frame), 1);
}

#[test]
fn a_shared_copy_begins_clean_and_keeps_rights() {
    let setup = setup();
    map(&setup, 1, MINE.difference(Bits::EXCLUSIVE));
    let mut gather = setup.1.gather();
    let mut from = setup.1.cursor(range(0, 2));
    let mut to = setup.2.second_cursor(range(0, 2));
    let rule = CopyRule::SHARED.keep_uffd_wp();
    assert_eq!(
        from.copy_to(&mut to, rule, &mut gather).unwrap().stop,
        CopyStop::Done
    );
    drop((from, to));
    assert_eq!(gather.finish().of(Change::Shrank), 0);
    assert_eq!(bits_at(&setup.1, 1), MINE.difference(Bits::EXCLUSIVE));
    assert_eq!(
        bits_at(&setup.2, 1),
        Bits::READ | Bits::WRITE | Bits::UFFD_WP
    );
}

#[test]
fn a_pinned_page_stops_the_copy() {
    let setup = setup();
    map(&setup, 7, MINE);
    let pinned = map(&setup, 8, MINE);
    map(&setup, 9, MINE);
    setup.0.pin(pinned);
    let mut gather = setup.1.gather();
    let mut from = setup.1.cursor(range(0, 512));
    let mut to = setup.2.second_cursor(range(0, 512));
    let copied = from
        .copy_to(&mut to, CopyRule::PRIVATE, &mut gather)
        .unwrap();
    let CopyStop::Pinned(page) = copied.stop else {
        panic!("{:?}", copied.stop)
    };
    assert_eq!((copied.pages, page.frame, page.bits), (1, pinned, MINE));
    assert_eq!(
        (from.position(), to.position()),
        (Page::new(8), Page::new(8))
    );
    let own = setup
        .0
        .allocate(0, FrameKind::Anonymous)
        .unwrap()
        .into_raw();
    to.fill(Entry::page(own, MINE)).unwrap();
    assert!(from.pass_with(&mut to));
    let copied = from
        .copy_to(&mut to, CopyRule::PRIVATE, &mut gather)
        .unwrap();
    assert_eq!((copied.pages, copied.stop), (1, CopyStop::Done));
    drop((from, to));
    gather.finish();
    assert_eq!(
        (bits_at(&setup.1, 8), setup.0.references(pinned)),
        (MINE, 1)
    );
    setup.0.unpin(pinned);
}

#[test]
fn markers_huge_pages_and_borrowed_frames_are_copied() {
    let setup = setup();
    let (frames, parent, child) = &setup;
    let zero = frames.allocate_zeroed(0, FrameKind::Zero).unwrap();
    parent
        .cursor(range(3, 4))
        .fill(Entry::page(zero.frame(), Bits::READ | Bits::BORROWED))
        .unwrap();
    let block = frames.allocate(9, FrameKind::Anonymous).unwrap().into_raw();
    let huge = Entry::Present(Present {
        frame: block,
        size: PageSize::Size2M,
        bits: MINE,
    });
    parent.cursor(range(1024, 1536)).fill(huge).unwrap();
    parent
        .cursor(range(2048, 2560))
        .mark(Marks::UFFD_WP | Marks::GUARD)
        .unwrap();
    let all = range(0, 4096);
    let mut gather = parent.gather();
    let mut from = parent.cursor(all);
    let mut to = child.second_cursor(all);
    let copied = from
        .copy_to(&mut to, CopyRule::PRIVATE, &mut gather)
        .unwrap();
    assert_eq!(copied.stop, CopyStop::Done);
    drop((from, to));
    gather.finish();
    assert_eq!(frames.references(zero.frame()), 1);
    assert_eq!(frames.references(block), 2);
    assert!(!bits_at(parent, 1030).contains(Bits::WRITE));
    assert!(!bits_at(child, 1030).contains(Bits::EXCLUSIVE));
    assert_eq!(bits_at(child, 3), Bits::READ | Bits::BORROWED);
    let guard = child.cursor(range(2048, 2049)).entry();
    assert_eq!(
        (guard.entry, guard.size),
        (Entry::marker(Marks::GUARD), PageSize::Size2M)
    );
}

#[test]
fn a_move_carries_pages_across_tables() {
    let setup = setup();
    let moved: std::vec::Vec<_> = [100, 101, 200, 511]
        .map(|page| map(&setup, page, MINE))
        .into();
    let stays = map(&setup, 99, MINE);
    let table = &setup.1;
    let mut gather = table.gather();
    let done = table.move_entries(
        range(100, 512),
        Page::new(600),
        MoveRule::PLAIN,
        &mut gather,
    );
    assert_eq!(done, Ok(4));
    assert_eq!(gather.finish().of(Change::Freed), 4);
    for (frame, page) in moved.into_iter().zip([600, 601, 700, 1011]) {
        let entry = table
            .cursor(range(page, page + 1))
            .entry()
            .entry
            .present()
            .unwrap();
        assert_eq!(entry.frame, frame);
        assert_eq!(
            entry.bits,
            MINE.difference(Bits::UFFD_WP) | Bits::SOFT_DIRTY
        );
    }
    assert_eq!(table.cursor(range(100, 512)).next_filled(), None);
    assert_eq!(setup.0.references(stays), 1);
}

#[test]
fn a_move_that_fails_has_moved_nothing() {
    let setup = setup();
    map(&setup, 100, MINE);
    map(&setup, 700, MINE);
    let table = &setup.1;
    let before = table.table_frames();
    for fail in 0..6 {
        setup.0.fail_after(Some(fail));
        let mut gather = table.gather();
        let to = Page::new(1 << 30);
        let done = table.move_entries(range(0, 1024), to, KEEPING, &mut gather);
        gather.finish();
        if let Ok(moved) = done {
            assert_eq!(moved, 2);
            assert!(table.table_frames() > before);
            setup.0.fail_after(None);
            return;
        }
        assert_eq!(bits_at(table, 100), MINE);
        assert_eq!(bits_at(table, 700), MINE);
    }
    panic!("never succeeded");
}

/// A rule by which last-level tables move as a whole.
const WHOLE: MoveRule = MoveRule {
    whole_tables: true,
    ..MoveRule::PLAIN
};

#[test]
fn whole_tables_move_where_all_of_their_pages_do() {
    let setup = setup();
    // The first page of the range, pages of the two tables that the range covers completely, and its last page.
    let pages = [511, 512, 700, 1024, 1535, 1536];
    let frames = pages.map(|page| map(&setup, page, MINE));
    let stays = map(&setup, 1537, MINE);
    let table = &setup.1;
    let to = (1 << 18) + 511;
    let mut gather = table.gather();
    let done = table.move_entries(range(511, 1537), Page::new(to), WHOLE, &mut gather);
    assert_eq!(done, Ok(6));
    assert_eq!(gather.finish().of(Change::Freed), 6);
    for (page, frame) in pages.into_iter().zip(frames) {
        let at = to + page - 511;
        let entry = table.cursor(range(at, at + 1)).entry().entry;
        let entry = entry.present().unwrap();
        assert_eq!(entry.frame, frame, "{page}");
        let kept = MINE.difference(Bits::UFFD_WP) | Bits::SOFT_DIRTY;
        let whole = (512..1536).contains(&page);
        assert_eq!(entry.bits, if whole { MINE } else { kept }, "{page}");
    }
    assert_eq!(table.cursor(range(511, 1537)).next_filled(), None);
    assert_eq!(bits_at(table, 1537), MINE);
    assert_eq!(setup.0.references(stays), 1);

    // The first move returns the pages to their old addresses, where empty tables remain. The second move has a
    // distance that is not a multiple of 512 pages, so it moves the pages one by one.
    for (from, to, rule, count) in [(to, 511, WHOLE, 6), (511, to + 1, WHOLE, 6)] {
        let mut gather = table.gather();
        let moving = range(from, from + 1026);
        let done = table.move_entries(moving, Page::new(to), rule, &mut gather);
        assert_eq!(done, Ok(count));
        gather.finish();
        assert_eq!(table.cursor(moving).next_filled(), None);
    }
    let mut all = table.cursor(range(0, 1 << 20));
    let mut found = 0;
    while all.next_filled().is_some() {
        found += 1;
        all.advance();
    }
    assert_eq!(found, 7);
}

#[test]
fn a_move_of_tables_that_fails_has_moved_nothing() {
    let setup = setup();
    map(&setup, 512, MINE);
    let table = &setup.1;
    for fail in 0..6 {
        setup.0.fail_after(Some(fail));
        let mut gather = table.gather();
        let done = table.move_entries(range(0, 1024), Page::new(1 << 30), WHOLE, &mut gather);
        gather.finish();
        if done.is_ok() {
            assert_eq!(bits_at(table, (1 << 30) + 512), MINE);
            setup.0.fail_after(None);
            return;
        }
        assert_eq!(bits_at(table, 512), MINE);
    }
    panic!("never succeeded");
}

/// Returns the entries of a range that are not empty, each with its first page and its size.
fn filled(table: &Table<TestMachine>, range: PageRange) -> Vec<(u64, PageSize, Entry)> {
    let mut cursor = table.cursor(range);
    let mut found = Vec::new();
    while let Some(extent) = cursor.next_filled() {
        found.push((extent.range.start.number(), extent.size, extent.entry));
        cursor.advance();
    }
    found
}

/// Creates clusters of 4 KiB pages, 2 MiB markers, and empty tables at random pages of a range.
fn populate(setup: &Setup, filled: PageRange, below: &mut impl FnMut(u64) -> u64) {
    let table = &setup.1;
    for _ in 0..below(20) {
        let first = filled.start.number() + below(filled.len() - 4096);
        match below(4) {
            0 => {
                let huge = (first & !511) + 512;
                let mut cursor = table.cursor(range(huge, huge + 512));
                if cursor.next_filled().is_none() {
                    cursor.seek(Page::new(huge));
                    cursor.fill(Entry::marker(Marks::GUARD)).unwrap();
                }
            }
            kind => {
                for page in (0..8).map(|step| first + step * (1 + below(300))) {
                    let at = range(page, page + 1);
                    if table.cursor(at).entry().entry == Entry::Empty {
                        map(setup, page, MINE);
                    }
                    if kind == 1 {
                        let mut gather = table.gather();
                        table.cursor(at).remove_all(&mut gather);
                        gather.finish();
                    }
                }
            }
        }
    }
}

#[test]
fn tables_move_from_anywhere_to_anywhere() {
    const GIGABYTE: u64 = 1 << 18;
    let mut random = 1_u64;
    let mut below = |end: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };
    // Miri needs seconds for a round.
    let rounds = if cfg!(miri) { 1 } else { 200 };
    for round in 0..rounds {
        let setup = setup();
        let table = &setup.1;
        // A range of 1 to 2 GiB with a random start.
        let start = below(GIGABYTE);
        let moving = range(start, start + GIGABYTE + below(GIGABYTE));
        populate(&setup, moving, &mut below);
        let apart = 4 * GIGABYTE + below(2 * GIGABYTE);
        let apart = if below(4) == 0 { apart } else { apart & !511 };
        let before = filled(table, moving);
        let target = range(start + apart, moving.end.number() + apart);
        let mut gather = table.gather();
        let rule = MoveRule {
            keep_uffd_wp: true,
            ..WHOLE
        };
        let moved = table.move_entries(moving, target.start, rule, &mut gather);
        gather.finish();
        let context = format!("round {round}: {moving:?} by {apart}");
        assert_eq!(filled(table, moving), [], "{context}");
        let bits = |entry| match entry {
            Entry::Present(page) => Entry::Present(Present {
                bits: page.bits | Bits::SOFT_DIRTY,
                ..page
            }),
            other => other,
        };
        // A move by a distance that is not a multiple of 512 pages splits markers, so the entries are compared page by
        // page.
        if apart % 512 == 0 {
            assert_eq!(moved, Ok(before.len() as u64), "{context}");
            let after = filled(table, target);
            let expected: Vec<_> = before
                .iter()
                .map(|(page, size, entry)| (page + apart, *size, bits(*entry)))
                .collect();
            let after: Vec<_> = after
                .iter()
                .map(|(page, size, entry)| (*page, *size, bits(*entry)))
                .collect();
            assert_eq!(after, expected, "{context}");
        } else {
            for (page, _, entry) in before {
                let at = range(page + apart, page + apart + 1);
                let found = table.cursor(at).entry().entry;
                assert_eq!(bits(found), bits(entry), "{context}");
            }
        }
        let mut gather = table.gather();
        table.cursor(target).remove_all(&mut gather);
        table.cursor(target).free_tables(&mut gather);
        table.cursor(moving).free_tables(&mut gather);
        gather.finish();
        assert!(
            table.table_frames() <= 16,
            "{context}: {}",
            table.table_frames()
        );
    }
}
