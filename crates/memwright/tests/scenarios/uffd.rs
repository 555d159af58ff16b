//! Tests of memory registered with a userfaultfd: which faults the userfaultfd handles, how unpopulated pages are
//! protected, and what scans report.

use memwright::track::{Categories, Scan, Share};
use memwright::uffd::{
    Fill, FillError, MoveError, Relocation, Watch, WatchError, WatchModes, WatchedFault,
};
use memwright::{Advice, FaultError, RemapError, RemapRequest, Row};
use memwright_sim::Arch;
use memwright_table::{Architecture, Entry, PageRange, PageSize, Tracked};

use crate::objects::Notified;
use crate::world::{PAGE, Process, R, RW, World, page, watch};

const WP: WatchModes = WatchModes::WRITE_PROTECT;

/// Registers the first `pages` pages with `watch`.
fn register(process: &Process<'_>, pages: u64, watch: &Watch, modes: WatchModes) {
    process
        .space
        .uffd()
        .watch(page(0), pages * PAGE, watch, modes)
        .unwrap();
}

fn protect(process: &Process<'_>, first: u64, pages: u64, on: bool) {
    process
        .space
        .uffd()
        .write_protect(page(first), pages * PAGE, on)
        .unwrap();
}

const WRITE_FAULT: FaultError = FaultError::Watched(WatchedFault::WriteProtected);
const MISSING: FaultError = FaultError::Watched(WatchedFault::Missing);

fn fill(process: &Process<'_>, index: u64, what: Fill<'_>) -> Result<(), FillError> {
    process.space.uffd().fill(page(index).page(), what, false)
}

/// Returns the written pages among the first `count` pages. Write-protects them again if `rearm` is set.
fn written(process: &Process<'_>, count: u64, rearm: bool) -> Vec<u64> {
    let scan = Scan::written(rearm);
    let range = PageRange::new(page(0).page(), page(count).page());
    process.matching(range, &scan)
}

#[test]
fn a_store_to_a_protected_page_is_refused_until_it_is_unprotected_and_then_costs_nothing() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 8, RW);
    for index in 0..8 {
        process.store(index, 1).unwrap();
    }
    let watch = watch(false, false);
    register(&process, 8, &watch, WP);
    protect(&process, 0, 8, true);
    assert_eq!(process.store(3, 2), Err(WRITE_FAULT));
    assert_eq!(process.load(3), 1);
    protect(&process, 2, 2, false);
    assert_eq!(process.store(3, 2), Ok(vec![]), "writable at once");
    assert_eq!(process.store(4, 2), Err(WRITE_FAULT));
    // A protection change does not make a write-protected page writable.
    process.protect(0, 8, R);
    process.protect(0, 8, RW);
    assert_eq!(process.store(4, 2), Err(WRITE_FAULT));
    process
        .space
        .uffd()
        .unwatch(page(0), 8 * PAGE, &watch)
        .unwrap();
    assert_eq!(process.store(4, 2), Ok(vec![]));
}

#[test]
fn protection_holds_before_memory_is_there() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2048, RW);
    let watch = watch(false, true);
    register(&process, 2048, &watch, WP);
    let tables = process.space.table().table_frames();
    protect(&process, 0, 2048, true);
    assert!(process.space.table().table_frames() <= tables + 5 * u64::from(Arch::TABLE_FRAMES));
    assert_eq!(process.store(100, 1), Err(WRITE_FAULT));
    // A load succeeds, and the page stays protected.
    assert_eq!(process.load(100), 0);
    assert_eq!(process.store(100, 1), Err(WRITE_FAULT));
    protect(&process, 100, 1, false);
    process.store(100, 7).unwrap();
    assert_eq!(process.store(101, 1), Err(WRITE_FAULT));
    process
        .space
        .uffd()
        .unwatch(page(0), 2048 * PAGE, &watch)
        .unwrap();
    process.store(101, 1).unwrap();
    assert_eq!((process.load(100), process.load(101)), (7, 1));
}

#[test]
fn without_the_feature_memory_that_is_not_there_is_not_protected() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    let watch = watch(false, false);
    register(&process, 4, &watch, WP);
    protect(&process, 0, 4, true);
    process.store(0, 1).unwrap();
}

#[test]
fn giving_memory_back_drops_the_protection_of_anonymous_memory() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    let watch = watch(false, true);
    register(&process, 4, &watch, WP);
    protect(&process, 0, 4, true);
    process
        .space
        .advise(page(0), 2 * PAGE, Advice::DontNeed)
        .unwrap();
    process.store(0, 1).unwrap();
    assert_eq!(process.store(2, 1), Err(WRITE_FAULT));
}

#[test]
fn giving_part_of_it_back_splits_the_marker_that_covers_it() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2048, RW);
    let watch = watch(false, true);
    register(&process, 2048, &watch, WP);
    protect(&process, 0, 2048, true);
    let part = 1000;
    process
        .space
        .advise(page(part), PAGE, Advice::DontNeed)
        .unwrap();
    process.store(part, 1).unwrap();
    assert_eq!(process.store(part - 1, 1), Err(WRITE_FAULT));
    assert_eq!(process.store(part + 1, 1), Err(WRITE_FAULT));
    // Unmapping a part of the range of a marker splits the marker.
    process.unmap(1500, 1);
    process.map(1500, 1, RW);
    process.store(1500, 1).unwrap();
    assert_eq!(process.store(1501, 1), Err(WRITE_FAULT));
    let child = process.fork();
    assert!(child.space.uffd().watched(page(0).page()).is_none());
}

#[test]
fn the_protection_of_an_objects_pages_outlives_them() {
    let world = World::new();
    let mut process = world.process();
    let object = world.shmem(4);
    process.map_object(0, 4, RW, &object, true);
    process.store(0, 1).unwrap();
    let watch = watch(false, false);
    register(&process, 4, &watch, WP);
    protect(&process, 0, 2, true);
    process
        .space
        .advise(page(0), 4 * PAGE, Advice::DontNeed)
        .unwrap();
    assert_eq!(process.store(0, 2), Err(WRITE_FAULT));
    assert_eq!(process.store(1, 2), Err(WRITE_FAULT), "it never was there");
    process.store(2, 2).unwrap();
    protect(&process, 0, 2, false);
    process.store(0, 2).unwrap();
}

#[test]
fn a_file_page_that_is_cached_inherits_the_protection() {
    let world = World::new();
    let mut process = world.process();
    let object = world.shmem(8);
    object.write_at(0, &[5; 8 * PAGE as usize]).unwrap();
    process.map_object(0, 8, RW, &object, true);
    let watch = watch(false, false);
    register(&process, 8, &watch, WP);
    protect(&process, 0, 8, true);
    assert_eq!(process.store(1, 1), Err(WRITE_FAULT));
    assert_eq!(process.load(1), 5);
    assert_eq!(process.store(1, 1), Err(WRITE_FAULT));
    // Fault-around has mapped the next pages, which inherit the protection.
    assert_eq!(process.store(2, 1), Err(WRITE_FAULT));
    protect(&process, 0, 8, false);
    process.store(1, 1).unwrap();
}

#[test]
fn a_missing_page_is_filled_by_the_watcher() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    let watch = watch(false, false);
    register(&process, 4, &watch, WatchModes::MISSING | WP);
    assert_eq!(process.store(0, 1), Err(MISSING));
    let bytes = [9; PAGE as usize];
    let fill = |index, fill: Fill<'_>, protect| {
        process.space.uffd().fill(page(index).page(), fill, protect)
    };
    assert_eq!(fill(0, Fill::Bytes(&bytes), false), Ok(()));
    assert_eq!(fill(0, Fill::Bytes(&bytes), false), Err(FillError::Exists));
    assert_eq!(fill(1, Fill::Zeroes, false), Ok(()));
    assert_eq!(fill(2, Fill::Bytes(&bytes), true), Ok(()));
    assert_eq!(fill(3, Fill::Poison, false), Ok(()));
    assert_eq!(fill(4, Fill::Zeroes, false), Err(FillError::NotWatched));
    assert_eq!(fill(1, Fill::Object, false), Err(FillError::NotApplicable));
    assert_eq!(process.store(0, 2), Ok(vec![]));
    assert_eq!(process.load(1), 0);
    process.store(1, 3).unwrap();
    assert_eq!(process.load(2), 9);
    assert_eq!(process.store(2, 1), Err(WRITE_FAULT));
    assert_eq!(
        process.store(3, 1),
        Err(FaultError::Poison(PageSize::Size4K))
    );
}

#[test]
fn shared_memory_is_filled_for_all_who_map_it() {
    let world = World::new();
    let mut process = world.process();
    let object = world.shmem(4);
    process.map_object(0, 4, RW, &object, true);
    process.map_object(4, 4, RW, &object, true);
    let watch = watch(false, false);
    register(&process, 4, &watch, WatchModes::MISSING | WatchModes::MINOR);
    assert_eq!(process.store(0, 1), Err(MISSING));
    let bytes = [9; PAGE as usize];
    assert_eq!(fill(&process, 0, Fill::Object), Err(FillError::NotThere));
    assert_eq!(fill(&process, 0, Fill::Bytes(&bytes)), Ok(()));
    assert_eq!(process.load(4), 9, "seen through the other mapping");
    process.store(5, 3).unwrap();
    let minor = FaultError::Watched(WatchedFault::Minor);
    assert_eq!(process.store(1, 1), Err(minor));
    assert_eq!(
        fill(&process, 1, Fill::Bytes(&bytes)),
        Err(FillError::Exists)
    );
    assert_eq!(fill(&process, 1, Fill::Object), Ok(()));
    assert_eq!(process.load(1), 3);
    let zeroes = world.counted(|| assert_eq!(fill(&process, 3, Fill::Zeroes), Ok(())));
    assert_eq!(zeroes.count(Row::FramesZeroed), 1);
}

#[test]
fn memory_is_filled_as_far_as_its_object_reaches_and_files_are_not() {
    let world = World::new();
    let mut process = world.process();
    let object = world.shmem(1);
    process.map_object(0, 2, RW, &object, false);
    let sync = watch(false, false);
    register(&process, 2, &sync, WatchModes::MISSING);
    let bytes = [9; PAGE as usize];
    for what in [Fill::Bytes(&bytes), Fill::Zeroes, Fill::Poison] {
        assert_eq!(fill(&process, 1, what), Err(FillError::NotThere));
    }
    assert_eq!(process.load_with(1), Err(FaultError::BeyondObject));
    assert_eq!(fill(&process, 0, Fill::Bytes(&bytes)), Ok(()));
    assert_eq!(process.load(0), 9);

    let other = world.process();
    let file = Notified::new(&world);
    other.map_object(0, 1, RW, &file, false);
    register(&other, 1, &watch(true, true), WP);
    let refused = fill(&other, 0, Fill::Bytes(&bytes));
    assert_eq!(refused, Err(FillError::NotApplicable));
}

#[test]
fn a_load_of_a_missing_page_maps_its_neighbours_before_the_watcher_is_told() {
    let world = World::new();
    let mut process = world.process();
    let object = world.shmem(8);
    process.map_object(0, 8, RW, &object, true);
    process.map_object(8, 8, RW, &object, true);
    process.store(9, 5).unwrap();
    process.store(11, 6).unwrap();
    let watch = watch(false, false);
    register(&process, 8, &watch, WatchModes::MISSING);
    assert_eq!(process.store(2, 1), Err(MISSING), "a store maps nothing");
    let around = world.counted(|| assert_eq!(process.load_with(2).err(), Some(MISSING)));
    assert_eq!(around.count(Row::FaultAround), 2);
    let loads = world.counted(|| assert_eq!((process.load(1), process.load(3)), (5, 6)));
    assert_eq!(loads.count(Row::FaultFile), 0);
}

#[test]
fn written_pages_are_found_and_protected_again_in_one_step() {
    for (policy, faults) in [("dirty-bit", 0), ("fault", 1)] {
        let world = World::new();
        world.memory.policy().set("track", policy).unwrap();
        let mut process = world.process();
        process.map(0, 64, RW);
        for index in 0..32 {
            process.store(index, 1).unwrap();
        }
        let watch = watch(true, false);
        register(&process, 64, &watch, WP);
        assert_eq!(written(&process, 64, false), (0..64).collect::<Vec<_>>());
        protect(&process, 0, 64, true);
        assert!(written(&process, 64, true).is_empty());
        for index in [3, 9] {
            assert_eq!(process.store(index, 2).unwrap().len(), faults, "{policy}");
        }
        process.store(40, 1).unwrap();
        process.load(50);
        assert_eq!(written(&process, 64, false), [3, 9, 40]);
        assert_eq!(written(&process, 64, true), [3, 9, 40]);
        assert!(written(&process, 64, true).is_empty(), "{policy}");
        process.store(9, 3).unwrap();
        process.store(40, 3).unwrap();
        assert_eq!(written(&process, 64, true), [9, 40]);
        // Soft-dirty and the scan both read the dirty bit, so each of them must detect the store.
        process.store(5, 1).unwrap();
        process.space.tracking().clear_soft_dirty();
        assert_eq!(written(&process, 64, true), [5]);
        process.store(6, 1).unwrap();
        assert_eq!(written(&process, 64, true), [6]);
        // Discarded pages count as written.
        process
            .space
            .advise(page(7), PAGE, Advice::DontNeed)
            .unwrap();
        assert_eq!(written(&process, 64, true), [7]);
    }
}

#[test]
fn a_fork_shares_tracked_pages_and_watches_only_the_parent() {
    for policy in ["dirty-bit", "fault"] {
        let world = World::new();
        world.memory.policy().set("track", policy).unwrap();
        let mut parent = world.process();
        parent.map(0, 4, RW);
        for index in 0..4 {
            parent.store(index, 1).unwrap();
        }
        let watch = watch(true, false);
        register(&parent, 4, &watch, WP);
        protect(&parent, 0, 4, true);
        parent.store(0, 2).unwrap();
        let mut child = parent.fork();
        assert!(child.space.uffd().watched(page(0).page()).is_none());
        child.store(1, 3).unwrap();
        assert_eq!(written(&parent, 4, false), [0]);
        parent.store(2, 2).unwrap();
        assert_eq!(written(&parent, 4, true), [0, 2]);
        assert_eq!((parent.load(1), child.load(1), child.load(2)), (1, 3, 1));
    }
}

#[test]
fn a_scan_stops_where_there_is_no_more_room_and_goes_on_there() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 8, RW);
    for index in 0..8 {
        process.store(index, 1).unwrap();
    }
    let watch = watch(true, false);
    register(&process, 8, &watch, WP);
    let scan = Scan {
        inverted: Categories::empty(),
        all: Categories::WRITTEN,
        any: Categories::empty(),
        protect: true,
        only_tracked: false,
    };
    let range = |first| PageRange::new(page(first).page(), page(8).page());
    let mut room = 3;
    let end = process.space.tracking().scan(
        range(0),
        &scan,
        &mut |run: PageRange, _: Categories, _: Share| {
            let taken = run.len().min(room);
            room -= taken;
            taken
        },
    );
    assert_eq!(end, Ok(page(3).page()));
    assert_eq!(written(&process, 8, false), [3, 4, 5, 6, 7]);
}

#[test]
fn registrations_are_checked() {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    let (one, two) = (watch(false, false), watch(false, false));
    let register = |first, pages, watch: &Watch, modes| {
        process
            .space
            .uffd()
            .watch(page(first), pages * PAGE, watch, modes)
    };
    assert_eq!(register(0, 0, &one, WP), Err(WatchError::BadRange));
    assert_eq!(register(8, 4, &one, WP), Err(WatchError::NoArea));
    assert_eq!(
        register(0, 4, &one, WatchModes::MINOR),
        Err(WatchError::NotApplicable(page(0)))
    );
    assert_eq!(register(1, 2, &one, WP), Ok(()));
    assert_eq!(process.areas(), "1rw 2rw 1rw");
    assert_eq!(register(0, 4, &two, WP), Err(WatchError::Busy));
    let protect = |first, pages| {
        process
            .space
            .uffd()
            .write_protect(page(first), pages * PAGE, true)
    };
    assert_eq!(protect(0, 4), Err(WatchError::NotWatched));
    // A call for one userfaultfd can protect memory that is registered with another.
    assert_eq!(protect(1, 2), Ok(()));
    assert_eq!(
        process.space.uffd().unwatch(page(1), PAGE, &two),
        Err(WatchError::NotApplicable(page(1)))
    );
    process.space.uffd().forget_watch(&one);
    assert_eq!(process.areas(), "4rw");
}

/// The number of pages that a lowest-level table maps. The second table of the scenario begins at page 4.
const TABLE: u64 = 512;

/// The number of tables that a scan skips if neither table was accessed.
const SKIPPED: u64 = if Arch::SKIPS_TABLES { 2 } else { 0 };

/// Returns the number of tables that a scan would skip before it visits a table. Only the two tables that are
/// completely in the scenario's memory count.
fn quiet(process: &Process<'_>) -> u64 {
    let range = PageRange::new(page(4).page(), page(4 + 2 * TABLE).page());
    let passed = process.space.table().pass_quiet(range, Tracked::Stores);
    (passed.number() - range.start.number()) / TABLE
}

#[test]
fn a_scan_passes_over_tables_below_which_nobody_was_since_the_last() {
    for policy in ["dirty-bit", "fault"] {
        let world = World::new();
        world.memory.policy().set("track", policy).unwrap();
        let mut process = world.process();
        let pages = 4 + 2 * TABLE + 4;
        process.map(0, pages, RW);
        for index in 0..pages {
            process.store(index, 1).unwrap();
        }
        let watch = watch(true, true);
        register(&process, pages, &watch, WP);
        protect(&process, 0, pages, true);
        assert_eq!(quiet(&process), 0, "never looked at");
        assert!(written(&process, pages, true).is_empty());
        assert_eq!(quiet(&process), SKIPPED);
        assert!(written(&process, pages, true).is_empty());
        assert_eq!(quiet(&process), SKIPPED);
        // A load sets the accessed bit of the entry that points to the page table. The next scan visits this table, and
        // finds no written page.
        process.load(4 + TABLE + 7);
        assert_eq!(quiet(&process), SKIPPED / 2);
        assert!(written(&process, pages, true).is_empty());
        assert_eq!(quiet(&process), SKIPPED);
        // After a store by the program or by the kernel, the scan does not skip the table of the page.
        process.store(4 + 5, 2).unwrap();
        assert_eq!(quiet(&process), 0);
        assert_eq!(written(&process, pages, true), [4 + 5]);
        process.space.write(page(4 + TABLE), &[3]).unwrap();
        assert_eq!(written(&process, pages, true), [4 + TABLE]);
        assert!(written(&process, pages, true).is_empty());
        assert_eq!(quiet(&process), SKIPPED);
    }
}

#[test]
fn who_registers_again_for_less_is_told_of_as_much() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    let watch = watch(false, true);
    register(&process, 4, &watch, WP | WatchModes::MISSING);
    register(&process, 2, &watch, WP);
    assert_eq!(process.store(1, 1), Err(MISSING));
    assert_eq!(process.store(3, 1), Err(MISSING));
}

#[test]
fn watched_areas_move_one_by_one() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    process.store(0, 1).unwrap();
    let watch = watch(false, true);
    register(&process, 2, &watch, WP);
    let request = |pages: u64| RemapRequest {
        old: page(0),
        old_length: pages * PAGE,
        new_length: pages * PAGE,
        may_move: true,
        fixed: Some(page(8)),
        dont_unmap: false,
    };
    let refused = process.space.remap(request(4));
    assert_eq!(refused, Err(RemapError::NoArea(page(0))));
    assert_eq!(process.load(0), 1);
    assert_eq!(process.space.remap(request(2)), Ok(page(8)));
    assert_eq!(process.load(8), 1);
}

#[test]
fn a_guard_is_not_protected_too() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    let watch = watch(false, true);
    register(&process, 4, &watch, WP);
    let advise = |advice| process.space.advise(page(1), PAGE, advice).unwrap();
    advise(Advice::GuardInstall);
    protect(&process, 0, 4, true);
    advise(Advice::GuardRemove);
    assert!(process.store(1, 1).is_ok());
    assert_eq!(process.store(2, 1), Err(WRITE_FAULT));
}

#[test]
fn what_was_never_there_counts_as_written_until_it_is_protected() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2048, RW);
    let watch = watch(true, true);
    register(&process, 2048, &watch, WP);
    assert_eq!(written(&process, 2048, true).len(), 2048);
    assert!(written(&process, 2048, true).is_empty());
    process.store(700, 1).unwrap();
    assert_eq!(written(&process, 2048, true), [700]);
}

#[test]
fn a_page_takes_the_place_of_poison_and_not_of_a_guard() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    let watch = watch(false, true);
    register(&process, 4, &watch, WP);
    protect(&process, 3, 1, true);
    let guard = Advice::GuardInstall;
    process.space.advise(page(1), PAGE, guard).unwrap();
    let bytes = [9; PAGE as usize];
    assert_eq!(fill(&process, 0, Fill::Poison), Ok(()));
    for index in [0, 1, 3] {
        for other in [Fill::Poison, Fill::Zeroes] {
            let refused = fill(&process, index, other);
            assert_eq!(refused, Err(FillError::Exists), "no marker gives way");
        }
    }
    assert_eq!(fill(&process, 0, Fill::Bytes(&bytes)), Ok(()));
    assert_eq!(process.load(0), 9);
    let guarded = fill(&process, 1, Fill::Bytes(&bytes));
    assert_eq!(guarded, Err(FillError::Exists));
    assert_eq!(fill(&process, 3, Fill::Bytes(&bytes)), Ok(()));
}

#[test]
fn what_may_be_lost_is_poisoned_no_more() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2, RW);
    let watch = watch(false, true);
    register(&process, 2, &watch, WP);
    for index in 0..2 {
        assert_eq!(fill(&process, index, Fill::Poison), Ok(()));
    }
    process.space.advise(page(1), PAGE, Advice::Free).unwrap();
    assert_eq!(
        process.load_with(0).err(),
        Some(FaultError::Poison(PageSize::Size4K))
    );
    assert_eq!(process.load(1), 0);
}

#[test]
fn what_the_object_has_is_shown_privately_and_nothing_beyond_its_end() {
    let world = World::new();
    let mut process = world.process();
    let object = world.shmem(2);
    object.write_at(0, &[5; PAGE as usize]).unwrap();
    process.map_object(0, 4, RW, &object, false);
    let watch = watch(false, false);
    register(&process, 4, &watch, WatchModes::MISSING | WatchModes::MINOR);
    let minor = FaultError::Watched(WatchedFault::Minor);
    assert_eq!(process.load_with(0).err(), Some(minor));
    assert_eq!(fill(&process, 0, Fill::Object), Ok(()));
    assert_eq!(process.load(0), 5);
    process.store(0, 6).unwrap();
    let mut kept = [0];
    assert_eq!(object.read_at(0, &mut kept), Ok(1));
    assert_eq!(kept, [5], "a copy was written");
    assert_eq!(fill(&process, 1, Fill::Object), Err(FillError::NotThere));
    assert_eq!(fill(&process, 2, Fill::Object), Err(FillError::NotThere));
    let bytes = [9; PAGE as usize];
    let beyond = fill(&process, 2, Fill::Bytes(&bytes));
    assert_eq!(beyond, Err(FillError::NotThere));
    let zeroed = world.counted(|| assert_eq!(fill(&process, 1, Fill::Zeroes), Ok(())));
    assert_eq!(zeroed.count(Row::FramesZeroed), 0, "the page of zeroes");
    process.store(1, 3).unwrap();
    assert_eq!(process.load(1), 3);
}

#[test]
fn a_child_context_inherits_protection_where_it_is_notified_of_stores() {
    let world = World::new();
    let mut parent = world.process();
    parent.map(0, 4, RW);
    for index in [0, 2] {
        parent.store(index, 1).unwrap();
    }
    let watch = watch(false, true);
    register(&parent, 4, &watch, WP);
    protect(&parent, 0, 4, true);
    parent
        .space
        .uffd()
        .unwatch(page(2), 2 * PAGE, &watch)
        .unwrap();
    let mut child = parent.fork_watched(&mut |_| Some(watch.clone()));
    for index in 0..2 {
        assert_eq!(child.load(index), u8::from(index == 0));
        assert_eq!(child.store(index, 2).err(), Some(WRITE_FAULT), "{index}");
    }
    assert!(child.store(2, 2).is_ok());
    let left = child
        .space
        .table()
        .look(PageRange::single(page(3).page()))
        .peek();
    assert_eq!(left, Entry::Empty);
}

#[test]
fn pages_move_between_areas_that_are_alike_and_markers_do_not() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    process.map(8, 4, RW);
    process.store(8, 1).unwrap();
    let watch = watch(false, true);
    register(&process, 4, &watch, WP);
    let guard = Advice::GuardInstall;
    process.space.advise(page(9), PAGE, guard).unwrap();
    let relocate = |from, to, pages| {
        let relocation = Relocation {
            from: page(from).page(),
            to: page(to).page(),
            pages,
            holes: true,
        };
        process.space.uffd().relocate(&relocation, &watch)
    };
    assert_eq!(relocate(8, 0, 3), (1, Err(MoveError::Marked)));
    assert_eq!(relocate(10, 1, 2), (2, Ok(())), "holes");
    assert_eq!(
        relocate(10, 2, 3),
        (0, Err(MoveError::SeveralAreas)),
        "too long"
    );
    assert_eq!(relocate(20, 2, 1), (0, Err(MoveError::NotThere)));
    assert_eq!(relocate(8, 20, 1), (0, Err(MoveError::NotWatched)));
    assert_eq!(relocate(8, 9, 1), (0, Err(MoveError::NotRegistered)));
    assert_eq!(process.load(0), 1);
}

#[test]
fn a_scan_protects_what_nobody_reaches_and_the_protection_goes_with_it() {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    let watch = watch(true, true);
    register(&process, 4, &watch, WP);
    let advise = |advice| process.space.advise(page(1), PAGE, advice).unwrap();
    advise(Advice::GuardInstall);
    assert_eq!(fill(&process, 2, Fill::Poison), Ok(()));
    assert_eq!(written(&process, 4, true), [0, 1, 2, 3]);
    assert!(written(&process, 4, false).is_empty());
    // Removing the protection leaves the guard page and the poisoned page as they are.
    protect(&process, 0, 4, false);
    assert_eq!(written(&process, 4, false), [0, 3]);
    advise(Advice::GuardRemove);
    assert_eq!(written(&process, 4, false), [0, 1, 3]);
}

#[test]
fn what_a_watched_area_moves_next_to_keeps_its_watcher() {
    let world = World::new();
    let process = world.process();
    process.map(0, 6, RW);
    let watch = watch(false, true);
    register(&process, 6, &watch, WP);
    let request = RemapRequest {
        old: page(0),
        old_length: PAGE,
        new_length: PAGE,
        may_move: true,
        fixed: Some(page(3)),
        dont_unmap: false,
    };
    process.space.remap(request).unwrap();
    assert_eq!(process.areas(), "2rw 1rw 2rw");
    assert!(process.space.uffd().watched(page(3).page()).is_none());
    for index in [1, 4] {
        assert!(process.space.uffd().watched(page(index).page()).is_some());
    }
}

#[test]
fn a_registration_for_less_ends_no_protection() {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    let watch = watch(false, true);
    register(&process, 4, &watch, WP);
    let less = process
        .space
        .uffd()
        .watch(page(0), 4 * PAGE, &watch, WatchModes::MISSING);
    assert_eq!(less, Err(WatchError::Busy));
    register(&process, 4, &watch, WP | WatchModes::MISSING);
    register(&process, 4, &watch, WP);
    process
        .space
        .uffd()
        .unwatch(page(0), 4 * PAGE, &watch)
        .unwrap();
    register(&process, 4, &watch, WatchModes::MISSING);
}

#[test]
fn no_page_counts_as_written_where_stores_are_not_watched() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    process.store(1, 1).unwrap();
    let watch = watch(true, true);
    let range = PageRange::new(page(0).page(), page(4).page());
    let count = |process: &Process<'_>, categories, inverted| {
        let scan = Scan {
            inverted,
            all: categories,
            any: Categories::empty(),
            protect: false,
            only_tracked: false,
        };
        process.matching(range, &scan).len()
    };
    let (written, none) = (Categories::WRITTEN, Categories::empty());
    assert_eq!(count(&process, written, none), 0);
    assert_eq!(count(&process, written, written), 4);
    register(&process, 4, &watch, WatchModes::MISSING);
    assert_eq!(count(&process, written | Categories::PRESENT, none), 0);
    assert_eq!(count(&process, written | Categories::PRESENT, written), 1);
    register(&process, 4, &watch, WP);
    assert_eq!(count(&process, written, none), 4);
}
