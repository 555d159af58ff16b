//! Tests that make each allocation fail once. The operation must then return an error, leak nothing, and leave no
//! partial change.

use std::sync::{Arc, Mutex};

use memwright::object::{ObjectIdentity, Shmem};
use memwright::{AddressSpace, Advice, MapRequest, Placement, RemapRequest};
use memwright_table::handle::fail_heap_after;

use crate::world::{Machine, PAGE, R, RW, World, page};

/// Held during each test. Only one test may run at a time, because heap failures are injected for the whole program.
static HEAP: Mutex<()> = Mutex::new(());

/// Changes protection and properties of the memory, and merges pages. After each operation, calls `step` with true if
/// the operation succeeded.
fn change(world: &World, space: &AddressSpace<Machine>, step: &mut impl FnMut(bool)) {
    step(space.protect(page(10), 20 * PAGE, R).is_ok());
    step(space.protect(page(5), 500 * PAGE, RW).is_ok());
    step(space.residency().lock(page(50), 3 * PAGE, false).is_ok());
    step(
        space
            .advise(page(200), 4 * PAGE, Advice::PopulateWrite)
            .is_ok(),
    );
    step(
        space
            .advise(page(300), 4 * PAGE, Advice::GuardInstall)
            .is_ok(),
    );
    step(space.advise(page(400), 4 * PAGE, Advice::DontFork).is_ok());
    step(space.advise(page(0), 600 * PAGE, Advice::Mergeable).is_ok());
    for _ in 0..3 {
        while !world.memory.merge_pages(100) {}
    }
    step(space.write(page(0), &[7]).is_ok());
    step(
        space
            .advise(page(0), 600 * PAGE, Advice::Unmergeable)
            .is_ok(),
    );
    step(space.advise(page(2000), 4 * PAGE, Advice::Remove).is_ok());
}

/// Moves memory to a free range and to a fixed address. After each operation, calls `step` with true if the operation
/// succeeded.
fn relocate(space: &AddressSpace<Machine>, step: &mut impl FnMut(bool)) {
    let remap = RemapRequest {
        old: page(100),
        old_length: 200 * PAGE,
        new_length: 900 * PAGE,
        may_move: true,
        fixed: None,
        dont_unmap: false,
    };
    step(space.remap(remap).is_ok());
    let fixed = RemapRequest {
        old: page(500),
        old_length: 50 * PAGE,
        new_length: 50 * PAGE,
        fixed: Some(page(9000)),
        ..remap
    };
    step(space.remap(fixed).is_ok());
}

/// Runs a script that covers every operation. If a step runs out of memory, the script continues with the next step.
/// Returns the number of failed steps.
fn script(world: &World) -> usize {
    let mut failed = 0;
    let mut step = |done: bool| failed += usize::from(!done);
    let identity = ObjectIdentity::default();
    let Ok(object) = Shmem::new(world.memory.clone(), 600 * PAGE, identity) else {
        return 1;
    };
    let object = Arc::new(object);
    let layout = memwright::Layout::of::<memwright_sim::Arch>();
    let Ok(space) = AddressSpace::<Machine>::new(world.memory.clone(), layout) else {
        return 1;
    };
    let anonymous = |index: u64, pages| {
        MapRequest::anonymous(pages * PAGE, RW).at(Placement::Fixed(page(index)))
    };
    step(space.map(&anonymous(0, 600)).is_ok());
    for index in [0, 1, 100, 511, 512, 599] {
        step(space.write(page(index), &[7]).is_ok());
    }
    step(space.read(page(2), &mut [0]).is_ok());
    let shared = MapRequest::object(object.clone(), 0, 600 * PAGE, RW, true);
    step(space.map(&shared.at(Placement::Fixed(page(2000)))).is_ok());
    let private = MapRequest::object(object.clone(), 0, 600 * PAGE, RW, false);
    step(space.map(&private.at(Placement::Fixed(page(4000)))).is_ok());
    for index in [2000, 2599, 4000, 4001] {
        step(space.write(page(index), &[7]).is_ok());
    }
    step(space.read(page(4100), &mut [0]).is_ok());
    step(object.write_at(300 * PAGE + 5, &[1; 9000]).is_ok());
    change(world, &space, &mut step);
    match space.fork() {
        Ok(child) => {
            step(child.write(page(1), &[8]).is_ok());
            step(space.write(page(1), &[9]).is_ok());
            assert_eq!(child.audit(), Ok(()));
        }
        Err(_) => step(false),
    }
    relocate(&space, &mut step);
    step(space.unmap(page(1), PAGE).is_ok());
    step(space.unmap(page(2100), 300 * PAGE).is_ok());
    assert_eq!(space.audit(), Ok(()));
    // Memory is available again: every operation must succeed.
    world.frames.fail_after(None);
    fail_heap_after(None);
    space.map(&anonymous(0, 600)).unwrap();
    space.write(page(0), &[1]).unwrap();
    assert_eq!(space.audit(), Ok(()));
    failed
}

#[test]
fn every_frame_may_be_missing() {
    let _turn = HEAP
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let allocations = {
        let world = World::with_frames(4096);
        let before = world.frames.allocations();
        assert_eq!(script(&world), 0);
        world.frames.allocations() - before
    };
    assert!(allocations > 50);
    let mut noticed = 0;
    for failing in 0..allocations {
        let world = World::with_frames(4096);
        world.frames.fail_after(Some(failing));
        noticed += usize::from(script(&world) > 0);
    }
    // A few allocations can fail without making a step fail: allocations for pages around a fault, which are optional,
    // and allocations for lists that are built again later.
    assert!(
        noticed as u64 > allocations * 8 / 10,
        "{noticed} of {allocations}"
    );
}

#[test]
fn every_piece_of_heap_may_be_missing() {
    let _turn = HEAP
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut noticed = 0;
    for failing in 0..60 {
        let world = World::with_frames(4096);
        fail_heap_after(Some(failing));
        noticed += usize::from(script(&world) > 0);
        fail_heap_after(None);
    }
    assert!(noticed > 10, "{noticed}");
}

#[test]
fn a_machine_that_is_full_says_so_and_recovers() {
    let world = World::with_frames(1024);
    let mut process = world.process();
    process.map(0, 900, RW);
    let mut stored = 0;
    while process.store(stored, 1).is_ok() {
        stored += 1;
        if stored == 900 {
            process.map(1000, 900, RW);
            stored = 1000;
        }
    }
    assert_eq!(
        process.store(stored, 1),
        Err(memwright::FaultError::OutOfMemory)
    );
    process.check();
    process.unmap(0, 100);
    assert!(process.store(stored, 1).is_ok());
}
