//! Tests of mremap: moving and resizing.

use memwright::uffd::{Watch, WatchEvents, WatchModes, Watcher};
use memwright::{AreaFlags, Limit, LockError, RemapError, RemapRequest};
use memwright_table::VirtAddr;

use crate::world::{PAGE, Process, R, RW, World, page, watch};

fn request(old: u64, old_pages: u64, new_pages: u64) -> RemapRequest {
    RemapRequest {
        old: page(old),
        old_length: old_pages * PAGE,
        new_length: new_pages * PAGE,
        may_move: false,
        fixed: None,
        dont_unmap: false,
    }
}

fn moving(old: u64, old_pages: u64, new_pages: u64) -> RemapRequest {
    RemapRequest {
        may_move: true,
        ..request(old, old_pages, new_pages)
    }
}

fn to(old: u64, pages: u64, target: u64) -> RemapRequest {
    RemapRequest {
        fixed: Some(page(target)),
        ..moving(old, pages, pages)
    }
}

/// Returns the page index of an address, counted from the address at which scenarios map.
fn index(address: VirtAddr) -> u64 {
    address
        .page()
        .number()
        .wrapping_sub(page(0).page().number())
}

fn filled(process: &mut Process<'_>, pages: u64) {
    process.map(0, pages, RW);
    for index in 0..pages {
        process.store(index, index as u8 + 1).unwrap();
    }
}

#[test]
fn shrinking_gives_up_the_tail() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 4);
    assert_eq!(process.space.remap(request(0, 4, 1)), Ok(page(0)));
    assert_eq!(process.areas(), "1rw");
    assert_eq!(process.resident(), 1);
}

#[test]
fn a_move_whose_target_refuses_gives_up_no_tail() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 4);
    process.map(10, 1, R);
    process.space.seal(page(10), PAGE).unwrap();
    let moved = RemapRequest {
        new_length: PAGE,
        ..to(0, 4, 10)
    };
    let refused = process.space.remap(moved);
    assert!(matches!(refused, Err(RemapError::Sealed(_))), "{refused:?}");
    assert_eq!(process.resident(), 4);
    assert_eq!(process.load(3), 4);
}

#[test]
fn what_is_given_up_may_be_several_areas_and_holes() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 2);
    process.map(3, 1, R);
    process.map(5, 2, RW);
    assert_eq!(process.space.remap(request(0, 7, 1)), Ok(page(0)));
    assert_eq!(process.areas(), "1rw");
    // A range of several areas can shrink in place. If it moves, its new length must be within the first area.
    process.map(1, 3, R);
    assert_eq!(process.space.remap(request(0, 4, 3)), Ok(page(0)));
    assert_eq!(process.areas(), "1rw 2r");
    let moved = |pages: u64| RemapRequest {
        new_length: pages * PAGE,
        ..to(0, 3, 9)
    };
    let error = RemapError::NoArea(page(1));
    assert_eq!(process.space.remap(moved(2)), Err(error));
    let moved = moved(1);
    assert_eq!(process.space.remap(moved), Ok(page(9)));
    assert_eq!(process.areas(), "1rw");
}

#[test]
fn growing_in_place_needs_room() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 2);
    assert_eq!(process.space.remap(request(0, 2, 5)), Ok(page(0)));
    assert_eq!(process.areas(), "5rw");
    process.map(6, 1, R);
    assert_eq!(process.space.remap(request(0, 5, 6)), Ok(page(0)));
    assert_eq!(
        process.space.remap(request(0, 6, 7)),
        Err(RemapError::NoRoom)
    );
    // The area continues beyond the old range, so the range cannot grow in place.
    assert_eq!(
        process.space.remap(request(0, 2, 3)),
        Err(RemapError::NoRoom)
    );
    assert_eq!(process.load(1), 2);
}

#[test]
fn a_move_takes_the_pages_along() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 4);
    process.map(4, 1, R);
    let moved = index(process.space.remap(moving(0, 4, 8)).unwrap());
    assert_eq!(process.resident(), 4);
    for page in 0..4 {
        assert_eq!(
            process.load_with(moved + page),
            Ok((page as u8 + 1, vec![]))
        );
        assert_eq!(
            process.store(moved + page, 9),
            Ok(vec![]),
            "still exclusive"
        );
        assert!(process.load_with(page).is_err());
    }
    assert_eq!(process.load(moved + 7), 0);
}

#[test]
fn a_part_moves_and_leaves_a_hole() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 4);
    assert_eq!(process.space.remap(to(1, 2, 10)), Ok(page(10)));
    assert_eq!(process.areas(), "1rw . 1rw . 2rw");
    assert_eq!((process.load(10), process.load(11)), (2, 3));
    assert_eq!((process.load(0), process.load(3)), (1, 4));
    // After the move back, the offsets of the pages match their addresses again, so all areas merge into one.
    assert_eq!(process.space.remap(to(10, 2, 1)), Ok(page(1)));
    assert_eq!(process.areas(), "4rw");
}

#[test]
fn a_fixed_place_loses_what_it_had() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 2);
    process.map(8, 4, R);
    assert_eq!(process.space.remap(to(0, 2, 9)), Ok(page(9)));
    assert_eq!(process.areas(), "1r 2rw 1r");
    assert_eq!(process.load(9), 1);
}

#[test]
fn several_areas_move_together_with_the_holes_between_them() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 6);
    process.protect(2, 1, R);
    process.unmap(4, 1);
    assert_eq!(process.space.remap(to(0, 6, 20)), Ok(page(20)));
    assert_eq!(process.areas(), "2rw 1r 1rw . 1rw");
    assert_eq!(
        (process.load(20), process.load(22), process.load(25)),
        (1, 3, 6)
    );
    let crossing = moving(20, 6, 7);
    assert_eq!(
        process.space.remap(crossing).map(index),
        Err(RemapError::NoArea(page(22)))
    );
    // A call that changes neither the address nor the length does nothing, even if the range has several areas and
    // holes.
    assert_eq!(process.space.remap(moving(20, 6, 6)), Ok(page(20)));
    assert_eq!(process.areas(), "2rw 1r 1rw . 1rw");
}

#[test]
fn what_is_not_unmapped_stays_empty() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 2);
    let stay = RemapRequest {
        dont_unmap: true,
        ..moving(0, 2, 2)
    };
    let moved = index(process.space.remap(stay).unwrap());
    assert_eq!((process.load(moved), process.load(moved + 1)), (1, 2));
    assert_eq!((process.load(0), process.load(1)), (0, 0));
}

#[test]
fn shared_memory_can_be_mapped_twice() {
    let world = World::new();
    let object = world.shmem(4);
    let mut process = world.process();
    process.map_object(0, 4, RW, &object, true);
    process.store(1, 7).unwrap();
    let second = index(process.space.remap(moving(0, 0, 4)).unwrap());
    assert_eq!(process.load(second + 1), 7);
    process.store(second + 1, 8).unwrap();
    assert_eq!(process.load(1), 8);
    process.map(8, 1, RW);
    assert_eq!(
        process.space.remap(moving(8, 0, 1)),
        Err(RemapError::NotApplicable(page(8)))
    );
}

#[test]
fn a_private_file_mapping_keeps_its_copies() {
    let world = World::new();
    let object = world.shmem(4);
    object.write_at(0, &[3; 16384]).unwrap();
    let mut process = world.process();
    process.map_object(0, 4, RW, &object, false);
    process.store(1, 9).unwrap();
    process.load(2);
    assert_eq!(process.space.remap(to(0, 4, 30)), Ok(page(30)));
    assert_eq!(
        (process.load(30), process.load(31), process.load(32)),
        (3, 9, 3)
    );
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    let odd = VirtAddr::new(page(0).as_u64() + 1);
    #[rustfmt::skip]
    let rows = [
        (RemapRequest { old: odd, ..moving(0, 1, 1) },                      RemapError::Misaligned),
        (moving(0, 1, 0),                                                   RemapError::NoLength),
        (RemapRequest { new_length: u64::MAX, ..moving(0, 1, 1) },          RemapError::NoLength),
        (RemapRequest { new_length: 1 << 50, ..moving(0, 1, 1) },           RemapError::OutOfRange),
        (RemapRequest { may_move: false, ..to(0, 1, 9) },                   RemapError::Flags),
        (RemapRequest { dont_unmap: true, ..moving(0, 1, 2) },              RemapError::Flags),
        (RemapRequest { fixed: Some(odd), ..to(0, 1, 9) },                  RemapError::Misaligned),
        (to(0, 4, 2),                                                       RemapError::Overlap),
        (RemapRequest { fixed: Some(VirtAddr::USER_END), ..to(0, 1, 9) },   RemapError::OutOfRange),
        (RemapRequest { fixed: Some(VirtAddr::new(0)), ..to(0, 1, 9) },     RemapError::TooLow),
        (moving(9, 1, 1),                                                   RemapError::NoArea(page(9))),
        (moving(3, 2, 3),                                                   RemapError::NoArea(page(4))),
    ];
    for (request, error) in rows {
        assert_eq!(process.space.remap(request), Err(error), "{request:?}");
    }
    assert_eq!(process.areas(), "4rw");
}

#[test]
fn limits_apply_to_what_grows() {
    let world = World::new();
    let process = world.process();
    process.map_with(0, 4, RW, AreaFlags::LOCKED);
    let mut limits = process.space.limits();
    limits.locked = 5 * PAGE;
    process.space.set_limits(limits);
    let over = |limit| Err(RemapError::OverLimit(limit));
    assert_eq!(process.space.remap(request(0, 4, 6)), over(Limit::Locked));
    limits.locked = u64::MAX;
    limits.address_space = 5 * PAGE;
    process.space.set_limits(limits);
    assert_eq!(
        process.space.remap(request(0, 4, 6)),
        over(Limit::AddressSpace)
    );
    assert_eq!(process.space.remap(request(0, 4, 5)), Ok(page(0)));
    assert_eq!(
        process.resident(),
        5,
        "locked memory is populated where it grew"
    );
}

/// `mremap` populates only the part by which locked memory grows, not the missing pages of the old range.
#[test]
fn locked_memory_is_had_where_it_grew_and_nowhere_else() {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    let hole = process.space.residency().lock(page(0), 5 * PAGE, false);
    assert_eq!(hole, Err(LockError::Hole(page(4))));
    assert_eq!(process.space.remap(request(0, 4, 6)), Ok(page(0)));
    assert_eq!(process.resident(), 2);
}

#[test]
fn what_stays_of_a_locked_area_is_unlocked_where_it_moved_from() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 4);
    process
        .space
        .residency()
        .lock(page(0), 4 * PAGE, false)
        .unwrap();
    let kept = RemapRequest {
        dont_unmap: true,
        ..to(1, 2, 9)
    };
    assert_eq!(process.space.remap(kept), Ok(page(9)));
    assert_eq!(process.areas(), "1rw 2rw 1rw . 2rw");
    assert_eq!(process.space.usage().totals().locked, 4);
    process.space.unmap(page(0), 16 * PAGE).unwrap();
    assert_eq!(process.space.usage().totals().locked, 0);
}

#[test]
fn what_moves_joins_no_area_that_it_leaves_behind() {
    let world = World::new();
    for (from, target, areas) in [(0, 4, "4rw 2rw"), (2, 4, "4rw 2rw"), (0, 6, "4rw . 6rw")] {
        let process = world.process();
        process.map(0, 4, RW);
        if target == 6 {
            process.map(8, 4, RW);
        }
        let kept = RemapRequest {
            dont_unmap: true,
            ..to(from, 2, target)
        };
        assert_eq!(process.space.remap(kept), Ok(page(target)));
        assert_eq!(process.areas(), areas, "{from} to {target}");
    }
}

#[test]
fn areas_that_a_fork_made_take_no_new_neighbour_in() {
    let world = World::new();
    let mut parent = world.process();
    filled(&mut parent, 2);
    let child = parent.fork();
    for (process, areas) in [(&parent, "4rw"), (&child, "2rw 2rw")] {
        process.map(2, 2, RW);
        assert_eq!(process.areas(), areas);
    }
    // In the child, the two parts of the area do not merge, because the fork has given each part an anon_vma of its
    // own.
    parent.space.protect(page(0), PAGE, R).unwrap();
    let second = parent.fork();
    for process in [&parent, &second] {
        process.space.protect(page(0), PAGE, RW).unwrap();
    }
    assert_eq!(
        (parent.areas(), second.areas()),
        ("4rw".into(), "1rw 3rw".into())
    );
}

#[test]
fn areas_that_were_touched_apart_stay_apart() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2, RW);
    process
        .space
        .residency()
        .lock(page(0), PAGE, false)
        .unwrap();
    process.store(1, 1).unwrap();
    process.space.residency().unlock(page(0), PAGE).unwrap();
    assert_eq!(process.areas(), "1rw 1rw");
    // Adjacent areas share an anon_vma if they differed only in their rights at the first store. They merge when their
    // rights become equal.
    process.map(4, 2, RW);
    process.space.protect(page(4), PAGE, R).unwrap();
    process.store(5, 1).unwrap();
    process.space.protect(page(4), PAGE, RW).unwrap();
    process.store(4, 1).unwrap();
    assert_eq!(process.areas(), "1rw 1rw . 2rw");
}

#[test]
fn a_part_that_moves_loses_its_watcher_and_the_rest_keeps_it() {
    let world = World::new();
    for target in [0, 9, 20] {
        let mut process = world.process();
        process.map(2, 7, RW);
        let watch = watch(false, false);
        let modes = WatchModes::MISSING;
        process
            .space
            .uffd()
            .watch(page(2), 7 * PAGE, &watch, modes)
            .unwrap();
        let moved = process.space.remap(to(4, 2, target));
        assert_eq!(moved, Ok(page(target)));
        assert!(process.store(target, 1).is_ok());
        for rest in [2, 6] {
            assert!(process.store(rest, 1).is_err(), "{target} {rest}");
        }
    }
}

#[test]
fn of_several_areas_none_is_watched() {
    let world = World::new();
    let mut process = world.process();
    filled(&mut process, 6);
    process.protect(2, 2, R);
    let watch = Watch::try_new(Watcher {
        number: 1,
        asynchronous: false,
        unpopulated: false,
        counts_accesses: false.into(),
        events: WatchEvents::REMAP,
    });
    let watch = watch.unwrap();
    let modes = WatchModes::WRITE_PROTECT;
    let refused = |index| Err(RemapError::NoArea(page(index)));
    // The first area of the range is registered with a userfaultfd, so nothing moves.
    process
        .space
        .uffd()
        .watch(page(0), PAGE, &watch, modes)
        .unwrap();
    assert_eq!(process.space.remap(to(0, 6, 20)), refused(0));
    assert_eq!(process.areas(), "1rw 1rw 2r 2rw");
    process.space.uffd().forget_watch(&watch);
    // A later area of the range is registered with a userfaultfd. The areas before it have moved.
    process
        .space
        .uffd()
        .watch(page(5), PAGE, &watch, modes)
        .unwrap();
    assert_eq!(process.space.remap(to(0, 6, 20)), refused(5));
    assert_eq!(process.areas(), "1rw . 2rw 2r 1rw");
    assert_eq!((process.load(20), process.load(5)), (1, 6));
    // The registered area can move if it is the only area in the range.
    assert_eq!(process.space.remap(to(5, 1, 30)), Ok(page(30)));
}
