//! Tests of huge pages and userfaultfd: where huge pages are mapped, how a complete huge page or a part of it is
//! protected, and how huge pages are split.

use core::sync::atomic::AtomicBool;
use memwright::track::{Categories, Scan, Share};
use memwright::uffd::{
    Fill, FillError, MoveError, Relocation, Watch, WatchEvents, WatchModes, WatchedFault, Watcher,
};
use memwright::{Advice, AdviseError, FaultError, FaultKind, HugeMode, RemapRequest, Row};
use memwright_table::{Bits, FrameKind, Page, PageRange, PageSize, Present};

use crate::world::{PAGE, Process, R, RW, World, page};

/// The index of the first page that is aligned to 2 MiB, counted from the address at which scenarios map.
const FIRST: u64 = 4;
/// The number of 4 KiB pages in 2 MiB.
const HUGE: u64 = 512;

const WP: WatchModes = WatchModes::WRITE_PROTECT;
const WRITE_FAULT: FaultError = FaultError::Watched(WatchedFault::WriteProtected);
const MISSING: FaultError = FaultError::Watched(WatchedFault::Missing);

/// A context with synchronous write protection. Each of the following contexts differs from it in one setting.
#[expect(
    clippy::declare_interior_mutable_const,
    reason = "each test gets its own copy"
)]
const SYNC: Watcher = Watcher {
    number: 1,
    asynchronous: false,
    unpopulated: true,
    counts_accesses: AtomicBool::new(false),
    events: WatchEvents::empty(),
};
#[expect(
    clippy::declare_interior_mutable_const,
    reason = "each test gets its own copy"
)]
const ASYNC: Watcher = Watcher {
    asynchronous: true,
    ..SYNC
};
#[expect(
    clippy::declare_interior_mutable_const,
    reason = "each test gets its own copy"
)]
const POPULATED_ONLY: Watcher = Watcher {
    unpopulated: false,
    ..SYNC
};
#[expect(
    clippy::declare_interior_mutable_const,
    reason = "each test gets its own copy"
)]
const FOLLOWING: Watcher = Watcher {
    events: WatchEvents::REMAP,
    ..SYNC
};

/// Creates a machine on which programs get huge pages.
fn world() -> World {
    let world = World::with_frames(16384);
    world.memory.policy().set_huge(HugeMode::Always);
    world
}

/// Creates a process with `huge_pages` times 2 MiB of memory, all of it registered.
fn watched(
    world: &World,
    huge_pages: u64,
    watcher: Watcher,
    modes: WatchModes,
) -> (Process<'_>, Watch) {
    let process = world.process();
    process.map(FIRST, huge_pages * HUGE, RW);
    let watch = Watch::try_new(watcher).unwrap();
    let bytes = huge_pages * HUGE * PAGE;
    process
        .space
        .uffd()
        .watch(page(FIRST), bytes, &watch, modes)
        .unwrap();
    (process, watch)
}

fn protect(process: &Process<'_>, first: u64, pages: u64, on: bool) {
    process
        .space
        .uffd()
        .write_protect(page(first), pages * PAGE, on)
        .unwrap();
}

fn present(process: &Process<'_>, index: u64) -> Present {
    process.space.entry(page(index)).present().unwrap()
}

fn size(process: &Process<'_>, index: u64) -> PageSize {
    present(process, index).size
}

fn is_protected(process: &Process<'_>, index: u64) -> bool {
    present(process, index).bits.contains(Bits::UFFD_WP)
}

fn collapse(process: &Process<'_>, index: u64) -> Result<(), AdviseError> {
    let advised = process
        .space
        .advise(page(index), HUGE * PAGE, Advice::Collapse);
    advised.map(drop)
}

/// Returns the written pages of the first 2 MiB, counted from 0. Write-protects them again.
fn written(process: &Process<'_>) -> Vec<u64> {
    let scan = Scan::written(true);
    let range = PageRange::new(page(FIRST).page(), page(FIRST + HUGE).page());
    process.matching(range, &scan)
}

#[test]
fn whoever_waits_for_stores_gets_huge_pages_and_protects_them_whole() {
    for watcher in [SYNC, POPULATED_ONLY] {
        let world = world();
        let (mut process, _watch) = watched(&world, 1, watcher, WP);
        assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::Huge]));
        protect(&process, FIRST, HUGE, true);
        assert_eq!(process.store(FIRST + 9, 2), Err(WRITE_FAULT));
        assert_eq!(process.load(FIRST), 1);
        assert_eq!(size(&process, FIRST), PageSize::Size2M);
        protect(&process, FIRST, HUGE, false);
        assert_eq!(process.store(FIRST + 9, 2), Ok(vec![]), "writable at once");
        assert_eq!(size(&process, FIRST), PageSize::Size2M);
        // A protection change does not make write-protected pages writable.
        protect(&process, FIRST, HUGE, true);
        process.protect(FIRST, HUGE, R);
        process.protect(FIRST, HUGE, RW);
        assert_eq!(process.store(FIRST, 3), Err(WRITE_FAULT));
    }
}

#[test]
fn protecting_or_unprotecting_a_part_splits() {
    let world = world();
    let (mut process, _watch) = watched(&world, 2, SYNC, WP);
    process.store(FIRST, 1).unwrap();
    process.store(FIRST + HUGE, 1).unwrap();
    protect(&process, FIRST + 7, 1, true);
    assert_eq!(size(&process, FIRST), PageSize::Size4K);
    assert_eq!(process.store(FIRST + 7, 2), Err(WRITE_FAULT));
    assert_eq!(process.store(FIRST + 8, 2), Ok(vec![]));
    protect(&process, FIRST + HUGE, HUGE, true);
    protect(&process, FIRST + HUGE + 7, 1, false);
    assert_eq!(process.store(FIRST + HUGE + 7, 2), Ok(vec![]));
    assert_eq!(process.store(FIRST + HUGE + 8, 2), Err(WRITE_FAULT));
}

#[test]
fn who_watches_a_part_splits() {
    let world = world();
    let (mut process, watch) = watched(&world, 1, SYNC, WP);
    let more = FIRST + 2 * HUGE;
    process.map(more, HUGE, RW);
    process.store(more, 1).unwrap();
    assert_eq!(size(&process, more), PageSize::Size2M);
    let part = process.space.uffd().watch(page(more + 7), PAGE, &watch, WP);
    assert_eq!(part, Ok(()));
    assert_eq!(size(&process, more), PageSize::Size4K);
    assert_eq!(process.load_with(more), Ok((1, vec![])));
    assert_eq!(process.space.audit(), Ok(()));
}

#[test]
fn a_marker_makes_small_pages_under_it() {
    let world = world();
    let (mut process, _watch) = watched(&world, 2, SYNC, WP);
    protect(&process, FIRST, 2 * HUGE, true);
    let zeroed = world.counted(|| {
        assert_eq!(process.store(FIRST, 1), Err(WRITE_FAULT));
        // A load from the hole succeeds, and the page stays write-protected.
        let read = process.load_with(FIRST + 1);
        assert_eq!(read, Ok((0, vec![FaultKind::ZeroPage])));
    });
    assert_eq!(zeroed.count(Row::FramesZeroed), 1, "a page, no folio");
    assert_eq!(process.load_with(FIRST), Ok((0, vec![])), "it is there");
    assert_eq!(process.store(FIRST, 1), Err(WRITE_FAULT));
    assert_eq!(process.store(FIRST + 1, 1), Err(WRITE_FAULT));
    protect(&process, FIRST, 1, false);
    assert_eq!(process.store(FIRST, 1), Ok(vec![]));
    assert_eq!(size(&process, FIRST), PageSize::Size4K);
    // After the marker has been removed, a store maps a huge page again.
    protect(&process, FIRST + HUGE, HUGE, false);
    let huge = process.store(FIRST + HUGE, 1);
    assert_eq!(huge, Ok(vec![FaultKind::Huge]));
}

#[test]
fn closing_a_descriptor_ends_registrations_without_a_free_frame() {
    let world = world();
    let (mut process, watch) = watched(&world, 1, SYNC, WP);
    protect(&process, FIRST, HUGE, true);
    // The areas share one marker for 2 MiB. To split the marker, a page table is needed, for which no frame is free.
    process.protect(FIRST, HUGE / 2, R);
    assert_eq!(process.areas(), "256r 256rw");
    let frames = &*world.frames;
    let taken: Vec<_> =
        std::iter::from_fn(|| frames.allocate(0, FrameKind::Anonymous).ok()).collect();
    process.space.uffd().forget_watch(&watch);
    drop(taken);
    process.protect(FIRST, HUGE / 2, RW);
    assert_eq!(process.areas(), "512rw");
    let huge = process.store(FIRST, 1);
    assert_eq!(huge, Ok(vec![FaultKind::Huge]), "no marker is left");
}

#[test]
fn what_a_watcher_is_told_of_as_missing_never_is_huge() {
    let world = world();
    let modes = WatchModes::MISSING | WP;
    let (mut process, watch) = watched(&world, 1, SYNC, modes);
    assert_eq!(process.store(FIRST, 1), Err(MISSING));
    assert_eq!(process.load_with(FIRST + 1), Err(MISSING));
    let target = page(FIRST).page();
    assert_eq!(
        process.space.uffd().fill(target, Fill::Zeroes, false),
        Ok(())
    );
    assert_eq!(process.store(FIRST + 1, 1), Err(MISSING), "told of each");
    assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::Copy]));
    // A huge page that was mapped before the registration does not count as missing.
    let mut before = world.process();
    before.map(FIRST, HUGE, RW);
    before.store(FIRST, 1).unwrap();
    let all = HUGE * PAGE;
    before
        .space
        .uffd()
        .watch(page(FIRST), all, &watch, modes)
        .unwrap();
    let refused = before.space.uffd().fill(target, Fill::Poison, false);
    assert_eq!(refused, Err(FillError::Exists));
}

#[test]
fn the_huge_page_of_zeroes_is_protected_like_any_other() {
    let world = world();
    let (mut process, _watch) = watched(&world, 1, SYNC, WP);
    let read = process.load_with(FIRST);
    assert_eq!(read, Ok((0, vec![FaultKind::HugeZeroPage])));
    protect(&process, FIRST, HUGE, true);
    assert_eq!(size(&process, FIRST), PageSize::Size2M);
    assert_eq!(process.store(FIRST, 1), Err(WRITE_FAULT));
    protect(&process, FIRST, HUGE, false);
    assert_eq!(process.store(FIRST, 1), Ok(vec![FaultKind::Huge]));
    assert_eq!(process.load(FIRST + 1), 0);
}

#[test]
fn a_tracked_huge_page_is_split_by_its_first_store_and_one_page_is_told() {
    let world = world();
    let (mut process, _watch) = watched(&world, 1, ASYNC, WP);
    process.store(FIRST, 1).unwrap();
    assert_eq!(size(&process, FIRST), PageSize::Size2M);
    assert_eq!(written(&process).len() as u64, HUGE, "never protected");
    assert_eq!(size(&process, FIRST), PageSize::Size2M);
    assert_eq!(written(&process), []);
    assert_eq!(process.store(FIRST + 9, 2).map(|kinds| kinds.len()), Ok(1));
    assert_eq!(written(&process), [9]);
    assert_eq!(process.store(FIRST + 9, 3), Ok(vec![]), "by the dirty bit");
    assert_eq!(written(&process), [9]);
}

/// Scans and write-protects a part of the first 2 MiB. The callback takes at most `most` pages. Returns, for each
/// reported run, the number of its pages, and true if they belong to a huge page.
fn told_of_part(
    process: &Process<'_>,
    (first, pages): (u64, u64),
    most: u64,
    all: Categories,
) -> Vec<(u64, bool)> {
    let scan = Scan {
        inverted: Categories::empty(),
        all,
        any: Categories::empty(),
        protect: true,
        only_tracked: true,
    };
    let start = page(FIRST + first).page();
    let range = PageRange::new(start, start.add(pages));
    let mut found = Vec::new();
    let mut left = most;
    let end = process.space.tracking().scan(
        range,
        &scan,
        &mut |run: PageRange, categories: Categories, share: Share| {
            let fits = run.len().min(left);
            if share == Share::Whole && fits < run.len() {
                return 0;
            }
            if fits > 0 {
                found.push((fits, categories.contains(Categories::HUGE)));
            }
            left -= fits;
            fits
        },
    );
    assert!(end.is_ok());
    found
}

#[test]
fn a_huge_page_of_which_a_part_is_protected_is_told_as_small_ones() {
    let written = Categories::WRITTEN;
    let of_huge = written | Categories::HUGE;
    #[rustfmt::skip]
    let rows: [(_, _, _, &[(u64, bool)], _); 5] = [
        ((0, HUGE), HUGE, written, &[(HUGE, true)], PageSize::Size2M),
        ((0, HUGE), HUGE, of_huge, &[(HUGE, true)], PageSize::Size2M),
        ((5, 3),    HUGE, written, &[(3, false)],   PageSize::Size4K),
        ((0, HUGE), 3,    written, &[(3, false)],   PageSize::Size4K),
        ((5, 3),    HUGE, of_huge, &[],             PageSize::Size2M),
    ];
    for (part, most, all, told, after) in rows {
        let world = world();
        let (mut process, _watch) = watched(&world, 1, ASYNC, WP);
        process.store(FIRST, 1).unwrap();
        assert_eq!(
            told_of_part(&process, part, most, all),
            told,
            "{part:?} {most} {all:?}"
        );
        assert_eq!(size(&process, FIRST), after);
        let pages: u64 = told.iter().map(|(pages, _)| pages).sum();
        let left = told_of_part(&process, (0, HUGE), HUGE, written);
        let left: u64 = left.iter().map(|(pages, _)| pages).sum();
        assert_eq!(left, HUGE - pages, "what was told is protected");
    }
}

#[test]
fn a_tracked_huge_page_of_zeroes_becomes_small_ones() {
    let world = world();
    let (mut process, _watch) = watched(&world, 1, ASYNC, WP);
    process.load(FIRST);
    protect(&process, FIRST, HUGE, true);
    assert_eq!(written(&process), []);
    process.store(FIRST + 3, 1).unwrap();
    assert_eq!(written(&process), [3]);
    assert_eq!((process.load(FIRST + 3), process.load(FIRST + 4)), (1, 0));
}

#[test]
fn giving_a_huge_page_back_drops_its_protection() {
    let world = world();
    let (mut process, _watch) = watched(&world, 2, SYNC, WP);
    process.store(FIRST, 1).unwrap();
    process.store(FIRST + HUGE, 1).unwrap();
    protect(&process, FIRST, 2 * HUGE, true);
    let drop_pages = |process: &Process<'_>, first: u64, pages: u64| {
        let advised = process
            .space
            .advise(page(first), pages * PAGE, Advice::DontNeed);
        advised.unwrap();
    };
    drop_pages(&process, FIRST, HUGE);
    assert_eq!(process.store(FIRST, 2), Ok(vec![FaultKind::Huge]));
    drop_pages(&process, FIRST + HUGE, 1);
    let small = process.store(FIRST + HUGE, 2);
    assert_eq!(small, Ok(vec![FaultKind::DemandZero]));
    assert_eq!(process.store(FIRST + HUGE + 1, 2), Err(WRITE_FAULT));
}

#[test]
fn giving_a_tracked_huge_page_back_is_told() {
    let world = world();
    let (mut process, _watch) = watched(&world, 1, ASYNC, WP);
    process.store(FIRST, 1).unwrap();
    protect(&process, FIRST, HUGE, true);
    process
        .space
        .advise(page(FIRST), HUGE * PAGE, Advice::DontNeed)
        .unwrap();
    assert_eq!(written(&process).len() as u64, HUGE, "it reads as zeroes");
    assert_eq!(written(&process), []);
    assert_eq!(process.load(FIRST), 0);
    assert_eq!(written(&process), []);
}

#[test]
fn a_fork_keeps_huge_protection_only_for_a_watcher_of_the_child() {
    for followed in [false, true] {
        let world = world();
        let (mut parent, watch) = watched(&world, 1, SYNC, WP);
        parent.store(FIRST, 1).unwrap();
        protect(&parent, FIRST, HUGE, true);
        let mut child = parent.fork_watched(&mut |_| followed.then(|| watch.clone()));
        assert_eq!(size(&child, FIRST), PageSize::Size2M);
        assert_eq!(is_protected(&child, FIRST), followed);
        assert_eq!(child.store(FIRST, 2).is_err(), followed);
        assert_eq!(parent.store(FIRST, 2), Err(WRITE_FAULT));
        protect(&parent, FIRST, HUGE, false);
        parent.store(FIRST, 3).unwrap();
        assert_eq!(child.load(FIRST), if followed { 1 } else { 2 });
    }
}

#[test]
fn a_move_keeps_huge_protection_only_for_who_is_told_of_it() {
    for watcher in [SYNC, FOLLOWING] {
        let follows = watcher.events.contains(WatchEvents::REMAP);
        let world = world();
        let (mut process, _watch) = watched(&world, 1, watcher, WP);
        process.store(FIRST, 1).unwrap();
        protect(&process, FIRST, HUGE, true);
        let far = FIRST + 64 * HUGE;
        let request = RemapRequest {
            old: page(FIRST),
            old_length: HUGE * PAGE,
            new_length: HUGE * PAGE,
            may_move: true,
            fixed: Some(page(far)),
            dont_unmap: false,
        };
        process.space.remap(request).unwrap();
        assert_eq!(size(&process, far), PageSize::Size2M);
        assert_eq!(is_protected(&process, far), follows);
        assert_eq!(process.store(far, 2).is_err(), follows);
    }
}

#[test]
fn only_what_is_there_and_unprotected_is_collapsed_under_watch() {
    let world = world();
    world.memory.policy().set_huge(HugeMode::Never);
    let (mut process, _watch) = watched(&world, 1, SYNC, WP);
    for index in 1..HUGE {
        process.store(FIRST + index, 1).unwrap();
    }
    let refused = Err(AdviseError::NotApplicable(page(FIRST)));
    assert_eq!(collapse(&process, FIRST), refused, "a hole");
    process.load(FIRST);
    assert_eq!(collapse(&process, FIRST), refused, "a page of zeroes");
    process.store(FIRST, 1).unwrap();
    protect(&process, FIRST + 3, 1, true);
    assert_eq!(collapse(&process, FIRST), refused, "a protected page");
    protect(&process, FIRST + 3, 1, false);
    assert_eq!(collapse(&process, FIRST), Ok(()));
    assert_eq!(size(&process, FIRST), PageSize::Size2M);
}

#[test]
fn tracked_pages_are_collapsed_once_all_are_written() {
    let world = world();
    world.memory.policy().set_huge(HugeMode::Never);
    let (mut process, _watch) = watched(&world, 1, ASYNC, WP);
    protect(&process, FIRST, HUGE, true);
    for index in 0..HUGE {
        process.store(FIRST + index, 1).unwrap();
    }
    assert_eq!(written(&process).len() as u64, HUGE);
    for index in 1..HUGE {
        process.store(FIRST + index, 2).unwrap();
    }
    let refused = Err(AdviseError::NotApplicable(page(FIRST)));
    assert_eq!(collapse(&process, FIRST), refused, "one is unwritten");
    process.store(FIRST, 2).unwrap();
    assert_eq!(collapse(&process, FIRST), Ok(()));
    assert_eq!(written(&process).len() as u64, HUGE);
    assert_eq!(size(&process, FIRST), PageSize::Size2M);
}

/// Moves `pages` pages from page `from` to page `to`, which is in the registered memory.
fn relocate(
    process: &Process<'_>,
    watch: &Watch,
    (from, to, pages): (u64, u64, u64),
) -> (u64, Result<(), MoveError>) {
    let relocation = Relocation {
        from: page(from).page(),
        to: page(to).page(),
        pages,
        holes: false,
    };
    process.space.uffd().relocate(&relocation, watch)
}

#[test]
fn a_huge_page_is_moved_whole_where_it_fits() {
    let world = world();
    let (mut process, watch) = watched(&world, 3, SYNC, WatchModes::MISSING);
    let from = FIRST + 8 * HUGE;
    process.map(from, 4 * HUGE, RW);
    for huge in 0..3 {
        process.store(from + huge * HUGE, huge as u8 + 1).unwrap();
    }
    process.load(from + 3 * HUGE);
    let account = world.counted(|| {
        let moved = relocate(&process, &watch, (from, FIRST, HUGE));
        assert_eq!(moved, (HUGE, Ok(())));
    });
    assert_eq!(account.count(Row::HugeSplitsRemap), 0);
    assert_eq!(size(&process, FIRST), PageSize::Size2M);
    assert_eq!(process.load_with(FIRST), Ok((1, vec![])));
    assert_eq!(process.load(from), 0, "nothing is left behind");
    // A part of a huge page is moved page by page. If the target is not aligned to 2 MiB, a complete huge page is moved
    // page by page, too.
    let moved = relocate(&process, &watch, (from + HUGE, FIRST + HUGE, 3));
    assert_eq!(moved, (3, Ok(())));
    assert_eq!(size(&process, FIRST + HUGE), PageSize::Size4K);
    assert_eq!(process.load(FIRST + HUGE), 2);
    assert_eq!(process.store(FIRST + HUGE + 3, 1), Err(MISSING));
    let odd = (from + 2 * HUGE, FIRST + HUGE + 3, HUGE);
    assert_eq!(relocate(&process, &watch, odd), (HUGE, Ok(())));
    assert_eq!(process.load(FIRST + HUGE + 3), 3);
    let there = relocate(&process, &watch, (from + 3 * HUGE, FIRST, HUGE));
    assert_eq!(there, (0, Err(MoveError::Exists)));
}

#[test]
fn where_a_guard_or_a_protection_stands_there_is_no_hole() {
    let world = world();
    let (process, watch) = watched(&world, 1, SYNC, WP | WatchModes::MISSING);
    let from = FIRST + 8 * HUGE;
    process.map(from, 3, RW);
    let guard = Advice::GuardInstall;
    process.space.advise(page(from + 1), PAGE, guard).unwrap();
    process.map(from + 8, 1, RW);
    let registered = process.space.uffd().watch(page(from + 8), PAGE, &watch, WP);
    assert_eq!(registered, Ok(()));
    protect(&process, from + 8, 1, true);
    let relocate = |from, pages| {
        let relocation = Relocation {
            from: page(from).page(),
            to: page(FIRST).page(),
            pages,
            holes: true,
        };
        process.space.uffd().relocate(&relocation, &watch)
    };
    assert_eq!(relocate(from, 3), (1, Err(MoveError::Marked)));
    assert_eq!(relocate(from + 8, 1), (0, Err(MoveError::Marked)));
}

#[test]
fn a_huge_page_of_zeroes_moves_and_what_others_reach_does_not() {
    let world = world();
    let (mut process, watch) = watched(&world, 2, SYNC, WatchModes::MISSING);
    let from = FIRST + 8 * HUGE;
    process.map(from, 2 * HUGE, RW);
    process.load(from);
    let moved = relocate(&process, &watch, (from, FIRST, HUGE));
    assert_eq!(moved, (HUGE, Ok(())));
    assert_eq!(process.load_with(FIRST + 7), Ok((0, vec![])));
    let second = from + HUGE;
    process.store(second, 7).unwrap();
    let child = process.fork();
    let busy = (0, Err(MoveError::Busy));
    let to = FIRST + HUGE;
    assert_eq!(relocate(&process, &watch, (second, to, HUGE)), busy);
    assert_eq!(size(&process, second), PageSize::Size2M, "not split for it");
    drop(child);
    process.store(second, 8).unwrap();
    let frame = present(&process, second).frame_of(Page::new(second));
    world.frames.pin(frame);
    assert_eq!(relocate(&process, &watch, (second, to, HUGE)), busy);
    world.frames.unpin(frame);
    let moved = relocate(&process, &watch, (second, to, HUGE));
    assert_eq!(moved, (HUGE, Ok(())));
    assert_eq!(process.load(to), 8);
}

#[test]
fn pinned_pages_are_told_by_every_scan_until_they_are_unpinned() {
    for mode in [HugeMode::Never, HugeMode::Always] {
        let world = world();
        world.memory.policy().set_huge(mode);
        let (mut process, _watch) = watched(&world, 1, ASYNC, WP);
        for index in 0..HUGE {
            process.store(FIRST + index, 1).unwrap();
        }
        let pinned = process.space.pin(page(FIRST + 9)).unwrap().into_raw();
        let told = |found: Vec<u64>| match mode {
            HugeMode::Never => assert_eq!(found, [9]),
            // The owner of a pin on one small page can write to the complete huge page. All small pages of the huge
            // page therefore count as written.
            HugeMode::Always | HugeMode::Advised => assert_eq!(found.len() as u64, HUGE),
        };
        protect(&process, FIRST, HUGE, true);
        for _ in 0..3 {
            told(written(&process));
        }
        world.frames.unpin(pinned);
        drop(world.frames.adopt(pinned));
        told(written(&process));
        assert_eq!(written(&process), []);
    }
}
