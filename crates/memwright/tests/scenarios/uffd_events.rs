//! What watchers are told of that is no fault: what is unmapped, what moves, whose contents go; and what waits for them.

use memwright::uffd::{Watch, WatchEvent, WatchEvents, WatchModes, WatchedFault, Watcher};
use memwright::{
    Access, Advice, AdviseError, Awaited, FaultError, LockError, RemapRequest, UnmapError,
};
use memwright_table::PageRange;

use crate::world::{PAGE, Process, RW, World, page};

fn watch(process: &Process<'_>, (first, pages): (u64, u64), events: WatchEvents) -> Watch {
    let watch = Watch::try_new(Watcher {
        number: 1,
        asynchronous: false,
        unpopulated: false,
        events,
    });
    let watch = watch.unwrap();
    register(process, (first, pages), &watch);
    watch
}

fn register(process: &Process<'_>, (first, pages): (u64, u64), watch: &Watch) {
    let length = pages * PAGE;
    let modes = WatchModes::MISSING;
    process
        .space
        .watch(page(first), length, watch, modes)
        .unwrap();
}

fn range(start: u64, end: u64) -> PageRange {
    PageRange::new(page(start).page(), page(end).page())
}

#[test]
fn what_is_unmapped_is_told_once_and_as_a_whole_even_if_a_seal_refuses_it() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, RW);
    process.map(3, 3, RW);
    let all = watch(&process, (0, 6), WatchEvents::all());
    let mut told = Vec::new();
    let mut unmap = |first, pages: u64| {
        told.clear();
        let mut witness = |who: &Watch, event| {
            assert!(Watch::ptr_eq(who, &all));
            told.push(event);
        };
        let length = pages * PAGE;
        let unmapped = process
            .space
            .unmap_telling(page(first), length, &mut witness);
        (unmapped, told.clone())
    };
    let gone = |start, end| vec![WatchEvent::Unmapped(range(start, end))];
    assert_eq!(unmap(1, 3), (Ok(()), gone(1, 4)));
    assert_eq!(unmap(1, 3), (Ok(()), vec![]), "nothing is there any more");
    process.space.seal(page(5), PAGE).unwrap();
    let refused = Err(UnmapError::Sealed(page(5)));
    assert_eq!(unmap(4, 2), (refused, gone(4, 6)));
    assert_eq!(unmap(5, 1), (refused, vec![]), "the seal comes first");
}

/// Remaps, and what the watcher is told meanwhile.
fn told_of_remap(process: &Process<'_>, request: RemapRequest) -> (Option<u64>, Vec<WatchEvent>) {
    let mut told = Vec::new();
    let moved = process
        .space
        .remap_telling(request, &mut |_, event| told.push(event));
    let index = |at: memwright_table::VirtAddr| at.page().number() - page(0).page().number();
    (moved.ok().map(index), told)
}

#[test]
fn a_move_is_told_after_what_was_there_and_before_what_is_left() {
    let world = World::new();
    let process = world.process();
    process.map(0, 6, RW);
    process.map(10, 3, RW);
    let watch = watch(&process, (0, 13), WatchEvents::all());
    let request = |old, old_pages, new_pages, fixed: Option<u64>| RemapRequest {
        old: page(old),
        old_length: old_pages * PAGE,
        new_length: new_pages * PAGE,
        may_move: fixed.is_some(),
        fixed: fixed.map(page),
        dont_unmap: false,
    };
    let unmapped = |start, end| WatchEvent::Unmapped(range(start, end));
    let moved = |from, to, pages| WatchEvent::Moved {
        from: page(from).page(),
        to: page(to).page(),
        pages,
    };
    let all = vec![
        unmapped(10, 13),
        moved(0, 10, 3),
        unmapped(3, 6),
        unmapped(0, 3),
    ];
    let shrinking = request(0, 6, 3, Some(10));
    assert_eq!(told_of_remap(&process, shrinking), (Some(10), all));
    let stays = RemapRequest {
        dont_unmap: true,
        ..request(10, 3, 3, Some(0))
    };
    let only = vec![moved(10, 0, 3)];
    assert_eq!(told_of_remap(&process, stays), (Some(0), only));
    // In place nothing moves.
    let grows = request(0, 3, 5, None);
    assert_eq!(told_of_remap(&process, grows), (Some(0), vec![]));
    let shrinks = request(0, 5, 2, None);
    let tail = vec![unmapped(2, 5)];
    assert_eq!(told_of_remap(&process, shrinks), (Some(0), tail));
    // Of what was to be unmapped it is told even if nothing moves then.
    process.space.seal(page(11), PAGE).unwrap();
    let refused = request(0, 2, 2, Some(10));
    let there = vec![unmapped(10, 12)];
    assert_eq!(told_of_remap(&process, refused), (None, there));
    drop(watch);
}

#[test]
fn contents_are_there_until_their_watcher_was_told() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2, RW);
    process.map(3, 3, RW);
    for index in [0, 1, 3, 4, 5] {
        process.store(index, 1).unwrap();
    }
    let watch = watch(&process, (0, 6), WatchEvents::REMOVE);
    process.space.lock(page(5), PAGE, true).unwrap();
    let there = |index| {
        let mut resident = false;
        let mut visitor = |_, one| resident = one;
        let space = &process.space;
        space.resident(page(index), PAGE, &mut visitor).unwrap();
        resident
    };
    let mut told = Vec::new();
    let mut witness = |_: &Watch, event| {
        // Nothing is locked meanwhile.
        let after: Vec<bool> = [0, 3].map(there).to_vec();
        told.push((event, after));
    };
    let advice = Advice::DontNeed;
    let done = process
        .space
        .discard(page(0), 6 * PAGE, advice, &mut witness);
    // The locked area refuses, and nobody is told of it; the hole counts for less.
    assert_eq!(done, Err(AdviseError::NotApplicable(page(5))));
    let removed = |start, end| WatchEvent::Removed(range(start, end));
    let expected = vec![
        (removed(0, 2), vec![true, true]),
        (removed(3, 5), vec![false, true]),
    ];
    assert_eq!(told, expected);
    drop(watch);
}

#[test]
fn memory_that_goes_while_its_watcher_is_told_is_a_hole() {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    let watch = watch(&process, (0, 4), WatchEvents::REMOVE);
    let space = &process.space;
    let mut witness = |_: &Watch, _| space.unmap(page(0), 2 * PAGE).unwrap();
    let done = space.discard(page(0), 4 * PAGE, Advice::Free, &mut witness);
    assert_eq!(done, Err(AdviseError::Hole(page(0))));
    drop(watch);
}

#[test]
fn populating_and_locking_say_for_which_page_a_watcher_is_awaited() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    process.store(0, 1).unwrap();
    let watch = watch(&process, (0, 4), WatchEvents::empty());
    let awaited = |index, access| Awaited {
        at: page(index),
        access,
        fault: WatchedFault::Missing,
    };
    let read = process
        .space
        .advise(page(0), 4 * PAGE, Advice::PopulateRead);
    assert_eq!(read, Err(AdviseError::Watched(awaited(1, Access::READ))));
    let locked = process.space.lock(page(0), 4 * PAGE, false);
    assert_eq!(locked, Err(LockError::Watched(awaited(1, Access::WRITE))));
    process.space.forget_watch(&watch);
    // The same again.
    assert_eq!(process.space.lock(page(0), 4 * PAGE, false), Ok(()));
    process.store(3, 1).unwrap();
}

#[test]
fn what_was_stored_to_joins_no_other_though_its_watcher_filled_nothing() {
    let world = World::new();
    for (stored, areas) in [(false, "14rw"), (true, "6rw 8rw")] {
        let mut process = world.process();
        process.map(11, 11, RW);
        let _watch = watch(&process, (11, 11), WatchEvents::empty());
        let missing = Err(FaultError::Watched(WatchedFault::Missing));
        let refused = if stored {
            process.store(15, 31).map(|_| ())
        } else {
            process.load_with(15).map(|_| ())
        };
        assert_eq!(refused, missing);
        let request = RemapRequest {
            old: page(16),
            old_length: 6 * PAGE,
            new_length: 6 * PAGE,
            may_move: true,
            fixed: Some(page(8)),
            dont_unmap: true,
        };
        assert_eq!(told_of_remap(&process, request), (Some(8), vec![]));
        assert_eq!(process.areas(), areas);
        // What it joined lost its watcher with it.
        assert_eq!(process.store(18, 1).is_err(), stored);
    }
}
