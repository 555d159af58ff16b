//! Tests of pages of a file that are cleaned or truncated while they are in use.

use std::sync::atomic::Ordering;

use memwright::MapRequest;
use memwright_sim::process::Signal;

use crate::support::{FIRST, READ_WRITE, SECOND, bytes, map, read, unmap};
use crate::world::{World, explore};

/// Write-back cleans a page that another CPU writes. The file is notified of every write that the written-back copy
/// lacks.
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
