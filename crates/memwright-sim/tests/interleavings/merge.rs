//! Equal pages that are merged while one of them is written.

use memwright::Advice;

use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, program, read, write};
use crate::world::{World, explore};

/// Pages that were equal when the scan last looked are merged while another CPU, which could write one of them without
/// asking, writes it: that page alone has what was written.
#[test]
fn merge_and_write() {
    let begin = || {
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
    };
    explore(
        &begin,
        &[
            |world| {
                world.process().on(FIRST, |_| {
                    world.host.memory().merge_pages(100);
                });
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            let written = world.last_written(7);
            for cpu in [FIRST, SECOND] {
                assert_eq!(read(world.process(), cpu, 0), Ok(written));
                assert_eq!(read(world.process(), cpu, 1), Ok(7));
            }
            world.end()
        },
    );
}
