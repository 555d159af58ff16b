//! Equal pages that are merged while one of them is written.

use memwright::Advice;

use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, program, read, write};
use crate::world::{World, explore};

/// Two equal pages that have not changed since they were last scanned.
fn equal() -> World {
    World::new(2, 0, |host| {
        let process = program(host, 2, READ_WRITE);
        for page in 0..2 {
            write(&process, FIRST, page, 7).expect("writable");
            write(&process, SECOND, page, 7).expect("writable");
        }
        process.on(FIRST, |space| {
            space
                .advise(at(0), bytes(2), Advice::Mergeable)
                .expect("mapped");
            host.memory().merge_pages(100);
        });
        process
    })
}

/// The first thread: scans again, and merges the pages.
fn merge(world: &World) {
    world.process().on(FIRST, |_| {
        world.host.memory().merge_pages(100);
    });
}

/// Frees merged frames that no process maps any more, as when a process ends.
fn shed(world: &World) {
    world.process().on(SECOND, |_| {
        let memory = world.host.memory();
        memory.merging().shed(memory);
    });
}

/// Checks that only the first page has what was written to it.
fn check(world: World) -> Result<(), String> {
    let written = world.last_written(7);
    for cpu in [FIRST, SECOND] {
        assert_eq!(read(world.process(), cpu, 0), Ok(written));
        assert_eq!(read(world.process(), cpu, 1), Ok(7));
    }
    world.end()
}

/// Pages that were equal at the previous scan are merged while another CPU, which has one of them mapped writable,
/// writes to it: only that page has what was written.
#[test]
fn merge_and_write() {
    explore(&equal, &[merge, |world| world.try_write(0, 2)], check);
}

/// Pages are merged while another CPU frees merged frames that no process maps: once when the scan rests between two
/// pages, and once when it has continued.
#[test]
fn merge_and_shed() {
    let shed_twice = |world: &World| {
        shed(world);
        shed(world);
    };
    explore(&equal, &[merge, shed_twice], check);
}

/// Like `merge_and_shed`, and the first of the pages has been written by then: the frame that the second page is to map
/// is not mapped anywhere.
#[test]
fn merge_and_write_and_shed() {
    let shed_and_write_and_shed = |world: &World| {
        shed(world);
        world.try_write(0, 2);
        shed(world);
    };
    explore(&equal, &[merge, shed_and_write_and_shed], check);
}
