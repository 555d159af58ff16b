//! Tests of folios that two CPUs populate and partly free at the same time.

use std::sync::Arc;

use memwright::object::{ObjectIdentity, Shmem};
use memwright::{Advice, MapRequest, SharedSetting, SharedSizeMode, SizeMode};
use memwright_sim::programs::{Host, Process, Space};
use memwright_table::FrameKind;

use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, map, read, write};
use crate::world::{World, explore, explore_with};

/// The first page of a folio of 16 KiB, counted from `START`, and the number of its pages.
const BEGIN: u64 = 2;
const PAGES: u64 = 4;

/// Creates a process with memory for one folio that was never accessed.
fn fresh() -> World {
    World::with_frames(256, 2, 0, |host: &Arc<Host>| {
        host.memory().huge().sizes.set_mode(2, SizeMode::Always);
        let process = Process::new(host);
        map(
            &process,
            MapRequest::anonymous(bytes(PAGES), READ_WRITE),
            BEGIN,
        );
        process
    })
}

/// The threads: each CPU stores to one end of the folio.
const BOTH_ENDS: [fn(&World); 2] = [
    |world| write(world.process(), FIRST, BEGIN, 1).expect("writable"),
    |world| write(world.process(), SECOND, BEGIN + 3, 2).expect("writable"),
];

/// The contents of the pages after both stores.
const STORED: [u8; PAGES as usize] = [1, 0, 0, 2];

fn check_both_ends(world: &World) {
    for (page, byte) in (0..).zip(STORED) {
        let found = read(world.process(), FIRST, BEGIN + page);
        assert_eq!(found, Ok(byte), "{page}");
    }
}

/// Both CPUs fault on a folio that was never accessed: the folio is filled once, and neither store is lost.
#[test]
fn fault_and_fault_in_a_folio() {
    explore(&fresh, &BOTH_ENDS, |world| {
        check_both_ends(&world);
        let used = world.host.frames().used_by(FrameKind::Anonymous);
        assert_eq!(used, PAGES);
        world.end()
    });
}

/// A load faults in the middle of a folio that a store by another CPU is about to populate: the load returns 0, and the
/// store is not lost.
#[test]
fn read_fault_in_the_midst_of_a_folio() {
    explore(
        &fresh,
        &[
            |world| assert_eq!(read(world.process(), FIRST, BEGIN + 1), Ok(0)),
            |world| write(world.process(), SECOND, BEGIN + 3, 2).expect("writable"),
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, BEGIN + 1), Ok(0));
            assert_eq!(read(world.process(), FIRST, BEGIN + 3), Ok(2));
            world.end()
        },
    );
}

/// The folio is discarded and one of its pages is stored to again, while another CPU stores to a second page and reads
/// a third. The store after the discard is not lost. The other pages have the value from before the discard, or 0.
#[test]
fn discard_and_fill_again() {
    explore_with(
        1,
        &|| {
            let world = fresh();
            write(world.process(), FIRST, BEGIN, 7).expect("writable");
            world
        },
        &[
            |world| {
                let pages = bytes(PAGES);
                let all = |space: &Space| space.advise(at(BEGIN), pages, Advice::DontNeed);
                world.process().on(FIRST, all).expect("mapped");
                write(world.process(), FIRST, BEGIN + 2, 3).expect("writable");
            },
            |world| {
                write(world.process(), SECOND, BEGIN + 1, 2).expect("writable");
                let found = read(world.process(), SECOND, BEGIN).expect("readable");
                assert!(found == 7 || found == 0, "{found}");
            },
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, BEGIN + 2), Ok(3));
            let found = read(world.process(), FIRST, BEGIN + 1);
            assert!(found == Ok(0) || found == Ok(2), "{found:?}");
            world.end()
        },
    );
}

/// Creates a process that maps shared memory for two folios, which was never accessed.
fn fresh_shared() -> World {
    let mut shared = None;
    let mut world = World::with_frames(256, 2, 0, |host: &Arc<Host>| {
        let settings = host.memory().huge();
        settings.set_shared_size(2, SharedSizeMode::Always);
        let process = Process::new(host);
        let identity = ObjectIdentity::default();
        let object = Shmem::new(host.memory().clone(), bytes(2 * PAGES), identity);
        let object = object.expect("heap");
        let object = Arc::new(object.with_huge_pages(SharedSetting::Anonymous));
        shared = Some(object.clone());
        let request = MapRequest::object(object, 0, bytes(2 * PAGES), READ_WRITE, true);
        map(&process, request, BEGIN);
        process
    });
    world.shared = shared;
    world
}

/// Both CPUs fault on a folio that was never accessed: the object has one page for each offset, and both CPUs access
/// the pages of the object.
#[test]
fn fault_and_fault_in_a_folio_of_shared_memory() {
    explore(&fresh_shared, &BOTH_ENDS, |world| {
        check_both_ends(&world);
        for (page, byte) in (0..).zip(STORED) {
            let mut stored = [9];
            let offset = bytes(page);
            assert_eq!(world.shared().read_at(offset, &mut stored), Ok(1));
            assert_eq!(stored, [byte], "{page}");
        }
        let used = world.host.frames().used_by(FrameKind::Object);
        assert_eq!((world.shared().resident(), used), (PAGES, PAGES));
        world.end()
    });
}

/// A system call writes to a page of shared memory while a fault populates the folio that contains the page: the mapped
/// page contains the written bytes.
#[test]
fn fault_in_a_folio_and_write_call() {
    explore(
        &fresh_shared,
        &[
            |world| write(world.process(), FIRST, BEGIN, 1).expect("writable"),
            |world| {
                let written = world.shared().write_at(bytes(2), &[7]);
                assert_eq!(written, Ok(1));
            },
        ],
        |world| {
            let resident = world.shared().resident();
            assert!(resident == 2 || resident == PAGES, "{resident}");
            for (page, byte) in [1, 0, 7, 0].into_iter().enumerate() {
                let found = read(world.process(), FIRST, BEGIN + page as u64);
                assert_eq!(found, Ok(byte), "{page}");
            }
            world.end()
        },
    );
}

/// A hole is punched into a part of a folio while another CPU fills and maps the folio: no process maps a removed page.
#[test]
fn fault_in_a_folio_and_punch() {
    explore(
        &fresh_shared,
        &[
            |world| {
                let punched = world.shared().punch(bytes(1), bytes(3));
                punched.expect("in memory");
            },
            |world| {
                write(world.process(), SECOND, BEGIN, 5).expect("writable");
                write(world.process(), SECOND, BEGIN + 2, 6).expect("writable");
            },
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, BEGIN), Ok(5));
            let found = read(world.process(), FIRST, BEGIN + 2);
            let mut stored = [9];
            assert_eq!(world.shared().read_at(bytes(2), &mut stored), Ok(1));
            assert!(found == Ok(0) || found == Ok(6), "{found:?}");
            assert_eq!(found, Ok(stored[0]), "another page is shown");
            let used = world.host.frames().used_by(FrameKind::Object);
            assert_eq!(world.shared().resident(), used);
            world.end()
        },
    );
}
