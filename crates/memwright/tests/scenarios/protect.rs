//! Tests of mprotect: which faults and flushes protection changes cause, which errors they return, and which state they
//! leave.

use memwright::{AreaFlags, FaultError, Limit, LockError, ProtectError, Row};
use memwright_table::VirtAddr;

use crate::world::{NONE, PAGE, R, RW, World, page, rows};

#[test]
fn there_and_back_costs_no_fault() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 32, RW);
    for index in 0..32 {
        process.store(index, 1).unwrap();
    }
    let account = world.counted(|| {
        process.protect(0, 32, R);
        process.protect(0, 32, RW);
        for index in 0..32 {
            assert_eq!(process.store(index, 2), Ok(vec![]));
        }
    });
    assert_eq!(account.faults(), 0);
    let wanted = [
        Row::WriteFaultsAvoided,
        Row::EntriesShrank,
        Row::EntriesGrew,
        Row::FlushRemote,
    ];
    assert_eq!(rows(&account, &wanted), [32, 32, 32, 0]);
}

#[test]
fn the_policy_can_withhold_the_permission() {
    for (value, faults) in [("off", 1), ("dirty", 0), ("on", 0)] {
        let world = World::new();
        world.memory.policy().set("write-upgrade", value).unwrap();
        let mut process = world.process();
        process.map(0, 1, RW);
        process.store(0, 1).unwrap();
        process.protect(0, 1, R);
        process.protect(0, 1, RW);
        assert_eq!(process.store(0, 2).unwrap().len(), faults, "{value}");
    }
}

#[test]
fn what_the_policy_withholds_is_private() {
    for value in ["off", "dirty", "on"] {
        let world = World::new();
        world.memory.policy().set("write-upgrade", value).unwrap();
        let mut process = world.process();
        process.map_object(0, 2, RW, &world.shmem(2), true);
        process.store(0, 1).unwrap();
        process.protect(0, 2, R);
        process.protect(0, 2, RW);
        assert_eq!(process.store(0, 2).unwrap().len(), 0, "{value}");
        drop(process.fork());
        process.protect(0, 2, R);
        process.protect(0, 2, RW);
        assert_eq!(process.store(0, 3).unwrap().len(), 0, "{value}");
    }
}

#[test]
fn a_page_whose_other_owner_is_gone_is_written_without_a_fault() {
    for (value, faults) in [("off", 4), ("dirty", 4), ("on", 0)] {
        let world = World::new();
        world.memory.policy().set("write-upgrade", value).unwrap();
        let mut parent = world.process();
        parent.map(0, 6, RW);
        for index in 0..4 {
            parent.store(index, 1).unwrap();
        }
        let mut child = parent.fork();
        child.store(0, 2).unwrap();
        // While the child lives, a store to a page that it shares with the parent faults under every policy. Page 0 is
        // not shared, because the child has copied it.
        parent.protect(0, 6, R);
        parent.protect(0, 6, RW);
        assert_eq!(parent.store(1, 3).unwrap().len(), 1);
        assert_eq!(child.load(1), 1);
        drop(child);
        parent.store(1, 1).unwrap();
        let child = parent.fork();
        drop(child);
        let account = world.counted(|| {
            parent.protect(0, 6, R);
            parent.protect(0, 6, RW);
            for index in 0..4 {
                parent.store(index, 4).unwrap();
            }
        });
        assert_eq!(account.faults(), faults, "{value}");
        parent.check();
    }
}

#[test]
fn no_access_keeps_the_pages() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2, RW);
    process.store(0, 6).unwrap();
    process.protect(0, 2, NONE);
    assert_eq!(process.load_with(0), Err(FaultError::Denied));
    assert_eq!(process.resident(), 1);
    process.protect(0, 2, RW);
    assert_eq!(process.load_with(0), Ok((6, vec![])));
    assert_eq!(process.store(0, 7), Ok(vec![]));
}

/// When locked memory becomes writable, private pages are copied at once. Shared memory is not copied.
#[test]
fn locked_private_memory_that_becomes_writable_is_there() {
    let world = World::new();
    let mut process = world.process();
    process.map_with(0, 2, NONE, AreaFlags::LOCKED);
    process.map_object(2, 2, NONE, &world.shmem(2), true);
    process.map_with(4, 1, NONE, AreaFlags::LOCKED | AreaFlags::LOCK_ON_FAULT);
    process.map(5, 1, NONE);
    let refused = process.space.residency().lock(page(2), 2 * PAGE, false);
    assert_eq!(refused, Err(LockError::Fault(FaultError::Denied)));
    process.protect(0, 6, RW);
    assert_eq!(process.resident(), 2);
    assert_eq!(process.store(1, 1), Ok(vec![]));
}

/// Memory without pages is accounted only while it is writable. When the memory is no longer accounted, it merges with
/// its neighbours.
#[test]
fn untouched_memory_that_is_read_only_is_not_promised() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 8, R);
    let before = world.memory.commit().committed();
    process.protect(2, 4, RW);
    assert_eq!(world.memory.commit().committed(), before + 4);
    process.protect(2, 4, R);
    assert_eq!(world.memory.commit().committed(), before);
    assert_eq!(process.areas(), "8r");
    process.protect(2, 4, RW);
    process.store(2, 1).unwrap();
    process.protect(2, 4, R);
    assert_eq!(world.memory.commit().committed(), before + 4);
    assert_eq!(process.areas(), "2r 4r 2r");
}

#[test]
fn a_part_splits_its_area_and_merges_back() {
    let world = World::new();
    let process = world.process();
    process.map(0, 8, RW);
    let account = world.counted(|| process.protect(3, 2, R));
    assert_eq!(process.areas(), "3rw 2r 3rw");
    assert_eq!(rows(&account, &[Row::AreasSplit, Row::AreasMerged]), [2, 0]);
    let account = world.counted(|| process.protect(3, 2, RW));
    assert_eq!(process.areas(), "8rw");
    assert_eq!(rows(&account, &[Row::AreasSplit, Row::AreasMerged]), [0, 2]);
}

#[test]
fn a_range_over_several_areas_becomes_one() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, RW);
    process.map(2, 2, R);
    process.map(4, 2, NONE);
    process.protect(1, 4, R);
    assert_eq!(process.areas(), "1rw 4r 1");
    process.protect(0, 6, RW);
    assert_eq!(process.areas(), "6rw");
}

#[test]
fn a_change_that_changes_nothing_does_nothing() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    process.store(0, 1).unwrap();
    let account = world.counted(|| process.protect(1, 2, RW));
    assert_eq!(
        rows(
            &account,
            &[Row::EntriesChanged, Row::AreasSplit, Row::FlushLocal]
        ),
        [0, 0, 0]
    );
}

#[test]
fn many_pages_are_flushed_once() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 200, RW);
    for index in 0..200 {
        process.store(index, 1).unwrap();
    }
    process.protect(100, 50, NONE);
    let account = world.counted(|| process.protect(0, 200, R));
    assert_eq!(account.count(Row::FlushLocal), 1);
}

#[test]
fn errors_leave_what_linux_leaves() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, RW);
    process.map(3, 2, RW);
    let hole = ProtectError::Hole(page(2));
    assert_eq!(process.space.protect(page(0), 5 * PAGE, R), Err(hole));
    assert_eq!(process.areas(), "2r . 2rw");
    assert_eq!(process.space.protect(page(2), PAGE, R), Err(hole));
    assert_eq!(
        process.space.protect(page(4), 2 * PAGE, R),
        Err(ProtectError::Hole(page(5)))
    );
    assert_eq!(process.areas(), "2r . 1rw 1r");

    let odd = VirtAddr::new(page(0).as_u64() + 1);
    assert_eq!(
        process.space.protect(odd, PAGE, R),
        Err(ProtectError::Misaligned)
    );
    assert_eq!(
        process.space.protect(page(0), u64::MAX, R),
        Err(ProtectError::OutOfRange)
    );
    assert_eq!(process.space.protect(page(0), 0, R), Ok(()));
}

#[test]
fn an_object_opened_to_read_cannot_become_writable_when_shared() {
    let world = World::new();
    let object = world.shmem(2);
    let process = world.process();
    let mut request = memwright::MapRequest::object(object, 0, 2 * PAGE, R, true)
        .at(memwright::Placement::Fixed(page(0)));
    request.max_rights = R;
    process.space.map(&request).unwrap();
    let denied = ProtectError::Denied(page(0));
    assert_eq!(process.space.protect(page(0), PAGE, RW), Err(denied));
    assert_eq!(process.areas(), "2r");
}

#[test]
fn limits_stop_a_change_before_it_begins() {
    let world = World::new();
    let process = world.process();
    process.map(0, 8, R);
    let mut limits = process.space.limits();
    limits.data = 4 * PAGE;
    process.space.set_limits(limits);
    let over = |limit| Err(ProtectError::OverLimit(limit));
    assert_eq!(
        process.space.protect(page(0), 8 * PAGE, RW),
        over(Limit::Data)
    );
    process.protect(0, 4, RW);
    limits.data = u64::MAX;
    limits.areas = 2;
    process.space.set_limits(limits);
    assert_eq!(process.space.protect(page(1), PAGE, R), over(Limit::Areas));
    assert_eq!(process.areas(), "4rw 4r");
}
