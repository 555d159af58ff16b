//! Equal pages that are merged while one of them is written.

use memwright::Advice;

use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, program, read, write};
use crate::world::{World, explore};

/// Two equal pages that have not changed since the scan looked at them.
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

/// The first thread: the scan comes by again, and merges them.
fn merge(world: &World) {
    world.process().on(FIRST, |_| {
        world.host.memory().merge_pages(100);
    });
}

/// Frames that nobody shows any more go, as when a process ends.
fn shed(world: &World) {
    world.process().on(SECOND, |_| {
        let memory = world.host.memory();
        memory.merging().shed(memory);
    });
}

/// The first page alone has what was written to it.
fn check(world: World) -> Result<(), String> {
    let written = world.last_written(7);
    for cpu in [FIRST, SECOND] {
        assert_eq!(read(world.process(), cpu, 0), Ok(written));
        assert_eq!(read(world.process(), cpu, 1), Ok(7));
    }
    world.end()
}

/// Pages that were equal when the scan last looked are merged while another CPU, which could write one of them without
/// asking, writes it: that page alone has what was written.
#[test]
fn merge_and_write() {
    explore(&equal, &[merge, |world| world.try_write(0, 2)], check);
}

/// Pages are merged while another CPU gives up merged frames that nobody shows: once when the scan rests between two
/// pages, and once when it has gone on.
#[test]
fn merge_and_shed() {
    let shed_twice = |world: &World| {
        shed(world);
        shed(world);
    };
    explore(&equal, &[merge, shed_twice], check);
}

/// The same, and the first of the pages has been written by then: nobody shows the frame that the second is to show.
#[test]
fn merge_and_write_and_shed() {
    let shed_and_write_and_shed = |world: &World| {
        shed(world);
        world.try_write(0, 2);
        shed(world);
    };
    explore(&equal, &[merge, shed_and_write_and_shed], check);
}
