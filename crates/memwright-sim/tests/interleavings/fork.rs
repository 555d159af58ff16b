//! Tests of fork in every order: the pages that the child inherits, and the pages that parent and child share
//! afterwards.

use std::sync::atomic::Ordering;

use memwright_sim::programs::Process;

use crate::support::{self, FIRST, SECOND, at, read, write};
use crate::world::{THIRD, World, explore};

/// Forks the process on the first CPU. This is the first thread of the cases with a fork.
pub fn fork(world: &World) {
    let child = support::fork(world.process(), FIRST);
    *world.other.lock().unwrap() = Some(child);
    world.over();
}

/// The other CPU writes to a page that was never accessed. The child may have inherited that write, but no later one.
#[test]
fn fault_and_fork() {
    explore(
        &|| World::fresh(1),
        &[fork, |world| world.try_write(0, 2)],
        |world| {
            let after = world.seen.lock().unwrap()[0].0;
            let child = |world: &World| world.with_other(|child| read(child, FIRST, 0));
            let inherited = child(&world).expect("mapped");
            assert!(inherited == 0 || inherited == 2 && !after, "{inherited}");
            write(world.process(), SECOND, 0, 3).expect("writable");
            assert_eq!(child(&world), Ok(inherited));
            world.end()
        },
    );
}

/// The other CPU writes two words of a page, one after the other, through its cached translation. The child has the
/// values that the two words had at one and the same moment, and no later write changes them.
#[test]
fn fork_and_write() {
    a_fork_is_one_moment(&|| World::written(2, 1));
}

/// Tests that the child of the process that `begin` creates gets the memory of one moment. The first page contains 1.
pub fn a_fork_is_one_moment(begin: &dyn Fn() -> World) {
    explore(
        begin,
        &[fork, |world| {
            for value in [2, 3] {
                world.try_write(0, value);
                let second = at(0).as_u64() + 8;
                let second = memwright_table::VirtAddr::new(second);
                world
                    .process()
                    .write(SECOND, second, &[value])
                    .expect("writable");
            }
        }],
        |world| {
            let mut line = [0; 9];
            let pair = |process: &Process, line: &mut [u8; 9]| {
                process.read(FIRST, at(0), line).expect("mapped");
                (line[0], line[8])
            };
            let (first, second) = world.with_other(|child| pair(child, &mut line));
            let moment = [(1, 0), (2, 0), (2, 2), (3, 2), (3, 3)];
            assert!(moment.contains(&(first, second)), "{first} {second}");
            assert_eq!(pair(world.process(), &mut line), (3, 3));
            // Writes that began after the fork are not visible to the child.
            let seen = world.seen.lock().unwrap().clone();
            for (after, value) in seen {
                assert!(
                    !after || value.is_ok_and(|value| first < value),
                    "the child saw {value:?}"
                );
            }
            world.end()
        },
    );
}

/// Parent and child write to a page that they share copy-on-write, at the same time: each gets a private page, and
/// neither write is lost.
#[test]
fn copy_and_copy() {
    let begin = || {
        let world = World::written(2, 1);
        let child = support::fork(world.process(), FIRST);
        child.on(SECOND, |_| ());
        *world.other.lock().unwrap() = Some(child);
        world
    };
    explore(
        &begin,
        &[
            |world| write(world.process(), FIRST, 0, 2).expect("writable"),
            |world| {
                let written = world.with_other(|child| write(child, SECOND, 0, 3));
                written.expect("writable");
            },
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            assert_eq!(world.with_other(|child| read(child, SECOND, 0)), Ok(3));
            world.end()
        },
    );
}

/// One CPU copies a page that a child shares, another CPU writes to the copy, and a third CPU reads. After the write,
/// no CPU of the process reads the old page.
#[test]
fn copy_and_write_and_read() {
    let begin = || {
        let world = World::written(3, 1);
        *world.other.lock().unwrap() = Some(support::fork(world.process(), FIRST));
        for cpu in world.host.machine().cpus() {
            assert_eq!(read(world.process(), cpu, 0), Ok(1));
        }
        world
    };
    explore(
        &begin,
        &[
            |world| write(world.process(), FIRST, 0, 2).expect("writable"),
            |world| {
                write(world.process(), SECOND, 0, 3).expect("writable");
                world.over();
            },
            |world| {
                let after = world.over.load(Ordering::SeqCst);
                let found = read(world.process(), THIRD, 0).expect("readable");
                assert!(!after || found != 1, "{found} after a write");
            },
        ],
        World::end,
    );
}
