//! Tests of pages that are swapped out and in while they are in use.

use std::sync::Arc;

use memwright::Advice;
use memwright::uffd::WatchModes;
use memwright::{Effort, Memcg, ObjectPlace, Row};
use memwright_sim::programs::{Process, Space};
use memwright_table::{CpuId, FrameKind, Page};
use memwright_testkit::HostSwap;
use memwright_testkit::process::Signal;

use crate::fork::fork;
use crate::support::{FIRST, READ_WRITE, SECOND, at, bytes, program, read, write};
use crate::world::{World, explore, explore_with};

/// Creates a process with a page that every CPU has written and cached, on a machine with swap.
pub fn swapping() -> World {
    World::new(2, 0, |host| {
        let added = host.memory().add_swap(Arc::new(HostSwap::new(16)), 0);
        assert_eq!(added, Ok(Some(0)));
        let process = program(host, 1, READ_WRITE);
        for cpu in host.machine().cpus() {
            write(&process, cpu, 0, 1).expect("writable");
        }
        process
    })
}

pub fn page_out(world: &World, cpu: CpuId) {
    let call = |space: &Space| space.advise(at(0), bytes(1), Advice::PageOut);
    world.process().on(cpu, call).expect("mapped");
}

/// Like `swapping`, with the page in swap.
fn swapped() -> World {
    let world = swapping();
    page_out(&world, FIRST);
    assert_eq!(world.host.memory().swap().totals().1, 1);
    world
}

/// Like `swapped`, with a device whose transfers are asynchronous.
fn swapped_slowly() -> World {
    let device = Arc::new(HostSwap::new(16));
    let shown = device.clone();
    let world = World::new(2, 0, move |host| {
        assert_eq!(host.memory().add_swap(shown, 0), Ok(Some(0)));
        let process = program(host, 1, READ_WRITE);
        write(&process, FIRST, 0, 1).expect("writable");
        process
    });
    page_out(&world, FIRST);
    device.defer(4);
    world
}

/// Like `swapping`, for a page of shared memory.
fn sharing() -> World {
    World::of_shared_memory(|host| {
        let added = host.memory().add_swap(Arc::new(HostSwap::new(16)), 0);
        assert_eq!(added, Ok(Some(0)));
    })
}

/// Like `sharing`, with the page in swap.
fn swapped_shared() -> World {
    let world = sharing();
    page_out(&world, FIRST);
    assert_eq!(world.host.memory().swap().totals().1, 1);
    world
}

/// Like `sharing`. The page is in memory, and the process's page-table entry for it has been zapped.
fn unmapped() -> World {
    let world = sharing();
    let call = |space: &Space| space.advise(at(0), bytes(1), Advice::DontNeed);
    world.process().on(FIRST, call).expect("mapped");
    world
}

/// Creates an object with two pages in consecutive swap slots. The process has an area over the first page only.
fn swapped_together() -> World {
    let world = unmapped();
    let running = world.host.machine().run_on(FIRST);
    assert_eq!(world.shared().set_size(bytes(2)), Ok(()));
    assert_eq!(world.shared().write_at(bytes(1), &[5]), Ok(1));
    drop(running);
    reclaim(&world, FIRST);
    assert_eq!(world.host.memory().swap().totals().1, 2);
    world
}

/// Scans the objects twice. Pages that are not accessed in between are reclaimed.
fn reclaim(world: &World, cpu: CpuId) {
    let _running = world.host.machine().run_on(cpu);
    for _ in 0..2 {
        let mut effort = Effort {
            look: 100,
            wanted: 100,
            charged: false,
        };
        let mut place = ObjectPlace::default();
        let memory = world.host.memory();
        assert!(memory.reclaim_objects(&mut place, None, &mut effort));
    }
}

/// Checks that the page of shared memory is either in memory or in swap, not in both.
fn in_one_place(world: &World) {
    each_in_one_place(world, 1);
}

/// Checks that each of several pages is either in memory or in swap.
fn each_in_one_place(world: &World, pages: u64) {
    let (frames, slots) = (
        world.host.frames().used_by(FrameKind::Object),
        world.host.memory().swap().totals().1,
    );
    assert_eq!(frames + slots, pages, "{frames} frames, {slots} slots");
}

/// A page is swapped out while another CPU stores to it: no store is lost, whether the page is in memory or in swap at
/// that moment.
#[test]
fn swap_out_and_write() {
    explore(
        &swapping,
        &[|world| page_out(world, FIRST), store_twice],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(3));
            world.end()
        },
    );
}

/// A page is swapped out during a fork: parent and child both have its contents, and neither reads the stores of the
/// other.
#[test]
fn swap_out_and_fork() {
    explore(
        &swapping,
        &[fork, |world| page_out(world, SECOND)],
        |world| {
            assert_eq!(world.with_other(|child| read(child, FIRST, 0)), Ok(1));
            write(world.process(), SECOND, 0, 2).expect("writable");
            assert_eq!(world.with_other(|child| read(child, FIRST, 0)), Ok(1));
            let written = world.with_other(|child| write(child, FIRST, 0, 3));
            written.expect("writable");
            assert_eq!(read(world.process(), SECOND, 0), Ok(2));
            world.end()
        },
    );
}

/// Scans a process twice. Pages that are not accessed in between are reclaimed.
fn reclaim_unused(process: &Process, cpu: CpuId) {
    for _ in 0..2 {
        let call = |space: &Space| {
            let mut effort = Effort {
                look: 100,
                wanted: 100,
                charged: false,
            };
            space.reclaim(Page::new(0), &mut effort)
        };
        assert_eq!(process.on(cpu, call), None);
    }
}

/// Creates a page that a process and its child share. The process already has a swap entry for the page, and the child
/// still maps it. The page has a slot but has not been written to the device yet.
fn sent_out_by_one_of_two() -> World {
    let world = swapping();
    fork(&world);
    reclaim_unused(world.process(), FIRST);
    assert_eq!(world.host.memory().swap().totals().1, 1);
    world
}

/// Swaps the page out of the child, which is the last process that maps it.
fn other_sends_out(world: &World) {
    world.with_other(|child| reclaim_unused(child, FIRST));
}

/// Checks the value of the page in both processes: the process has the value that it stored last, or the original value
/// if it stored nothing. The child has the original value.
fn each_has_its_own(world: World) -> Result<(), String> {
    let expected = world.last_written(1);
    assert_eq!(read(world.process(), SECOND, 0), Ok(expected));
    assert_eq!(world.with_other(|child| read(child, FIRST, 0)), Ok(1));
    let written = world.with_other(|child| write(child, FIRST, 0, 7));
    written.expect("writable");
    assert_eq!(read(world.process(), SECOND, 0), Ok(expected));
    world.end()
}

/// The child, the last process that maps the page, swaps it out, so the page is written to the device. Meanwhile the
/// other process swaps the page in. Both processes read the original value.
#[test]
fn last_swap_out_and_swap_in() {
    explore(
        &sent_out_by_one_of_two,
        &[other_sends_out, |world| {
            assert_eq!(read(world.process(), SECOND, 0), Ok(1));
        }],
        each_has_its_own,
    );
}

/// Like `last_swap_out_and_swap_in`, but the other process stores to the page.
#[test]
fn last_swap_out_and_write() {
    explore(
        &sent_out_by_one_of_two,
        &[other_sends_out, store_twice],
        each_has_its_own,
    );
}

/// Like `last_swap_out_and_swap_in`, but the other process unmaps the page. The slot is free after the child has
/// swapped the page in and written to it.
#[test]
fn last_swap_out_and_unmap() {
    explore(
        &sent_out_by_one_of_two,
        &[other_sends_out, |world| {
            let call = |space: &Space| space.unmap(at(0), bytes(1));
            world.process().on(SECOND, call).expect("mapped");
        }],
        |world| {
            assert_eq!(world.with_other(|child| read(child, FIRST, 0)), Ok(1));
            let written = world.with_other(|child| write(child, FIRST, 0, 7));
            written.expect("writable");
            world.end()
        },
    );
}

/// The child has exited, so the process is the last owner of the page. The swap cache drops the frame of the page under
/// memory pressure while the process stores to the page: the last store is not lost.
#[test]
fn shed_and_write() {
    let begin = || {
        let world = sent_out_by_one_of_two();
        *world.other.lock().unwrap() = None;
        world
    };
    let shed = |world: &World| {
        let _running = world.host.machine().run_on(FIRST);
        let memory = world.host.memory();
        assert!(memory.swap().shed_some(memory, 1) <= 1);
    };
    explore(&begin, &[shed, store_twice], |world| {
        assert_eq!(read(world.process(), SECOND, 0), Ok(3));
        assert_eq!(world.host.frames().used_by(FrameKind::Anonymous), 1);
        world.end()
    });
}

/// Parent and child swap out the page that they share, at the same time: the page uses a single slot.
#[test]
fn swap_out_by_both_owners() {
    let begin = || {
        let world = swapping();
        fork(&world);
        world
    };
    explore(
        &begin,
        &[other_sends_out, |world| {
            reclaim_unused(world.process(), SECOND);
        }],
        |world| {
            assert!(world.host.memory().swap().totals().1 <= 1);
            each_has_its_own(world)
        },
    );
}

/// Two CPUs swap the same page in, one by a load and one by a store: the page gets one frame, and the store is not
/// lost.
#[test]
fn swap_in_and_swap_in() {
    explore(
        &swapped,
        &[
            |world| {
                let found = read(world.process(), FIRST, 0).expect("readable");
                assert!(found == 1 || found == 2, "{found}");
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            assert_eq!(world.host.frames().used_by(FrameKind::Anonymous), 1);
            world.end()
        },
    );
}

/// A page is write-protected while it is swapped in: no store that began after the protection succeeds.
#[test]
fn swap_in_and_protect() {
    let begin = || swapped().watched(1, false, WatchModes::WRITE_PROTECT);
    explore(
        &begin,
        &[
            |world| {
                world.write_protect(FIRST, true);
                world.over();
            },
            store_twice,
        ],
        |world| {
            world.none_after(Signal::Bus);
            assert_eq!(read(world.process(), FIRST, 0), Ok(world.last_written(1)));
            assert_eq!(write(world.process(), SECOND, 0, 9), Err(Signal::Bus));
            world.end()
        },
    );
}

/// Swapoff runs while another CPU stores to a page that is on the device. Swapoff or the store swaps the page in. The
/// store is not lost, and the page has no second copy.
#[test]
fn swapoff_and_fault() {
    explore(
        &swapped,
        &[
            |world| {
                let memory = world.host.memory();
                assert!(memory.close_swap(0, true));
                let call = |space: &Space| space.bring_back(0, Page::new(0), u64::MAX);
                assert_eq!(world.process().on(FIRST, call), Ok(None));
            },
            store_twice,
        ],
        |world| {
            assert!(world.host.memory().remove_swap(0), "still in use");
            assert_eq!(read(world.process(), FIRST, 0), Ok(3));
            assert_eq!(world.host.frames().used_by(FrameKind::Anonymous), 1);
            world.end()
        },
    );
}

/// Stores to the page twice, as the program does. This is the second thread of the cases.
fn store_twice(world: &World) {
    world.try_write(0, 2);
    world.try_write(0, 3);
}

/// Stores to the page twice by system calls, which use no page-table entry.
fn call_twice(world: &World) {
    let _running = world.host.machine().run_on(SECOND);
    assert_eq!(world.shared().write_at(0, &[2]), Ok(1));
    assert_eq!(world.shared().write_at(0, &[3]), Ok(1));
}

/// Checks that the page of shared memory is either in memory or in swap, and that it has the last stored value.
fn last_store_is_there(world: World) -> Result<(), String> {
    in_one_place(&world);
    assert_eq!(read(world.process(), FIRST, 0), Ok(3));
    world.end()
}

/// A page of shared memory is swapped out while the program stores to it: no store is lost.
#[test]
fn swap_out_of_shared_memory_and_write() {
    explore(
        &sharing,
        &[|world| page_out(world, FIRST), store_twice],
        last_store_is_there,
    );
}

/// Like `swap_out_of_shared_memory_and_write`, but the stores are made by system calls.
#[test]
fn swap_out_of_shared_memory_and_call() {
    explore(
        &sharing,
        &[|world| page_out(world, FIRST), call_twice],
        last_store_is_there,
    );
}

/// A page is truncated while it is swapped out: afterwards neither memory nor swap has it.
#[test]
fn swap_out_of_shared_memory_and_truncate() {
    explore(
        &sharing,
        &[
            |world| {
                let _running = world.host.machine().run_on(FIRST);
                assert_eq!(world.shared().set_size(0), Ok(()));
                world.over();
            },
            |world| page_out(world, SECOND),
        ],
        |world| {
            assert_eq!(world.host.memory().swap().totals().1, 0);
            assert_eq!(read(world.process(), FIRST, 0), Err(Signal::Bus));
            world.end()
        },
    );
}

/// Two CPUs swap a page of shared memory in: the page gets one frame, and the store is not lost.
#[test]
fn swap_in_and_swap_in_of_shared_memory() {
    explore(
        &swapped_shared,
        &[
            |world| {
                let found = read(world.process(), FIRST, 0).expect("readable");
                assert!(found == 1 || found == 2, "{found}");
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            in_one_place(&world);
            world.end()
        },
    );
}

/// A page of shared memory is swapped in while a hole is punched over it: a later load returns 0.
#[test]
fn swap_in_of_shared_memory_and_punch() {
    explore(
        &swapped_shared,
        &[
            |world| {
                let _running = world.host.machine().run_on(FIRST);
                assert_eq!(world.shared().punch(0, bytes(1)), Ok(()));
            },
            |world| {
                let found = read(world.process(), SECOND, 0).expect("readable");
                assert!(found <= 1, "{found}");
            },
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(0));
            in_one_place(&world);
            world.end()
        },
    );
}

/// Swapoff runs while another CPU stores to a page of shared memory that is on the device.
#[test]
fn swapoff_and_fault_of_shared_memory() {
    explore(
        &swapped_shared,
        &[
            |world| {
                let _running = world.host.machine().run_on(FIRST);
                let memory = world.host.memory();
                assert!(memory.close_swap(0, true));
                let mut place = ObjectPlace::default();
                let brought = memory.bring_objects_back(0, &mut place, u64::MAX);
                assert_eq!(brought, Ok(true));
            },
            store_twice,
        ],
        |world| {
            assert!(world.host.memory().remove_swap(0), "still in use");
            assert_eq!(read(world.process(), FIRST, 0), Ok(3));
            in_one_place(&world);
            world.end()
        },
    );
}

/// Reclaim processes a page that no process maps while a system call writes to the page: no store is lost.
#[test]
fn reclaim_of_what_nobody_shows_and_call() {
    explore(
        &unmapped,
        &[|world| reclaim(world, FIRST), call_twice],
        last_store_is_there,
    );
}

/// Like `reclaim_of_what_nobody_shows_and_call`, but the program stores. Its first store maps the page.
#[test]
fn reclaim_of_what_nobody_shows_and_fault() {
    explore(
        &unmapped,
        &[|world| reclaim(world, FIRST), store_twice],
        last_store_is_there,
    );
}

/// Swap readahead swaps a page in while another CPU writes to it: the page gets one frame, and the store is not lost.
#[test]
fn swap_in_of_neighbours_and_call() {
    explore(
        &swapped_together,
        &[
            |world| {
                let found = read(world.process(), FIRST, 0);
                assert_eq!(found, Ok(1));
            },
            |world| {
                let _running = world.host.machine().run_on(SECOND);
                assert_eq!(world.shared().write_at(bytes(1), &[6]), Ok(1));
            },
        ],
        |world| {
            each_in_one_place(&world, 2);
            let running = world.host.machine().run_on(FIRST);
            let mut found = [0];
            assert_eq!(world.shared().read_at(bytes(1), &mut found), Ok(1));
            assert_eq!(found, [6]);
            drop(running);
            world.end()
        },
    );
}

/// Swap readahead swaps a page in while a hole is punched over it: a later read of the page returns 0.
#[test]
fn swap_in_of_neighbours_and_punch() {
    explore(
        &swapped_together,
        &[
            |world| {
                let _running = world.host.machine().run_on(FIRST);
                let mut found = [0];
                assert_eq!(world.shared().read_at(0, &mut found), Ok(1));
                assert_eq!(found, [1]);
            },
            |world| {
                let _running = world.host.machine().run_on(SECOND);
                assert_eq!(world.shared().punch(bytes(1), bytes(2)), Ok(()));
                world.over();
            },
        ],
        |world| {
            each_in_one_place(&world, 1);
            let running = world.host.machine().run_on(FIRST);
            let mut found = [1];
            assert_eq!(world.shared().read_at(bytes(1), &mut found), Ok(1));
            assert_eq!(found, [0]);
            drop(running);
            world.end()
        },
    );
}

/// Swapon runs while the first memcg with a swap charge is created: slots of the new device are charged too.
#[test]
fn swapon_and_first_memcg() {
    let begin = || {
        World::new(2, 0, |host| {
            let process = program(host, 1, READ_WRITE);
            write(&process, FIRST, 0, 1).expect("writable");
            process
        })
    };
    explore(
        &begin,
        &[
            |world| {
                let device = Arc::new(HostSwap::new(16));
                let added = world.host.memory().add_swap(device, 0);
                assert_eq!(added, Ok(Some(0)));
            },
            |world| {
                let opened = world.host.memory().swap().open_memcg(Memcg::NOBODY);
                opened.expect("heap");
            },
        ],
        |world| {
            let memcg = Memcg::new(0);
            world.process().on(FIRST, |space| space.set_memcg(memcg));
            page_out(&world, FIRST);
            let swap = world.host.memory().swap();
            assert_eq!((swap.totals().1, swap.paid_by(memcg)), (1, 1));
            world.end()
        },
    );
}

/// Like `swap_in_and_swap_in`, with asynchronous transfers: the device reads the page once for both CPUs.
#[test]
fn slow_swap_in_and_swap_in() {
    explore_with(
        1,
        &swapped_slowly,
        &[
            |world| {
                let found = read(world.process(), FIRST, 0).expect("readable");
                assert!(found == 1 || found == 2, "{found}");
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            assert_eq!(read(world.process(), FIRST, 0), Ok(2));
            assert_eq!(world.host.memory().account().count(Row::SwapIn), 1);
            assert_eq!(world.host.frames().used_by(FrameKind::Anonymous), 1);
            world.end()
        },
    );
}

/// A page is unmapped while a fault on another CPU waits for the device to read the page.
#[test]
fn slow_swap_in_and_unmap() {
    explore_with(
        1,
        &swapped_slowly,
        &[
            |world| {
                let call = |space: &Space| space.unmap(at(0), bytes(1));
                world.process().on(FIRST, call).expect("mapped");
                world.over();
            },
            |world| world.try_write(0, 2),
        ],
        |world| {
            world.none_after(Signal::Unmapped);
            assert_eq!(world.host.memory().swap().totals().1, 0);
            world.end()
        },
    );
}

/// A process forks while a fault of its other thread waits for the device: the child has the contents from before or
/// after that thread's store.
#[test]
fn slow_swap_in_and_fork() {
    explore_with(
        1,
        &swapped_slowly,
        &[fork, |world| world.try_write(0, 2)],
        |world| {
            let found = world
                .with_other(|child| read(child, FIRST, 0))
                .expect("mapped");
            assert!(found == 1 || found == 2, "{found}");
            write(world.process(), SECOND, 0, 3).expect("writable");
            assert_eq!(world.with_other(|child| read(child, FIRST, 0)), Ok(found));
            world.end()
        },
    );
}
