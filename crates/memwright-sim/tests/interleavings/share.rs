//! Tests of page tables that a fork shares: another CPU changes an entry, forks, scans, swaps out or exits while an
//! address space stops sharing the table.

use std::sync::Arc;

use memwright::{Moving, Row, Unmoved};
use memwright_sim::MachineOptions;
use memwright_sim::programs::{Process, Space};
use memwright_table::{CpuId, NodeChoice, Page, PageRange};
use memwright_testkit::HostSwap;

use crate::fork::{a_fork_is_one_moment, fork};
use crate::support::{self, FIRST, READ_WRITE, SECOND, at, program, protect, read, unmap, write};
use crate::swap::page_out;
use crate::world::{World, explore, explore_with};

/// The number of pages of the parent.
const PAGES: u64 = 2;

/// The number of pages that a last-level table maps.
const TABLE: u64 = 512;

/// Creates a parent on a machine where forks share page tables. Each of `cpus` CPUs has written to the pages and has
/// cached their translations.
fn parent(cpus: usize) -> World {
    parent_on(MachineOptions {
        frames: 64,
        cpus,
        ..MachineOptions::default()
    })
}

/// Like `parent`, on a machine with these options.
fn parent_on(options: MachineOptions) -> World {
    World::on(options, |host| {
        host.memory().policy().set("fork", "1").expect("known");
        let added = host.memory().add_swap(Arc::new(HostSwap::new(16)), 0);
        assert_eq!(added, Ok(Some(0)));
        let process = program(host, PAGES, READ_WRITE);
        for cpu in host.machine().cpus() {
            for page in 0..PAGES {
                write(&process, cpu, page, 1).expect("writable");
            }
        }
        process
    })
}

/// Like `parent`, with a child that has read the pages on the second CPU and shares the table.
fn family() -> World {
    with_child(parent(2))
}

fn with_child(world: World) -> World {
    let child = support::fork(world.process(), FIRST);
    assert_eq!(world.host.memory().account().count(Row::TablesShared), 1);
    assert_eq!(read(&child, SECOND, 0), Ok(1));
    *world.other.lock().unwrap() = Some(child);
    world
}

/// Like `family`, but the child does not run: the parent runs on both CPUs, and has read the pages on both.
fn parent_of_two() -> World {
    let world = parent(2);
    *world.other.lock().unwrap() = Some(support::fork(world.process(), FIRST));
    for cpu in [FIRST, SECOND] {
        assert_eq!(read(world.process(), cpu, 0), Ok(1));
    }
    world
}

fn write_in_child(world: &World) {
    let written = world.with_other(|child| write(child, SECOND, 0, 3));
    written.expect("writable");
}

/// Checks that the parent has `own` in its first page, the child `others`, and both have 1 in the second page.
fn have(world: &World, own: u8, others: u8) {
    assert_eq!(read(world.process(), FIRST, 0), Ok(own));
    assert_eq!(read(world.process(), FIRST, 1), Ok(1));
    world.with_other(|child| {
        assert_eq!(read(child, SECOND, 0), Ok(others));
        assert_eq!(read(child, SECOND, 1), Ok(1));
    });
}

#[test]
fn share_and_write() {
    a_fork_is_one_moment(&|| parent(2));
}

/// Two processes stop sharing the table at the same time: one copies it, and the other takes it or copies it, too.
#[test]
fn own_and_own() {
    explore(
        &family,
        &[
            |world| write(world.process(), FIRST, 0, 2).expect("writable"),
            write_in_child,
        ],
        |world| {
            have(&world, 2, 3);
            world.end()
        },
    );
}

/// Two threads of one process write to pages that a shared table maps. No write is lost, and each thread sees both
/// writes.
#[test]
fn two_threads_own() {
    explore(
        &parent_of_two,
        &[
            |world| write(world.process(), FIRST, 0, 2).expect("writable"),
            |world| write(world.process(), SECOND, 1, 3).expect("writable"),
        ],
        |world| {
            for cpu in [FIRST, SECOND] {
                assert_eq!(read(world.process(), cpu, 0), Ok(2));
                assert_eq!(read(world.process(), cpu, 1), Ok(3));
            }
            world.with_other(|child| {
                assert_eq!(read(child, FIRST, 0), Ok(1));
                assert_eq!(read(child, FIRST, 1), Ok(1));
            });
            world.end()
        },
    );
}

/// One thread writes while another reads through a translation that it cached of the shared table. A read that begins
/// after the write has returned sees the written value.
#[test]
fn own_and_read() {
    explore(
        &parent_of_two,
        &[
            |world| {
                write(world.process(), FIRST, 0, 2).expect("writable");
                world.over();
            },
            |world| {
                let after = world.over.load(std::sync::atomic::Ordering::SeqCst);
                let found = read(world.process(), SECOND, 0).expect("readable");
                assert!(!after || found == 2, "{found} after a write");
            },
        ],
        World::end,
    );
}

/// The child exits while the parent writes: the parent copies the table, or takes it.
#[test]
fn exit_and_own() {
    explore_with(
        1,
        &family,
        &[
            |world| drop(world.other.lock().unwrap().take()),
            |world| write(world.process(), FIRST, 0, 2).expect("writable"),
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            assert_eq!(read(world.process(), FIRST, 1), Ok(1));
            world.end()
        },
    );
}

/// Parent and child exit at the same time. One of them frees the pages.
#[test]
fn exit_and_exit() {
    explore_with(
        1,
        &family,
        &[
            |world| drop(world.other.lock().unwrap().take()),
            |world| world.process().on(FIRST, |space| space.clear()),
        ],
        World::end,
    );
}

/// The parent unmaps a page that the shared table maps, while the child writes to another page that the table maps.
#[test]
fn unmap_and_own() {
    explore(
        &family,
        &[|world| unmap(world.process(), FIRST, 0, 1), write_in_child],
        |world| {
            assert!(read(world.process(), FIRST, 0).is_err());
            assert_eq!(read(world.process(), FIRST, 1), Ok(1));
            world.with_other(|child| assert_eq!(read(child, SECOND, 0), Ok(3)));
            world.end()
        },
    );
}

/// The child leaves the shared table, as an munmap of all its pages does, while the parent copies it. The operations are
/// those of the page table alone, so that every order with two deviations can be tried.
#[test]
fn leave_and_own() {
    explore(
        &family,
        &[
            |world| {
                world.with_other(|child| {
                    child.on(SECOND, |space| {
                        let mut gather = space.table().gather();
                        let start = Page::new(at(0).page().number() / TABLE * TABLE);
                        let table = PageRange::new(start, start.add(TABLE));
                        space.table().leave_tables(table, &mut gather);
                        gather.finish();
                    });
                });
            },
            |world| {
                let pages = PageRange::new(at(0).page(), at(PAGES).page());
                world.process().on(FIRST, |space| space.own_tables(pages));
            },
        ],
        |world| {
            assert_eq!(write(world.process(), FIRST, 0, 2), Ok(()));
            assert_eq!(read(world.process(), FIRST, 1), Ok(1));
            Ok(())
        },
    );
}

/// The parent makes its memory read-only and writable again while the child writes.
#[test]
fn protect_and_own() {
    explore(
        &family,
        &[
            |world| {
                protect(world.process(), FIRST, 0, PAGES, memwright::Rights::READ);
                protect(world.process(), FIRST, 0, PAGES, READ_WRITE);
                write(world.process(), FIRST, 0, 2).expect("writable");
            },
            write_in_child,
        ],
        |world| {
            have(&world, 2, 3);
            world.end()
        },
    );
}

/// A page that the shared table maps is swapped out while the child writes to it.
#[test]
fn swap_out_and_own() {
    explore(
        &family,
        &[|world| page_out(world, FIRST), write_in_child],
        |world| {
            have(&world, 1, 3);
            world.end()
        },
    );
}

/// The parent clears its soft-dirty bits while the child writes. Only the parent's bits are cleared.
#[test]
fn clear_soft_dirty_and_own() {
    explore(
        &family,
        &[
            |world| {
                world
                    .process()
                    .on(FIRST, |space| space.tracking().clear_soft_dirty());
            },
            write_in_child,
        ],
        |world| {
            have(&world, 1, 3);
            world.end()
        },
    );
}

/// The child forks while the parent writes: three address spaces share the table, or two.
#[test]
fn share_again_and_own() {
    explore_with(
        1,
        &family,
        &[
            |world| {
                let grandchild = world.with_other(|child| support::fork(child, SECOND));
                assert_eq!(read(&grandchild, SECOND, 0), Ok(1));
                write(&grandchild, SECOND, 1, 9).expect("writable");
            },
            |world| write(world.process(), FIRST, 0, 2).expect("writable"),
        ],
        |world| {
            have(&world, 2, 1);
            world.end()
        },
    );
}

/// One CPU forks again while another thread of the parent takes the table whose only other owner has exited.
#[test]
fn take_and_share() {
    let begin = || {
        let world = parent_of_two();
        drop(world.other.lock().unwrap().take());
        world
    };
    explore(&begin, &[fork, |world| world.try_write(0, 2)], |world| {
        let child = world.with_other(|child: &Process| read(child, CpuId::new(0), 0));
        let after = world.seen.lock().unwrap()[0].0;
        assert!(child == Ok(1) || child == Ok(2) && !after, "{child:?}");
        assert_eq!(read(world.process(), SECOND, 0), Ok(2));
        world.end()
    });
}

/// A page of the shared table migrates to the second node while the child writes to it. The parent keeps its contents
/// wherever the page is.
#[test]
fn migrate_and_own() {
    let begin = || {
        with_child(parent_on(MachineOptions {
            frames: 64,
            cpus: 2,
            nodes: 2,
            ..MachineOptions::default()
        }))
    };
    explore_with(
        1,
        &begin,
        &[
            |world| {
                let choice = NodeChoice::only(1);
                let call = |space: &Space| space.numa().migrate(at(0).page(), choice, Moving::All);
                let moved = world.process().on(FIRST, call);
                assert!(moved.is_ok() || moved == Err(Unmoved::Busy), "{moved:?}");
            },
            write_in_child,
        ],
        |world| {
            have(&world, 1, 3);
            world.end()
        },
    );
}
