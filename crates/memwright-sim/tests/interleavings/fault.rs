//! Tests of two CPUs that fault on the same page.

use memwright_table::FrameKind;

use crate::support::{FIRST, SECOND, at, read, write};
use crate::world::{World, explore};

/// Both CPUs fault on the same page: it gets one frame, and neither write is lost.
#[test]
fn fault_and_fault() {
    explore(
        &|| World::fresh(1),
        &[
            |world| write(world.process(), FIRST, 0, 1).expect("writable"),
            |world| {
                let next = memwright_table::VirtAddr::new(at(0).as_u64() + 1);
                world.process().write(SECOND, next, &[2]).expect("writable");
            },
        ],
        |world| {
            let mut both = [0; 2];
            world.process().read(FIRST, at(0), &mut both).unwrap();
            assert_eq!(both, [1, 2]);
            assert_eq!(world.host.frames().used_by(FrameKind::Anonymous), 1);
            world.end()
        },
    );
}

/// One CPU reads twice, which maps the zero frame, while another CPU writes: the write is not lost, and no read returns
/// an older value than the one before it.
#[test]
fn read_fault_and_write_fault() {
    explore(
        &|| World::fresh(1),
        &[
            |world| {
                let first = read(world.process(), FIRST, 0).expect("readable");
                let second = read(world.process(), FIRST, 0).expect("readable");
                assert!(first <= second, "{first}, then {second}");
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            world.end()
        },
    );
}
