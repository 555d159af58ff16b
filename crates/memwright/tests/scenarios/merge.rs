//! Tests of KSM: which pages with equal contents are merged into one frame, which are never merged, and how many faults
//! a store to them takes.

use std::sync::atomic::Ordering;

use memwright::uffd::WatchedFault;
use memwright::{Advice, AreaFlags, FaultError, FaultKind, MergeCounts, Row};
use memwright_table::{Bits, FrameKind, PageRange, Present};
use memwright_testkit::HostSwap;

use crate::overlooked::protected;
use crate::world::{NONE, PAGE, Process, R, RW, World, page, rows};

const COPY: FaultKind = FaultKind::Copy;

/// Creates a process with `pages` mergeable pages that all contain the same byte.
fn filled(world: &World, pages: u64, byte: u8) -> Process<'_> {
    let mut process = world.process();
    process.map(0, pages, RW);
    for index in 0..pages {
        process.store(index, byte).unwrap();
    }
    advise(&process, 0, pages, Advice::Mergeable);
    process
}

fn advise(process: &Process<'_>, first: u64, pages: u64, advice: Advice) {
    process
        .space
        .advise(page(first), pages * PAGE, advice)
        .unwrap();
    process.check();
}

/// Scans all memory until every page whose contents do not change is merged.
fn scan(world: &World) {
    for _ in 0..3 {
        while !world.memory.merge_pages(5) {}
    }
}

fn counts(world: &World) -> MergeCounts {
    world.memory.merging().counts(&world.memory)
}

fn shown(process: &Process<'_>, index: u64) -> Present {
    let range = PageRange::single(page(index).page());
    process.space.table().look(range).peek().present().unwrap()
}

#[test]
fn equal_pages_share_a_frame_until_one_is_written() {
    let world = World::new();
    let mut process = filled(&world, 8, 7);
    let before = world.frames.used();
    scan(&world);
    process.check();
    let found = counts(&world);
    assert_eq!((found.shared, found.sharing), (1, 7));
    assert_eq!(world.frames.used(), before - 7);
    assert_eq!(process.resident(), 8);
    for index in 0..8 {
        let entry = shown(&process, index);
        assert!(entry.bits.contains(Bits::MERGED));
        assert!(!entry.bits.intersects(Bits::EXCLUSIVE | Bits::WRITE));
        assert_eq!(process.load(index), 7);
    }
    assert_eq!(process.store(3, 8), Ok(vec![COPY]));
    assert_eq!(process.store(3, 9), Ok(vec![]));
    assert_eq!((process.load(2), process.load(3)), (7, 9));
    assert_eq!(counts(&world).sharing, 6);
    let account = world.account();
    let of_merging = [Row::Merges, Row::UnmergesWritten, Row::UnmergesAsked];
    assert_eq!(rows(&account, &of_merging), [8, 1, 0]);
}

#[test]
fn the_last_that_shows_a_merged_frame_copies_it_too() {
    let world = World::new();
    let mut process = filled(&world, 2, 7);
    scan(&world);
    assert_eq!(process.store(0, 1), Ok(vec![COPY]));
    // The KSM frame can still be found by its contents although only a single entry maps it. It is therefore not
    // exclusive: a store copies it.
    assert_eq!(process.store(1, 2), Ok(vec![COPY]));
    assert_eq!(counts(&world).shared, 0);
    assert_eq!(world.memory.merging().shed(&world.memory), 1);
}

#[test]
fn rights_that_come_back_do_not_let_a_merged_page_be_written() {
    let world = World::new();
    let mut process = filled(&world, 3, 7);
    scan(&world);
    process.protect(0, 3, NONE);
    process.protect(0, 3, RW);
    assert!(!shown(&process, 0).bits.contains(Bits::WRITE));
    assert_eq!(process.store(0, 1), Ok(vec![COPY]));
    assert_eq!(process.load(1), 7);
    // KSM also merges pages of areas without any rights.
    process.protect(0, 3, R);
    process.protect(0, 3, NONE);
    advise(&process, 0, 3, Advice::Unmergeable);
    advise(&process, 0, 3, Advice::Mergeable);
    scan(&world);
    assert_eq!(process.space.ksm().merged_pages().merged, 2);
    process.protect(0, 3, R);
    assert_eq!(process.load(2), 7);
}

#[test]
fn processes_share_with_each_other_and_a_child_with_its_parent() {
    let world = World::new();
    let mut one = filled(&world, 2, 7);
    let mut other = filled(&world, 2, 7);
    scan(&world);
    assert_eq!(counts(&world).sharing, 3);
    let mut child = one.fork();
    assert_eq!(child.space.ksm().merged_pages().merged, 0, "not inherited");
    assert_eq!(child.store(0, 1), Ok(vec![COPY]));
    let written = [Row::UnmergesWritten, Row::UnmergesAsked];
    assert_eq!(rows(&world.account(), &written), [1, 0], "by the child");
    assert_eq!((one.load(0), other.load(0)), (7, 7));
    scan(&world);
    assert_eq!(child.space.ksm().merged_pages().merged, 1);
    assert_eq!(one.store(1, 2), Ok(vec![COPY]));
    assert_eq!((child.load(1), other.load(1)), (7, 7));
    drop(one);
    assert_eq!(other.store(0, 3), Ok(vec![COPY]));
    assert_eq!((child.load(0), child.load(1)), (1, 7));
}

#[test]
fn pages_of_relatives_are_merged_with_others_one_by_one() {
    let world = World::new();
    let mut parent = filled(&world, 2, 7);
    parent.store(1, 8).unwrap();
    let mut child = parent.fork();
    let mut third = filled(&world, 1, 8);
    scan(&world);
    let found = counts(&world);
    assert_eq!((found.shared, found.sharing), (1, 2));
    assert_eq!(parent.store(1, 1), Ok(vec![COPY]));
    assert_eq!((child.load(1), third.load(0)), (8, 8));
    assert_eq!(child.store(1, 2), Ok(vec![COPY]));
    assert_eq!(third.load(0), 8);
}

#[test]
fn only_so_many_entries_show_a_frame_as_may() {
    let world = World::new();
    let most = &world.memory.merging().settings().most_sharing;
    most.store(4, Ordering::Relaxed);
    let process = filled(&world, 10, 7);
    scan(&world);
    let found = counts(&world);
    assert_eq!((found.shared, found.sharing), (3, 7));
    assert_eq!((found.chains, found.duplicates), (1, 3));
    drop(process);
    assert_eq!(counts(&world).shared, 0);
}

#[test]
fn what_changes_between_rounds_is_left_alone() {
    let world = World::new();
    let mut process = filled(&world, 4, 7);
    for round in 0..4 {
        for index in 0..2 {
            process.store(index, 100 + round).unwrap();
        }
        while !world.memory.merge_pages(100) {}
    }
    let found = counts(&world);
    assert_eq!((found.shared, found.sharing, found.volatile), (1, 1, 2));
    assert_eq!(found.rounds, 4);
}

#[test]
fn pages_full_of_zeroes_show_the_zero_frame_if_they_may() {
    let world = World::new();
    let zero_pages = &world.memory.merging().settings().zero_pages;
    let mut process = filled(&world, 4, 0);
    zero_pages.store(true, Ordering::Relaxed);
    scan(&world);
    process.check();
    assert_eq!(process.space.ksm().merged_pages().zero, 4);
    assert_eq!((counts(&world).shared, process.resident()), (0, 0));
    assert_eq!(process.store(0, 1), Ok(vec![COPY]));
    advise(&process, 0, 2, Advice::Unmergeable);
    assert_eq!(process.space.ksm().merged_pages().zero, 2);
    assert_eq!(process.store(1, 1), Ok(vec![]), "its own, and writable");
    world.memory.unmerge_all().unwrap();
    process.check();
    assert_eq!(process.space.ksm().merged_pages().zero, 0);
    assert_eq!((process.resident(), process.load(3)), (4, 0));
    // A store to the zero page does not count as unmerging a page (`cow_ksm`).
    let unmerged = [Row::UnmergesWritten, Row::UnmergesAsked];
    assert_eq!(rows(&world.account(), &unmerged), [0, 0]);
}

#[test]
fn pinned_and_lent_pages_are_not_merged() {
    let world = World::new();
    let mut process = filled(&world, 4, 7);
    let pinned = process.space.pin(page(0)).unwrap().into_raw();
    let lent = process.space.lend(page(1)).unwrap().into_raw();
    scan(&world);
    assert_eq!(process.space.ksm().merged_pages().merged, 2);
    // The pinned page was not merged, so a write by the device is visible to the program.
    world.frames.write(pinned, 0, &[9]);
    assert_eq!((process.load(0), process.load(2)), (9, 7));
    world.frames.unpin(pinned);
    drop((world.frames.adopt(pinned), world.frames.adopt(lent)));
    scan(&world);
    assert_eq!(process.space.ksm().merged_pages().merged, 3);
    // Pinning a merged page unmerges it: the caller gets a private copy.
    let pinned = process.space.pin(page(2)).unwrap().into_raw();
    world.frames.write(pinned, 0, &[1]);
    assert_eq!((process.load(2), process.load(3)), (1, 7));
    world.frames.unpin(pinned);
    drop(world.frames.adopt(pinned));
}

#[test]
fn all_areas_of_a_process_may_be_merged_and_none() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2, RW);
    process.space.ksm().merge_all(true).unwrap();
    process.map(8, 2, RW);
    let object = world.shmem(2);
    process.map_object(16, 2, RW, &object, true);
    for index in [0, 1, 8, 9, 16, 17] {
        process.store(index, 7).unwrap();
    }
    scan(&world);
    assert_eq!(process.space.ksm().merged_pages().merged, 4);
    assert!(process.fork().space.ksm().merges_all());
    process.space.ksm().merge_all(false).unwrap();
    process.check();
    assert_eq!(process.space.ksm().merged_pages().merged, 0);
    assert_eq!(process.store(0, 1), Ok(vec![]));
}

#[test]
fn copies_of_an_objects_pages_are_merged_and_outlive_holes() {
    let world = World::new();
    let mut process = world.process();
    let object = world.shmem(4);
    object.write_at(0, &[5; 4 * 4096]).unwrap();
    process.map_object(0, 4, RW, &object, false);
    for index in 0..3 {
        process.store(index, 7).unwrap();
    }
    assert_eq!(process.load(3), 5);
    advise(&process, 0, 4, Advice::Mergeable);
    scan(&world);
    process.check();
    assert_eq!(process.space.ksm().merged_pages().merged, 3);
    process.map_object(8, 4, RW, &object, true);
    advise(&process, 8, 4, Advice::Remove);
    assert_eq!((process.load(0), process.load(3)), (7, 0));
    assert_eq!(process.store(0, 1), Ok(vec![COPY]));
}

#[test]
fn merged_pages_stay_in_memory() {
    let world = World::new();
    let device = std::sync::Arc::new(HostSwap::new(16));
    world.memory.add_swap(device, 0).unwrap();
    let mut process = filled(&world, 3, 7);
    process.store(2, 8).unwrap();
    scan(&world);
    advise(&process, 0, 3, Advice::PageOut);
    assert_eq!(process.space.usage().swapped_pages(), 1);
    let child = process.fork();
    advise(&child, 0, 3, Advice::PageOut);
    assert_eq!(child.space.usage().swapped_pages(), 1);
    assert_eq!((process.load(0), process.load(2)), (7, 8));
}

#[test]
fn merging_is_no_store_for_those_who_watch_them() {
    let world = World::new();
    let mut process = filled(&world, 4, 7);
    process.space.tracking().clear_soft_dirty();
    let before = shown(&process, 0).bits;
    scan(&world);
    advise(&process, 0, 2, Advice::Unmergeable);
    for index in 0..4 {
        let kept = Bits::SOFT_DIRTY | Bits::UFFD_WP | Bits::DIRTY;
        assert_eq!(shown(&process, index).bits & kept, before & kept);
    }
    process.store(2, 7).unwrap();
    assert!(shown(&process, 2).bits.contains(Bits::SOFT_DIRTY));
}

#[test]
fn a_huge_page_is_split_for_a_page_that_is_merged() {
    let world = World::with_frames(4096);
    world.memory.policy().set("thp", "always").unwrap();
    let mut process = world.process();
    // The area contains an aligned range of 2 MiB, so one fault populates that range with a huge page.
    let first = 512 * 2 + 4;
    process.map(first, 512, RW);
    process.store(first + 2, 7).unwrap();
    process.store(first + 5, 7).unwrap();
    advise(&process, first, 512, Advice::Mergeable);
    assert_eq!(shown(&process, first).bits & Bits::MERGED, Bits::empty());
    scan(&world);
    process.check();
    let account = world.account();
    assert_eq!(account.count(Row::HugeSplitsMerge), 1);
    assert_eq!((process.load(first + 2), process.load(first + 5)), (7, 7));
    assert_eq!(process.space.ksm().merged_pages().merged, 512);
    assert_eq!(process.store(first + 2, 8), Ok(vec![COPY]));
    assert_eq!((process.load(first + 3), process.load(first + 5)), (0, 7));
}

#[test]
fn memory_that_is_shared_is_never_merged() {
    let world = World::new();
    let mut process = world.process();
    let object = world.shmem(2);
    process.map_object(0, 2, RW, &object, true);
    process.map_with(4, 2, RW, AreaFlags::DROPPABLE);
    for index in [0, 1, 4, 5] {
        process.store(index, 7).unwrap();
    }
    advise(&process, 0, 2, Advice::Mergeable);
    advise(&process, 4, 2, Advice::Mergeable);
    scan(&world);
    assert_eq!(process.space.ksm().merged_pages().merged, 0);
    assert_eq!(world.frames.used_by(FrameKind::Merged), 0);
}

#[test]
fn a_merged_page_is_still_protected() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    for index in 0..4 {
        process.store(index, 7).unwrap();
    }
    advise(&process, 0, 4, Advice::Mergeable);
    let _watch = protected(&process, 2, false);
    scan(&world);
    assert_eq!(
        shown(&process, 0).frame,
        shown(&process, 3).frame,
        "not merged"
    );
    let refused = FaultError::Watched(WatchedFault::WriteProtected);
    assert_eq!(process.store(0, 1), Err(refused));
    assert_eq!(process.store(3, 1).unwrap().len(), 1);
    assert_eq!((process.load(0), process.load(3)), (7, 1));
}
