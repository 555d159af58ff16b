//! Tests of huge pages: first access, copy-on-write, splits, collapse, and the return to small pages.

use core::sync::atomic::Ordering;

use memwright::{
    Advice, AdviseError, FaultError, FaultKind, HugeMode, HugeRefusal, MapRequest, Placement,
    RemapRequest, Row,
};
use memwright_table::{Bits, FOLIO_ORDER, FrameKind, FrameRef, Page, PageSize, Present};

use crate::world::{Machine, NONE, PAGE, Process, R, RW, World, page, rows};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The number of 4 KiB pages in 2 MiB.
const HUGE: u64 = 512;

/// Creates a machine on which programs get huge pages.
fn world() -> World {
    let world = World::with_frames(16384);
    world.memory.policy().set_huge(HugeMode::Always);
    world
}

fn mapped(world: &World, huge_pages: u64) -> Process<'_> {
    let process = world.process();
    process.map(FIRST, huge_pages * HUGE, RW);
    process
}

fn present(process: &Process<'_>, index: u64) -> Present {
    process.space.entry(page(index)).present().unwrap()
}

fn size(process: &Process<'_>, index: u64) -> PageSize {
    present(process, index).size
}

/// A huge page is counted only when it is mapped. It is not counted if its frames are allocated but the allocation of
/// its page table then fails.
#[test]
fn a_huge_page_counts_once_it_is_mapped() {
    for (frames, filled) in [(0, 0), (1, 0), (u64::MAX, 1)] {
        let world = world();
        let mut process = mapped(&world, 1);
        world
            .frames
            .fail_after((frames != u64::MAX).then_some(frames));
        let faults = process.store(FIRST + 77, 7).unwrap();
        let is_huge = faults == [FaultKind::Huge];
        assert_eq!(is_huge, filled == 1, "{frames}: {faults:?}");
        let counts = world.memory.huge().sizes.counts(FOLIO_ORDER);
        assert_eq!(counts.filled.load(Ordering::Relaxed), filled, "{frames}");
        assert_eq!(
            counts.refused.load(Ordering::Relaxed),
            u64::from(frames == 0)
        );
        // A huge page that replaces the huge zero page is counted too.
        world.frames.fail_after(None);
        let mut process = mapped(&world, 1);
        process.load(FIRST);
        assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::Huge]));
        assert_eq!(counts.filled.load(Ordering::Relaxed), filled + 1);
    }
}

const SPLITS: [Row; 6] = [
    Row::HugeSplitsProtect,
    Row::HugeSplitsUnmap,
    Row::HugeSplitsRemap,
    Row::HugeSplitsAdvise,
    Row::HugeSplitsCopy,
    Row::HugeSplitsFork,
];

#[test]
fn the_first_store_maps_two_mebibytes() {
    let world = world();
    let mut process = world.process();
    process.map(0, FIRST + 2 * HUGE + 100, RW);
    let account = world.counted(|| {
        assert_eq!(process.store(FIRST + 77, 7), Ok(vec![FaultKind::Huge]));
        for index in [FIRST, FIRST + 511] {
            assert_eq!(process.store(index, 7), Ok(vec![]));
        }
    });
    assert_eq!(
        rows(
            &account,
            &[Row::FaultHuge, Row::FramesZeroed, Row::EntriesFilled]
        ),
        [1, 512, 1]
    );
    assert_eq!(process.resident(), HUGE);
    assert_eq!(size(&process, FIRST + 200), PageSize::Size2M);
    // No aligned range of 2 MiB is completely in the area here, so small pages are mapped.
    assert_eq!(process.store(0, 7), Ok(vec![FaultKind::DemandZero]));
    let above = FIRST + 2 * HUGE;
    assert_eq!(process.store(above, 7), Ok(vec![FaultKind::DemandZero]));
    assert_eq!(process.load(FIRST + 77), 7);
}

#[test]
fn a_read_shows_the_huge_page_of_zeroes_and_a_store_replaces_it() {
    let world = world();
    let mut process = mapped(&world, 2);
    let (byte, kinds) = process.load_with(FIRST + 9).unwrap();
    assert_eq!((byte, kinds), (0, vec![FaultKind::HugeZeroPage]));
    assert_eq!(process.load_with(FIRST + 10).unwrap().1, vec![]);
    assert_eq!(process.resident(), 0);
    process.load(FIRST + HUGE);
    assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::Huge]));
    assert_eq!(process.resident(), HUGE);
    // If no other huge page can be allocated, the store splits the huge zero page and copies one page.
    let second = FIRST + HUGE;
    world.frames.fail_after(Some(0));
    assert_eq!(process.store(second, 1), Ok(vec![FaultKind::Copy]));
    assert_eq!(process.resident(), HUGE + 1);
    assert_eq!(process.load(second + 1), 0);
    assert_eq!(process.store(second + 1, 2), Ok(vec![FaultKind::Copy]));
    process.check();
}

#[test]
fn only_who_may_gets_them() {
    let world = world();
    world.memory.policy().set_huge(HugeMode::Advised);
    let mut process = mapped(&world, 4);
    assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::DemandZero]));
    let advise = |process: &Process<'_>, huge: u64, advice| {
        let at = page(FIRST + huge * HUGE);
        process.space.advise(at, HUGE * PAGE, advice).unwrap();
    };
    advise(&process, 1, Advice::Huge);
    assert_eq!(process.store(FIRST + HUGE, 1), Ok(vec![FaultKind::Huge]));
    world.memory.policy().set_huge(HugeMode::Always);
    advise(&process, 2, Advice::NotHuge);
    let refused = FIRST + 2 * HUGE;
    assert_eq!(process.store(refused, 1), Ok(vec![FaultKind::DemandZero]));
    process.space.huge_pages().refuse(HugeRefusal::Everywhere);
    let last = FIRST + 3 * HUGE;
    assert_eq!(process.store(last, 1), Ok(vec![FaultKind::DemandZero]));
    let child = process.fork();
    assert_eq!(child.space.huge_pages().refusal(), HugeRefusal::Everywhere);
}

#[test]
fn fragmented_memory_falls_back_and_the_account_says_so() {
    let world = world();
    // One frame of each block of 2 MiB stays allocated.
    let mut taken: Vec<FrameRef<'_, Machine>> = Vec::new();
    while let Ok(frame) = world.frames.allocate(0, FrameKind::Object) {
        taken.push(frame);
    }
    taken.retain(|frame| frame.frame().number() % 512 == 5);
    let mut process = mapped(&world, 1);
    let account = world.counted(|| {
        assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::DemandZero]));
    });
    assert_eq!(
        rows(&account, &[Row::HugeFallbacks, Row::FaultHuge]),
        [1, 0]
    );
    drop(process);
    drop(taken);
}

#[test]
fn rights_of_a_whole_huge_page_change_in_one_entry() {
    let world = world();
    let mut process = mapped(&world, 4);
    for huge in 0..4 {
        process.store(FIRST + huge * HUGE, 1).unwrap();
    }
    let account = world.counted(|| {
        process.protect(FIRST, 4 * HUGE, R);
        assert_eq!(process.store(FIRST, 2), Err(FaultError::Denied));
        process.protect(FIRST, 4 * HUGE, RW);
        for huge in 0..4 {
            assert_eq!(process.store(FIRST + huge * HUGE + 9, 2), Ok(vec![]));
        }
    });
    let wanted = [
        Row::EntriesShrank,
        Row::EntriesGrew,
        Row::WriteFaultsAvoided,
        Row::FlushLocal,
    ];
    assert_eq!(rows(&account, &wanted), [4, 4, 4 * HUGE, 2]);
    assert_eq!(rows(&account, &SPLITS), [0; 6]);
    process.protect(FIRST, 4 * HUGE, NONE);
    process.protect(FIRST, 4 * HUGE, RW);
    assert_eq!(process.load(FIRST + 9), 2);
    assert_eq!(size(&process, FIRST + HUGE), PageSize::Size2M);
}

#[test]
fn a_part_that_changes_splits_the_page_and_the_rest_keeps_its_state() {
    let world = world();
    let mut process = mapped(&world, 2);
    process.store(FIRST, 1).unwrap();
    process.store(FIRST + HUGE, 1).unwrap();
    let account = world.counted(|| process.protect(FIRST + 100, HUGE, R));
    assert_eq!(rows(&account, &SPLITS), [2, 0, 0, 0, 0, 0]);
    assert_eq!(process.store(FIRST + 99, 2), Ok(vec![]));
    assert_eq!(process.store(FIRST + HUGE + 100, 2), Ok(vec![]));
    assert_eq!(process.store(FIRST + 100, 2), Err(FaultError::Denied));
    process.protect(FIRST + 100, HUGE, RW);
    assert_eq!(process.store(FIRST + 100, 3), Ok(vec![]), "exclusive still");
    assert_eq!(process.resident(), 2 * HUGE);
}

#[test]
fn unmapping_and_dropping_a_part_gives_its_frames_back() {
    let world = world();
    let mut process = mapped(&world, 2);
    process.store(FIRST, 1).unwrap();
    process.store(FIRST + HUGE + 50, 9).unwrap();
    let used = world.frames.used_by(FrameKind::Anonymous);
    process.unmap(FIRST + 10, 100);
    assert_eq!(world.frames.used_by(FrameKind::Anonymous), used - 100);
    process
        .space
        .advise(page(FIRST + HUGE), 20 * PAGE, Advice::DontNeed)
        .unwrap();
    assert_eq!(world.frames.used_by(FrameKind::Anonymous), used - 120);
    assert_eq!(process.load(FIRST + HUGE + 50), 9);
    assert_eq!(process.load(FIRST + HUGE + 19), 0);
    assert_eq!(
        rows(&world.account(), &SPLITS),
        [0, 1, 0, 1, 0, 0],
        "one by each"
    );
    process
        .space
        .unmap(page(FIRST + HUGE), HUGE * PAGE)
        .unwrap();
}

#[test]
fn parent_and_child_share_a_huge_page_until_one_writes() {
    let world = world();
    let mut parent = mapped(&world, 1);
    parent.store(FIRST, 1).unwrap();
    parent.store(FIRST + 100, 2).unwrap();
    let account = world.counted(|| {
        let mut child = parent.fork();
        assert_eq!(size(&child, FIRST), PageSize::Size2M);
        assert_eq!(child.load(FIRST + 100), 2);
        assert_eq!(child.store(FIRST, 5), Ok(vec![FaultKind::Copy]));
        assert_eq!(size(&child, FIRST), PageSize::Size4K);
        assert_eq!(size(&parent, FIRST), PageSize::Size2M);
        assert_eq!((parent.load(FIRST), child.load(FIRST)), (1, 5));
        child.check();
        parent.check();
    });
    assert_eq!(
        rows(&account, &[Row::ForkCopied, Row::FramesCopied]),
        [1, 1]
    );
    assert_eq!(rows(&account, &SPLITS), [0, 0, 0, 0, 1, 0]);
    // The child has exited, so the huge page is exclusive to the parent again.
    let written = parent.store(FIRST, 6);
    assert_eq!(written, Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(parent.store(FIRST + 511, 6), Ok(vec![]));
    assert_eq!(size(&parent, FIRST), PageSize::Size2M);
}

#[test]
fn the_child_of_a_parent_that_splits_keeps_the_whole() {
    let world = world();
    let mut parent = mapped(&world, 1);
    parent.store(FIRST, 1).unwrap();
    let mut child = parent.fork();
    parent.unmap(FIRST, 256);
    parent.protect(FIRST + 256, 256, R);
    parent.protect(FIRST + 256, 256, RW);
    let written = parent.store(FIRST + 300, 7);
    assert_eq!(written, Ok(vec![FaultKind::Copy]), "shared still");
    drop(parent);
    assert_eq!(child.store(FIRST, 3), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!(child.load(FIRST + 300), 0);
    assert_eq!(world.frames.used_by(FrameKind::Anonymous), HUGE);
}

#[test]
fn protecting_there_and_back_regains_a_huge_page_whose_child_is_gone() {
    let world = world();
    let mut parent = mapped(&world, 1);
    parent.store(FIRST, 1).unwrap();
    drop(parent.fork());
    assert!(!present(&parent, FIRST).bits.contains(Bits::EXCLUSIVE));
    parent.protect(FIRST, HUGE, R);
    parent.protect(FIRST, HUGE, RW);
    assert_eq!(parent.store(FIRST, 2), Ok(vec![]));
}

#[test]
fn a_pinned_huge_page_is_copied_page_by_page_in_a_fork() {
    let world = world();
    let mut parent = mapped(&world, 1);
    parent.store(FIRST, 1).unwrap();
    let frame = present(&parent, FIRST).frame_of(Page::new(FIRST));
    world.frames.pin(frame);
    let mut child = parent.fork();
    assert_eq!(parent.store(FIRST, 2), Ok(vec![]), "it stayed writable");
    assert_eq!((child.load(FIRST), child.load(FIRST + 1)), (1, 0));
    assert_eq!(world.account().count(Row::HugeSplitsFork), 1);
    world.frames.unpin(frame);
    parent.unmap(FIRST, HUGE);
    drop(child);
}

#[test]
fn mremap_moves_aligned_huge_pages_whole_and_splits_others() {
    let world = world();
    let mut process = mapped(&world, 2);
    process.store(FIRST, 1).unwrap();
    process.store(FIRST + HUGE, 2).unwrap();
    let far = FIRST + 64 * HUGE;
    let to = |old, new| RemapRequest {
        old: page(old),
        old_length: HUGE * PAGE,
        new_length: HUGE * PAGE,
        may_move: true,
        fixed: Some(page(new)),
        dont_unmap: false,
    };
    process.space.remap(to(FIRST, far)).unwrap();
    assert_eq!(size(&process, far), PageSize::Size2M);
    assert_eq!(process.load(far), 1);
    let odd = far + 2 * HUGE + 3;
    process.space.remap(to(FIRST + HUGE, odd)).unwrap();
    assert_eq!(size(&process, odd), PageSize::Size4K);
    assert_eq!(process.load(odd), 2);
    assert_eq!(process.resident(), 2 * HUGE);
    process.check();
}

#[test]
fn a_program_collapses_what_it_has() {
    let world = world();
    world.memory.policy().set_huge(HugeMode::Never);
    let mut process = mapped(&world, 2);
    for index in 0..HUGE {
        process.store(FIRST + index, index as u8).unwrap();
    }
    process.load(FIRST + HUGE + 3);
    process.store(FIRST + HUGE + 4, 4).unwrap();
    let account = world.counted(|| {
        process
            .space
            .advise(page(FIRST), 2 * HUGE * PAGE, Advice::Collapse)
            .unwrap();
    });
    let wanted = [Row::HugeCollapses, Row::FramesCopied, Row::FramesZeroed];
    assert_eq!(rows(&account, &wanted), [2, 513, 511]);
    for index in 0..HUGE {
        assert_eq!(process.load_with(FIRST + index), Ok((index as u8, vec![])));
    }
    assert_eq!(process.store(FIRST + HUGE, 1), Ok(vec![]));
    assert_eq!(process.load(FIRST + HUGE + 4), 4);
    assert_eq!(size(&process, FIRST), PageSize::Size2M);
    assert_eq!(process.resident(), 2 * HUGE);
    process.check();
    // After a collapse, a split needs no new page table, because it uses the deposited one.
    process.protect(FIRST + 7, 1, R);
    assert_eq!(process.load(FIRST + 7), 7);
}

#[test]
fn a_collapse_refuses_what_is_no_page_and_what_has_no_table() {
    let world = world();
    world.memory.policy().set_huge(HugeMode::Never);
    let mut process = mapped(&world, 2);
    let collapse = |process: &Process<'_>, huge: u64| {
        let at = page(FIRST + huge * HUGE);
        process.space.advise(at, HUGE * PAGE, Advice::Collapse)
    };
    let refused = Err(AdviseError::NotApplicable(page(FIRST)));
    assert_eq!(collapse(&process, 0), refused);
    process.store(FIRST, 1).unwrap();
    process
        .space
        .advise(page(FIRST + 5), PAGE, Advice::GuardInstall)
        .unwrap();
    assert_eq!(collapse(&process, 0), refused);
    process.store(FIRST + HUGE, 1).unwrap();
    world.frames.fail_after(Some(0));
    let short = Err(AdviseError::Fault(FaultError::OutOfMemory));
    assert_eq!(collapse(&process, 1), short);
    assert_eq!(size(&process, FIRST + HUGE), PageSize::Size4K);
    process.space.huge_pages().refuse(HugeRefusal::Everywhere);
    assert!(collapse(&process, 1).is_err());
}

#[test]
fn a_collapse_leaves_a_forked_child_its_own_view() {
    let world = world();
    world.memory.policy().set_huge(HugeMode::Never);
    let mut parent = mapped(&world, 1);
    for index in 0..8 {
        parent.store(FIRST + index, 1).unwrap();
    }
    let mut child = parent.fork();
    parent
        .space
        .advise(page(FIRST), HUGE * PAGE, Advice::Collapse)
        .unwrap();
    assert_eq!(parent.store(FIRST, 2), Ok(vec![]));
    assert_eq!((parent.load(FIRST), child.load(FIRST)), (2, 1));
    let written = child.store(FIRST, 3);
    assert_eq!(written, Ok(vec![FaultKind::WriteOnly]));
}

#[test]
fn a_scan_collapses_within_its_limits() {
    let world = world();
    world.memory.policy().set_huge(HugeMode::Never);
    let mut process = mapped(&world, 3);
    for huge in 0..2 {
        for index in 0..40 {
            process.store(FIRST + huge * HUGE + index, 1).unwrap();
        }
    }
    world.memory.policy().set_huge(HugeMode::Always);
    let most_missing = &world.memory.huge().scan.most_missing;
    let scan = || {
        let mut budget = 10 * HUGE;
        let end = process.space.huge_pages().scan(Page::new(0), &mut budget);
        assert_eq!(end, memwright::Scanned::End);
    };
    most_missing.store(400, std::sync::atomic::Ordering::Relaxed);
    scan();
    assert_eq!(world.account().count(Row::HugeCollapses), 0);
    most_missing.store(511, std::sync::atomic::Ordering::Relaxed);
    scan();
    assert_eq!(world.account().count(Row::HugeCollapses), 2);
    assert_eq!(size(&process, FIRST + HUGE), PageSize::Size2M);
}

#[test]
fn each_allocation_may_fail() {
    for count in 0..12 {
        let world = world();
        let mut process = mapped(&world, 2);
        world.frames.fail_after(Some(count));
        let _ = process.store(FIRST, 1);
        let _ = process.store(FIRST + HUGE, 1);
        if let Ok(space) = process.space.fork() {
            let _ = space.fault(page(FIRST), memwright::Access::WRITE);
            assert_eq!(space.audit(), Ok(()));
        }
        let _ = process
            .space
            .protect(page(FIRST + 3), PAGE, R)
            .and_then(|()| process.space.protect(page(FIRST + 3), PAGE, RW));
        let _ = process
            .space
            .advise(page(FIRST), 2 * HUGE * PAGE, Advice::Collapse);
        let _ = process
            .space
            .map(&MapRequest::anonymous(PAGE, RW).at(Placement::Fixed(page(FIRST + HUGE + 9))));
        world.frames.fail_after(None);
        process.check();
    }
}
