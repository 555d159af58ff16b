//! Tests of folios that swap readahead allocates for pages that are aligned, have consecutive slots, and have a single
//! owner each.

use std::sync::atomic::{AtomicU64, Ordering};

use memwright::object::Object;
use memwright::uffd::{WatchModes, WatchedFault};
use memwright::{Advice, FaultError, FaultKind, Row, SizeCounts};
use memwright_table::{Bits, FrameKind, Frames, Present};

use crate::swap::{Swapping, page_out};
use crate::swap_shared;
use crate::world::{Machine, PAGE, Process, RW, page, watch};

const IN: FaultKind = FaultKind::SwapIn;

/// The index of the first page that scenarios use. It is aligned for every folio order.
const FIRST: u64 = 4;

fn around() -> Swapping {
    let swapping = Swapping::with_slots(256);
    let policy = swapping.world.memory.policy();
    policy.set("swapin-around", "on").unwrap();
    swapping
}

/// Creates a process with `pages` pages from [`FIRST`] on, each containing its number plus one.
fn filled(swapping: &Swapping, pages: u64) -> Process<'_> {
    let mut process = swapping.world.process();
    process.map(FIRST, pages, RW);
    for index in 0..pages {
        process.store(FIRST + index, index as u8 + 1).unwrap();
    }
    process
}

/// Like `filled`, and also swaps all pages out.
fn out(swapping: &Swapping, pages: u64) -> Process<'_> {
    let process = filled(swapping, pages);
    page_out(&process, FIRST, pages);
    process
}

/// Loads page `FIRST + index`.
fn load(process: &mut Process<'_>, index: u64) -> Result<(u8, Vec<FaultKind>), FaultError> {
    process.load_with(FIRST + index)
}

fn present(process: &Process<'_>, index: u64) -> Option<Present> {
    process.space.entry(page(FIRST + index)).present()
}

/// Returns the order of the folio of each of `count` pages from `index` on, or `None` for a page that is not in memory.
/// Checks that the frames of each folio are contiguous and in the order of its pages.
fn orders(process: &Process<'_>, index: u64, count: u64) -> Vec<Option<u8>> {
    let order = |index| {
        let frame = present(process, index)?.frame;
        let order = process.world.frames.folio_order(frame);
        let offset = |number: u64| number & ((1 << order) - 1);
        assert_eq!(offset(frame.number().into()), offset(index), "{index}");
        Some(order)
    };
    (index..index + count).map(order).collect()
}

/// Returns the expected result of `orders` for `folios`. Each folio is given by its number of pages and its order.
fn each(folios: &[(usize, u8)]) -> Vec<Option<u8>> {
    let pages = folios
        .iter()
        .map(|(count, order)| vec![Some(*order); *count]);
    pages.flatten().collect()
}

/// Checks that every page has its contents and is exclusive to the process.
fn check_contents(process: &mut Process<'_>, pages: u64) {
    for index in 0..pages {
        assert_eq!(load(process, index).unwrap().0, index as u8 + 1);
    }
    for index in 0..pages {
        assert!(
            present(process, index)
                .unwrap()
                .bits
                .contains(Bits::EXCLUSIVE)
        );
        assert_eq!(process.store(FIRST + index, 9), Ok(vec![]), "{index}");
    }
    process.check();
}

#[test]
fn a_run_comes_back_in_the_largest_folios_that_are_aligned() {
    let swapping = around();
    let mut process = out(&swapping, 70);
    let account = swapping.world.counted(|| {
        assert_eq!(load(&mut process, 0), Ok((1, vec![IN])));
        assert_eq!(orders(&process, 0, 8), each(&[(8, 3)]));
        for index in 1..8 {
            assert_eq!(load(&mut process, index), Ok((index as u8 + 1, vec![])));
        }
        // Readahead reads 16 pages, beginning in the middle of an aligned block of 16.
        assert_eq!(load(&mut process, 8), Ok((9, vec![IN])));
        assert_eq!(orders(&process, 8, 16), each(&[(16, 3)]));
        for index in 8..24 {
            load(&mut process, index).unwrap();
        }
        load(&mut process, 32).unwrap();
        assert_eq!(orders(&process, 32, 16), each(&[(16, 4)]));
        for index in 32..48 {
            load(&mut process, index).unwrap();
        }
        // Readahead reads 16 pages, beginning at an odd page number.
        load(&mut process, 49).unwrap();
        let cut = each(&[(3, 0), (4, 2), (8, 3), (1, 0)]);
        assert_eq!(orders(&process, 49, 16), cut);
    });
    let rows = [Row::SwapIn, Row::SwapFolios].map(|row| account.count(row));
    assert_eq!(rows, [8 + 16 + 16 + 16, 1 + 2 + 1 + 2]);
    assert_eq!(orders(&process, 24, 8), [None; 8]);
    check_contents(&mut process, 70);
}

#[test]
fn a_page_of_a_folio_goes_by_itself_and_ends_it() {
    let swapping = around();
    let mut process = out(&swapping, 16);
    load(&mut process, 0).unwrap();
    // Page 5 is swapped out and in again alone, because its neighbours are in memory.
    page_out(&process, FIRST + 5, 1);
    assert_eq!(orders(&process, 0, 5), each(&[(5, 0)]));
    load(&mut process, 5).unwrap();
    assert_eq!(orders(&process, 0, 8), each(&[(8, 0)]));
    check_contents(&mut process, 16);
}

#[test]
fn a_run_ends_at_a_hole_and_where_slots_do_not_follow_one_another() {
    let swapping = around();
    let mut process = out(&swapping, 16);
    let hole = page(FIRST + 6);
    process.space.advise(hole, PAGE, Advice::DontNeed).unwrap();
    load(&mut process, 0).unwrap();
    let mut cut = each(&[(4, 2), (2, 0)]);
    cut.resize(10, None);
    assert_eq!(orders(&process, 0, 10), cut);
    let mut process = filled(&swapping, 8);
    page_out(&process, FIRST + 4, 4);
    page_out(&process, FIRST, 4);
    load(&mut process, 0).unwrap();
    let mut cut = each(&[(4, 2)]);
    cut.resize(8, None);
    assert_eq!(orders(&process, 0, 8), cut, "they lie before those");
    check_contents(&mut process, 8);
}

#[test]
fn pages_of_several_owners_are_in_no_folio() {
    let swapping = around();
    let mut parent = out(&swapping, 16);
    let mut child = parent.fork();
    // The child stores to all pages except 4 and 11. These two therefore keep two owners, and each other page has a
    // single owner.
    for index in (0..16).filter(|index| ![4, 11].contains(index)) {
        assert_eq!(child.store(FIRST + index, 99), Ok(vec![IN]));
    }
    load(&mut parent, 0).unwrap();
    let mut cut = each(&[(4, 2)]);
    cut.resize(8, None);
    assert_eq!(orders(&parent, 0, 8), cut);
    for index in 1..4 {
        load(&mut parent, index).unwrap();
    }
    // Page 11, which has two owners, is the first page that is read. The pages after page 11 form a folio.
    load(&mut parent, 11).unwrap();
    assert_eq!(orders(&parent, 11, 5), each(&[(1, 0), (4, 2)]));
    assert!(!present(&parent, 11).unwrap().bits.contains(Bits::EXCLUSIVE));
    assert_eq!(load(&mut child, 11), Ok((12, vec![FaultKind::SwapCached])));
    assert_eq!(child.store(FIRST + 11, 99), Ok(vec![FaultKind::Copy]));
    drop(child);
    for index in 0..16 {
        assert_eq!(load(&mut parent, index).unwrap().0, index as u8 + 1);
    }
}

#[test]
fn a_page_that_another_brought_back_ends_a_run() {
    let swapping = around();
    let mut parent = out(&swapping, 8);
    let mut child = parent.fork();
    assert_eq!(load(&mut child, 5), Ok((6, vec![IN])));
    for index in (0..8).filter(|index| *index != 5) {
        child.store(FIRST + index, 99).unwrap();
    }
    load(&mut parent, 0).unwrap();
    let mut cut = each(&[(4, 2), (1, 0)]);
    cut.resize(8, None);
    assert_eq!(orders(&parent, 0, 8), cut);
    assert_eq!(load(&mut parent, 5), Ok((6, vec![FaultKind::SwapCached])));
    let same = present(&parent, 5).map(|page| page.frame);
    assert_eq!(same, present(&child, 5).map(|page| page.frame));
}

#[test]
fn a_page_that_cannot_be_read_stays_out_and_the_others_come() {
    let swapping = around();
    let mut process = out(&swapping, 16);
    // The third and the sixth read fail: their pages stay in swap.
    swapping.device.fail_each(3);
    assert_eq!(load(&mut process, 0), Ok((1, vec![IN])));
    swapping.device.fail_each(0);
    let single = Some(0);
    let found = orders(&process, 0, 8);
    let expected = [single, single, None, single, single, None, single, single];
    assert_eq!(found, expected, "what is left is no folio");
    for index in [1, 3, 4, 6, 7] {
        load(&mut process, index).unwrap();
    }
    // Of the submitted reads, the last completes first. The read of the first page fails.
    swapping.device.defer(64);
    swapping.device.fail_each(4);
    let failed = swapping.world.counted(|| {
        assert_eq!(load(&mut process, 8), Err(FaultError::Io));
    });
    swapping.device.fail_each(0);
    let rows = [Row::SwapFailed, Row::SwapIn].map(|row| failed.count(row));
    assert_eq!(rows, [2, 6]);
    assert_eq!(orders(&process, 8, 1), [None]);
    assert_eq!(orders(&process, 9, 3), [single; 3]);
    check_contents(&mut process, 16);
}

fn counts(swapping: &Swapping, order: u8) -> [u64; 2] {
    let sizes = &swapping.world.memory.huge().sizes;
    let of =
        |count: fn(&SizeCounts) -> &AtomicU64| count(sizes.counts(order)).load(Ordering::Relaxed);
    [
        of(|counts| &counts.swapped_in),
        of(|counts| &counts.swapped_in_smaller),
    ]
}

/// Allocates all free blocks of more than one frame, so that only single frames remain free.
fn all_blocks(frames: &Frames<Machine>) -> Vec<impl Sized> {
    let mut taken = Vec::new();
    for order in (1..=9).rev() {
        while let Ok(pages) = frames.allocate_pages(order, FrameKind::Anonymous) {
            taken.push(pages);
        }
    }
    taken
}

#[test]
fn without_a_block_pages_come_back_in_smaller_ones_or_singly() {
    let swapping = around();
    let mut process = out(&swapping, 24);
    let frames = &*swapping.world.frames;
    let singles: Vec<_> = (0..8)
        .map(|_| frames.allocate(0, FrameKind::Anonymous).unwrap())
        .collect();
    let blocks = all_blocks(frames);
    let rest: Vec<_> =
        std::iter::from_fn(|| frames.allocate(0, FrameKind::Anonymous).ok()).collect();
    // No frame is free: the load fails and changes nothing.
    assert_eq!(load(&mut process, 0), Err(FaultError::OutOfMemory));
    assert_eq!(orders(&process, 0, 8), [None; 8]);
    assert_eq!([3, 2].map(|order| counts(&swapping, order)), [[0, 1]; 2]);
    // Only single frames are free: each page that is swapped in gets one.
    drop(singles);
    load(&mut process, 0).unwrap();
    assert_eq!(orders(&process, 0, 8), each(&[(8, 0)]));
    assert_eq!([3, 2].map(|order| counts(&swapping, order)), [[0, 2]; 2]);
    for index in 0..8 {
        load(&mut process, index).unwrap();
    }
    drop((rest, blocks));
    load(&mut process, 8).unwrap();
    assert_eq!(orders(&process, 8, 16), each(&[(16, 3)]));
    check_contents(&mut process, 24);
    drop(process);
    // A folio of the largest order cannot be allocated, but smaller ones can.
    let mut process = out(&swapping, 8);
    frames.fail_after(Some(0));
    load(&mut process, 0).unwrap();
    assert_eq!(orders(&process, 0, 8), each(&[(8, 2)]));
    check_contents(&mut process, 8);
}

#[cfg(feature = "tracking")]
#[test]
fn each_page_of_a_folio_keeps_what_is_tracked_of_it() {
    const REFUSED: FaultError = FaultError::Watched(WatchedFault::WriteProtected);
    let swapping = around();
    let mut process = filled(&swapping, 8);
    let watch = watch(false, false);
    let range = (page(FIRST), 8 * PAGE);
    let modes = WatchModes::WRITE_PROTECT;
    process
        .space
        .uffd()
        .watch(range.0, range.1, &watch, modes)
        .unwrap();
    let protect = |process: &Process<'_>, index, on| {
        let space = &process.space;
        space
            .uffd()
            .write_protect(page(FIRST + index), PAGE, on)
            .unwrap();
    };
    process.space.tracking().clear_soft_dirty();
    process.store(FIRST + 3, 4).unwrap();
    protect(&process, 2, true);
    page_out(&process, FIRST, 8);
    // Page 6 is write-protected while it is in swap.
    protect(&process, 6, true);
    load(&mut process, 0).unwrap();
    assert_eq!(orders(&process, 0, 8), each(&[(8, 3)]));
    for index in 0..8 {
        let bits = present(&process, index).unwrap().bits;
        let found = [Bits::UFFD_WP, Bits::SOFT_DIRTY].map(|bit| bits.contains(bit));
        assert_eq!(found, [[2, 6].contains(&index), index == 3], "{index}");
        assert!(bits.contains(Bits::EXCLUSIVE) && !bits.contains(Bits::DIRTY));
        assert_eq!(bits.contains(Bits::ACCESSED), index == 0);
    }
    for index in 0..8 {
        let stored = process.store(FIRST + index, 50);
        match index {
            2 | 6 => assert_eq!(stored, Err(REFUSED)),
            // Whether this store faults depends on the tracking mode, but it must not swap in a page.
            _ => assert!(stored.is_ok_and(|kinds| !kinds.contains(&IN)), "{index}"),
        }
    }
    assert_eq!(orders(&process, 0, 8), each(&[(8, 3)]));
}

#[test]
fn a_store_brings_a_folio_back_of_which_it_writes_one_page() {
    let swapping = around();
    let mut process = out(&swapping, 8);
    assert_eq!(process.store(FIRST, 1), Ok(vec![IN]));
    assert_eq!(orders(&process, 0, 8), each(&[(8, 3)]));
    assert_eq!(swapping.slots(), 7);
    let account = swapping.world.counted(|| page_out(&process, FIRST, 8));
    let rows = [Row::SwapOut, Row::SwapWritten].map(|row| account.count(row));
    assert_eq!(rows, [8, 1], "the others are there already");
    check_contents(&mut process, 8);
}

#[test]
fn pages_of_an_object_are_aligned_by_their_place_in_it() {
    let swapping = around();
    let (mut process, object) = swap_shared::filled(&swapping, 40);
    page_out(&process, 0, 40);
    let memory = &swapping.world.memory;
    assert_eq!(object.bring_in(memory, 3, 16), Ok(16));
    assert_eq!(object.bring_in(memory, 20, 12), Ok(12));
    let mut orders = Vec::new();
    for index in 0..32 {
        assert_eq!(process.load(index), index as u8 + 1);
        let shown = process.space.entry(page(index)).present().unwrap();
        orders.push(swapping.world.frames.folio_order(shown.frame));
    }
    let first = [vec![0], vec![2; 4], vec![3; 8], vec![0; 3]].concat();
    assert_eq!(orders[3..19], first);
    assert_eq!(orders[20..], [vec![2; 4], vec![3; 8]].concat());
}
