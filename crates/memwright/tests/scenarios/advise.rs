//! Tests of madvise: which kinds of advice act at once, which have no effect, and which return an error.

use memwright::{Advice, AdviseError, Advised, AreaFlags, FaultError, FaultKind, Row};

use memwright_sim::Arch;
use memwright_table::Architecture;

use crate::world::{PAGE, Process, R, RW, World, page, rows};

fn advise(
    process: &Process<'_>,
    at: u64,
    pages: u64,
    advice: Advice,
) -> Result<Advised, AdviseError> {
    process.space.advise(page(at), pages * PAGE, advice)
}

#[test]
fn contents_that_are_not_needed_go_at_once() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    for index in 0..4 {
        process.store(index, 1).unwrap();
    }
    assert_eq!(advise(&process, 1, 2, Advice::DontNeed), Ok(Advised::Done));
    assert_eq!(process.resident(), 2);
    assert_eq!(
        (process.load(0), process.load(1), process.load(2)),
        (1, 0, 0)
    );
    // The range extends beyond the last area. The call advises the mapped pages first, and then reports the hole.
    assert_eq!(
        advise(&process, 3, 4, Advice::DontNeed),
        Err(AdviseError::Hole(page(4)))
    );
    assert_eq!(process.load(3), 0);
}

#[test]
fn locked_memory_is_not_dropped_unless_it_is_said_so() {
    let world = World::new();
    let process = world.process();
    process.map_with(0, 2, RW, AreaFlags::LOCKED);
    assert_eq!(process.resident(), 2);
    let refused = AdviseError::NotApplicable(page(0));
    assert_eq!(advise(&process, 0, 2, Advice::DontNeed), Err(refused));
    assert_eq!(advise(&process, 0, 2, Advice::Free), Err(refused));
    assert_eq!(
        advise(&process, 0, 2, Advice::DontNeedLocked),
        Ok(Advised::Done)
    );
    assert_eq!(process.resident(), 0);
}

#[test]
fn memory_that_may_go_goes_when_it_is_paged_out() {
    let world = World::new();
    let mut process = world.process();
    process.map_with(0, 2, RW, AreaFlags::DROPPABLE);
    process.map(4, 1, RW);
    for index in [0, 1, 4] {
        process.store(index, 1).unwrap();
    }
    assert_eq!(advise(&process, 0, 2, Advice::PageOut), Ok(Advised::Done));
    let only_advised = Ok(Advised::AdvisedOnly);
    assert_eq!(advise(&process, 4, 1, Advice::PageOut), only_advised);
    assert_eq!(process.resident(), 1);
    assert_eq!((process.load(0), process.load(4)), (0, 1));
    let refused = Err(AdviseError::NotApplicable(page(0)));
    assert_eq!(advise(&process, 0, 1, Advice::KeepOnFork), refused);
    // `mlock` of droppable memory has no effect and reports no error.
    process
        .space
        .residency()
        .lock(page(0), 2 * PAGE, false)
        .unwrap();
    let flags = process.space.find(page(0), |area| area.flags()).unwrap();
    assert!(!flags.contains(AreaFlags::LOCKED));
    process
        .space
        .residency()
        .lock(page(4), PAGE, false)
        .unwrap();
    let refused = Err(AdviseError::NotApplicable(page(4)));
    assert_eq!(advise(&process, 4, 1, Advice::PageOut), refused);
    assert_eq!(advise(&process, 4, 1, Advice::Cold), refused);
}

#[cfg(feature = "reclaim")]
#[test]
fn pages_freed_lazily_stay_and_are_counted() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 4, RW);
    process.store(0, 3).unwrap();
    process.load(1);
    let account = world.counted(|| {
        assert_eq!(advise(&process, 0, 4, Advice::Free), Ok(Advised::Done));
    });
    assert_eq!(account.count(Row::LazyFreed), 1);
    assert_eq!(process.load(0), 3);
    let object = world.shmem(1);
    process.map_object(8, 1, RW, &object, true);
    assert_eq!(
        advise(&process, 8, 1, Advice::Free),
        Err(AdviseError::NotApplicable(page(8)))
    );
}

#[test]
fn hints_change_nothing_and_say_so() {
    let world = World::new();
    let process = world.process();
    process.map(0, 2, RW);
    assert_eq!(
        advise(&process, 0, 2, Advice::Hint),
        Ok(Advised::AdvisedOnly)
    );
    assert_eq!(
        advise(&process, 0, 3, Advice::Hint),
        Err(AdviseError::Hole(page(2)))
    );
}

#[test]
fn flags_split_and_merge_areas() {
    let world = World::new();
    let process = world.process();
    process.map(0, 6, RW);
    for (on, off) in [
        (Advice::DontFork, Advice::DoFork),
        (Advice::DontDump, Advice::DoDump),
        (Advice::WipeOnFork, Advice::KeepOnFork),
    ] {
        assert_eq!(advise(&process, 2, 2, on), Ok(Advised::Done));
        assert_eq!(process.areas(), "2rw 2rw 2rw", "{on:?}");
        assert_eq!(advise(&process, 0, 6, off), Ok(Advised::Done));
        assert_eq!(process.areas(), "6rw", "{off:?}");
    }
}

#[test]
fn the_order_in_which_pages_are_wanted_is_noted() {
    let world = World::new();
    let process = world.process();
    process.map(0, 6, RW);
    let noted = Ok(Advised::AdvisedOnly);
    assert_eq!(advise(&process, 2, 2, Advice::Random), noted);
    assert_eq!(process.areas(), "2rw 2rw 2rw");
    assert_eq!(advise(&process, 2, 4, Advice::Sequential), noted);
    assert_eq!(process.areas(), "2rw 4rw", "in place of the other");
    assert_eq!(advise(&process, 0, 6, Advice::Normal), noted);
    assert_eq!(process.areas(), "6rw");
    let hole = AdviseError::Hole(page(6));
    assert_eq!(advise(&process, 4, 4, Advice::Random), Err(hole));
}

#[test]
fn only_anonymous_memory_is_wiped() {
    let world = World::new();
    let object = world.shmem(2);
    let process = world.process();
    process.map(0, 2, RW);
    process.map_object(2, 2, RW, &object, true);
    let refused = AdviseError::NotApplicable(page(2));
    assert_eq!(advise(&process, 0, 4, Advice::WipeOnFork), Err(refused));
}

#[test]
fn populating_spares_the_faults() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 8, RW);
    assert_eq!(
        advise(&process, 0, 4, Advice::PopulateWrite),
        Ok(Advised::Done)
    );
    assert_eq!(
        advise(&process, 4, 4, Advice::PopulateRead),
        Ok(Advised::Done)
    );
    assert_eq!(process.resident(), 4);
    assert_eq!(world.account().faults(), 0);
    assert_eq!(process.store(3, 1), Ok(vec![]));
    assert_eq!(process.load_with(7), Ok((0, vec![])));
    assert_eq!(process.store(7, 1), Ok(vec![FaultKind::Copy]));

    assert_eq!(
        advise(&process, 6, 4, Advice::PopulateRead),
        Err(AdviseError::Hole(page(8)))
    );
    process.protect(0, 4, R);
    let denied = AdviseError::NotApplicable(page(0));
    assert_eq!(advise(&process, 0, 4, Advice::PopulateWrite), Err(denied));
    let object = world.shmem(1);
    process.map_object(16, 2, RW, &object, true);
    let beyond = AdviseError::Fault(FaultError::BeyondObject);
    assert_eq!(advise(&process, 16, 2, Advice::PopulateRead), Err(beyond));
}

#[test]
fn removing_punches_a_hole_that_everyone_sees() {
    let world = World::new();
    let object = world.shmem(4);
    let mut process = world.process();
    let mut other = world.process();
    process.map_object(0, 4, RW, &object, true);
    other.map_object(8, 4, RW, &object, true);
    for index in 0..4 {
        process.store(index, 9).unwrap();
    }
    assert_eq!(other.load(9), 9);
    assert_eq!(advise(&process, 1, 2, Advice::Remove), Ok(Advised::Done));
    assert_eq!(
        (other.load(8), other.load(9), other.load(10), other.load(11)),
        (9, 0, 0, 9)
    );
    assert_eq!(object.size(), 4 * PAGE);

    // The call skips holes. After it has advised the other pages, it reports the first hole.
    other.unmap(9, 1);
    process.store(0, 8).unwrap();
    process.store(2, 8).unwrap();
    assert_eq!(
        advise(&other, 7, 6, Advice::Remove),
        Err(AdviseError::Hole(page(7)))
    );
    assert_eq!((process.load(0), process.load(2)), (0, 0));

    process.map(16, 1, RW);
    assert_eq!(
        advise(&process, 16, 1, Advice::Remove),
        Err(AdviseError::NotApplicable(page(16)))
    );
    process.map_object(20, 4, RW, &object, false);
    assert_eq!(
        advise(&process, 20, 4, Advice::Remove),
        Err(AdviseError::Denied(page(20)))
    );
}

#[test]
fn guards_refuse_every_access_until_they_are_removed() {
    let world = World::new();
    let mut process = world.process();
    process.map(0, 8, RW);
    for index in 0..8 {
        process.store(index, 1).unwrap();
    }
    assert_eq!(
        advise(&process, 2, 3, Advice::GuardInstall),
        Ok(Advised::Done)
    );
    assert_eq!(process.areas(), "8rw", "guards split no area");
    assert_eq!(process.resident(), 5);
    assert_eq!(process.load_with(2), Err(FaultError::Guard));
    assert_eq!(process.store(4, 1), Err(FaultError::Guard));
    assert_eq!(process.load(5), 1);

    // Guard markers survive protection changes, discarding of contents, and forks.
    process.protect(0, 8, R);
    process.protect(0, 8, RW);
    assert_eq!(advise(&process, 0, 8, Advice::DontNeed), Ok(Advised::Done));
    assert_eq!(process.load_with(3), Err(FaultError::Guard));
    let mut child = process.fork();
    assert_eq!(child.load_with(3), Err(FaultError::Guard));
    let refused = AdviseError::Fault(FaultError::Guard);
    assert_eq!(advise(&process, 0, 8, Advice::PopulateRead), Err(refused));

    assert_eq!(
        advise(&process, 3, 8, Advice::GuardRemove),
        Err(AdviseError::Hole(page(8)))
    );
    assert_eq!(process.load_with(2), Err(FaultError::Guard));
    assert_eq!(process.load(3), 0);
}

#[test]
fn guards_over_much_memory_cost_next_to_nothing() {
    let world = World::new();
    let process = world.process();
    let pages = 512 * 512 * 4;
    let before = process.space.table().table_frames();
    process.map_with(0, pages, RW, AreaFlags::NORESERVE);
    assert_eq!(
        advise(&process, 0, pages, Advice::GuardInstall),
        Ok(Advised::Done)
    );
    assert!(process.space.table().table_frames() < before + 8 * u64::from(Arch::TABLE_FRAMES));
    assert_eq!(
        process
            .space
            .fault(page(pages / 2), memwright::Access::READ),
        Err(FaultError::Guard)
    );
    // Unmapping a part of a guard marker for 1 GiB splits the marker.
    process.unmap(pages / 2 + 1, 77);
    assert_eq!(
        process
            .space
            .fault(page(pages / 2), memwright::Access::READ),
        Err(FaultError::Guard)
    );
    let gone = page(pages / 2 + 1);
    assert_eq!(
        process.space.fault(gone, memwright::Access::READ),
        Err(FaultError::NoArea)
    );
}

#[test]
fn advice_on_nothing_and_on_nonsense() {
    let world = World::new();
    let process = world.process();
    assert_eq!(advise(&process, 0, 0, Advice::DontNeed), Ok(Advised::Done));
    let odd = memwright_table::VirtAddr::new(page(0).as_u64() + 8);
    assert_eq!(
        process.space.advise(odd, PAGE, Advice::DontNeed),
        Err(AdviseError::Misaligned)
    );
    assert_eq!(
        process.space.advise(page(0), u64::MAX, Advice::DontNeed),
        Err(AdviseError::OutOfRange)
    );
    let account = world.counted(|| {
        assert_eq!(
            advise(&process, 0, 1, Advice::DontNeed),
            Err(AdviseError::Hole(page(0)))
        );
    });
    assert_eq!(rows(&account, &[Row::EntriesChanged]), [0]);
}

#[test]
fn a_guard_over_several_areas_is_forked_and_truncated_with_each() {
    let world = World::new();
    let pages = 512 * 512 * 2;
    let object = world.shmem(pages);
    let mut process = world.process();
    process.map_object(0, pages, RW, &object, true);
    process.store(1, 5).unwrap();
    assert_eq!(
        advise(&process, 2, pages - 2, Advice::GuardInstall),
        Ok(Advised::Done)
    );
    let middle = pages / 2 + 1;
    process.protect(middle, 1, R);
    let mut child = process.fork();
    for index in [2, middle - 1, middle, middle + 1, pages - 1] {
        assert_eq!(child.load_with(index), Err(FaultError::Guard));
    }
    object.set_size((middle + 7) * PAGE).unwrap();
    object.set_size(PAGE).unwrap();
    assert_eq!(process.load_with(1), Err(FaultError::BeyondObject));
    assert_eq!(process.load_with(middle), Err(FaultError::Guard));
    process.unmap(middle - 3, 10);
    assert_eq!(process.load_with(middle), Err(FaultError::NoArea));
}
