//! Tests of memory that is unmapped or moved while another CPU uses it.

use std::sync::atomic::Ordering;

use memwright::{Access, Advice, FaultError, MapRequest, RemapRequest};
use memwright_table::FrameKind;
use memwright_testkit::process::Signal;

use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, map, program, read, unmap, write};
use crate::world::{THIRD, World, explore};

#[test]
fn fault_and_unmap() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| {
                unmap(world.process(), FIRST, 0, 1);
                world.over();
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            world.end()
        },
    );
}

/// A page of a shared object is unmapped while another CPU writes to it: after the call the contents of the page do not
/// change.
#[test]
fn fault_and_unmap_of_shared_memory() {
    let begin = || {
        World::sharing(&[0, 4], |process| {
            write(process, FIRST, 0, 1).expect("writable");
            write(process, SECOND, 0, 1).expect("writable");
            write(process, FIRST, 4, 1).expect("writable");
        })
    };
    explore(
        &begin,
        &[
            |world| {
                unmap(world.process(), FIRST, 0, 1);
                world.over();
                let now = read(world.process(), FIRST, 4).expect("mapped");
                world.count.store(u64::from(now), Ordering::SeqCst);
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            let now = read(world.process(), FIRST, 4).expect("mapped");
            assert_eq!(now, world.last_written(1));
            assert_eq!(u64::from(now), world.count.load(Ordering::SeqCst));
            world.end()
        },
    );
}

/// A page is unmapped while the kernel on another CPU faults it in: the fault succeeds, or finds no area.
#[test]
fn kernel_fault_and_unmap() {
    explore(
        &|| World::fresh(1),
        &[
            |world| unmap(world.process(), FIRST, 0, 1),
            |world| {
                let access = Access {
                    user: false,
                    ..Access::WRITE
                };
                let outcome = world
                    .process()
                    .on(SECOND, |space| space.fault(at(0), access));
                assert!(
                    matches!(outcome, Ok(_) | Err(FaultError::NoArea)),
                    "{outcome:?}"
                );
            },
        ],
        World::end,
    );
}

/// A page is discarded while another CPU writes to it. A write that began after the call is not lost. An earlier write
/// may be lost.
#[test]
fn drop_and_fault() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| {
                world
                    .process()
                    .on(FIRST, |space| {
                        space.advise(at(0), bytes(1), Advice::DontNeed)
                    })
                    .expect("mapped");
                world.over();
            },
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            let seen = world.seen.lock().unwrap().clone();
            let now = read(world.process(), FIRST, 0).expect("mapped");
            assert!(seen.iter().all(|(_, outcome)| outcome.is_ok()), "{seen:?}");
            assert!(now == 3 || now == 0 && !seen[1].0, "{now}, {seen:?}");
            world.end()
        },
    );
}

fn move_page(world: &World, to: u64) {
    let request = RemapRequest {
        old: at(0),
        old_length: bytes(1),
        new_length: bytes(1),
        may_move: true,
        fixed: Some(at(to)),
        dont_unmap: false,
    };
    world
        .process()
        .on(FIRST, |space| space.remap(request))
        .expect("room");
    world.over();
}

/// A page is moved while another CPU writes to it: the page at the new address contains the last value that was written
/// at the old one.
#[test]
fn move_and_fault() {
    explore(
        &|| World::written(2, 1),
        &[
            |world| move_page(world, 6),
            |world| {
                world.try_write(0, 2);
                world.try_write(0, 3);
            },
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            assert_eq!(read(world.process(), SECOND, 6), Ok(world.last_written(1)));
            world.end()
        },
    );
}

#[test]
fn gather_and_free_and_allocate() {
    unmap_and_allocate(|world| unmap(world.process(), FIRST, 0, 1));
}

/// No frame is free until one CPU performs `unmap_first`, which unmaps the first page. A second CPU allocates the frame
/// for another process at once, while a third CPU still writes to the unmapped page: the write does not reach the other
/// process.
pub fn unmap_and_allocate(unmap_first: fn(&World)) {
    let begin = || {
        let world = World::written(3, 1);
        let other = program(&world.host, 1, READ_WRITE);
        // This access populates the page tables, so that the next access allocates only the page.
        map(&other, MapRequest::anonymous(bytes(1), READ_WRITE), 1);
        write(&other, SECOND, 1, 5).expect("writable");
        let frames = world.host.frames();
        let mut hoard = world.hoard.lock().unwrap();
        let _running = world.host.machine().run_on(SECOND);
        while let Ok(frame) = frames.allocate(0, FrameKind::Kernel) {
            hoard.push(frame.into_raw());
        }
        drop(hoard);
        *world.other.lock().unwrap() = Some(other);
        world
    };
    explore(
        &begin,
        &[
            unmap_first,
            |world| {
                let got = world.with_other(|other| write(other, SECOND, 0, 2));
                assert!(matches!(got, Ok(()) | Err(Signal::OutOfMemory)), "{got:?}");
                if got.is_ok() {
                    world.count.fetch_add(1, Ordering::SeqCst);
                }
            },
            |world| {
                let _ = write(world.process(), THIRD, 0, 9);
            },
        ],
        |world| {
            if world.count.load(Ordering::SeqCst) > 0 {
                assert_eq!(world.with_other(|other| read(other, SECOND, 0)), Ok(2));
            }
            world.end()
        },
    );
}

/// A CPU with address-space tags switches away from the address space and back while a page is unmapped: the CPU must
/// not use the translation that it has kept.
#[test]
fn unmap_and_return_to_a_kept_root() {
    let begin = || {
        let world = World::new(2, 2, |host| {
            let process = program(host, 2, READ_WRITE);
            for cpu in [FIRST, SECOND] {
                write(&process, cpu, 0, 1).expect("writable");
            }
            process
        });
        let other = program(&world.host, 1, READ_WRITE);
        *world.other.lock().unwrap() = Some(other);
        world
    };
    explore(
        &begin,
        &[
            |world| {
                unmap(world.process(), FIRST, 0, 1);
                world.over();
            },
            |world| {
                world.with_other(|other| other.on(SECOND, |_| ()));
                world.try_write(0, 2);
            },
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            world.end()
        },
    );
}
