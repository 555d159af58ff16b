//! Tests of the gather: which translations are invalidated, on which CPUs, and when frames become free.

use std::sync::Arc;

use super::machine::{TestMachine, frames_with};
use crate::{
    Bits, Change, CpuId, CpuSet, Entry, FrameKind, Frames, Invalidation, Page, PageRange, PageSize,
    Table,
};

type Setup = (Arc<Frames<TestMachine>>, Table<TestMachine>);

const USED: Bits = Bits::READ
    .union(Bits::WRITE)
    .union(Bits::ACCESSED)
    .union(Bits::DIRTY);

/// Creates a table that two CPUs have loaded, with `pages` pages mapped from page 0x1000 on.
fn setup(pages: u64, bits: Bits) -> Setup {
    let frames = frames_with(4096, 2);
    let table = Table::new(Arc::clone(&frames)).unwrap();
    table.note_loaded(CpuId::new(0));
    table.note_loaded(CpuId::new(1));
    for page in range(pages).iter() {
        let frame = frames.allocate(0, FrameKind::Anonymous).unwrap().into_raw();
        table
            .cursor(PageRange::single(page))
            .fill(Entry::page(frame, bits))
            .unwrap();
    }
    (frames, table)
}

fn range(pages: u64) -> PageRange {
    PageRange::new(Page::new(0x1000), Page::new(0x1000 + pages))
}

fn unload(table: &Table<TestMachine>) {
    table.note_unloaded(CpuId::new(0));
    table.note_unloaded(CpuId::new(1));
}

const BOTH: [CpuSet; 2] = [CpuSet::from_bits(1), CpuSet::from_bits(2)];

#[test]
fn frames_are_free_only_after_every_cpu_forgot() {
    let (frames, table) = setup(3, USED);
    let mut gather = table.gather();
    assert_eq!(table.cursor(range(3)).remove_all(&mut gather), 3);
    assert_eq!(frames.used_by(FrameKind::Anonymous), 3);
    assert!(frames.machine().take_sent().is_empty());
    let counts = gather.finish();
    assert_eq!(frames.used_by(FrameKind::Anonymous), 0);
    let what = Invalidation::Pages {
        first: Page::new(0x1000),
        count: 3,
        stride: PageSize::Size4K,
    };
    assert_eq!(frames.machine().take_sent(), BOTH.map(|cpus| (cpus, what)));
    assert_eq!(
        (
            counts.of(Change::Freed),
            counts.local,
            counts.interrupted,
            counts.released
        ),
        (3, 1, 1, 3)
    );
    unload(&table);
}

#[test]
fn many_pages_are_invalidated_at_once() {
    let (frames, table) = setup(40, USED);
    let mut gather = table.gather();
    table.cursor(range(40)).remove_all(&mut gather);
    let counts = gather.finish();
    assert_eq!(
        frames.machine().take_sent(),
        BOTH.map(|cpus| (cpus, Invalidation::All))
    );
    assert_eq!(counts.local_full, 1);
    unload(&table);
}

#[test]
fn rights_that_grow_interrupt_nobody() {
    let (frames, table) = setup(2, Bits::READ | Bits::ACCESSED);
    let mut gather = table.gather();
    let mut cursor = table.cursor(range(2));
    cursor.edit(Bits::WRITE, Bits::empty(), &mut gather);
    drop(cursor);
    let counts = gather.finish();
    let what = Invalidation::Pages {
        first: Page::new(0x1000),
        count: 1,
        stride: PageSize::Size4K,
    };
    assert_eq!(frames.machine().take_sent(), [(BOTH[0], what)]);
    assert_eq!(
        (
            counts.of(Change::Grew),
            counts.elided_grew,
            counts.interrupted
        ),
        (1, 1, 0)
    );
    unload(&table);
}

#[test]
fn what_nobody_touched_is_not_invalidated() {
    let (frames, table) = setup(2, Bits::READ | Bits::WRITE);
    let mut gather = table.gather();
    let edit = crate::Edit {
        set: Bits::empty(),
        clear: Bits::WRITE,
    };
    let mut cursor = table.cursor(range(2));
    assert_eq!(cursor.edit_run(range(2).end, |_, _| edit, &mut gather), 2);
    drop(cursor);
    let counts = gather.finish();
    assert!(frames.machine().take_sent().is_empty());
    // Two flushes are elided: one on this CPU, and one on the other.
    assert_eq!(
        (counts.of(Change::Shrank), counts.elided_not_accessed),
        (2, 2)
    );
    unload(&table);
}

#[test]
fn an_elision_does_not_outrun_a_pending_invalidation() {
    let (frames, table) = setup(2, USED);
    let mut first = table.gather();
    // The first operation clears the accessed bit, and has not flushed yet.
    table
        .cursor(range(1))
        .edit(Bits::empty(), Bits::ACCESSED, &mut first);
    let mut second = table.gather();
    table
        .cursor(range(1))
        .edit(Bits::empty(), Bits::WRITE, &mut second);
    let counts = second.finish();
    assert_eq!((counts.elided_not_accessed, counts.completed), (0, 1));
    // The pending flush of the first operation can include upper-level entries.
    assert_eq!(
        frames.machine().take_sent(),
        BOTH.map(|cpus| (cpus, Invalidation::AllAndTables))
    );
    assert_eq!(first.finish().of(Change::LostCachedBit), 1);
    unload(&table);
}

#[test]
fn a_right_found_gone_awaits_the_pending_invalidation() {
    let (_frames, table) = setup(1, USED);
    let edit = crate::Edit {
        set: Bits::empty(),
        clear: Bits::WRITE,
    };
    let mut first = table.gather();
    table
        .cursor(range(1))
        .edit_run(range(1).end, |_, _| edit, &mut first);
    let mut second = table.gather();
    assert_eq!(
        table
            .cursor(range(1))
            .edit_run(range(1).end, |_, _| edit, &mut second),
        0
    );
    assert_eq!(second.finish().completed, 1);
    first.finish();
    unload(&table);
}

#[test]
fn an_unloaded_table_needs_no_invalidation() {
    let (frames, table) = setup(1, USED);
    unload(&table);
    let mut gather = table.gather();
    table.cursor(range(1)).remove(&mut gather);
    let counts = gather.finish();
    assert!(frames.machine().take_sent().is_empty());
    assert_eq!(counts.elided_not_loaded, 1);
}

#[test]
fn a_freed_table_takes_upper_entries_with_it() {
    let (frames, table) = setup(1, Bits::READ);
    let mut gather = table.gather();
    let mut cursor = table.cursor(range(1));
    cursor.remove_all(&mut gather);
    assert_eq!(cursor.free_tables(&mut gather), 3);
    assert_eq!(
        (table.table_frames(), frames.used_by(FrameKind::Table)),
        (1, 4)
    );
    gather.finish();
    assert_eq!(frames.used_by(FrameKind::Table), 1);
    assert_eq!(
        frames.machine().take_sent(),
        BOTH.map(|cpus| (cpus, Invalidation::AllAndTables))
    );
    unload(&table);
}

#[test]
fn a_page_in_two_gathers_is_freed_once() {
    let (frames, table) = setup(1, USED);
    let frame = table
        .cursor(range(1))
        .entry()
        .entry
        .counted_frame()
        .unwrap();
    let other = Table::new(Arc::clone(&frames)).unwrap();
    let shared = frames.share(frame).into_raw();
    other
        .cursor(range(1))
        .fill(Entry::page(shared, USED))
        .unwrap();
    let (mut one, mut two) = (table.gather(), other.gather());
    table.cursor(range(1)).remove(&mut one);
    other.cursor(range(1)).remove(&mut two);
    one.finish();
    assert_eq!(frames.references(frame), 1);
    two.finish();
    assert_eq!(frames.used_by(FrameKind::Anonymous), 0);
    unload(&table);
}

#[test]
fn a_run_that_overflows_the_gather_is_flushed_before_its_frames_are_free() {
    // Entries with equal attributes are removed in one run. Only these entries map the frames of the first four pages.
    // Another gather has already deferred the frames of the other pages, whose number exceeds what a gather can record
    // outside of its lists.
    let (own, shared) = (4, 20);
    let (frames, table) = setup(own + shared, USED);
    let other = Table::new(Arc::clone(&frames)).unwrap();
    for page in range(own + shared).iter().skip(own as usize) {
        let entry = table.cursor(PageRange::single(page)).entry().entry;
        let frame = frames.share(entry.counted_frame().unwrap()).into_raw();
        let mut cursor = other.cursor(PageRange::single(page));
        cursor.fill(Entry::page(frame, USED)).unwrap();
    }
    let (mut one, mut two) = (other.gather(), table.gather());
    other.cursor(range(own + shared)).remove_all(&mut one);
    table.cursor(range(own + shared)).remove_all(&mut two);
    assert_eq!(
        frames.used_by(FrameKind::Anonymous),
        shared,
        "flushed early"
    );
    assert_eq!(
        frames.machine().take_sent(),
        BOTH.map(|cpus| (cpus, Invalidation::All))
    );
    one.finish();
    assert_eq!(two.finish().early, 1);
    assert_eq!(frames.used_by(FrameKind::Anonymous), 0);
    unload(&table);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "dropped without `finish`")]
fn a_forgotten_gather_is_found() {
    let (_frames, table) = setup(1, USED);
    unload(&table);
    let mut gather = table.gather();
    table.cursor(range(1)).remove(&mut gather);
}
