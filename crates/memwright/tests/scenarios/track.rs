//! Tests of soft-dirty tracking: which pages count as written since soft-dirty was cleared, under each of the two
//! tracking modes.

use memwright::Sight;
use memwright::{Advice, AreaFlags, RemapRequest};
use memwright_table::PageRange;

use crate::world::{Machine, PAGE, Process, R, RW, World, page};

/// Returns the soft-dirty pages among the first `count` pages.
fn soft_dirty(process: &Process<'_>, count: u64) -> Vec<u64> {
    let first = page(0).page().number();
    let range = PageRange::new(page(0).page(), page(count).page());
    let mut written = Vec::new();
    process
        .space
        .usage()
        .survey(range, |sight: Sight<'_, Machine>| {
            match sight {
                Sight::Area(area) => {
                    if area.flags().contains(AreaFlags::SOFT_DIRTY) {
                        written.extend(area.range().intersect(range).iter());
                    }
                }
                Sight::Entry(area, extent, _) => {
                    let bits = extent
                        .entry
                        .present()
                        .map_or_else(Default::default, |page| page.bits);
                    if area.is_soft_dirty(bits) && !area.flags().contains(AreaFlags::SOFT_DIRTY) {
                        written.extend(extent.range.iter());
                    }
                }
            }
            true
        });
    written.iter().map(|page| page.number() - first).collect()
}

/// Runs the scenario under both tracking policies. `faults` is the number of faults that a tracked store to an
/// exclusive page takes under the policy.
fn both_ways(scenario: impl Fn(&World, usize)) {
    for (policy, faults) in [("dirty-bit", 0), ("fault", 1)] {
        let world = World::new();
        world.memory.policy().set("track", policy).unwrap();
        scenario(&world, faults);
    }
}

#[test]
fn new_memory_is_soft_dirty_and_cleared_memory_is_where_it_was_written() {
    both_ways(|world, faults| {
        let mut process = world.process();
        process.map(0, 4, RW);
        process.store(0, 1).unwrap();
        process.store(1, 1).unwrap();
        assert_eq!(soft_dirty(&process, 4), [0, 1, 2, 3]);
        process.space.tracking().clear_soft_dirty();
        assert!(soft_dirty(&process, 4).is_empty());
        assert_eq!(process.store(1, 2).unwrap().len(), faults);
        process.load(0);
        process.load(2);
        assert_eq!(soft_dirty(&process, 4), [1]);
        // The first store to a page makes it soft-dirty under both policies.
        process.store(3, 1).unwrap();
        assert_eq!(soft_dirty(&process, 4), [1, 3]);
        process.space.tracking().clear_soft_dirty();
        assert!(soft_dirty(&process, 4).is_empty());
    });
}

#[test]
fn a_protection_change_neither_marks_nor_hides_a_store() {
    both_ways(|world, faults| {
        let mut process = world.process();
        process.map(0, 2, RW);
        process.store(0, 1).unwrap();
        process.store(1, 1).unwrap();
        process.space.tracking().clear_soft_dirty();
        process.store(0, 2).unwrap();
        process.protect(0, 2, R);
        process.protect(0, 2, RW);
        assert_eq!(soft_dirty(&process, 2), [0]);
        assert_eq!(process.store(1, 2).unwrap().len(), faults);
        assert_eq!(soft_dirty(&process, 2), [0, 1]);
    });
}

#[test]
fn pages_shared_after_a_fork_are_tracked_by_their_copies() {
    both_ways(|world, _| {
        let mut parent = world.process();
        parent.map(0, 3, RW);
        for index in 0..3 {
            parent.store(index, 1).unwrap();
        }
        let mut child = parent.fork();
        parent.space.tracking().clear_soft_dirty();
        assert!(soft_dirty(&parent, 3).is_empty());
        assert_eq!(
            soft_dirty(&child, 3),
            [0, 1, 2],
            "only the parent's were cleared"
        );
        parent.store(1, 2).unwrap();
        child.space.tracking().clear_soft_dirty();
        child.store(2, 3).unwrap();
        assert_eq!(soft_dirty(&parent, 3), [1]);
        assert_eq!(soft_dirty(&child, 3), [2]);
        drop(child);
        // The child has exited, so the pages are exclusive to the parent again. But nothing was stored to them.
        parent.protect(0, 3, R);
        parent.protect(0, 3, RW);
        assert_eq!(soft_dirty(&parent, 3), [1]);
    });
}

#[test]
fn shared_memory_is_tracked_by_faults() {
    both_ways(|world, _| {
        let mut process = world.process();
        let object = world.shmem(4);
        process.map_object(0, 4, RW, &object, true);
        process.store(0, 1).unwrap();
        process.store(1, 1).unwrap();
        process.space.tracking().clear_soft_dirty();
        assert!(soft_dirty(&process, 4).is_empty());
        process.load(2);
        assert_eq!(process.store(1, 2).unwrap().len(), 1);
        assert_eq!(process.store(2, 2).unwrap().len(), 1);
        assert_eq!(soft_dirty(&process, 4), [1, 2]);
    });
}

#[test]
fn populating_for_stores_counts_as_a_store_and_for_loads_does_not() {
    both_ways(|world, _| {
        let mut process = world.process();
        process.map(0, 4, RW);
        process.store(0, 1).unwrap();
        process.store(1, 1).unwrap();
        process.space.tracking().clear_soft_dirty();
        let advise = |advice| process.space.advise(page(0), 2 * PAGE, advice).unwrap();
        advise(Advice::PopulateRead);
        assert!(soft_dirty(&process, 4).is_empty());
        advise(Advice::PopulateWrite);
        assert_eq!(soft_dirty(&process, 4), [0, 1]);
    });
}

#[test]
fn new_memory_beside_cleared_memory_makes_all_of_it_soft_dirty() {
    both_ways(|world, _| {
        let process = world.process();
        process.map(0, 2, RW);
        process.space.tracking().clear_soft_dirty();
        process.map(2, 2, RW);
        assert_eq!(soft_dirty(&process, 4), [0, 1, 2, 3]);
    });
}

#[test]
fn what_was_moved_is_soft_dirty() {
    both_ways(|world, _| {
        let mut process = world.process();
        process.map(0, 2, RW);
        process.store(0, 1).unwrap();
        process.store(1, 1).unwrap();
        process.space.tracking().clear_soft_dirty();
        let request = RemapRequest {
            old: page(0),
            old_length: 2 * PAGE,
            new_length: 2 * PAGE,
            may_move: true,
            fixed: Some(page(8)),
            dont_unmap: false,
        };
        assert_eq!(process.space.remap(request), Ok(page(8)));
        assert_eq!(soft_dirty(&process, 10), [8, 9]);
    });
}
