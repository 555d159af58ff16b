//! Tests of userfaultfd events for unmapped, moved and discarded memory. Other tests check which operations wait for a
//! handler.

use memwright::uffd::{Fill, Watch, WatchEvent, WatchEvents, WatchModes, WatchedFault, Watcher};
use memwright::{
    Access, Advice, AdviseError, AreaFlags, Awaited, FaultError, LockError, LockFuture, MapRequest,
    Placement, PopulateError, RemapRequest, ToPopulate, UnmapError,
};
use memwright_table::PageRange;

use crate::world::{PAGE, Process, R, RW, World, page};

fn watch(process: &Process<'_>, (first, pages): (u64, u64), events: WatchEvents) -> Watch {
    let watch = Watch::try_new(Watcher {
        number: 1,
        asynchronous: false,
        unpopulated: false,
        counts_accesses: false.into(),
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
        .uffd()
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

/// Calls `mremap`. Returns the result of `mremap`, and the events that the userfaultfd receives.
fn told_of_remap(process: &Process<'_>, request: RemapRequest) -> (Option<u64>, Vec<WatchEvent>) {
    let mut told = Vec::new();
    let moved = process
        .space
        .remap_telling(request, &mut |_, event| told.push(event));
    let index = |at: memwright_table::VirtAddr| at.page().number() - page(0).page().number();
    (moved.ok().map(|moved| index(moved.start)), told)
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
    // A resize in place moves nothing, so no move event is sent.
    let grows = request(0, 3, 5, None);
    assert_eq!(told_of_remap(&process, grows), (Some(0), vec![]));
    let shrinks = request(0, 5, 2, None);
    let tail = vec![unmapped(2, 5)];
    assert_eq!(told_of_remap(&process, shrinks), (Some(0), tail));
    // The unmap event is sent even if the move then fails.
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
    process.space.residency().lock(page(5), PAGE, true).unwrap();
    let there = |index| {
        let mut resident = false;
        let mut visitor = |_, one| resident = one;
        let space = &process.space;
        space
            .residency()
            .resident(page(index), PAGE, &mut visitor)
            .unwrap();
        resident
    };
    let mut told = Vec::new();
    let mut witness = |_: &Watch, event| {
        // No lock is held while the event is delivered.
        let after: Vec<bool> = [0, 3].map(there).to_vec();
        told.push((event, after));
    };
    let advice = Advice::DontNeed;
    let done = process
        .space
        .discard(page(0), 6 * PAGE, advice, &mut witness);
    // Advice on the locked area fails before an event is sent for that area. This error takes precedence over the error
    // for the hole.
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
    let locked = process.space.residency().lock(page(0), 4 * PAGE, false);
    assert_eq!(locked, Err(LockError::Watched(awaited(1, Access::WRITE))));
    process.space.uffd().forget_watch(&watch);
    // After the userfaultfd was closed, the same call succeeds.
    assert_eq!(
        process.space.residency().lock(page(0), 4 * PAGE, false),
        Ok(())
    );
    process.store(3, 1).unwrap();
}

fn missing(index: u64, access: Access) -> Result<(), PopulateError> {
    Err(PopulateError::Watched(Awaited {
        at: page(index),
        access,
        fault: WatchedFault::Missing,
    }))
}

#[test]
fn what_locked_memory_grew_by_waits_page_by_page_for_its_watcher() {
    let world = World::new();
    let process = world.process();
    process.map_with(0, 2, RW, AreaFlags::LOCKED);
    let _watch = watch(&process, (0, 2), WatchEvents::empty());
    let request = RemapRequest {
        old: page(0),
        old_length: 2 * PAGE,
        new_length: 5 * PAGE,
        may_move: false,
        fixed: None,
        dont_unmap: false,
    };
    let mut rest = process
        .space
        .remap_telling(request, &mut |_, _| {})
        .unwrap()
        .to_populate;
    for index in 2..5 {
        let asked = missing(index, Access::WRITE);
        assert_eq!(process.space.residency().populate_rest(&mut rest), asked);
        assert_eq!(
            process.space.residency().populate_rest(&mut rest),
            asked,
            "still"
        );
        let contents = [7; PAGE as usize];
        let fill = Fill::Bytes(&contents);
        process
            .space
            .uffd()
            .fill(page(index).page(), fill, false)
            .unwrap();
        assert_eq!(process.resident(), index + 1);
    }
    assert_eq!(process.space.residency().populate_rest(&mut rest), Ok(()));
    // If the caller cannot wait for a handler, no page is populated.
    let grown = RemapRequest {
        old_length: 5 * PAGE,
        new_length: 6 * PAGE,
        ..request
    };
    assert_eq!(process.space.remap(grown), Ok(page(0)));
    assert_eq!(process.resident(), 5);
    // Populating memory that is locked on fault does not wait for a handler.
    process
        .space
        .residency()
        .lock(page(0), 6 * PAGE, true)
        .unwrap();
    let grown = RemapRequest {
        old_length: 6 * PAGE,
        new_length: 8 * PAGE,
        ..request
    };
    let moved = process.space.remap_telling(grown, &mut |_, _| {}).unwrap();
    let mut rest = moved.to_populate;
    assert_eq!(process.space.residency().populate_rest(&mut rest), Ok(()));
    assert_eq!(process.resident(), 5);
}

#[test]
fn what_keeps_one_area_from_being_resident_keeps_no_other() {
    let world = World::new();
    let process = world.process();
    process.map(0, 3, RW);
    process.map(4, 2, RW);
    process.map(7, 1, R);
    let guard = Advice::GuardInstall;
    process.space.advise(page(1), PAGE, guard).unwrap();
    let _watch = watch(&process, (4, 1), WatchEvents::empty());
    let all = |rest: &mut ToPopulate| process.space.residency().populate_rest(rest);
    let locked = process
        .space
        .residency()
        .lock_all(true, LockFuture::OnFault, false);
    let mut rest = locked.unwrap();
    // The guard page has ended the population of the first area, so the next fault is in the second area.
    assert_eq!(all(&mut rest), missing(4, Access::WRITE));
    assert_eq!(process.resident(), 1);
    process.space.residency().pass_area(&mut rest);
    assert_eq!(all(&mut rest), Ok(()));
    assert_eq!(process.resident(), 2);
    let mut is_read = false;
    let mut note = |_, here| is_read = here;
    process
        .space
        .residency()
        .resident(page(7), PAGE, &mut note)
        .unwrap();
    assert!(is_read, "what is only read has the page of zeroes");
    // If future mappings are locked on fault, `MAP_POPULATE` does not populate them either.
    let mut request = MapRequest::anonymous(PAGE, RW).at(Placement::Fixed(page(20)));
    request.populate = true;
    process.space.map(&request).unwrap();
    assert_eq!(process.resident(), 2);
}

#[test]
fn memory_that_is_mapped_to_be_resident_waits_if_it_is_watched_before_that() {
    let world = World::new();
    let process = world.process();
    let request = MapRequest::anonymous(2 * PAGE, RW)
        .at(Placement::Fixed(page(0)))
        .with(AreaFlags::LOCKED);
    let mapped = process.space.map_telling(&request, &mut |_, _| {}).unwrap();
    let (mut rest, mut unmapped) = (mapped.to_populate, mapped.to_populate);
    let watch = watch(&process, (0, 2), WatchEvents::empty());
    let asked = missing(0, Access::WRITE);
    assert_eq!(process.space.residency().populate_rest(&mut rest), asked);
    process.space.uffd().forget_watch(&watch);
    assert_eq!(process.space.residency().populate_rest(&mut rest), Ok(()));
    assert_eq!(process.resident(), 2);
    process.unmap(0, 2);
    assert_eq!(
        process.space.residency().populate_rest(&mut unmapped),
        Ok(())
    );
    process.space.residency().pass_area(&mut unmapped);
}

/// A protection change that copies locked pages does not wait for a handler, because Linux holds the mmap lock during
/// the copies.
#[test]
fn a_protection_change_of_locked_memory_asks_no_watcher() {
    let world = World::new();
    let process = world.process();
    process.map_with(0, 4, R, AreaFlags::LOCKED);
    let drop = Advice::DontNeedLocked;
    process.space.advise(page(1), PAGE, drop).unwrap();
    let _watch = watch(&process, (0, 4), WatchEvents::empty());
    process.protect(0, 4, RW);
    // The copies have stopped at the first page that needs a handler.
    assert_eq!(process.resident(), 1);
}

#[test]
fn what_was_stored_to_joins_no_other_though_its_watcher_filled_nothing() {
    let world = World::new();
    for (stored, areas) in [(false, "4rw"), (true, "2rw 2rw")] {
        let mut process = world.process();
        process.map(20, 2, RW);
        let watch = watch(&process, (20, 2), WatchEvents::empty());
        let missing = Err(FaultError::Watched(WatchedFault::Missing));
        let refused = if stored {
            process.store(20, 31).map(|_| ())
        } else {
            process.load_with(20).map(|_| ())
        };
        assert_eq!(refused, missing);
        process
            .space
            .uffd()
            .unwatch(page(20), 2 * PAGE, &watch)
            .unwrap();
        let request = RemapRequest {
            old: page(20),
            old_length: 2 * PAGE,
            new_length: 2 * PAGE,
            may_move: true,
            fixed: Some(page(0)),
            dont_unmap: false,
        };
        process.space.remap(request).unwrap();
        process.map(2, 2, RW);
        assert_eq!(process.areas(), areas);
    }
}
