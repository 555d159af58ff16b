//! Tests of pages with equal contents that are merged while one of them is written.

use memwright::Advice;

use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, program, read, write};
use crate::world::{World, explore};

/// Creates a process with two equal pages that have not changed since they were last scanned.
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

/// Scans again and merges the pages. This is the first thread of the cases.
fn merge(world: &World) {
    world.process().on(FIRST, |_| {
        world.host.memory().merge_pages(100);
    });
}

/// Frees merged frames that no process maps any more, as the kernel does when a process exits.
fn shed(world: &World) {
    world.process().on(SECOND, |_| {
        let memory = world.host.memory();
        memory.merging().shed(memory);
    });
}

/// Checks that the first page has the last value written to it, and that the second page still holds 7.
fn check(world: World) -> Result<(), String> {
    let written = world.last_written(7);
    for cpu in [FIRST, SECOND] {
        assert_eq!(read(world.process(), cpu, 0), Ok(written));
        assert_eq!(read(world.process(), cpu, 1), Ok(7));
    }
    world.end()
}

/// Pages that were equal at the previous scan are merged while another CPU writes to the first one through a cached
/// writable translation: only that page has the written value.
#[test]
fn merge_and_write() {
    explore(&equal, &[merge, |world| world.try_write(0, 2)], check);
}

/// Pages are merged while another CPU frees the merged frames that no process maps, twice: for example once between the
/// two pages of the scan, and once after the second page. Both pages keep their contents.
#[test]
fn merge_and_shed() {
    let shed_twice = |world: &World| {
        shed(world);
        shed(world);
    };
    explore(&equal, &[merge, shed_twice], check);
}

/// Like `merge_and_shed`, but the other CPU also writes to the first page between the two frees. In some orders, no
/// page maps the merged frame at the second free, although the scan is about to map it for the second page.
#[test]
fn merge_and_write_and_shed() {
    let shed_and_write_and_shed = |world: &World| {
        shed(world);
        world.try_write(0, 2);
        shed(world);
    };
    explore(&equal, &[merge, shed_and_write_and_shed], check);
}
