//! Tests of folios of several pages: how they are allocated at the first access, which pages prevent the allocation,
//! and how folios are split.

use memwright::{
    Advice, FaultKind, HugeMode, HugeRefusal, Row, SharedSizeMode, SizeMode, SizeSettings,
};
use memwright_table::{Bits, FOLIO_ORDER, FrameKind, FrameRef, PageSize};

use crate::world::{Machine, PAGE, Process, R, RW, World, page, rows};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The order of a folio of 64 KiB, and its number of pages.
const ORDER: u8 = 4;
const FOLIO: u64 = 16;

/// Creates a machine on which programs get folios of 64 KiB.
fn world() -> World {
    let world = World::with_frames(8192);
    sizes(&world).set_mode(ORDER, SizeMode::Always);
    world
}

fn sizes(world: &World) -> &SizeSettings {
    &world.memory.huge().sizes
}

/// Returns the order of the folio that contains page `index`.
fn order(process: &Process<'_>, index: u64) -> u8 {
    let entry = process.space.entry(page(index)).present().unwrap();
    assert_eq!(entry.size, PageSize::Size4K);
    process.world.frames.folio_order(entry.frame)
}

/// Returns whether page `index` is mapped.
fn is_filled(process: &Process<'_>, index: u64) -> bool {
    process.space.entry(page(index)).present().is_some()
}

const FOLIO_FAULT: [FaultKind; 1] = [FaultKind::Folio];
const SINGLE_FAULT: [FaultKind; 1] = [FaultKind::DemandZero];

#[test]
fn the_first_store_fills_a_folio() {
    let world = world();
    let mut process = world.process();
    process.map(FIRST, 3 * FOLIO, RW);
    let account = world.counted(|| {
        assert_eq!(process.store(FIRST + FOLIO + 7, 7).unwrap(), FOLIO_FAULT);
        for index in FIRST + FOLIO..FIRST + 2 * FOLIO {
            assert_eq!(order(&process, index), ORDER);
            let entry = process.space.entry(page(index)).present().unwrap();
            let own = Bits::EXCLUSIVE | Bits::WRITE | Bits::DIRTY | Bits::SOFT_DIRTY;
            assert!(entry.bits.contains(own));
            assert_eq!(process.store(index, 8).unwrap(), []);
        }
    });
    let counted = [
        Row::FaultFolio,
        Row::FaultDemandZero,
        Row::FramesZeroed,
        Row::EntriesFilled,
        Row::FolioFallbacks,
    ];
    assert_eq!(rows(&account, &counted), [1, 0, FOLIO, FOLIO, 0]);
    assert_eq!(process.resident(), FOLIO);
    assert_eq!(
        sizes(&world)
            .counts(ORDER)
            .filled
            .load(core::sync::atomic::Ordering::Relaxed),
        1
    );
    assert!(!is_filled(&process, FIRST + FOLIO - 1) && !is_filled(&process, FIRST + 2 * FOLIO));
    process.check();
}

#[test]
fn a_folio_reaches_neither_beyond_its_area_nor_over_what_is_there() {
    let world = world();
    for order in [2, 3] {
        sizes(&world).set_mode(order, SizeMode::Always);
    }
    let mut process = world.process();
    process.map(FIRST + 1, 30, RW);
    // The area begins inside an aligned block of 64 KiB, and inside the first 16 KiB of this block. Only smaller folios
    // therefore fit, and only a single page at the start of the area.
    assert_eq!(process.store(FIRST + 9, 1).unwrap(), FOLIO_FAULT);
    assert_eq!(order(&process, FIRST + 15), 3);
    assert_eq!(process.store(FIRST + 5, 1).unwrap(), FOLIO_FAULT);
    assert_eq!(order(&process, FIRST + 4), 2);
    assert_eq!(process.store(FIRST + 2, 1).unwrap(), SINGLE_FAULT);
    // A folio is not allocated if one of its pages is mapped already, even to the zero page. It is not allocated either
    // if it would extend beyond the end of the area.
    assert_eq!(process.load(FIRST + 18), 0);
    assert_eq!(process.store(FIRST + 16, 1).unwrap(), SINGLE_FAULT);
    assert_eq!(process.store(FIRST + 20, 1).unwrap(), FOLIO_FAULT);
    assert_eq!(order(&process, FIRST + 23), 2);
    assert_eq!(process.store(FIRST + 30, 1).unwrap(), SINGLE_FAULT);
    assert_eq!(process.store(FIRST + 24, 1).unwrap(), FOLIO_FAULT);
    assert_eq!(order(&process, FIRST + 27), 2);
    // A guard page prevents a folio too.
    process.map(FIRST + 64, FOLIO, RW);
    let guarded = page(FIRST + 64 + 9);
    process
        .space
        .advise(guarded, PAGE, Advice::GuardInstall)
        .unwrap();
    assert_eq!(process.store(FIRST + 64 + 12, 1).unwrap(), FOLIO_FAULT);
    assert_eq!(order(&process, FIRST + 64 + 15), 2);
    assert_eq!(process.store(FIRST + 64, 1).unwrap(), FOLIO_FAULT);
    assert_eq!(order(&process, FIRST + 64 + 7), 3);
    process.check();
}

#[test]
fn only_who_may_gets_them() {
    let world = world();
    let set = |mode| sizes(&world).set_mode(ORDER, mode);
    let mut process = world.process();
    process.map(FIRST, 8 * FOLIO, RW);
    let at = |folio: u64| FIRST + folio * FOLIO;
    set(SizeMode::Advised);
    assert_eq!(process.store(at(0), 1).unwrap(), SINGLE_FAULT);
    let advise = |process: &Process<'_>, folio: u64, advice| {
        let bytes = FOLIO * PAGE;
        process
            .space
            .advise(page(at(folio)), bytes, advice)
            .unwrap();
    };
    advise(&process, 1, Advice::Huge);
    assert_eq!(process.store(at(1), 1).unwrap(), FOLIO_FAULT);
    // With `Inherit`, folios of this size follow the mode for all sizes.
    set(SizeMode::Inherit);
    world.memory.policy().set_huge(HugeMode::Never);
    assert_eq!(process.store(at(2), 1).unwrap(), SINGLE_FAULT);
    world.memory.policy().set_huge(HugeMode::Always);
    assert_eq!(process.store(at(3), 1).unwrap(), FOLIO_FAULT);
    set(SizeMode::Always);
    advise(&process, 4, Advice::NotHuge);
    assert_eq!(process.store(at(4), 1).unwrap(), SINGLE_FAULT);
    process.space.huge_pages().refuse(HugeRefusal::Everywhere);
    assert_eq!(process.store(at(5), 1).unwrap(), SINGLE_FAULT);
    process.space.huge_pages().refuse(HugeRefusal::Nothing);
    // A load maps the zero page, only for the page that was loaded.
    assert_eq!(process.load_with(at(6)).unwrap().1, [FaultKind::ZeroPage]);
    assert!(!is_filled(&process, at(6) + 1));
    // Shared memory follows a setting of its own for this size.
    set(SizeMode::Never);
    world
        .memory
        .huge()
        .set_shared_size(ORDER, SharedSizeMode::Always);
    assert_eq!(process.store(at(7), 1).unwrap(), SINGLE_FAULT);
    process.check();
}

#[test]
fn without_a_block_a_smaller_one_serves_and_the_account_says_so() {
    let world = world();
    sizes(&world).set_mode(2, SizeMode::Always);
    // Allocates all frames, and then frees the frames for which `keeps` returns false. Two choices are tested: keeping
    // the first four frames of each 16, and keeping one frame of each four.
    let take = |keeps: fn(u32) -> bool| {
        let mut taken: Vec<FrameRef<'_, Machine>> = Vec::new();
        while let Ok(frame) = world.frames.allocate(0, FrameKind::Object) {
            taken.push(frame);
        }
        taken.retain(|frame| keeps(frame.frame().number()));
        taken
    };
    let counted = [Row::FaultFolio, Row::FaultDemandZero, Row::FolioFallbacks];
    for (keeps, found, expected) in [
        ((|number| number % 16 < 4) as fn(u32) -> bool, 2, [1, 0, 1]),
        (|number| number % 4 == 1, 0, [0, 1, 2]),
    ] {
        let taken = take(keeps);
        let mut process = world.process();
        process.map(FIRST, FOLIO, RW);
        let account = world.counted(|| {
            process.store(FIRST, 1).unwrap();
        });
        assert_eq!(order(&process, FIRST), found);
        assert_eq!(rows(&account, &counted), expected);
        drop(process);
        drop(taken);
    }
}

#[test]
fn each_allocation_may_fail() {
    let world = world();
    for (huge, most) in [(HugeMode::Never, 5), (HugeMode::Always, 6)] {
        world.memory.policy().set_huge(huge);
        for failing in 0..most {
            let mut process = world.process();
            process.map(FIRST, 512, RW);
            world.frames.fail_after(Some(failing));
            let stored = process.store(FIRST + 3, 5);
            world.frames.fail_after(None);
            if stored.is_err() {
                process.store(FIRST + 3, 5).unwrap();
            }
            assert_eq!((process.load(FIRST + 3), process.load(FIRST + 4)), (5, 0));
            process.check();
        }
    }
}

#[test]
fn what_goes_is_given_back_and_the_rest_are_single_pages() {
    let world = world();
    let mut process = world.process();
    process.map(FIRST, FOLIO, RW);
    for index in FIRST..FIRST + FOLIO {
        process.store(index, 9).unwrap();
    }
    let used = world.frames.used();
    let gone = page(FIRST + 3);
    process.space.advise(gone, PAGE, Advice::DontNeed).unwrap();
    assert_eq!(world.frames.used(), used - 1);
    assert_eq!(order(&process, FIRST), 0);
    assert_eq!((process.load(FIRST + 3), process.load(FIRST + 4)), (0, 9));
    assert_eq!(process.store(FIRST + 3, 1).unwrap(), [FaultKind::Copy]);
    assert_eq!(order(&process, FIRST + 3), 0);
    process.check();
}

#[test]
fn a_family_shares_the_pages_one_by_one() {
    let world = world();
    let mut parent = world.process();
    parent.map(FIRST, FOLIO, RW);
    parent.store(FIRST, 1).unwrap();
    let mut child = parent.fork();
    assert_eq!(order(&child, FIRST + 5), ORDER);
    assert_eq!(child.store(FIRST + 5, 2).unwrap(), [FaultKind::Copy]);
    // The parent still maps the complete folio. The child maps a copy of one page.
    assert_eq!(
        (order(&parent, FIRST + 5), order(&child, FIRST + 5)),
        (ORDER, 0)
    );
    assert_eq!(parent.store(FIRST + 5, 3).unwrap(), [FaultKind::WriteOnly]);
    drop(child);
    parent.protect(FIRST, FOLIO, R);
    parent.protect(FIRST, FOLIO, RW);
    // The child has exited. The pages are therefore exclusive to the parent again, and writable without a fault.
    assert_eq!(parent.store(FIRST + 6, 3).unwrap(), []);
    assert_eq!(order(&parent, FIRST), ORDER);
    parent.check();
}

#[test]
fn a_split_huge_page_is_a_folio_of_its_pages() {
    let world = World::with_frames(8192);
    world.memory.policy().set_huge(HugeMode::Always);
    let mut process = world.process();
    process.map(FIRST, 512, RW);
    process.store(FIRST, 1).unwrap();
    process.protect(FIRST + 7, 1, R);
    process.protect(FIRST + 7, 1, RW);
    assert_eq!(order(&process, FIRST + 511), FOLIO_ORDER);
    process.unmap(FIRST + 7, 1);
    assert_eq!(order(&process, FIRST + 511), 0);
    process.check();
}

#[test]
fn new_folios_are_full_of_zeroes() {
    let world = World::with_frames(1024);
    sizes(&world).set_mode(ORDER, SizeMode::Always);
    for byte in 1..=16 {
        let mut process = world.process();
        process.map(FIRST, 512, RW);
        for index in FIRST..FIRST + 512 {
            if (index - FIRST) % FOLIO > 0 {
                assert_eq!(process.load(index), 0);
            }
            process.store(index, byte).unwrap();
        }
    }
}
