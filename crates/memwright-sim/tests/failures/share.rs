//! Failed allocations while address spaces share page tables after forks, and stop sharing them.

use std::sync::Arc;

use memwright::{Advice, MapRequest, Placement, RemapRequest, Row};
use memwright_testkit::HostSwap;

use crate::support::{READ, READ_WRITE, at, bytes};
use crate::trial::{Program, Trial, machine, run};

/// The number of pages that a program writes.
const PAGES: u64 = 12;

/// Creates a program that has written its pages, on a machine where forks share tables.
fn filled(trial: &Trial) -> Program {
    let memory = trial.host.memory();
    memory.policy().set("fork", "1").expect("a known policy");
    let added = memory.add_swap(Arc::new(HostSwap::new(64)), 0);
    assert_eq!(added, Ok(Some(0)));
    let program = trial.program();
    let own = MapRequest::anonymous(bytes(PAGES), READ_WRITE).at(Placement::Fixed(at(0)));
    trial.on("map", &program, |space| space.map(&own));
    for page in 0..PAGES {
        trial.write(&program, page, page as u8 + 1);
    }
    trial.begin();
    program
}

/// Forks twice, so that three programs share the tables.
fn family(trial: &Trial) -> [Program; 3] {
    let parent = filled(trial);
    let child = trial.fork(&parent);
    let grandchild = trial.fork(&child);
    assert!(trial.count(Row::TablesShared) > 0);
    [parent, child, grandchild]
}

#[test]
fn writes_and_protections() {
    run(&machine(512), 8, 2, |trial| {
        let [parent, child, grandchild] = family(trial);
        trial.write(&child, 3, 40);
        trial.write(&parent, 3, 41);
        for rights in [READ, READ_WRITE] {
            trial.on("mprotect", &grandchild, |space| {
                space.protect(at(2), bytes(6), rights)
            });
        }
        trial.write(&grandchild, 5, 42);
        trial.read(&parent, 5);
        let again = trial.fork(&parent);
        trial.write(&again, 0, 43);
        assert!(trial.host.frames().unshared_counts().copied > 2);
    });
}

#[test]
fn unmapped_moved_and_discarded_parts() {
    run(&machine(512), 6, 4, |trial| {
        let [parent, child, grandchild] = family(trial);
        trial.on("munmap", &child, |space| space.unmap(at(2), bytes(1)));
        trial.forget(&child, 2..3);
        trial.on("dontneed", &grandchild, |space| {
            space.advise(at(4), bytes(2), Advice::DontNeed)
        });
        trial.forget(&grandchild, 4..6);
        let moved = RemapRequest {
            old: at(8),
            old_length: bytes(2),
            new_length: bytes(2),
            may_move: true,
            fixed: Some(at(20)),
            dont_unmap: false,
        };
        trial.on("mremap", &parent, |space| space.remap(moved));
        trial.forget(&parent, 8..10);
        trial.write(&parent, 20, 9);
        trial.write(&child, 8, 50);
        trial.read(&grandchild, 2);
    });
}

#[test]
fn pages_of_shared_tables_leave_and_return() {
    run(&machine(512), 6, 2, |trial| {
        let [parent, child, grandchild] = family(trial);
        trial.on("pageout", &child, |space| {
            space.advise(at(0), bytes(PAGES), Advice::PageOut)
        });
        trial.read(&parent, 1);
        trial.write(&grandchild, 1, 60);
        trial.reclaim(&grandchild);
        trial.read(&child, 1);
        trial.write(&parent, 2, 61);
    });
}
