//! Tests of folios: reference counts through splits, forks and partial removal.

use crate::MoveRule;
use std::sync::Arc;

use super::machine::{TestMachine, frames};
use crate::*;

const MINE: Bits = Bits::READ
    .union(Bits::WRITE)
    .union(Bits::ACCESSED)
    .union(Bits::DIRTY)
    .union(Bits::EXCLUSIVE);

struct World {
    frames: Arc<Frames<TestMachine>>,
    parent: Table<TestMachine>,
    child: Table<TestMachine>,
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(Page::new(start), Page::new(end))
}

impl World {
    /// Creates two tables, and maps a folio at page 512 of the parent.
    fn new() -> (Self, Frame) {
        let frames = frames(8192);
        let table = || Table::new(Arc::clone(&frames)).unwrap();
        let (parent, child) = (table(), table());
        let head = frames.allocate(FOLIO_ORDER, FrameKind::Anonymous).unwrap();
        let head = head.into_raw();
        let world = Self {
            frames,
            parent,
            child,
        };
        let huge = Entry::Present(Present {
            frame: head,
            size: PageSize::Size2M,
            bits: MINE,
        });
        world.parent.cursor(range(512, 1024)).fill(huge).unwrap();
        (world, head)
    }

    fn fork(&self) {
        let all = range(0, 2048);
        let mut gather = self.parent.gather();
        let mut from = self.parent.cursor(all);
        let mut to = self.child.second_cursor(all);
        let copied = from.copy_to(&mut to, CopyRule::PRIVATE, &mut gather);
        assert_eq!(copied.unwrap().stop, CopyStop::Done);
        drop((from, to));
        gather.finish();
    }

    fn split(table: &Table<TestMachine>) {
        let mut gather = table.gather();
        table
            .cursor(range(512, 513))
            .split(&mut gather)
            .expect("a table was set aside");
        gather.finish();
    }

    /// Removes the entries of a range. Returns the number of dropped frame references.
    fn remove(table: &Table<TestMachine>, start: u64, end: u64) -> u64 {
        let mut gather = table.gather();
        let mut cursor = table.cursor(range(start, end));
        cursor.split_pages(&mut gather);
        cursor.remove_all(&mut gather);
        cursor.free_tables(&mut gather);
        gather.finish().released
    }

    fn anonymous(&self) -> u64 {
        let used = self.frames.used_by(FrameKind::Anonymous);
        assert_eq!(self.frames.audit().of(FrameKind::Anonymous), used);
        used
    }

    fn check_tables(&self) {
        for table in [&self.parent, &self.child] {
            assert_eq!(table.table_frames(), table.count_tables());
        }
    }
}

#[test]
fn a_folio_is_one_reference_until_it_is_split() {
    let (world, head) = World::new();
    let inside = Frame::new(head.number() + 77);
    let frames = &world.frames;
    assert_eq!((frames.references(inside), frames.order(inside)), (1, 9));
    assert_eq!(frames.kind(inside), FrameKind::Anonymous);
    assert_eq!(frames.folio_of(inside), Some(head));
    assert!(frames.is_sole_whole(head));
    assert_eq!(world.anonymous(), 512);
    // Three tables and the deposited one.
    assert_eq!(world.parent.table_frames(), 4);
    world.check_tables();
    assert_eq!(World::remove(&world.parent, 512, 1024), 512 + 2);
    assert_eq!(world.anonymous(), 0);
    world.check_tables();
}

#[test]
fn the_only_owners_parts_are_frames_like_any_other_at_once() {
    let (world, head) = World::new();
    World::split(&world.parent);
    world.check_tables();
    for part in [0, 1, 511] {
        let frame = Frame::new(head.number() + part);
        assert_eq!(world.frames.references(frame), 1);
        assert_eq!(world.frames.folio_of(frame), None);
        assert_eq!(world.frames.order(frame), 0);
    }
    World::remove(&world.parent, 600, 700);
    assert_eq!(world.anonymous(), 412, "what is unmapped is free");
    World::remove(&world.parent, 0, 2048);
    assert_eq!(world.anonymous(), 0);
}

#[test]
fn parts_are_kept_while_somebody_has_the_whole() {
    let (world, head) = World::new();
    world.fork();
    world.check_tables();
    let frames = &world.frames;
    assert_eq!(frames.references(head), 2);
    World::split(&world.child);
    world.check_tables();
    let inside = Frame::new(head.number() + 77);
    assert_eq!((frames.references(inside), frames.references(head)), (2, 2));
    assert!(!frames.is_sole_whole(head));
    // The pages that the child unmaps are not freed, because the parent maps them.
    World::remove(&world.child, 512, 640);
    assert_eq!(world.anonymous(), 512);
    assert_eq!((frames.references(inside), frames.references(head)), (1, 1));
    // When the parent unmaps all pages, the pages that the child does not map are freed. Only the child has references
    // to the other pages.
    World::remove(&world.parent, 512, 1024);
    assert_eq!(world.anonymous(), 384);
    let kept = Frame::new(head.number() + 128);
    assert_eq!((frames.references(kept), frames.folio_of(kept)), (1, None));
    World::remove(&world.child, 512, 1024);
    assert_eq!(world.anonymous(), 0);
    world.check_tables();
}

#[test]
fn the_only_owner_of_the_whole_regains_it_when_all_parts_are_gone() {
    let (world, head) = World::new();
    world.fork();
    World::split(&world.child);
    World::remove(&world.child, 512, 1023);
    assert!(!world.frames.is_sole_whole(head), "one part is the child's");
    World::remove(&world.child, 1023, 1024);
    assert!(world.frames.is_sole_whole(head));
    let mut gather = world.parent.gather();
    let edit = |bits: Bits| Edit {
        set: bits & Bits::EXCLUSIVE,
        clear: Bits::empty(),
    };
    let mut cursor = world.parent.cursor(range(512, 1024));
    cursor.edit_regaining(Page::new(1024), edit, &mut gather);
    drop(cursor);
    let cursor = world.parent.cursor(range(512, 1024));
    let bits = cursor.peek().present().unwrap().bits;
    drop(cursor);
    gather.finish();
    assert!(bits.contains(Bits::EXCLUSIVE));
    World::remove(&world.parent, 512, 1024);
    assert_eq!(world.anonymous(), 0);
}

#[test]
fn both_split_and_every_frame_is_counted_by_itself() {
    let (world, head) = World::new();
    world.fork();
    World::split(&world.child);
    World::split(&world.parent);
    world.check_tables();
    let inside = Frame::new(head.number() + 77);
    assert_eq!(world.frames.references(inside), 2);
    assert_eq!(world.frames.folio_of(inside), None, "nobody has the whole");
    World::remove(&world.parent, 512, 513);
    World::remove(&world.child, 512, 513);
    assert_eq!(world.anonymous(), 511);
}

#[test]
fn a_pinned_folio_stays_one_and_its_pin_is_seen_by_every_part() {
    let (world, head) = World::new();
    let inside = Frame::new(head.number() + 5);
    world.frames.pin(inside);
    World::split(&world.parent);
    assert_eq!(world.frames.folio_of(inside), Some(head));
    assert_eq!(world.frames.pins(Frame::new(head.number() + 511)), 1);
    world.fork_stops_at(512);
    World::remove(&world.parent, 512, 1024);
    assert_eq!(world.anonymous(), 512, "pinned");
    world.frames.unpin(inside);
    assert_eq!(world.anonymous(), 0);
}

#[test]
fn a_frame_that_is_lent_keeps_its_folio_one() {
    let (world, head) = World::new();
    let inside = Frame::new(head.number() + 5);
    world.frames.write(inside, 0, b"lent");
    let lent = world.frames.share(inside);
    let raw = lent.clone().into_raw();
    assert_eq!((raw, world.frames.references(head)), (inside, 3));
    World::split(&world.parent);
    assert_eq!(world.frames.folio_of(inside), Some(head));
    assert_eq!(world.frames.references(inside), 3);
    World::remove(&world.parent, 512, 1024);
    drop(world.frames.adopt(raw));
    let mut bytes = [0; 4];
    world.frames.read(inside, 0, &mut bytes);
    assert_eq!((&bytes, world.anonymous()), (b"lent", 512));
    drop(lent);
    assert_eq!(world.anonymous(), 0);
}

#[test]
fn a_gather_holds_wholes_and_parts_of_one_folio() {
    let (world, _) = World::new();
    world.fork();
    World::split(&world.child);
    let mut ours = world.parent.gather();
    let mut theirs = world.child.gather();
    let pages = range(512, 1024);
    world.child.cursor(pages).remove_all(&mut theirs);
    world.parent.cursor(pages).remove_all(&mut ours);
    assert_eq!(world.anonymous(), 512);
    assert_eq!(ours.finish().released, 512);
    assert_eq!(world.anonymous(), 512);
    assert_eq!(theirs.finish().released, 512);
    assert_eq!(world.anonymous(), 0);
}

#[test]
fn a_move_takes_the_table_that_was_set_aside_along() {
    let (world, head) = World::new();
    let mut gather = world.parent.gather();
    let far = Page::new(1 << 20);
    let moved = world
        .parent
        .move_entries(range(512, 1024), far, MoveRule::PLAIN, &mut gather);
    gather.finish();
    assert_eq!(moved, Ok(1));
    world.check_tables();
    let there = PageRange::new(far, far.add(512));
    let mut gather = world.parent.gather();
    let mut cursor = world.parent.cursor(there);
    assert_eq!(cursor.peek().present().unwrap().frame, head);
    cursor.split(&mut gather).unwrap();
    drop(cursor);
    gather.finish();
    world.check_tables();
}

impl World {
    /// Checks that a fork stops at `page`, which is pinned.
    fn fork_stops_at(&self, page: u64) {
        let all = range(0, 2048);
        let mut gather = self.parent.gather();
        let mut from = self.parent.cursor(all);
        let mut to = self.child.second_cursor(all);
        let copied = from.copy_to(&mut to, CopyRule::PRIVATE, &mut gather);
        let pinned = matches!(copied.unwrap().stop, CopyStop::Pinned(_));
        assert!(pinned && from.position() == Page::new(page));
        drop((from, to));
        gather.finish();
    }
}
