//! Tests of userfaultfd's read-write protection: pages are armed (read-write-protected), aged, copied and faulted on
//! while another CPU stores to them. A case whose comment states no result checks that no successful store is lost, and
//! that a page that was stored to counts as accessed (`reported`).
//!
//! The simulated hardware may walk to an armed page at any step, which counts as an access. No case therefore relies on
//! a page staying unaccessed.

use memwright::track::{Categories, Scan};
use memwright::uffd::WatchModes;
use memwright::{Advice, Moving, RemapRequest, Unmoved};
use memwright_sim::MachineOptions;
use memwright_sim::process::{Signal, Space};
use memwright_table::{CpuId, NodeChoice};

use crate::fork::fork;
use crate::support::{FIRST, READ, READ_WRITE, SECOND, at, bytes, program, protect, read, write};
use crate::swap;
use crate::world::{World, explore};

/// Creates a page that every CPU has written and cached, and registers it for read-write protection: in asynchronous
/// mode if `counts` is true, otherwise in synchronous mode.
fn watched(counts: bool) -> World {
    let world = World::written(2, 1).watched(1, false, WatchModes::READ_WRITE_PROTECT);
    set_mode(&world, counts);
    world
}

/// Creates a page as `watched` does, and arms it.
fn armed(counts: bool) -> World {
    let world = watched(counts);
    rw_protect(&world, true);
    world
}

fn set_mode(world: &World, counts: bool) {
    let watch = world.watch.as_ref().expect("registered");
    let call = |space: &Space| space.uffd().count_accesses(watch, counts);
    world.process().on(FIRST, call);
}

fn rw_protect(world: &World, protect: bool) {
    let call = |space: &Space| space.uffd().read_write_protect(at(0), bytes(1), protect);
    world.process().on(FIRST, call).expect("registered");
}

/// Returns whether the page counts as accessed.
fn is_accessed(world: &World, cpu: CpuId) -> bool {
    let wanted = Scan {
        inverted: Categories::empty(),
        all: Categories::ACCESSED,
        any: Categories::empty(),
        protect: false,
        only_tracked: false,
    };
    world.matches(cpu, at(0).page(), &wanted)
}

fn arm(world: &World) {
    rw_protect(world, true);
    world.over();
}

fn two_stores(world: &World) {
    world.try_write(0, 2);
    world.try_write(0, 3);
}

/// Checks that the page counts as accessed if a store to it succeeded, and that no successful store is lost.
fn reported(world: World) -> Result<(), String> {
    let stored = world
        .seen
        .lock()
        .unwrap()
        .iter()
        .any(|(_, outcome)| outcome.is_ok());
    assert!(!stored || is_accessed(&world, FIRST), "not reported");
    rw_protect(&world, false);
    assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
    world.end()
}

/// A page is armed while another CPU stores to it: no store that began after the arming succeeds, and no successful
/// store is lost.
#[test]
fn arm_and_write() {
    explore(&|| watched(false), &[arm, two_stores], |world| {
        world.none_after(Signal::Bus);
        assert_eq!(write(world.process(), SECOND, 0, 9), Err(Signal::Bus));
        assert_eq!(read(world.process(), FIRST, 0), Err(Signal::Bus));
        rw_protect(&world, false);
        assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
        world.end()
    });
}

/// A page is armed in asynchronous mode while another CPU stores to it: every store succeeds, and a store that began
/// after the arming is reported.
#[test]
fn arm_and_count() {
    explore(&|| watched(true), &[arm, two_stores], |world| {
        let after = world.seen.lock().unwrap()[1].0;
        assert_eq!(read(world.process(), FIRST, 0), Ok(3));
        assert!(!after || is_accessed(&world, FIRST), "not reported");
        world.end()
    });
}

/// The context changes to synchronous mode while another CPU stores: the store succeeds and is reported, or it waits.
#[test]
fn wait_and_write() {
    let wait = |world: &World| {
        set_mode(world, false);
        world.over();
    };
    explore(&|| armed(true), &[wait, two_stores], reported);
}

/// The context changes to asynchronous mode while another CPU stores to an armed page.
#[test]
fn count_and_write() {
    let count = |world: &World| {
        set_mode(world, true);
        world.over();
    };
    explore(&|| armed(false), &[count, two_stores], reported);
}

/// An armed page is aged (`MADV_COLD`) while another CPU stores to it.
#[test]
fn age_and_write() {
    let age = |world: &World| {
        let call = |space: &Space| space.advise(at(0), bytes(1), Advice::Cold);
        world.process().on(FIRST, call).expect("mapped");
    };
    explore(&|| armed(true), &[age, two_stores], reported);
}

/// The rights of an armed page change while another CPU stores to it.
#[test]
fn protect_and_write() {
    let both = |world: &World| {
        protect(world.process(), FIRST, 0, 1, READ);
        protect(world.process(), FIRST, 0, 1, READ_WRITE);
    };
    explore(&|| armed(false), &[both, two_stores], reported);
    explore(&|| armed(true), &[both, two_stores], reported);
}

/// An armed page is copied for a child while another CPU stores to it.
#[test]
fn fork_and_write() {
    explore(&|| armed(false), &[fork, two_stores], reported);
    explore(&|| armed(true), &[fork, two_stores], reported);
}

/// Registers the page of `world` for read-write protection and arms it. Returns `world`.
fn armed_in(world: World, counts: bool) -> World {
    let world = world.watched(1, false, WatchModes::READ_WRITE_PROTECT);
    set_mode(&world, counts);
    rw_protect(&world, true);
    world
}

/// A scan that begins after a store to an armed page must report the page.
#[test]
fn scan_and_write() {
    let scan = |world: &World| {
        let stored = !world.seen.lock().unwrap().is_empty();
        assert!(!stored || is_accessed(world, FIRST), "not reported");
    };
    explore(&|| armed(true), &[scan, two_stores], reported);
}

/// A page is armed again after a scan has reported it, while another CPU stores to it: a store that began after the
/// second arming is reported too.
#[test]
fn scan_and_arm_again_and_write() {
    let scan = |world: &World| {
        if is_accessed(world, FIRST) {
            rw_protect(world, true);
            world.over();
        }
    };
    explore(&|| armed(true), &[scan, two_stores], |world| {
        let after = world.seen.lock().unwrap()[1].0;
        assert!(!after || is_accessed(&world, FIRST), "not reported");
        world.end()
    });
}

fn page_out(world: &World) {
    swap::page_out(world, FIRST);
}

/// An armed page is swapped out while another CPU stores to it.
#[test]
fn swap_out_and_write() {
    for counts in [false, true] {
        let begin = || armed_in(swap::swapping(), counts);
        explore(&begin, &[page_out, two_stores], reported);
    }
}

/// The context changes to synchronous mode while another CPU stores to an armed page in swap: a store that began after
/// the change is refused.
#[test]
fn wait_and_swap_in() {
    let wait = |world: &World| {
        set_mode(world, false);
        world.over();
    };
    let begin = || {
        let world = armed_in(swap::swapping(), true);
        page_out(&world);
        world
    };
    explore(&begin, &[wait, two_stores], |world| {
        // Until the first store swaps the page in, the hardware cannot walk to it, so the page still counts as not
        // accessed.
        let (after, outcome) = world.seen.lock().unwrap()[0];
        assert!(!after || outcome == Err(Signal::Bus), "{outcome:?}");
        reported(world)
    });
}

/// Moves the page to the second node. A busy page is not moved.
fn migrate(world: &World) {
    let choice = NodeChoice::only(1);
    let call = |space: &Space| space.numa().migrate(at(0).page(), choice, Moving::Own);
    let moved = world.process().on(FIRST, call);
    assert!(moved.is_ok() || moved == Err(Unmoved::Busy), "{moved:?}");
}

/// Creates a world with two nodes and an armed page on the first node.
fn on_two_nodes(counts: bool) -> World {
    let options = MachineOptions {
        frames: 64,
        nodes: 2,
        ..MachineOptions::default()
    };
    let world = World::on(options, |host| {
        let process = program(host, 1, READ_WRITE);
        for cpu in host.machine().cpus() {
            write(&process, cpu, 0, 1).expect("writable");
        }
        process
    });
    armed_in(world, counts)
}

/// An armed page migrates while another CPU stores to it.
#[test]
fn migrate_and_write() {
    for counts in [false, true] {
        let begin = || on_two_nodes(counts);
        explore(&begin, &[migrate, two_stores], reported);
    }
}

/// A page migrates while another CPU scans for accessed pages. The page was accessed since it was armed, so the scan
/// must report it.
#[test]
fn migrate_and_scan() {
    let begin = || {
        let world = on_two_nodes(true);
        write(world.process(), SECOND, 0, 5).expect("accessible");
        world
    };
    let scan = |world: &World| assert!(is_accessed(world, SECOND), "not reported");
    explore(&begin, &[migrate, scan], World::end);
}

/// An armed page moves out of the registered area while another CPU stores to it: at its new address it is accessible,
/// and contains what was stored at the old address.
#[test]
fn move_and_write() {
    let relocate = |world: &World| {
        let request = RemapRequest {
            old: at(0),
            old_length: bytes(1),
            new_length: bytes(1),
            may_move: true,
            fixed: Some(at(1)),
            dont_unmap: false,
        };
        let call = |space: &Space| space.remap(request);
        world.process().on(FIRST, call).expect("mapped");
        world.over();
    };
    for counts in [false, true] {
        explore(&|| armed(counts), &[relocate, two_stores], |world| {
            for (after, outcome) in world.seen.lock().unwrap().iter() {
                assert!(!after || *outcome == Err(Signal::Unmapped), "{outcome:?}");
            }
            let last = world.last_written(1);
            assert_eq!(read(world.process(), FIRST, 1), Ok(last));
            assert_eq!(write(world.process(), SECOND, 1, 9), Ok(()));
            world.end()
        });
    }
}
