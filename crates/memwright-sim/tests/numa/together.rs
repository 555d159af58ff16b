//! Tests of pages that several entries map: a page migrates for all of its entries or for none.

use std::sync::{Arc, Mutex};

use memwright::object::{HUGE_BYTES, HugeFile, Object, ObjectIdentity, Shmem};
use memwright::{
    Advice, MapRequest, Moved, Moving, PlaceMode, PlacePolicy, RemapRequest, Row, Unmoved,
};
use memwright_sim::process::{Host, Process};
use memwright_sim::{MachineOptions, SimulatedMachine};
use memwright_table::{Bits, CpuId, Frame, FrameKind, NodeChoice, NodeSet, PageRange};

use crate::support::{
    self, FIRST, READ, READ_WRITE, SECOND, START, at, bytes, fork, map, program, protect, read,
    unmap, write,
};
use crate::{Raced, bits_of, check_end, explore, migrate_as, node_of, two_nodes};

/// The number of 4 KiB pages in a huge page, and the first page of the first huge page, counted from `START`.
const HUGE: u64 = 512;
const FIRST_HUGE: u64 = 2;

fn move_all(process: &Process, page: u64, node: u8) -> Result<Moved, Unmoved> {
    migrate_as(process, FIRST, page, node, Moving::All)
}

/// Moves a page within its address space (`mremap`).
fn move_page(process: &Process, cpu: CpuId, page: u64, to: u64) {
    let request = RemapRequest {
        old: at(page),
        old_length: bytes(1),
        new_length: bytes(1),
        may_move: true,
        fixed: Some(at(to)),
        dont_unmap: false,
    };
    process.on(cpu, |space| space.remap(request)).expect("room");
}

fn frame_of(process: &Process, page: u64) -> Frame {
    process.on(FIRST, |space| {
        let page = START.add(page);
        let cursor = space.table().cursor(PageRange::single(page));
        let entry = cursor.peek().present().expect("a page");
        entry.frame_of(page)
    })
}

fn memory(host: &Host, pages: u64) -> Arc<Shmem<SimulatedMachine>> {
    let identity = ObjectIdentity::default();
    Arc::new(Shmem::new(host.memory().clone(), bytes(pages), identity).expect("heap"))
}

/// Creates a process that maps the object from page `page` on.
fn showing(
    host: &Arc<Host>,
    object: Arc<dyn Object<SimulatedMachine>>,
    page: u64,
    length: u64,
    shared: bool,
) -> Process {
    let process = Process::new(host);
    let request = MapRequest::object(object, 0, length, READ_WRITE, shared);
    map(&process, request, page);
    process
}

fn assert_sound(host: &Host, processes: &[&Process]) {
    support::assert_coherent(host);
    for process in processes {
        assert_eq!(process.space().audit(), Ok(()));
    }
}

#[test]
fn a_page_shared_by_fork_moves_for_all_of_a_family() {
    let host = two_nodes(512);
    let parent = program(&host, 3, READ_WRITE);
    write(&parent, FIRST, 0, 7).expect("writable");
    write(&parent, FIRST, 1, 8).expect("writable");
    let child = fork(&parent, FIRST);
    let grandchild = fork(&child, SECOND);
    // The child moves the page within its address space.
    move_page(&child, SECOND, 0, 40);
    let old = frame_of(&parent, 0);
    assert_eq!(
        migrate_as(&parent, FIRST, 0, 1, Moving::Own),
        Err(Unmoved::Shared(old))
    );
    let before = bits_of(&parent, 0);
    assert_eq!(move_all(&parent, 0, 1), Ok(Moved::To(1)));
    assert_eq!(move_all(&grandchild, 0, 1), Ok(Moved::Stays(1)));
    let frame = frame_of(&parent, 0);
    assert_ne!(frame, old);
    assert_eq!(frame_of(&child, 40), frame);
    assert_eq!(frame_of(&grandchild, 0), frame);
    assert_eq!(host.frames().references(frame), 3);
    assert_eq!(bits_of(&parent, 0), before);
    assert_eq!(node_of(&parent, 1), Ok(0));
    // The page is not exclusive to any of the processes: a store by one of them is not visible to the others.
    write(&parent, SECOND, 0, 9).expect("writable");
    assert_eq!(read(&child, SECOND, 40), Ok(7));
    assert_eq!(read(&grandchild, FIRST, 0), Ok(7));
    assert_eq!(host.memory().account().count(Row::PagesMigrated), 1);
    assert_sound(&host, &[&parent, &child, &grandchild]);
}

#[test]
fn a_page_of_shared_memory_moves_with_its_object() {
    let host = two_nodes(512);
    let object = memory(&host, 4);
    let one = showing(&host, object.clone(), 0, bytes(4), true);
    let other = showing(&host, object.clone(), 30, bytes(4), true);
    let reader = showing(&host, object.clone(), 7, bytes(4), false);
    write(&one, FIRST, 1, 7).expect("writable");
    // A page with a single entry migrates without `Moving::All`.
    assert_eq!(migrate_as(&one, FIRST, 1, 1, Moving::Own), Ok(Moved::To(1)));
    assert_eq!(object.read_at(bytes(1), &mut [0]), Ok(1));
    write(&other, SECOND, 31, 8).expect("writable");
    assert_eq!(read(&reader, SECOND, 8), Ok(8));
    let old = frame_of(&one, 1);
    assert_eq!(
        migrate_as(&one, FIRST, 1, 0, Moving::Own),
        Err(Unmoved::Shared(old))
    );
    let before = (bits_of(&one, 1), bits_of(&other, 31));
    let faults = host.memory().account().faults();
    assert_eq!(move_all(&one, 1, 0), Ok(Moved::To(0)));
    assert_eq!((bits_of(&one, 1), bits_of(&other, 31)), before);
    let frame = frame_of(&one, 1);
    assert_eq!((frame_of(&other, 31), frame_of(&reader, 8)), (frame, frame));
    // Stores are visible to all processes, and do not fault.
    write(&one, FIRST, 1, 9).expect("writable");
    assert_eq!(read(&other, SECOND, 31), Ok(9));
    assert_eq!(read(&reader, SECOND, 8), Ok(9));
    assert_eq!(host.memory().account().faults(), faults);
    let mut byte = [0];
    assert_eq!(object.read_at(bytes(1), &mut byte), Ok(1));
    assert_eq!(byte, [9]);
    // A private copy is a separate page.
    write(&reader, SECOND, 8, 10).expect("writable");
    assert_eq!(move_all(&one, 1, 1), Ok(Moved::To(1)));
    assert_eq!(node_of(&reader, 8), Ok(1));
    assert_eq!(read(&reader, FIRST, 8), Ok(10));
    assert_sound(&host, &[&one, &other, &reader]);
    drop((one, other, reader));
    assert_eq!(host.frames().used_by(FrameKind::Object), 1);
}

#[test]
fn what_somebody_else_holds_stays_for_all() {
    let host = two_nodes(512);
    let object = memory(&host, 1);
    let one = showing(&host, object.clone(), 0, bytes(1), true);
    let other = showing(&host, object.clone(), 0, bytes(1), true);
    for process in [&one, &other] {
        write(process, FIRST, 0, 7).expect("writable");
    }
    let frame = frame_of(&one, 0);
    let before = bits_of(&one, 0);
    // The page does not migrate while a call that reads it holds a reference.
    let held = object.frame_for(0, false).unwrap().unwrap();
    assert_eq!(move_all(&one, 0, 1), Err(Unmoved::Busy));
    drop(host.frames().adopt(held));
    // The page does not migrate while it is pinned for a device.
    host.frames().pin(frame);
    assert_eq!(move_all(&one, 0, 1), Err(Unmoved::Busy));
    host.frames().unpin(frame);
    // The page does not migrate while the node has no free frame.
    let mut hoard = Vec::new();
    while let Ok(taken) = host
        .frames()
        .allocate_on(0, FrameKind::Object, NodeChoice::only(1))
    {
        hoard.push(taken);
    }
    assert_eq!(move_all(&one, 0, 1), Err(Unmoved::NoFrame));
    drop(hoard);
    for failing in 0..3 {
        memwright_table::handle::fail_heap_after(Some(failing));
        assert_eq!(move_all(&one, 0, 1), Err(Unmoved::NoFrame), "{failing}");
        assert!(!memwright_table::handle::heap_failure_pending());
    }
    assert_eq!((bits_of(&one, 0), frame_of(&other, 0)), (before, frame));
    let faults = host.memory().account().faults();
    write(&other, SECOND, 0, 8).expect("writable");
    assert_eq!(read(&one, FIRST, 0), Ok(8));
    assert_eq!(host.memory().account().faults(), faults);
    assert_eq!(move_all(&one, 0, 1), Ok(Moved::To(1)));
    assert_sound(&host, &[&one, &other]);
}

#[test]
fn a_merged_page_moves_and_stays_known() {
    let host = two_nodes(512);
    let process = program(&host, 4, READ_WRITE);
    for page in 0..3 {
        write(&process, FIRST, page, 7).expect("writable");
    }
    process
        .on(FIRST, |space| {
            space.advise(at(0), bytes(4), Advice::Mergeable)
        })
        .expect("mapped");
    let merge = || {
        process.on(FIRST, |_| {
            for _ in 0..3 {
                while !host.memory().merge_pages(100) {}
            }
        });
    };
    merge();
    let child = fork(&process, FIRST);
    let old = frame_of(&process, 0);
    assert_eq!(host.frames().kind(old), FrameKind::Merged);
    assert_eq!(move_all(&process, 1, 1), Ok(Moved::To(1)));
    let frame = frame_of(&process, 0);
    for page in 0..3 {
        assert_eq!(frame_of(&process, page), frame);
        assert_eq!(frame_of(&child, page), frame);
    }
    // A page whose contents become equal to the KSM page later is merged with it.
    write(&process, FIRST, 3, 7).expect("writable");
    merge();
    assert_eq!(frame_of(&process, 3), frame);
    assert_eq!(host.memory().merging().counts(host.memory()).shared, 1);
    write(&child, SECOND, 0, 8).expect("writable");
    assert_eq!(read(&process, FIRST, 0), Ok(7));
    assert_sound(&host, &[&process, &child]);
    drop((process, child));
    host.memory().merging().shed(host.memory());
    assert_eq!(host.frames().used_by(FrameKind::Merged), 0);
}

#[test]
fn a_merged_page_is_found_where_nobody_recorded_it() {
    let host = two_nodes(512);
    let process = program(&host, 4, READ_WRITE);
    for page in 0..4 {
        write(&process, FIRST, page, 7).expect("writable");
    }
    let mergeable = |space: &memwright::AddressSpace<SimulatedMachine>| {
        space.advise(at(0), bytes(4), Advice::Mergeable)
    };
    process.on(FIRST, mergeable).expect("mapped");
    process.on(FIRST, |_| {
        for _ in 0..3 {
            while !host.memory().merge_pages(100) {}
        }
    });
    // Two of the recorded mappings of the KSM page become stale: one page is written, and one is unmapped. Two mappings
    // are not recorded: that of the child, and that of the page that the child moves.
    let (child, other) = (fork(&process, FIRST), fork(&process, FIRST));
    write(&process, FIRST, 1, 8).expect("writable");
    unmap(&process, FIRST, 2, 1);
    move_page(&child, SECOND, 3, 40);
    for (round, node) in [1, 0, 1].into_iter().enumerate() {
        assert_eq!(move_all(&process, 0, node), Ok(Moved::To(node)), "{round}");
        let frame = frame_of(&process, 0);
        assert_eq!(frame_of(&process, 3), frame);
        for page in [0, 1, 2, 40] {
            assert_eq!(frame_of(&child, page), frame, "{round}: {page}");
        }
        for page in 0..4 {
            assert_eq!(frame_of(&other, page), frame, "{round}: {page}");
        }
        assert_eq!(node_of(&child, 40), Ok(node));
    }
    assert_sound(&host, &[&process, &child, &other]);
    // The records of a process that has exited do not affect the other processes.
    drop(process);
    assert_eq!(move_all(&child, 40, 0), Ok(Moved::To(0)));
    assert_eq!(frame_of(&other, 3), frame_of(&child, 40));
    assert_sound(&host, &[&child, &other]);
    drop((child, other));
    host.memory().merging().shed(host.memory());
    assert_eq!(host.frames().used_by(FrameKind::Merged), 0);
}

#[test]
fn a_huge_page_moves_for_all_as_one() {
    let host = Host::boot(MachineOptions {
        frames: 8192,
        nodes: 2,
        ..MachineOptions::default()
    });
    let parent = program(&host, FIRST_HUGE + HUGE, READ_WRITE);
    parent
        .on(FIRST, |space| {
            space.advise(at(FIRST_HUGE), bytes(HUGE), Advice::Huge)
        })
        .expect("mapped");
    write(&parent, FIRST, FIRST_HUGE + 3, 7).expect("writable");
    let child = fork(&parent, FIRST);
    assert!(host.frames().is_in_folio(frame_of(&parent, FIRST_HUGE)));
    assert_eq!(move_all(&child, FIRST_HUGE + 9, 1), Ok(Moved::To(1)));
    let head = frame_of(&parent, FIRST_HUGE);
    assert_eq!(frame_of(&child, FIRST_HUGE), head);
    assert_eq!(host.frames().node_of(head), 1);
    assert_eq!(host.frames().references_of_whole(head), Some(2));
    assert_eq!(read(&parent, FIRST, FIRST_HUGE + 3), Ok(7));
    let account = host.memory().account();
    assert_eq!(account.count(Row::PagesMigrated), HUGE);
    // The huge page does not migrate while another process maps a part of it by small entries.
    unmap(&child, SECOND, FIRST_HUGE, 1);
    assert_eq!(move_all(&parent, FIRST_HUGE, 0), Err(Unmoved::Busy));
    assert_sound(&host, &[&parent, &child]);
    drop(child);
    write(&parent, FIRST, FIRST_HUGE, 9).expect("writable");
    assert_eq!(move_all(&parent, FIRST_HUGE, 0), Ok(Moved::To(0)));
    assert_sound(&host, &[&parent]);
}

#[test]
fn a_huge_page_of_an_object_moves_with_it() {
    let host = Host::boot(MachineOptions {
        frames: 8192,
        nodes: 2,
        ..MachineOptions::default()
    });
    host.memory().frames().resize_pool(4);
    let identity = ObjectIdentity::default();
    let pooled = HugeFile::new(host.memory().clone(), HUGE_BYTES, identity, "");
    let plain = memory(&host, HUGE);
    plain.allocate(0, HUGE_BYTES).expect("room");
    for object in [Arc::new(pooled) as Arc<dyn Object<SimulatedMachine>>, plain] {
        if object.huge().is_none() {
            let limits = memwright::object::CollapseLimits {
                missing: 0,
                swapped: 0,
            };
            assert_eq!(object.collapse(0, limits), Ok(()));
        }
        let one = showing(&host, object.clone(), FIRST_HUGE, HUGE_BYTES, true);
        let other = showing(&host, object.clone(), FIRST_HUGE, HUGE_BYTES, true);
        for process in [&one, &other] {
            write(process, FIRST, FIRST_HUGE + 5, 7).expect("writable");
        }
        let old = frame_of(&one, FIRST_HUGE);
        let (from, to) = (host.frames().node_of(old), 1 - host.frames().node_of(old));
        assert_eq!(move_all(&one, FIRST_HUGE + 5, to), Ok(Moved::To(to)));
        let head = frame_of(&other, FIRST_HUGE);
        assert_eq!(host.frames().node_of(head), to);
        assert_eq!(frame_of(&one, FIRST_HUGE), head);
        assert_eq!(host.frames().references_of_whole(head), Some(3));
        write(&one, FIRST, FIRST_HUGE + 5, 8).expect("writable");
        assert_eq!(read(&other, SECOND, FIRST_HUGE + 5), Ok(8));
        assert_eq!(move_all(&one, FIRST_HUGE, from), Ok(Moved::To(from)));
        assert_eq!(read(&other, SECOND, FIRST_HUGE + 5), Ok(8));
        assert_sound(&host, &[&one, &other]);
    }
    let pool = host.frames().pool();
    assert_eq!((pool.total, pool.free), (4, 4));
}

#[test]
fn a_policy_of_shared_memory_is_everybodys() {
    let host = two_nodes(512);
    let object = memory(&host, 8);
    let one = showing(&host, object.clone(), 0, bytes(8), true);
    let other = showing(&host, object.clone(), 40, bytes(8), true);
    let policy = |mode, nodes| PlacePolicy {
        mode,
        nodes: NodeSet::from_bits(nodes),
        named: None,
        flags: 0,
        home: None,
    };
    let bound = policy(PlaceMode::Bind, 2);
    let bind = |process: &Process, page, pages, policy| {
        process.on(FIRST, |space| {
            space.numa().bind(at(page), bytes(pages), policy, false)
        })
    };
    assert_eq!(bind(&one, 2, 2, Some(bound)), Ok(()));
    let dealt = policy(PlaceMode::Interleave, 3);
    assert_eq!(bind(&other, 44, 4, Some(dealt)), Ok(()));
    // `placement_at` returns the policy that applies, even if another process has set it.
    assert_eq!(other.space().numa().placement_at(at(42)), Some(Some(bound)));
    assert_eq!(one.space().numa().placement_at(at(5)), Some(Some(dealt)));
    assert_eq!(one.space().numa().placement_at(at(1)), Some(None));
    for page in 0..8 {
        let who = if page % 3 == 0 { &one } else { &other };
        let at = if page % 3 == 0 { page } else { page + 40 };
        write(who, FIRST, at, 1).expect("writable");
    }
    let nodes = [0, 1, 2, 3, 4, 5, 6, 7].map(|page| {
        read(&one, FIRST, page).expect("there");
        node_of(&one, page).expect("there")
    });
    assert_eq!(nodes, [0, 0, 1, 1, 0, 1, 0, 1]);
    // The walk reports the node that the object's policy selects for each page. While the walk queries the object, it
    // holds no page-table lock.
    let mut wanted = Vec::new();
    one.on(FIRST, |space| {
        let range = PageRange::new(START, START.add(8));
        space.numa().placed_pages(range, 0, &mut |_, node, choice| {
            wanted.push(choice.map_or(node, |choice| choice.first.iter().next().expect("a node")));
            true
        });
    });
    assert_eq!(wanted, nodes);
    // A system call also allocates pages according to the policy.
    object.punch(bytes(2), bytes(3)).expect("in memory");
    assert_eq!(object.write_at(bytes(2), &[1]), Ok(1));
    assert_eq!(read(&one, FIRST, 2), Ok(1));
    assert_eq!(node_of(&one, 2), Ok(1));
    // A policy that one process resets is reset for all processes.
    assert_eq!(bind(&other, 40, 8, None), Ok(()));
    assert_eq!(one.space().numa().placement_at(at(2)), Some(None));
    assert_sound(&host, &[&one, &other]);
}

/// The state of a case with two processes that map the same page.
struct World {
    host: Arc<Host>,
    used: u64,
    processes: [Process; 2],
    object: Option<Arc<Shmem<SimulatedMachine>>>,
    /// A frame to which a call holds a reference.
    held: Mutex<Option<Frame>>,
}

impl World {
    /// Creates a page of shared memory to which both processes have written.
    fn shared() -> Self {
        let host = two_nodes(256);
        let used = host.frames().used();
        let object = memory(&host, 1);
        let process = || showing(&host, object.clone(), 0, bytes(1), true);
        let processes = [process(), process()];
        for (process, cpu) in processes.iter().zip([FIRST, SECOND]) {
            write(process, cpu, 0, 1).expect("writable");
        }
        Self {
            host,
            used,
            processes,
            object: Some(object),
            held: Mutex::new(None),
        }
    }

    /// Keeps a reference to a frame until the end of the run.
    fn hold(&self, frame: Frame) {
        *self.held.lock().expect("no panic") = Some(frame);
    }

    /// Creates a page that a parent and its child share copy-on-write.
    fn forked() -> Self {
        let host = two_nodes(256);
        let used = host.frames().used();
        let parent = program(&host, 1, READ_WRITE);
        write(&parent, FIRST, 0, 1).expect("writable");
        let child = fork(&parent, FIRST);
        assert_eq!(read(&child, SECOND, 0), Ok(1));
        Self {
            host,
            used,
            processes: [parent, child],
            object: None,
            held: Mutex::new(None),
        }
    }

    fn write(&self, value: u8) {
        write(&self.processes[1], SECOND, 0, value).expect("writable");
    }

    fn end(self, expected: [u8; 2]) -> Result<(), String> {
        let stale = self.host.machine().audit();
        if !stale.is_empty() {
            return Err(format!("stale: {stale:?}"));
        }
        for (process, expected) in self.processes.iter().zip(expected) {
            for cpu in [FIRST, SECOND] {
                let seen = read(process, cpu, 0);
                if seen != Ok(expected) {
                    return Err(format!("{seen:?}, not {expected}"));
                }
            }
            let consistent = process.space().audit();
            consistent.map_err(|finding| format!("audit: {finding:?}"))?;
        }
        drop(self.processes);
        drop(self.object);
        check_end(&self.host, self.used)
    }
}

impl Raced for World {
    fn host(&self) -> &Host {
        &self.host
    }
}

/// Migrates the page. A concurrent fault can make the migration fail with `Unmoved::Busy`.
fn may_move(world: &World, cpu: CpuId) {
    let process = &world.processes[usize::from(cpu == SECOND)];
    let moved = migrate_as(process, cpu, 0, 1, Moving::All);
    assert!(
        matches!(
            moved,
            Ok(Moved::To(1) | Moved::Stays(1)) | Err(Unmoved::Busy)
        ),
        "{moved:?}"
    );
}

/// A page of shared memory migrates while another process stores to it: the store is in the final frame of the page.
#[test]
fn migration_of_shared_memory_and_write() {
    explore(
        &World::shared,
        &[
            |world| may_move(world, FIRST),
            |world| {
                world.write(2);
                world.write(3);
            },
        ],
        |world| {
            assert_eq!(node_of(&world.processes[0], 0), Ok(1));
            world.end([3, 3])
        },
    );
}

/// Like `migration_of_shared_memory_and_write`, but the other process has not mapped the page yet.
#[test]
fn migration_of_shared_memory_and_fault() {
    explore(
        &|| {
            let world = World::shared();
            unmap(&world.processes[1], SECOND, 0, 1);
            let object = world.object.clone().expect("shared");
            let request = MapRequest::object(object, 0, bytes(1), READ_WRITE, true);
            map(&world.processes[1], request, 0);
            world
        },
        &[
            |world| may_move(world, FIRST),
            |world| {
                world.write(2);
            },
        ],
        |world| world.end([2, 2]),
    );
}

/// One process zaps its entry for the page but keeps its area, and a call holds a reference to the page. The number of
/// references then equals the number of mappings that were found, but the page must not migrate, because one of the
/// references is not a mapping.
#[test]
fn migration_of_shared_memory_and_a_reference_in_place_of_an_entry() {
    explore(
        &|| {
            let world = World::shared();
            let held = world.object.as_ref().expect("shared").frame_for(0, false);
            world.hold(held.expect("a page").expect("a page"));
            world
        },
        &[
            |world| {
                let moved = migrate_as(&world.processes[0], FIRST, 0, 1, Moving::All);
                assert_eq!(moved, Err(Unmoved::Busy));
            },
            |world| {
                let drop_page = |space: &memwright::AddressSpace<SimulatedMachine>| {
                    space.advise(at(0), bytes(1), Advice::DontNeed)
                };
                world.processes[1].on(SECOND, drop_page).expect("mapped");
            },
        ],
        |world| {
            let held = world.held.lock().expect("no panic").take().expect("held");
            assert_eq!(frame_of(&world.processes[0], 0), held);
            drop(world.host.frames().adopt(held));
            write(&world.processes[0], FIRST, 0, 4).expect("writable");
            world.end([4, 4])
        },
    );
}

/// A store after a fork is visible only to the process that made it, on whichever node the page is.
#[test]
fn migration_of_a_page_shared_by_fork_and_write() {
    explore(
        &World::forked,
        &[
            |world| may_move(world, FIRST),
            |world| {
                world.write(2);
                world.write(3);
            },
        ],
        |world| world.end([1, 3]),
    );
}

/// Both processes migrate the page, and one of them then writes to it by a system call: both processes read the value.
#[test]
fn two_migrations_and_a_call() {
    explore(
        &World::shared,
        &[
            |world| {
                may_move(world, FIRST);
                let object = world.object.as_ref().expect("shared");
                assert_eq!(object.write_at(0, &[5]), Ok(1));
            },
            |world| may_move(world, SECOND),
        ],
        |world| world.end([5, 5]),
    );
}

#[test]
fn a_page_that_moved_for_all_keeps_what_each_may_do() {
    let host = two_nodes(512);
    let object = memory(&host, 1);
    let one = showing(&host, object.clone(), 0, bytes(1), true);
    let other = showing(&host, object, 0, bytes(1), true);
    for process in [&one, &other] {
        write(process, FIRST, 0, 7).expect("writable");
    }
    protect(&other, FIRST, 0, 1, READ);
    assert_eq!(move_all(&one, 0, 1), Ok(Moved::To(1)));
    assert!(bits_of(&one, 0).contains(Bits::WRITE | Bits::DIRTY));
    assert!(!bits_of(&other, 0).contains(Bits::WRITE));
    assert!(write(&other, SECOND, 0, 8).is_err());
    write(&one, SECOND, 0, 9).expect("writable");
    assert_eq!(read(&other, SECOND, 0), Ok(9));
}
