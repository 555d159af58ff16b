//! Tests of mmap: placement, limits, commit accounting, and errors.

use memwright::{AreaFlags, Limit, MapError, MapRequest, Placement, Row, UnmapError};
use memwright_sim::Arch;
use memwright_table::{Architecture, VirtAddr};

use crate::world::{BASE, Machine, NONE, PAGE, R, RW, World, page};

fn anonymous(pages: u64) -> MapRequest<Machine> {
    MapRequest::anonymous(pages * PAGE, RW)
}

#[test]
fn room_is_taken_from_the_top_and_reused_at_once() {
    let world = World::new();
    let process = world.process();
    let top = process.space.layout().mmap_top.as_u64();
    let first = process.space.map(&anonymous(2)).unwrap();
    assert_eq!(first.as_u64(), top - 2 * PAGE);
    let second = process.space.map(&anonymous(1)).unwrap();
    assert_eq!(second.as_u64(), top - 3 * PAGE);
    assert_eq!(process.areas(), "3rw", "neighbours merge");
    process.space.unmap(first, 2 * PAGE).unwrap();
    assert_eq!(process.space.map(&anonymous(2)), Ok(first));
}

#[test]
fn hints_are_followed_where_they_can_be() {
    let world = World::new();
    let process = world.process();
    let hint = |at| anonymous(2).at(Placement::Hint(at));
    assert_eq!(process.space.map(&hint(page(5))), Ok(page(5)));
    let taken = process.space.map(&hint(page(6))).unwrap();
    assert!(taken > page(1000), "somewhere else");
    let odd = VirtAddr::new(page(20).as_u64() + 5);
    assert_eq!(process.space.map(&hint(odd)), Ok(page(21)));
    assert!(process.space.map(&hint(VirtAddr::new(0))).is_ok());
    assert!(process.space.map(&hint(VirtAddr::new(u64::MAX))).is_ok());
}

#[test]
fn fixed_places_replace_or_refuse() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 8, R);
    process.map(2, 3, RW);
    assert_eq!(process.areas(), "2r 3rw 3r");
    process.store(2, 1).unwrap();
    process.map(2, 3, RW);
    assert_eq!(process.load(2), 0, "fresh memory");
    let no_replace = |at| anonymous(2).at(Placement::FixedNoReplace(page(at)));
    assert_eq!(
        process.space.map(&no_replace(7)),
        Err(MapError::Taken(page(7)))
    );
    assert_eq!(process.space.map(&no_replace(8)), Ok(page(8)));
}

#[test]
fn mappings_that_make_no_sense_are_refused() {
    let world = World::new();
    let process = world.process();
    let fixed = |address| anonymous(1).at(Placement::Fixed(VirtAddr::new(address)));
    let object = |offset| MapRequest::object(world.shmem(1), offset, PAGE, RW, true);
    #[rustfmt::skip]
    let rows = [
        (MapRequest::anonymous(0, RW),             MapError::NoLength),
        (MapRequest::anonymous(u64::MAX, RW),      MapError::OutOfRange),
        (MapRequest::anonymous(1 << 47, NONE),     MapError::OutOfRange),
        (fixed(BASE + 1),                          MapError::Misaligned),
        (fixed(0),                                 MapError::TooLow),
        (fixed(VirtAddr::USER_END.as_u64()),       MapError::OutOfRange),
        (object(1),                                MapError::Misaligned),
        (object(1 << 63),                          MapError::OffsetTooLarge),
        (MapRequest { max_rights: R, ..object(0) }, MapError::Denied),
        (anonymous(1).with(AreaFlags::SHARED),      MapError::Flags(AreaFlags::SHARED.bits())),
        (anonymous(1).with(AreaFlags::UFFD_WP),     MapError::Flags(AreaFlags::UFFD_WP.bits())),
        (anonymous(1).with(AreaFlags::all()),       MapError::Flags(AreaFlags::MANAGED.bits())),
    ];
    for (request, error) in rows {
        assert_eq!(process.space.map(&request), Err(error));
    }
    assert_eq!(process.areas(), "");
}

#[test]
fn unmapping_what_makes_no_sense() {
    let world = World::new();
    let process = world.process();
    process.map(0, 4, RW);
    let unmap = |address: u64, length| process.space.unmap(VirtAddr::new(address), length);
    assert_eq!(unmap(BASE, 0), Err(UnmapError::NoLength));
    assert_eq!(unmap(BASE + 1, PAGE), Err(UnmapError::Misaligned));
    assert_eq!(unmap(BASE, u64::MAX), Err(UnmapError::OutOfRange));
    assert_eq!(unmap(BASE, 1 << 48), Err(UnmapError::OutOfRange));
    assert_eq!(unmap(BASE + 100 * PAGE, PAGE), Ok(()), "nothing is there");
    assert_eq!(unmap(BASE + PAGE, 1), Ok(()));
    assert_eq!(process.areas(), "1rw . 2rw");
}

#[test]
fn unmapping_frees_pages_and_tables() {
    let world = World::new();
    let mut process = world.process();
    let before = world.frames.used();
    process.map(0, 1024, RW);
    for index in (0..1024).step_by(100) {
        process.store(index, 1).unwrap();
    }
    assert!(world.frames.used() > before + 11);
    let account = world.counted(|| process.unmap(0, 1024));
    assert_eq!(world.frames.used(), before);
    assert_eq!(account.count(Row::EntriesFreed), 11);
    assert_eq!(account.count(Row::FlushLocal), 1);
}

#[test]
fn reservations_of_hundreds_of_gigabytes_cost_nothing() {
    let world = World::new();
    let process = world.process();
    let before = world.frames.used();
    let length = (Arch::USER.len() / 4 * 2 * PAGE).min(400 << 30);
    let reserve = MapRequest::anonymous(length, NONE).with(AreaFlags::NORESERVE);
    let at = process.space.map(&reserve).unwrap();
    assert_eq!(world.frames.used(), before);
    assert_eq!(world.memory.commit().committed(), 0);
    let inside = VirtAddr::new(at.as_u64() + length / 2);
    process.space.protect(inside, 64 * PAGE, RW).unwrap();
    process.space.write(inside, &[1]).unwrap();
    assert_eq!(world.memory.commit().committed(), 0, "NORESERVE");
    process.space.unmap(at, length).unwrap();
    assert_eq!(world.frames.used(), before);
}

#[test]
fn promises_are_kept_account_of() {
    let world = World::new();
    let mut process = world.process();
    let committed = || world.memory.commit().committed();
    process.map(0, 10, RW);
    assert_eq!(committed(), 10);
    process.map(20, 10, NONE);
    assert_eq!(committed(), 10);
    process.protect(20, 4, RW);
    assert_eq!(committed(), 14);
    process.protect(20, 4, R);
    assert_eq!(committed(), 10, "nothing is there to be kept");
    process.protect(20, 4, RW);
    process.store(20, 1).unwrap();
    process.protect(20, 4, R);
    assert_eq!(committed(), 14, "a promise of what is used is kept");
    process.unmap(0, 5);
    assert_eq!(committed(), 9);
    let child = process.fork();
    assert_eq!(committed(), 18);
    drop(child);
    process.unmap(0, 40);
    assert_eq!(committed(), 0);
}

#[test]
fn more_than_all_memory_at_once_is_refused() {
    let world = World::new();
    let process = world.process();
    let total = world.frames.total();
    assert_eq!(
        process.space.map(&anonymous(total + 1)),
        Err(MapError::Overcommit)
    );
    assert!(process.space.map(&anonymous(total)).is_ok());
    assert!(
        process.space.map(&anonymous(total)).is_ok(),
        "heuristic overcommit"
    );
    let unreserved = anonymous(total * 9).with(AreaFlags::NORESERVE);
    assert!(process.space.map(&unreserved).is_ok());
    process.map(0, 1, NONE);
    let request = MapRequest::anonymous((total + 1) * PAGE, NONE).at(Placement::Fixed(page(10)));
    process.space.map(&request).unwrap();
    let refused = process.space.protect(page(10), (total + 1) * PAGE, RW);
    assert_eq!(refused, Err(memwright::ProtectError::Overcommit));
}

#[test]
fn limits_of_the_process_are_obeyed() {
    let world = World::new();
    let process = world.process();
    let usual = process.space.limits();
    process.space.set_limits(memwright::Limits {
        address_space: 8 * PAGE,
        ..usual
    });
    assert_eq!(
        process.space.map(&anonymous(9)),
        Err(MapError::OverLimit(Limit::AddressSpace))
    );
    process.map(0, 8, RW);
    process.map(0, 8, R);
    assert_eq!(process.areas(), "8r", "what is replaced does not count");
    process.space.set_limits(memwright::Limits {
        data: 2 * PAGE,
        ..usual
    });
    assert_eq!(
        process.space.map(&anonymous(3)),
        Err(MapError::OverLimit(Limit::Data))
    );
    assert!(
        process
            .space
            .map(&MapRequest::anonymous(3 * PAGE, R))
            .is_ok()
    );
    process.space.set_limits(memwright::Limits {
        locked: 2 * PAGE,
        ..usual
    });
    let locked = anonymous(3).with(AreaFlags::LOCKED);
    assert_eq!(
        process.space.map(&locked),
        Err(MapError::OverLimit(Limit::Locked))
    );
    process.space.set_limits(memwright::Limits {
        may_lock_any: true,
        locked: 0,
        ..usual
    });
    assert!(process.space.map(&locked).is_ok());
}

#[test]
fn the_area_limit_stops_maps_and_splits() {
    let world = World::new();
    let process = world.process();
    let mut limits = process.space.limits();
    limits.areas = 100;
    process.space.set_limits(limits);
    let mut mapped = 0;
    let error = loop {
        let request = anonymous(1).at(Placement::Fixed(page(mapped * 2)));
        match process.space.map(&request) {
            Ok(_) => mapped += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error, MapError::OverLimit(Limit::Areas));
    assert_eq!(mapped, 101, "one more than the limit, as on Linux");
    limits.areas = 102;
    process.space.set_limits(limits);
    process.map(1000, 3, RW);
    let unmap = process.space.unmap(page(1001), PAGE);
    assert_eq!(unmap, Err(UnmapError::OverLimit(Limit::Areas)));
    assert_eq!(process.space.unmap(page(1002), PAGE), Ok(()));
    let fixed = anonymous(1).at(Placement::Fixed(page(1000)));
    assert_eq!(process.space.map(&fixed), Ok(page(1000)));
}

#[test]
fn populated_mappings_do_not_fault() {
    let world = World::new();
    let mut process = world.process();
    let populated = MapRequest {
        populate: true,
        ..anonymous(8).at(Placement::Fixed(page(0)))
    };
    process.space.map(&populated).unwrap();
    assert_eq!(process.resident(), 8);
    assert_eq!(process.store(7, 1), Ok(vec![]));
    assert_eq!(world.account().faults(), 0);
}

#[test]
fn the_peak_outlives_what_made_it() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 32, RW);
    for index in 0..32 {
        process.store(index, 1).unwrap();
    }
    process.unmap(0, 32);
    let totals = process.space.usage().totals();
    assert_eq!((totals.resident, totals.resident_peak), (0, 32));
    assert_eq!((totals.mapped, totals.mapped_peak), (0, 32));
}
