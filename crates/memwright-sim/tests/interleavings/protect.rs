//! Tests of rights that are removed while another CPU uses them.

use memwright::Rights;
use memwright_table::{Bits, Entry, PageRange};
use memwright_testkit::process::Signal;

use crate::support::{FIRST, READ, READ_WRITE, SECOND, at, protect, read, write};
use crate::world::{World, explore};

#[test]
fn fault_and_protect() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| {
                protect(world.process(), FIRST, 0, 1, READ);
                world.over();
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            world.none_after(Signal::Forbidden);
            assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
            assert!(write(world.process(), SECOND, 0, 9).is_err());
            world.end()
        },
    );
}

#[test]
fn fault_and_protect_to_nothing_and_back() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| {
                protect(world.process(), FIRST, 0, 1, Rights::empty());
                protect(world.process(), FIRST, 0, 1, READ_WRITE);
                world.over();
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            let seen = world.seen.lock().unwrap().clone();
            // A store that began after all rights were restored is not refused.
            assert!(!seen[0].0 || seen[0].1.is_ok(), "{seen:?}");
            assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
            world.end()
        },
    );
}

#[test]
fn protect_and_protect_of_neighbours() {
    explore(
        &|| World::written(2, 2),
        &[
            |world| protect(world.process(), FIRST, 0, 1, READ),
            |world| {
                protect(world.process(), SECOND, 1, 1, Rights::empty());
                protect(world.process(), SECOND, 1, 1, READ);
            },
        ],
        |world| {
            for page in 0..2 {
                assert_eq!(read(world.process(), SECOND, page), Ok(1));
                assert_eq!(
                    write(world.process(), FIRST, page, 2),
                    Err(Signal::Forbidden)
                );
            }
            world.end()
        },
    );
}

/// The rights of a clean page change while another CPU writes to it for the first time: if the write succeeds, the
/// entry is dirty.
#[test]
fn protect_and_first_write() {
    let begin = || {
        World::sharing(&[0], |process| {
            for cpu in [FIRST, SECOND] {
                assert_eq!(read(process, cpu, 0), Ok(0));
            }
        })
    };
    explore(
        &begin,
        &[
            |world| protect(world.process(), FIRST, 0, 1, READ),
            |world| world.try_write(0, 2),
        ],
        |world| {
            let written = world.last_written(0);
            assert_eq!(read(world.process(), FIRST, 0), Ok(written));
            let page = PageRange::single(at(0).page());
            let entry = world
                .process()
                .on(FIRST, |space| space.table().cursor(page).peek());
            let Entry::Present(page) = entry else {
                panic!("{entry:?}");
            };
            assert_eq!(page.bits.contains(Bits::DIRTY), written != 0);
            world.end()
        },
    );
}

/// The area is split in three: the pages on both sides of the middle part stay writable throughout.
#[test]
fn split_and_fault() {
    explore(
        &|| World::fresh(3),
        &[
            |world| protect(world.process(), FIRST, 1, 1, READ),
            |world| {
                world.try_write(2, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            let seen = world.seen.lock().unwrap().clone();
            assert_eq!(seen, [(false, Ok(2)), (false, Ok(3))]);
            assert_eq!(read(world.process(), FIRST, 2), Ok(2));
            world.end()
        },
    );
}
