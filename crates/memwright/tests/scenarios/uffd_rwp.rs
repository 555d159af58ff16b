//! Tests of userfaultfd's read-write protection: which accesses wait for the handler, which pages count as accessed,
//! and how other operations treat armed pages.

use memwright::track::{Categories, Scan};
use memwright::uffd::{Watch, WatchError, WatchEvents, WatchModes, WatchedFault, Watcher};
use memwright::{Advice, FaultError, FaultKind, HugeMode, RemapRequest, Row};
use memwright_table::{Bits, Entry, PageRange, PageSize};

use crate::swap::{Swapping, page_out};
use crate::world::{PAGE, Process, R, RW, World, page};

const RWP: WatchModes = WatchModes::READ_WRITE_PROTECT;
const WP: WatchModes = WatchModes::WRITE_PROTECT;
const WAITS: FaultError = FaultError::Watched(WatchedFault::ReadWriteProtected);
/// The index of the first page that is aligned to 2 MiB, and the number of 4 KiB pages in 2 MiB.
const FIRST: u64 = 4;
const HUGE: u64 = 512;

fn watcher(counts: bool) -> Watcher {
    Watcher {
        number: 1,
        asynchronous: false,
        unpopulated: false,
        counts_accesses: counts.into(),
        events: WatchEvents::empty(),
    }
}

/// Creates a process with `pages` registered pages, each containing its number plus one.
fn filled(world: &World, pages: u64, counts: bool) -> (Process<'_>, Watch) {
    let mut process = world.process();
    process.map(0, pages, RW);
    for index in 0..pages {
        process.store(index, index as u8 + 1).unwrap();
    }
    let watch = Watch::try_new(watcher(counts)).unwrap();
    let space = &process.space;
    space
        .uffd()
        .watch(page(0), pages * PAGE, &watch, RWP)
        .unwrap();
    (process, watch)
}

fn arm(process: &Process<'_>, first: u64, pages: u64) {
    let space = &process.space;
    let armed = space
        .uffd()
        .read_write_protect(page(first), pages * PAGE, true);
    armed.unwrap();
}

fn disarm(process: &Process<'_>, first: u64, pages: u64) {
    let space = &process.space;
    let disarmed = space
        .uffd()
        .read_write_protect(page(first), pages * PAGE, false);
    disarmed.unwrap();
}

/// Returns the accessed pages among the first `count` pages.
fn accessed(process: &Process<'_>, count: u64) -> Vec<u64> {
    let scan = Scan {
        inverted: Categories::empty(),
        all: Categories::ACCESSED,
        any: Categories::empty(),
        protect: false,
        only_tracked: false,
    };
    let range = PageRange::new(page(0).page(), page(count).page());
    process.matching(range, &scan)
}

fn bits(process: &Process<'_>, index: u64) -> Bits {
    match process.space.entry(page(index)) {
        Entry::Present(page) => page.bits,
        Entry::Swapped(page) => page.bits,
        Entry::Empty | Entry::Marker(_) | Entry::Migrating(_) => Bits::empty(),
    }
}

#[test]
fn an_access_to_an_armed_page_waits_until_it_is_disarmed_and_then_costs_nothing() {
    let world = World::new();
    let (mut process, _watch) = filled(&world, 4, false);
    arm(&process, 0, 4);
    assert_eq!(process.load_with(0), Err(WAITS));
    assert_eq!(process.store(1, 9), Err(WAITS));
    assert_eq!(accessed(&process, 4), []);
    disarm(&process, 0, 2);
    assert_eq!(process.load_with(0), Ok((1, vec![])));
    assert_eq!(process.store(1, 9), Ok(vec![]));
    assert_eq!(accessed(&process, 4), [0, 1]);
    assert_eq!(process.load_with(2), Err(WAITS));
}

#[test]
fn an_access_that_only_counts_takes_no_fault() {
    let world = World::new();
    let (mut process, _watch) = filled(&world, 6, true);
    for _ in 0..3 {
        arm(&process, 0, 6);
        assert_eq!(accessed(&process, 6), []);
        assert_eq!(process.load_with(1), Ok((2, vec![])));
        assert_eq!(process.store(4, 5), Ok(vec![]));
        assert_eq!(accessed(&process, 6), [1, 4]);
    }
    disarm(&process, 0, 6);
    assert_eq!(accessed(&process, 6), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn tracking_by_faults_takes_one() {
    let world = World::new();
    world.memory.policy().set("track", "fault").unwrap();
    let (mut process, _watch) = filled(&world, 3, true);
    arm(&process, 0, 3);
    assert_eq!(process.load_with(0), Ok((1, vec![FaultKind::ReadExec])));
    assert_eq!(process.store(1, 7), Ok(vec![FaultKind::ReadExec]));
    assert_eq!(process.store(0, 7), Ok(vec![]));
    assert_eq!(accessed(&process, 3), [0, 1]);
}

#[test]
fn arming_flushes_once_and_only_what_was_accessed() {
    let world = World::new();
    let (process, _watch) = filled(&world, 64, true);
    let account = world.counted(|| arm(&process, 0, 64));
    assert_eq!(account.count(Row::FlushLocal), 1);
    let again = world.counted(|| arm(&process, 0, 64));
    assert_eq!(
        again.count(Row::FlushLocal),
        0,
        "no CPU has cached anything"
    );
}

#[test]
fn the_other_readers_of_the_accessed_bit_hide_no_access_and_miss_none() {
    let world = World::new();
    let (mut process, _watch) = filled(&world, 4, true);
    arm(&process, 0, 4);
    // The software accessed bit records accesses before the arming, because the count of referenced pages needs them.
    assert!(bits(&process, 2).contains(Bits::FOLDED_ACCESSED));
    process.load(0);
    let cold = process.space.advise(page(0), 4 * PAGE, Advice::Cold);
    cold.unwrap();
    assert!(!bits(&process, 0).contains(Bits::ACCESSED));
    assert_eq!(accessed(&process, 4), [0]);
    process.load(1);
    process
        .space
        .tracking()
        .forget_accesses(memwright::Forget::All);
    assert_eq!(accessed(&process, 4), [0, 1]);
    let free = process.space.advise(page(1), PAGE, Advice::Free);
    free.unwrap();
    process.load(2);
    let free = process.space.advise(page(2), PAGE, Advice::Free);
    free.unwrap();
    assert_eq!(accessed(&process, 4), [0, 1, 2]);
}

#[test]
fn pages_stay_armed_in_swap() {
    for counts in [false, true] {
        let swapping = Swapping::new();
        let (mut process, _watch) = filled(&swapping.world, 5, counts);
        arm(&process, 0, 4);
        if counts {
            process.load(1);
        } else {
            disarm(&process, 1, 1);
        }
        page_out(&process, 0, 5);
        assert_eq!(accessed(&process, 5), [1, 4], "{counts}");
        // While the pages are in swap, one is armed and another is disarmed.
        arm(&process, 4, 1);
        disarm(&process, 3, 1);
        assert_eq!(accessed(&process, 5), [1, 3], "{counts}");
        if counts {
            assert_eq!(process.load_with(0), Ok((1, vec![FaultKind::SwapIn])));
            assert_eq!(accessed(&process, 5), [0, 1, 3]);
        } else {
            assert_eq!(process.load_with(0), Err(WAITS));
            assert_eq!(process.store(4, 9), Err(WAITS));
            assert_eq!(process.store(2, 9), Err(WAITS));
            assert_eq!(accessed(&process, 5), [1, 3]);
            assert_eq!(process.load_with(3), Ok((4, vec![FaultKind::SwapIn])));
            disarm(&process, 0, 5);
        }
        assert_eq!(process.store(0, 9), Ok(vec![]));
    }
}

#[test]
fn readahead_from_swap_is_no_access() {
    let swapping = Swapping::new();
    let policy = swapping.world.memory.policy();
    policy.set("swapin-around", "on").unwrap();
    let (mut process, _watch) = filled(&swapping.world, 8, true);
    arm(&process, 0, 8);
    page_out(&process, 0, 8);
    process.load(0);
    process.load(1);
    process.load(2);
    assert!(matches!(process.space.entry(page(3)), Entry::Present(_)));
    assert_eq!(accessed(&process, 8), [0, 1, 2]);
}

#[test]
fn accesses_wait_from_the_change_of_the_mode_on() {
    let world = World::new();
    let (mut process, watch) = filled(&world, 4, true);
    arm(&process, 0, 4);
    process.load(0);
    process.space.uffd().count_accesses(&watch, false);
    process.check();
    assert_eq!(accessed(&process, 4), [0]);
    assert_eq!(process.store(0, 7), Ok(vec![]));
    assert_eq!(process.load_with(1), Err(WAITS));
    assert_eq!(process.store(2, 7), Err(WAITS));
    process.space.uffd().count_accesses(&watch, true);
    assert_eq!(process.load_with(1), Ok((2, vec![FaultKind::ReadExec])));
    assert_eq!(process.store(2, 7), Ok(vec![FaultKind::ReadExec]));
    assert_eq!(accessed(&process, 4), [0, 1, 2]);
    // After a fault has made a page accessible, the page is armed by its accessed bit the next time.
    arm(&process, 0, 4);
    assert_eq!(process.store(3, 7), Ok(vec![]));
    assert_eq!(accessed(&process, 4), [3]);
}

#[test]
fn changed_rights_make_no_armed_page_accessible() {
    for counts in [false, true] {
        let world = World::new();
        let (mut process, _watch) = filled(&world, 4, counts);
        arm(&process, 0, 4);
        process.protect(0, 4, R);
        process.protect(1, 1, memwright::Rights::empty());
        process.protect(0, 4, RW);
        assert_eq!(accessed(&process, 4), []);
        if counts {
            assert_eq!(process.store(2, 3), Ok(vec![]));
            assert_eq!(accessed(&process, 4), [2]);
        } else {
            assert_eq!(process.load_with(1), Err(WAITS));
            assert_eq!(process.store(2, 3), Err(WAITS));
            disarm(&process, 0, 4);
            assert_eq!(process.store(2, 3), Ok(vec![]));
        }
    }
}

#[test]
fn a_child_is_armed_if_it_is_watched() {
    for counts in [false, true] {
        let world = World::new();
        let (mut process, _watch) = filled(&world, 4, counts);
        arm(&process, 0, 4);
        if counts {
            process.load(1);
        } else {
            disarm(&process, 1, 1);
        }
        let mut child = process.fork();
        assert_eq!(child.load_with(0), Ok((1, vec![])));
        assert!(child.store(2, 9).is_ok());
        drop(child);
        let own = Watch::try_new(watcher(counts)).unwrap();
        let mut child = process.fork_watched(&mut |_| Some(own.clone()));
        assert_eq!(accessed(&child, 4), [1]);
        if counts {
            assert_eq!(child.load_with(0), Ok((1, vec![])));
            assert_eq!(accessed(&child, 4), [0, 1]);
        } else {
            assert_eq!(child.load_with(0), Err(WAITS));
        }
        drop(child);
        assert_eq!(accessed(&process, 4), [1]);
    }
}

#[test]
fn memory_that_moves_away_from_its_context_is_accessible() {
    let world = World::new();
    let (mut process, _watch) = filled(&world, 4, false);
    arm(&process, 0, 4);
    let request = RemapRequest {
        old: page(0),
        old_length: 4 * PAGE,
        new_length: 4 * PAGE,
        may_move: true,
        fixed: Some(page(64)),
        dont_unmap: false,
    };
    process.space.remap(request).unwrap();
    for index in 0..4 {
        let loaded = process.load_with(64 + index);
        assert_eq!(loaded, Ok((index as u8 + 1, vec![])));
        assert!(process.store(64 + index, 9).is_ok());
    }
}

#[test]
fn a_discarded_page_comes_back_unarmed() {
    let world = World::new();
    let (mut process, _watch) = filled(&world, 3, false);
    arm(&process, 0, 3);
    let discard = process.space.advise(page(1), PAGE, Advice::DontNeed);
    discard.unwrap();
    assert_eq!(process.load_with(1), Ok((0, vec![FaultKind::ZeroPage])));
    assert_eq!(accessed(&process, 3), [1]);
}

#[test]
fn what_ends_the_registration_makes_pages_accessible() {
    for closes in [false, true] {
        let world = World::new();
        let (mut process, watch) = filled(&world, 3, false);
        arm(&process, 0, 3);
        if closes {
            process.space.uffd().forget_watch(&watch);
        } else {
            let space = &process.space;
            space.uffd().unwatch(page(0), 3 * PAGE, &watch).unwrap();
        }
        process.check();
        assert_eq!(process.store(0, 9), Ok(vec![]));
        assert_eq!(process.load_with(2), Ok((3, vec![])));
    }
}

#[test]
fn the_two_protections_exclude_each_other() {
    let world = World::new();
    let (process, watch) = filled(&world, 4, false);
    let space = &process.space;
    let register = |modes| space.uffd().watch(page(0), 4 * PAGE, &watch, modes);
    assert_eq!(register(RWP | WP), Err(WatchError::Modes));
    assert_eq!(register(WP), Err(WatchError::Busy));
    assert_eq!(register(WatchModes::MISSING), Err(WatchError::Busy));
    assert_eq!(register(RWP | WatchModes::MISSING), Ok(()));
    let protect = space.uffd().write_protect(page(0), PAGE, true);
    assert_eq!(protect, Err(WatchError::NotWatched));
    space.uffd().unwatch(page(0), 4 * PAGE, &watch).unwrap();
    let arm = |pages| space.uffd().read_write_protect(page(0), pages * PAGE, true);
    assert_eq!(arm(1), Err(WatchError::NotWatched));
    register(WP).unwrap();
    assert_eq!(register(RWP), Err(WatchError::Busy));
    assert_eq!(arm(1), Err(WatchError::NotWatched));
}

#[test]
fn nothing_changes_if_a_part_is_not_registered() {
    let world = World::new();
    let (mut process, watch) = filled(&world, 4, false);
    let space = process.space.clone();
    space.uffd().unwatch(page(2), PAGE, &watch).unwrap();
    let armed = space.uffd().read_write_protect(page(0), 4 * PAGE, true);
    assert_eq!(armed, Err(WatchError::NotWatched));
    assert_eq!(process.load_with(0), Ok((1, vec![])));
}

#[test]
fn huge_pages_are_armed_as_a_whole_and_in_part() {
    for counts in [false, true] {
        let world = World::with_frames(4096);
        world.memory.policy().set_huge(HugeMode::Always);
        let mut process = world.process();
        process.map(FIRST, HUGE, RW);
        process.store(FIRST, 1).unwrap();
        let watch = Watch::try_new(watcher(counts)).unwrap();
        let space = process.space.clone();
        let bytes = HUGE * PAGE;
        space.uffd().watch(page(FIRST), bytes, &watch, RWP).unwrap();
        arm(&process, FIRST, HUGE);
        let size = |space: &memwright::AddressSpace<_>| match space.entry(page(FIRST)) {
            Entry::Present(page) => Some(page.size),
            _ => None,
        };
        assert_eq!(size(&space), Some(PageSize::Size2M));
        assert_eq!(accessed(&process, FIRST + HUGE), []);
        if counts {
            assert_eq!(process.load_with(FIRST + 7), Ok((0, vec![])));
            let all = accessed(&process, FIRST + HUGE).len();
            assert_eq!(all as u64, HUGE);
            arm(&process, FIRST, HUGE);
            // After the huge page was split, each small page is armed as the huge page was.
            disarm(&process, FIRST, 1);
            assert_eq!(accessed(&process, FIRST + HUGE), [FIRST]);
            process.load(FIRST + 7);
            assert_eq!(accessed(&process, FIRST + HUGE), [FIRST, FIRST + 7]);
        } else {
            assert_eq!(process.load_with(FIRST + 7), Err(WAITS));
            disarm(&process, FIRST, 1);
            assert_eq!(process.load_with(FIRST), Ok((1, vec![])));
            assert_eq!(process.store(FIRST + 7, 1), Err(WAITS));
            disarm(&process, FIRST, HUGE);
            assert_eq!(process.store(FIRST + 7, 1), Ok(vec![]));
        }
    }
}

#[test]
fn a_collapse_refuses_armed_pages() {
    for counts in [false, true] {
        let world = World::with_frames(4096);
        let mut process = world.process();
        process.map(FIRST, HUGE, RW);
        for index in 0..HUGE {
            process.store(FIRST + index, 1).unwrap();
        }
        let watch = Watch::try_new(watcher(counts)).unwrap();
        let space = process.space.clone();
        let bytes = HUGE * PAGE;
        space.uffd().watch(page(FIRST), bytes, &watch, RWP).unwrap();
        arm(&process, FIRST + 9, 1);
        let collapse = || space.advise(page(FIRST), bytes, Advice::Collapse);
        assert!(collapse().is_err());
        disarm(&process, FIRST + 9, 1);
        assert!(collapse().is_ok());
        assert_eq!(process.store(FIRST + 9, 1), Ok(vec![]));
    }
}

#[test]
fn shared_memory_is_armed_until_it_is_reclaimed() {
    for counts in [false, true] {
        let world = World::new();
        let object = world.shmem(4);
        let mut process = world.process();
        process.map_object(0, 4, RW, &object, true);
        process.map_object(16, 4, RW, &object, true);
        for index in 0..4 {
            process.store(index, 1).unwrap();
        }
        let watch = Watch::try_new(watcher(counts)).unwrap();
        let space = process.space.clone();
        space.uffd().watch(page(0), 4 * PAGE, &watch, RWP).unwrap();
        arm(&process, 0, 4);
        // An access through another mapping of the page does not count as an access here.
        process.load(16);
        assert_eq!(accessed(&process, 4), []);
        if counts {
            assert_eq!(process.store(1, 2), Ok(vec![]));
            assert_eq!(accessed(&process, 4), [1]);
        } else {
            assert_eq!(process.store(1, 2), Err(WAITS));
            disarm(&process, 0, 4);
            assert_eq!(process.store(1, 2), Ok(vec![]));
        }
    }
}

#[test]
fn a_fault_maps_no_pages_around_it() {
    let world = World::new();
    let object = world.shmem(8);
    let mut process = world.process();
    process.map_object(0, 8, RW, &object, true);
    for index in 0..8 {
        process.store(index, 1).unwrap();
    }
    process.map_object(16, 8, RW, &object, true);
    let watch = Watch::try_new(watcher(true)).unwrap();
    let space = process.space.clone();
    space.uffd().watch(page(16), 8 * PAGE, &watch, RWP).unwrap();
    process.load(18);
    // Only the page that this mapping accessed counts as accessed.
    assert_eq!(accessed(&process, 24), [18]);
}

#[test]
fn accesses_by_the_kernel_count() {
    let world = World::new();
    let (process, _watch) = filled(&world, 6, true);
    let space = &process.space;
    arm(&process, 0, 6);
    let mut byte = [0];
    space.read(page(0), &mut byte).unwrap();
    space.write(page(1), &byte).unwrap();
    drop(space.lend(page(2)).unwrap());
    let populate = |index, advice| space.advise(page(index), PAGE, advice).unwrap();
    populate(3, Advice::PopulateRead);
    populate(4, Advice::PopulateWrite);
    assert_eq!(accessed(&process, 6), [0, 1, 2, 3, 4]);
}

#[test]
fn reclaim_spares_once_what_was_used_before_it_was_armed() {
    let swapping = Swapping::new();
    let (mut process, _watch) = filled(&swapping.world, 6, true);
    let reclaim = |process: &Process<'_>| {
        let mut effort = memwright::Effort {
            look: 100,
            wanted: 100,
            charged: false,
        };
        assert_eq!(process.space.reclaim(page(0).page(), &mut effort), None);
        100 - effort.wanted
    };
    arm(&process, 0, 6);
    assert_eq!(reclaim(&process), 0, "all were used before they were armed");
    process.load(1);
    process.store(4, 5).unwrap();
    assert_eq!(accessed(&process, 6), [1, 4]);
    assert_eq!(reclaim(&process), 4);
    assert_eq!(accessed(&process, 6), [1, 4]);
    assert_eq!(process.load_with(0), Ok((1, vec![FaultKind::SwapIn])));
    assert_eq!(accessed(&process, 6), [0, 1, 4]);
}
