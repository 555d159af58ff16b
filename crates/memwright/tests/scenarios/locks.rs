//! Tests of locked memory, of sealed memory, and of mincore.

use memwright::{
    Advice, AdviseError, Advised, AreaFlags, Limit, LockError, LockFuture, MapError, MapRequest,
    Placement, ProtectError, RemapError, RemapRequest, SealError, SyncError, SyncFlags, UnmapError,
};
use memwright_table::VirtAddr;

use crate::world::{PAGE, Process, R, RW, World, page};

fn residence(process: &Process<'_>, at: u64, pages: u64) -> Result<String, AdviseError> {
    let mut row = String::new();
    process
        .space
        .residency()
        .resident(page(at), pages * PAGE, &mut |_, here| {
            row.push(if here { 'x' } else { '.' });
        })
        .map(|()| row)
}

#[test]
fn locking_populates_splits_and_merges_back() {
    let world = World::new();
    let process = world.process();
    process.map(0, 6, RW);
    process
        .space
        .residency()
        .lock(page(2), 2 * PAGE, false)
        .unwrap();
    assert_eq!(process.areas(), "2rw 2rw 2rw");
    assert_eq!(residence(&process, 0, 6), Ok("..xx..".into()));
    assert_eq!(process.space.usage().totals().locked, 2);
    process.space.residency().unlock(page(0), 6 * PAGE).unwrap();
    assert_eq!(process.areas(), "6rw");
    assert_eq!(process.space.usage().totals().locked, 0);
}

#[test]
fn locking_on_fault_waits_for_the_fault() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 2, RW);
    process
        .space
        .residency()
        .lock(page(0), 2 * PAGE, true)
        .unwrap();
    assert_eq!(process.resident(), 0);
    process.store(1, 1).unwrap();
    assert_eq!(residence(&process, 0, 2), Ok(".x".into()));
}

#[test]
fn the_bytes_given_are_rounded_to_the_pages_they_touch() {
    let world = World::new();
    let process = world.process();
    process.map(0, 3, RW);
    let odd = VirtAddr::new(page(0).as_u64() + PAGE - 1);
    process.space.residency().lock(odd, 2, false).unwrap();
    assert_eq!(residence(&process, 0, 3), Ok("xx.".into()));
}

#[test]
fn what_cannot_be_locked() {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    let mut limits = process.space.limits();
    limits.locked = 3 * PAGE;
    process.space.set_limits(limits);
    let over = Err(LockError::OverLimit(Limit::Locked));
    assert_eq!(
        process.space.residency().lock(page(0), 4 * PAGE, false),
        over
    );
    process
        .space
        .residency()
        .lock(page(0), 2 * PAGE, false)
        .unwrap();
    assert_eq!(
        process.space.residency().lock(page(0), 3 * PAGE, false),
        Ok(()),
        "two are locked already"
    );
    let hole = LockError::Hole(page(4));
    assert_eq!(
        process.space.residency().unlock(page(2), 4 * PAGE),
        Err(hole)
    );
    limits.locked = 0;
    process.space.set_limits(limits);
    assert_eq!(process.space.residency().lock(page(0), PAGE, false), over);
    let all = process
        .space
        .residency()
        .lock_all(true, LockFuture::No, false);
    assert_eq!(all.map(drop), over);
    // `lock` reports the limit before it checks the range. `unlock` treats a length that rounds up to 0 as an empty
    // range.
    assert_eq!(
        process.space.residency().lock(page(0), u64::MAX, false),
        over
    );
    assert_eq!(process.space.residency().unlock(page(0), u64::MAX), Ok(()));
    let beyond = 0_u64.wrapping_sub(PAGE);
    assert_eq!(
        process.space.residency().unlock(page(0), beyond),
        Err(LockError::OutOfRange)
    );
}

#[test]
fn all_and_what_is_to_come() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, RW);
    process.map(4, 2, R);
    let all = process
        .space
        .residency()
        .lock_all(true, LockFuture::Populated, false);
    process.space.residency().populate_now(all.unwrap());
    assert_eq!(residence(&process, 0, 2), Ok("xx".into()));
    assert_eq!(residence(&process, 4, 2), Ok("xx".into()));
    process.map(10, 2, RW);
    assert_eq!(residence(&process, 10, 2), Ok("xx".into()));
    assert_eq!(process.space.usage().totals().locked, 6);
    process.space.residency().unlock_all().unwrap();
    process.map(20, 2, RW);
    assert_eq!(process.space.usage().totals().locked, 0);
    assert_eq!(residence(&process, 20, 2), Ok("..".into()));
}

#[test]
fn locked_memory_that_becomes_writable_is_copied_then() {
    let world = World::new();
    let mut process = world.process();
    process.map_with(0, 2, R, AreaFlags::LOCKED);
    process.protect(0, 2, RW);
    assert_eq!(process.store(1, 1), Ok(vec![]));
    assert_eq!(process.resident(), 2);
}

#[test]
fn residence_of_an_object_is_that_of_its_pages() {
    let world = World::new();
    let object = world.shmem(4);
    object.write_at(PAGE, &[1]).unwrap();
    let process = world.process();
    process.map_object(0, 4, RW, &object, true);
    assert_eq!(residence(&process, 0, 4), Ok(".x..".into()));
    assert_eq!(residence(&process, 2, 4), Err(AdviseError::Hole(page(4))));
}

#[test]
fn writing_back_passes_over_holes_and_reports_them() {
    let world = World::new();
    let object = world.shmem(2);
    let process = world.process();
    process.map_object(0, 2, RW, &object, true);
    process.map_with(4, 1, RW, AreaFlags::LOCKED);
    let sync = |at, pages, flags| process.space.sync(page(at), pages * PAGE, flags);
    assert_eq!(sync(0, 2, SyncFlags::WAIT), Ok(()));
    assert_eq!(sync(0, 5, SyncFlags::WAIT), Err(SyncError::Hole(page(2))));
    assert_eq!(
        sync(0, 5, SyncFlags::INVALIDATE),
        Err(SyncError::Locked(page(4)))
    );
    assert_eq!(sync(0, 0, SyncFlags::WAIT), Ok(()));
    let odd = VirtAddr::new(3);
    assert_eq!(
        process.space.sync(odd, PAGE, SyncFlags::WAIT),
        Err(SyncError::Misaligned)
    );
    assert_eq!(
        process.space.sync(page(0), u64::MAX, SyncFlags::WAIT),
        Err(SyncError::OutOfRange)
    );
}

#[test]
fn memory_without_rights_is_locked_but_cannot_be_made_resident() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, crate::world::NONE);
    let denied = Err(LockError::Fault(memwright::FaultError::Denied));
    assert_eq!(process.space.residency().lock(page(0), PAGE, false), denied);
    assert_eq!(
        process.space.residency().lock(page(0), 2 * PAGE, true),
        Ok(())
    );
    let all = process
        .space
        .residency()
        .lock_all(true, LockFuture::No, false);
    process.space.residency().populate_now(all.unwrap());
    assert_eq!(process.resident(), 0);
}

#[test]
fn a_sealed_area_stops_what_has_cut_the_one_before() {
    let world = World::new();
    let process = world.process();
    let space = &process.space;
    process.map(0, 6, RW);
    space.seal(page(4), 2 * PAGE).unwrap();
    let refused = space.unmap(page(1), 4 * PAGE);
    assert_eq!(refused, Err(UnmapError::Sealed(page(4))));
    assert_eq!(process.areas(), "1rw 3rw 2rw");
    let refused = space.unmap(page(5), 4 * PAGE);
    assert_eq!(refused, Err(UnmapError::Sealed(page(5))));
    assert_eq!(process.areas(), "1rw 3rw 2rw", "a sealed one is not cut");
}

#[test]
fn a_sealed_area_stays() {
    let world = World::new();
    let process = world.process();
    let space = &process.space;
    process.map(0, 6, RW);
    space.seal(page(2), 2 * PAGE).unwrap();
    assert_eq!(process.areas(), "2rw 2rw 2rw");
    let sealed = page(2);
    assert_eq!(
        space.unmap(page(0), 6 * PAGE),
        Err(UnmapError::Sealed(sealed))
    );
    let over = MapRequest::anonymous(6 * PAGE, RW).at(Placement::Fixed(page(0)));
    assert_eq!(space.map(&over), Err(MapError::Sealed(sealed)));
    let moved = |old: u64, fixed: Option<u64>| {
        space.remap(RemapRequest {
            old: page(old),
            old_length: PAGE,
            new_length: PAGE,
            may_move: true,
            fixed: fixed.map(page),
            dont_unmap: false,
        })
    };
    assert_eq!(moved(2, None), Err(RemapError::Sealed(sealed)));
    assert_eq!(moved(0, Some(2)), Err(RemapError::Sealed(sealed)));
    // mprotect has changed the pages below the sealed area, as on Linux.
    let protected = space.protect(page(0), 6 * PAGE, R);
    assert_eq!(protected, Err(ProtectError::Sealed(sealed)));
    assert_eq!(process.areas(), "2r 2rw 2rw");
    // Discarding the contents of the sealed area is allowed, because the area is writable.
    assert_eq!(
        space.advise(sealed, PAGE, Advice::DontNeed),
        Ok(Advised::Done)
    );
    space.seal(page(0), 2 * PAGE).unwrap();
    let dropped = space.advise(page(0), 6 * PAGE, Advice::DontNeed);
    assert_eq!(dropped, Err(AdviseError::Sealed(page(0))));
    let hinted = space.advise(page(0), 6 * PAGE, Advice::Hint);
    assert_eq!(hinted, Ok(Advised::AdvisedOnly));
}

#[test]
fn what_cannot_be_sealed() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, RW);
    process.map(3, 1, RW);
    let seal = |at: u64, length: u64| process.space.seal(VirtAddr::new(at), length);
    let base = page(0).as_u64();
    assert_eq!(seal(base + 1, PAGE), Err(SealError::Misaligned));
    assert_eq!(seal(base, u64::MAX), Err(SealError::OutOfRange));
    assert_eq!(seal(base, 4 * PAGE), Err(SealError::Hole(page(2))));
    assert_eq!(process.areas(), "2rw . 1rw");
    assert_eq!(seal(base, 0), Ok(()));
    assert_eq!(process.space.unmap(page(0), 4 * PAGE), Ok(()));
}
