//! Tests of forks: after a fork, neither the parent nor the child sees the stores of the other one.

use memwright::{AreaFlags, FaultError, FaultKind, Row};
use memwright_sim::Arch;
use memwright_table::Architecture;

use crate::world::{Process, R, RW, World, page, rows};

/// A step between a fork and the end of a scenario. The scenario is run with every order of the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    ParentProtects,
    ChildProtects,
    ParentWrites,
    ChildWrites,
}

fn protect_there_and_back(process: &Process<'_>) {
    process.protect(0, 4, R);
    process.protect(0, 4, RW);
}

fn permutations(steps: &[Step]) -> Vec<Vec<Step>> {
    if steps.is_empty() {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for (index, first) in steps.iter().enumerate() {
        let rest = [&steps[..index], &steps[index + 1..]].concat();
        all.extend(permutations(&rest).into_iter().map(|mut order| {
            order.insert(0, *first);
            order
        }));
    }
    all
}

#[test]
fn protecting_there_and_back_never_lets_one_see_the_others_write() {
    let steps = [
        Step::ParentProtects,
        Step::ChildProtects,
        Step::ParentWrites,
        Step::ChildWrites,
    ];
    for order in permutations(&steps) {
        let world = World::new();
        let mut parent = world.process();
        parent.map(0, 4, RW);
        parent.store(1, 1).unwrap();
        parent.load(2);
        let mut child = parent.fork();
        for step in &order {
            match step {
                Step::ParentProtects => protect_there_and_back(&parent),
                Step::ChildProtects => protect_there_and_back(&child),
                Step::ParentWrites => {
                    parent.store(1, 2).unwrap();
                    parent.store(2, 2).unwrap();
                }
                Step::ChildWrites => {
                    child.store(1, 3).unwrap();
                    child.store(2, 3).unwrap();
                }
            }
            parent.check();
            child.check();
        }
        assert_eq!((parent.load(1), parent.load(2)), (2, 2), "{order:?}");
        assert_eq!((child.load(1), child.load(2)), (3, 3), "{order:?}");
    }
}

#[test]
fn one_copies_and_the_last_one_reuses() {
    let world = World::new();
    let mut parent = world.process();
    parent.map(0, 2, RW);
    parent.store(0, 1).unwrap();
    let mut child = parent.fork();
    assert_eq!(child.store(0, 2), Ok(vec![FaultKind::Copy]));
    assert_eq!(parent.store(0, 3), Ok(vec![FaultKind::WriteOnly]));
    assert_eq!((parent.load(0), child.load(0)), (3, 2));
}

#[test]
fn a_parent_reuses_once_the_child_is_gone_and_then_is_exclusive_again() {
    let world = World::new();
    let mut parent = world.process();
    parent.map(0, 4, RW);
    parent.store(0, 1).unwrap();
    drop(parent.fork());
    assert_eq!(parent.store(0, 2), Ok(vec![FaultKind::WriteOnly]));
    protect_there_and_back(&parent);
    assert_eq!(parent.store(0, 3), Ok(vec![]));
}

#[test]
fn a_child_of_a_child_shares_with_both() {
    let world = World::new();
    let mut first = world.process();
    first.map(0, 1, RW);
    first.store(0, 1).unwrap();
    let mut second = first.fork();
    let mut third = second.fork();
    second.store(0, 2).unwrap();
    assert_eq!((first.load(0), second.load(0), third.load(0)), (1, 2, 1));
    third.store(0, 3).unwrap();
    first.store(0, 4).unwrap();
    assert_eq!((first.load(0), second.load(0), third.load(0)), (4, 2, 3));
}

#[test]
fn shared_memory_stays_shared() {
    let world = World::new();
    let object = world.shmem(4);
    let mut parent = world.process();
    parent.map_object(0, 4, RW, &object, true);
    parent.store(0, 1).unwrap();
    let mut child = parent.fork();
    assert_eq!(child.load(0), 1);
    child.store(0, 2).unwrap();
    child.store(3, 7).unwrap();
    assert_eq!((parent.load(0), parent.load(3)), (2, 7));
}

#[test]
fn private_pages_of_a_file_are_copied_with_the_fork_and_the_rest_is_found_again() {
    let world = World::new();
    let object = world.shmem(4);
    object.write_at(0, &[9; 16384]).unwrap();
    let mut parent = world.process();
    parent.map_object(0, 4, RW, &object, false);
    parent.store(0, 1).unwrap();
    parent.load(1);
    let mut child = parent.fork();
    assert_eq!((child.load(0), child.load(1), child.load(2)), (1, 9, 9));
    child.store(1, 2).unwrap();
    assert_eq!((parent.load(1), child.load(1)), (9, 2));
    let mut byte = [0];
    object.read_at(4096, &mut byte).unwrap();
    assert_eq!(byte, [9]);
}

/// A refused store to a private file mapping gives the area an anon_vma. A fork therefore copies the entries of the
/// mapped pages, so that the child need not fault on these pages.
#[test]
fn a_refused_write_of_a_file_makes_a_fork_copy_what_is_mapped() {
    let world = World::new();
    let mut parent = world.process();
    let object = world.shmem(2);
    object.write_at(0, &[9; 4096]).unwrap();
    parent.map_object(0, 4, RW, &object, false);
    assert_eq!(parent.load(0), 9);
    assert_eq!(parent.fork().resident(), 0);
    assert_eq!(parent.store(3, 1), Err(FaultError::BeyondObject));
    assert_eq!(parent.fork().resident(), parent.resident());
}

#[test]
fn advice_about_forks_is_followed() {
    let world = World::new();
    let mut parent = world.process();
    parent.map_with(0, 1, RW, AreaFlags::DONTFORK);
    parent.map_with(2, 1, RW, AreaFlags::WIPEONFORK);
    parent.map_with(4, 1, RW, AreaFlags::LOCKED);
    for index in [0, 2, 4] {
        parent.store(index, 5).unwrap();
    }
    let mut child = parent.fork();
    assert!(child.store(0, 1).is_err());
    assert_eq!(child.load(2), 0);
    assert_eq!(child.load(4), 5);
    assert_eq!(child.space.usage().totals().locked, 0);
    assert_eq!(parent.space.usage().totals().locked, 1);
    assert_eq!(parent.load(2), 5);
}

#[test]
fn a_pinned_page_is_copied_at_once_and_stays_the_parents_own() {
    let world = World::new();
    let mut parent = world.process();
    parent.map(0, 3, RW);
    for index in 0..3 {
        parent.store(index, 1).unwrap();
    }
    let frame = parent.space.entry(page(1)).present().unwrap().frame;
    world.frames.pin(frame);
    let mut child = parent.fork();
    assert_eq!(
        parent.store(1, 2),
        Ok(vec![]),
        "the pinned page stayed writable"
    );
    assert_eq!(parent.store(0, 2), Ok(vec![FaultKind::Copy]));
    assert_eq!((child.load(0), child.load(1), child.load(2)), (1, 1, 1));
    assert_eq!(parent.space.entry(page(1)).present().unwrap().frame, frame);
    world.frames.unpin(frame);
}

#[test]
fn forks_are_counted() {
    let world = World::new();
    let mut parent = world.process();
    parent.map(0, 8, RW);
    for index in 0..5 {
        parent.store(index, 1).unwrap();
    }
    parent.load(6);
    let account = world.counted(|| drop(parent.fork()));
    assert_eq!(
        rows(&account, &[Row::Forks, Row::ForkCopied, Row::EntriesShrank]),
        [1, 6, 5]
    );
}

#[test]
fn two_hundred_children_come_and_go() {
    let world = World::with_frames(16384);
    let mut parent = world.process();
    parent.map(0, 16, RW);
    for index in 0..16 {
        parent.store(index, 1).unwrap();
    }
    let mut children = Vec::new();
    for number in 0..200_u64 {
        let mut child = parent.fork();
        child.store(number % 16, number as u8).unwrap();
        children.push(child);
    }
    for (number, child) in children.iter_mut().enumerate() {
        assert_eq!(child.load(number as u64 % 16), number as u8);
        assert_eq!(child.load((number as u64 + 1) % 16), 1);
    }
}

#[cfg(feature = "share")]
#[test]
fn tables_are_shared_only_if_upper_entries_can_forbid_stores() {
    let world = World::new();
    world.memory.policy().set("fork", "1").unwrap();
    let mut parent = world.process();
    parent.map(0, 4, RW);
    parent.store(0, 1).unwrap();
    let account = world.counted(|| {
        let mut child = parent.fork();
        child.store(0, 2).unwrap();
    });
    let shared = rows(&account, &[Row::TablesShared, Row::TablesCopied]);
    assert_eq!(shared, [u64::from(Arch::SHARES_TABLES); 2]);
    assert_eq!(parent.load(0), 1);
}
