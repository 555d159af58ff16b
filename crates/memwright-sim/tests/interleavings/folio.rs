//! Folios that two CPUs fill, and give back in part, at the same time.

use std::sync::Arc;

use memwright::{Advice, MapRequest, SizeMode};
use memwright_sim::process::{Host, Process, Space};
use memwright_table::FrameKind;

use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, map, read, write};
use crate::world::{World, explore, explore_with};

/// The first page of a folio of 16 KiB, from `START`, and its pages.
const BEGIN: u64 = 2;
const PAGES: u64 = 4;

/// Memory of one folio that nobody touched.
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

/// Both touch it first: it is filled once, and neither store is lost.
#[test]
fn fault_and_fault_in_a_folio() {
    explore(
        &fresh,
        &[
            |world| write(world.process(), FIRST, BEGIN, 1).expect("writable"),
            |world| write(world.process(), SECOND, BEGIN + 3, 2).expect("writable"),
        ],
        |world| {
            for (page, byte) in [1, 0, 0, 2].into_iter().enumerate() {
                let found = read(world.process(), FIRST, BEGIN + page as u64);
                assert_eq!(found, Ok(byte), "{page}");
            }
            let used = world.host.frames().used_by(FrameKind::Anonymous);
            assert_eq!(used, PAGES);
            world.end()
        },
    );
}

/// A read that finds a page of zeroes in the midst of what the store of another is about to fill.
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

/// What goes, and what is filled anew in its place, while another stores to the rest.
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
