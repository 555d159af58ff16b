//! Tests of userfaultfd's read-write protection: pages are armed, aged, copied and made to fault while another CPU stores.
//!
//! The hardware may walk to an armed page on its own, which counts as an access, so no case relies on a page staying
//! unaccessed.

use memwright::Advice;
use memwright::track::{Categories, Scan};
use memwright::uffd::WatchModes;
use memwright_sim::process::{Signal, Space};
use memwright_table::CpuId;

use crate::fork::fork;
use crate::support::{FIRST, READ, READ_WRITE, SECOND, at, bytes, protect, read, write};
use crate::world::{World, explore};

/// Creates a page that every CPU has written and cached, and registers it for read-write protection.
fn watched(counts: bool) -> World {
    let world = World::written(2, 1).watched(1, false, WatchModes::READ_WRITE_PROTECT);
    set_mode(&world, counts);
    world
}

/// Like `watched`, and arms the page.
fn armed(counts: bool) -> World {
    let world = watched(counts);
    rw_protect(&world, true);
    world
}

fn set_mode(world: &World, counts: bool) {
    let watch = world.watch.as_ref().expect("registered");
    let call = |space: &Space| space.count_accesses(watch, counts);
    world.process().on(FIRST, call);
}

fn rw_protect(world: &World, protect: bool) {
    let call = |space: &Space| space.read_write_protect(at(0), bytes(1), protect);
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

/// Checks that the page counts as accessed if a store to it succeeded, and that no store that succeeded is lost.
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

/// A page is armed while another CPU stores to it: no store lands that began afterwards, and no store that succeeded is
/// lost.
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

/// Like `arm_and_write`, where accesses only count: every store succeeds, and a store that began after the page was
/// armed is reported.
#[test]
fn arm_and_count() {
    explore(&|| watched(true), &[arm, two_stores], |world| {
        let after = world.seen.lock().unwrap()[1].0;
        assert_eq!(read(world.process(), FIRST, 0), Ok(3));
        assert!(!after || is_accessed(&world, FIRST), "not reported");
        world.end()
    });
}

/// Accesses begin to wait while another CPU stores: a store succeeds and is reported, or it waits.
#[test]
fn wait_and_write() {
    let wait = |world: &World| {
        set_mode(world, false);
        world.over();
    };
    explore(&|| armed(true), &[wait, two_stores], reported);
}

/// Accesses begin to count while another CPU waits.
#[test]
fn count_and_write() {
    let count = |world: &World| {
        set_mode(world, true);
        world.over();
    };
    explore(&|| armed(false), &[count, two_stores], reported);
}

/// An armed page is aged while another CPU stores to it.
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
    explore(&|| armed(true), &[fork, two_stores], reported);
}
