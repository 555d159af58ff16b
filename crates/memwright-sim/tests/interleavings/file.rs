//! Tests of file pages that are written back or truncated while they are in use.

use std::sync::atomic::Ordering;

use memwright::{MapRequest, RemapRequest};
use memwright_testkit::process::Signal;

use crate::support::{FIRST, READ, READ_WRITE, SECOND, at, bytes, map, protect, read, unmap};
use crate::world::{World, explore};

/// A page is written back while another CPU writes to it. The file is notified of every write that the written-back
/// copy does not contain.
#[test]
fn clean_and_write() {
    explore(
        &World::of_file,
        &[
            |world| {
                world.file().clean();
                world.over();
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            assert_eq!(world.file().check(), None, "not announced");
            assert_eq!(read(world.process(), FIRST, 0), Ok(3));
            let after = world.seen.lock().unwrap()[1].0;
            assert!(!after || world.file().dirty() == [0]);
            world.end()
        },
    );
}

/// A page of a file is truncated while another CPU faults it in: afterwards the page is not mapped.
#[test]
fn truncate_and_fault() {
    let begin = || {
        let world = World::of_file();
        unmap(world.process(), FIRST, 0, 1);
        let file = world.file.clone().expect("there");
        let request = MapRequest::object(file, 0, bytes(1), READ_WRITE, true);
        map(world.process(), request, 0);
        world
    };
    explore(
        &begin,
        &[
            |world| {
                world.file().truncate(0);
                world.over();
            },
            |world| {
                for _ in 0..2 {
                    let after = world.over.load(Ordering::SeqCst);
                    let outcome = read(world.process(), SECOND, 0);
                    world.seen.lock().unwrap().push((after, outcome));
                }
            },
        ],
        |world| {
            world.none_after(Signal::Bus);
            assert_eq!(read(world.process(), FIRST, 0), Err(Signal::Bus));
            world.end()
        },
    );
}

/// A page of a file is truncated while another CPU moves the area that maps it: afterwards no area maps the page.
#[test]
fn truncate_and_move() {
    explore(
        &World::of_file,
        &[
            |world| {
                world.file().truncate(0);
                world.over();
            },
            |world| {
                let request = RemapRequest {
                    old: at(0),
                    old_length: bytes(1),
                    new_length: bytes(1),
                    may_move: true,
                    fixed: Some(at(3)),
                    dont_unmap: false,
                };
                let moved = world.process().on(SECOND, |space| space.remap(request));
                moved.expect("room");
            },
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 3), Err(Signal::Bus));
            world.end()
        },
    );
}

/// Two pages of a file, which two areas map, are truncated while another CPU merges the areas: afterwards neither page
/// is mapped.
#[test]
fn truncate_and_merge() {
    let begin = || {
        let world = World::of_file();
        let file = world.file.clone().expect("there");
        file.grow(2);
        unmap(world.process(), FIRST, 0, 1);
        // Map the pages from the top down and with different rights, so that two areas exist, which are registered with
        // the object separately.
        for (page, rights) in [(1, READ_WRITE), (0, READ)] {
            let request = MapRequest::object(file.clone(), bytes(page), bytes(1), rights, true);
            map(world.process(), request, page);
            assert_eq!(read(world.process(), FIRST, page).map(drop), Ok(()));
        }
        world
    };
    explore(
        &begin,
        &[
            |world| {
                world.file().truncate(0);
                world.over();
            },
            |world| protect(world.process(), SECOND, 0, 1, READ_WRITE),
        ],
        |world| {
            for page in [0, 1] {
                assert_eq!(read(world.process(), FIRST, page), Err(Signal::Bus));
            }
            world.end()
        },
    );
}
